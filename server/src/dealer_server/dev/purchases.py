"""How did the made-up suppliers make the eSIMs of made-up orders? Mostly the first did; now and then it had none left,
and the second did; of orders that failed, neither.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random

from dealer_server.dev import wholesalers
from dealer_server.dev.wholesalers import FIRST, SECOND, Wholesaler
from dealer_server.fulfillment.supplier_calls import unit_key
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Profile
from dealer_server.store.past.orders import PastOrder
from dealer_server.store.past.purchases import PastCall, PastPurchase

NONE_LEFT = 0.04
"""Of all orders."""
REFUSED, REFUSAL = "REJECTED OUT_OF_STOCK", "OUT_OF_STOCK: 200011 Insufficient profiles"


def purchases(tenant_id: int, orders: Sequence[PastOrder], packages: Mapping[str, Package]) -> Iterator[PastPurchase]:
    for past in orders:
        package, chance = packages[past.order.items[0].package_code], Random(f"purchases of {past.order.order_id}")
        none_left = past.delivered_at is None or chance.random() < NONE_LEFT
        for profile in past.order.profiles:
            if none_left:
                yield _refused(tenant_id, past, profile, package, 0, FIRST, chance)
            if past.delivered_at is not None:
                made_by = SECOND if none_left else FIRST
                yield _made(tenant_id, past, profile, package, int(none_left), made_by, past.delivered_at, chance)
            else:
                yield _refused(tenant_id, past, profile, package, 1, SECOND, chance)


def _refused(
    tenant_id: int, past: PastOrder, profile: Profile, package: Package, position: int, by: Wholesaler, chance: Random
) -> PastPurchase:
    begun = identity.created_at(past.order.order_id) + timedelta(milliseconds=40 + 160 * position)
    call = PastCall("", begun, begun + _took(chance), REFUSED)
    return _purchase(tenant_id, past, profile, package, position, by, [call])._replace(reason=REFUSAL)


def _made(
    tenant_id: int,
    past: PastOrder,
    profile: Profile,
    package: Package,
    position: int,
    by: Wholesaler,
    delivered_at: datetime,
    chance: Random,
) -> PastPurchase:
    begun = identity.created_at(past.order.order_id) + timedelta(milliseconds=40 + 160 * position)
    asked_at = max(begun + _took(chance), delivered_at - _took(chance))
    calls = [
        PastCall("", begun, begun + _took(chance), "PENDING"),
        PastCall("QUERY", asked_at, max(asked_at, delivered_at), "DONE"),
    ]
    reference = wholesalers.past_order_no(profile.profile_id)
    return _purchase(tenant_id, past, profile, package, position, by, calls)._replace(
        state="DONE", reference=reference, iccid=profile.iccid
    )


def _purchase(
    tenant_id: int,
    past: PastOrder,
    profile: Profile,
    package: Package,
    position: int,
    by: Wholesaler,
    calls: Sequence[PastCall],
) -> PastPurchase:
    order_id = past.order.order_id
    return PastPurchase(
        tenant_id=tenant_id,
        profile_id=profile.profile_id,
        position=position,
        order_id=order_id,
        unit_key=unit_key(order_id, 0, profile.profile_id - order_id + 1),
        supplier=by.code,
        sku=package.package_code,
        cost=by.cost(package),
        currency=package.currency,
        state="REJECTED",
        reference=None,
        iccid=None,
        reason=None,
        calls=calls,
    )


def _took(chance: Random) -> timedelta:
    return timedelta(seconds=0.08 * chance.lognormvariate(0, 0.4))
