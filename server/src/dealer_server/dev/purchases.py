"""How did the made-up suppliers make the eSIMs of made-up orders? Mostly the first did; now and then it had none left,
and the second did; of orders that failed, neither.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

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


class _Attempt(NamedTuple):
    """To buy one eSIM at one supplier; `position` counts those of the eSIM from 0."""

    tenant_id: int
    past: PastOrder
    profile: Profile
    package: Package
    position: int
    by: Wholesaler

    @property
    def begun(self) -> datetime:
        return identity.created_at(self.past.order.order_id) + timedelta(milliseconds=40 + 160 * self.position)


def purchases(tenant_id: int, orders: Sequence[PastOrder], packages: Mapping[str, Package]) -> Iterator[PastPurchase]:
    for past in orders:
        package, chance = packages[past.order.items[0].package_code], Random(f"purchases of {past.order.order_id}")
        none_left = past.delivered_at is None or chance.random() < NONE_LEFT
        for profile in past.order.profiles:
            first = _Attempt(tenant_id, past, profile, package, 0, FIRST)
            second = first._replace(position=1, by=SECOND)
            if none_left:
                yield _refused(first, chance)
            if past.delivered_at is not None:
                yield _made(second if none_left else first, past.delivered_at, chance)
            else:
                yield _refused(second, chance)


def _refused(attempt: _Attempt, chance: Random) -> PastPurchase:
    call = PastCall("", attempt.begun, attempt.begun + _took(chance), REFUSED)
    return _purchase(attempt, [call])._replace(reason=REFUSAL)


def _made(attempt: _Attempt, delivered_at: datetime, chance: Random) -> PastPurchase:
    asked_at = max(attempt.begun + _took(chance), delivered_at - _took(chance))
    calls = [
        PastCall("", attempt.begun, attempt.begun + _took(chance), "PENDING"),
        PastCall("QUERY", asked_at, max(asked_at, delivered_at), "DONE"),
    ]
    reference = wholesalers.past_order_no(attempt.profile.profile_id)
    return _purchase(attempt, calls)._replace(state="DONE", reference=reference, iccid=attempt.profile.iccid)


def _purchase(attempt: _Attempt, calls: Sequence[PastCall]) -> PastPurchase:
    order_id, profile_id, package = attempt.past.order.order_id, attempt.profile.profile_id, attempt.package
    return PastPurchase(
        tenant_id=attempt.tenant_id,
        profile_id=profile_id,
        position=attempt.position,
        order_id=order_id,
        unit_key=unit_key(order_id, 0, profile_id - order_id + 1),
        supplier=attempt.by.code,
        sku=package.package_code,
        cost=attempt.by.cost(package),
        currency=package.currency,
        state="REJECTED",
        reference=None,
        iccid=None,
        reason=None,
        calls=calls,
    )


def _took(chance: Random) -> timedelta:
    return timedelta(seconds=0.08 * chance.lognormvariate(0, 0.4))
