"""What does a package cost this dealer? (decisions 3: rounded half-up when published, no conversion)"""

from collections.abc import Mapping

import msgspec

from dealer_server.rules import money
from dealer_server.rules.catalogue.package import Package


class PriceList(msgspec.Struct, frozen=True, cache_hash=True):
    """A dealer's own prices: single ones (None: not on sale for this dealer), the rest by markup on the default."""

    currency: str
    markup_basis_points: int = 0
    single: tuple[tuple[str, int | None], ...] = ()


def price(package: Package, prices: PriceList, single: Mapping[str, int | None]) -> int | None:
    """The unit price in ten-thousandths, or None where the package is not on sale for this dealer."""
    if package.status != "ON_SALE" or package.currency != prices.currency:
        return None
    if package.package_code in single:
        return single[package.package_code]
    if not prices.markup_basis_points:
        return package.price
    return money.marked_up(package.price, prices.markup_basis_points, package.currency)
