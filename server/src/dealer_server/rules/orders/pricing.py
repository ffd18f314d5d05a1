"""What does a package cost this dealer? Rounded half-up, without currency conversion (specification 2.6)."""

import hashlib
from collections.abc import Mapping
from datetime import datetime

import msgspec

from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money


class OwnPrice(msgspec.Struct, frozen=True):
    """A dealer's own price of one package; None: not on sale for this dealer."""

    price: int | None
    updated_at: datetime


class PriceList(msgspec.Struct, frozen=True, cache_hash=True):
    """A dealer's prices: its own for single packages, and for all others those of its price list or, where it has none,
    a markup on the default price. `markup_updated_at`: when the markup or the assignment of a list changed."""

    currency: str
    markup_basis_points: int = 0
    markup_updated_at: datetime | None = None
    single: tuple[tuple[str, OwnPrice], ...] = ()
    price_list_id: int | None = None

    @property
    def fingerprint(self) -> str:
        """12 hex digits that change with the prices."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=6).hexdigest()


def price(
    package: Package, prices: PriceList, single: Mapping[str, OwnPrice], listed: Mapping[str, OwnPrice] | None
) -> int | None:
    """The unit price in ten-thousandths, or None where the package is not on sale for this dealer. `single`: the
    dealer's own prices; `listed`: what packages cost on its price list (rules/catalogue/price_list.py), None without
    one. A package that the list does not know is not sold."""
    return agreed(package, prices, single, listed) if package.status == "ON_SALE" else None


def agreed(
    package: Package, prices: PriceList, single: Mapping[str, OwnPrice], listed: Mapping[str, OwnPrice] | None
) -> int | None:
    """The same, whether or not the package is on sale for anybody."""
    if package.currency != prices.currency:
        return None
    own = single.get(package.package_code)
    if own is not None:
        return own.price
    if listed is not None:
        on_list = listed.get(package.package_code)
        return None if on_list is None else on_list.price
    if not prices.markup_basis_points:
        return package.price
    return money.marked_up(package.price, prices.markup_basis_points, package.currency)


def updated_at(
    package: Package,
    changed: datetime,
    prices: PriceList,
    single: Mapping[str, OwnPrice],
    listed: Mapping[str, OwnPrice] | None,
) -> datetime:
    """When the package or this dealer's price of it last changed; dealers follow it with updatedSince."""
    own = single.get(package.package_code)
    if own is not None:
        return max(changed, own.updated_at)
    on_list = listed.get(package.package_code) if listed is not None else None
    times = (changed, prices.markup_updated_at, on_list.updated_at if on_list is not None else None)
    return max(time for time in times if time is not None)
