"""With what can an eSIM be recharged, and at which price? For the console; the API's answer is /package/list."""

from collections.abc import Sequence
from typing import NamedTuple

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.orders.pricing import PriceList
from dealer_server.rules.recharges import recharge
from dealer_server.store.recharges import recharge as recharges
from dealer_server.store.recharges.recharge import Target
from dealer_server.suppliers import registry


class RechargeOffer(NamedTuple):
    """A package that fits, at the dealer's price, in ten-thousandths; that of a day where it is sold for `days`.
    `queued`: it begins when the plan in use ends."""

    package: Package
    price: int
    currency: str
    days: range | None
    queued: bool


async def recharge_offers(
    connection: Connection, catalogue: Catalogue, tenant_id: int, profile_id: int
) -> list[RechargeOffer]:
    """What this eSIM can be recharged with now; nothing where it cannot be recharged at all."""
    return (await _by_profile(connection, catalogue, tenant_id, [profile_id]))[profile_id]


async def rechargeable(
    connection: Connection, catalogue: Catalogue, tenant_id: int, profile_ids: Sequence[int]
) -> set[int]:
    """Which of these eSIMs can be recharged now."""
    found = await _by_profile(connection, catalogue, tenant_id, profile_ids)
    return {profile_id for profile_id, offers in found.items() if offers}


def priced(catalogue: Catalogue, package_code: str, kind: str, prices: PriceList) -> list[tuple[Package, int]]:
    """What recharges eSIMs of a package that suppliers of this kind make, with the dealer's price."""
    base = catalogue.package(package_code)
    if base is None or not registry.caps_of(kind).recharges:
        return []
    offers = catalogue.recharging(base, prices)
    return [(offer.package, offer.price) for offer in offers if offer.price is not None]


async def _by_profile(
    connection: Connection, catalogue: Catalogue, tenant_id: int, profile_ids: Sequence[int]
) -> dict[int, list[RechargeOffer]]:
    keys = [(tenant_id, profile_id) for profile_id in profile_ids]
    targets = await recharges.targets(connection, keys)
    prices = await store.tenant.load_prices(connection, tenant_id)
    return {key[1]: _offers(catalogue, targets.get(key), prices) for key in keys}


def _offers(catalogue: Catalogue, target: Target | None, prices: PriceList) -> list[RechargeOffer]:
    base = None if target is None else catalogue.package(target.package_code)
    if target is None or base is None or recharge.refuse_state(target):
        return []
    return [
        RechargeOffer(
            package=package,
            price=price,
            currency=prices.currency,
            days=range(package.min_period_num, package.max_period_num + 1) if recharge.by_day(package, base) else None,
            queued=package.top_up_mode == "QUEUE",
        )
        for package, price in priced(catalogue, target.package_code, target.kind, prices)
    ]
