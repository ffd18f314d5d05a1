"""Which prices of a dealer have changed?"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money
from dealer_server.rules.orders.pricing import OwnPrice, PriceList, price

Listed = Mapping[str, OwnPrice] | None
"""What packages cost on a dealer's price list; None: it has none."""

MOST_LISTED = 50


class PriceChange(NamedTuple):
    """A package's price of a dealer, in ten-thousandths; None: not on sale for the dealer."""

    package: Package
    before: int | None
    after: int | None


def changes(
    pairs: Sequence[tuple[Package, Package]],
    before: PriceList,
    after: PriceList,
    listed_before: Listed = None,
    listed_after: Listed = None,
) -> list[PriceChange]:
    """Of packages as they were and as they are; taking a package off sale for all dealers is no change of its price."""
    own_before, own_after = dict(before.single), dict(after.single)
    found = []
    for old, new in pairs:
        if old.status == new.status == "ON_SALE":
            was = price(old, before, own_before, listed_before)
            change = PriceChange(new, was, price(new, after, own_after, listed_after))
            if change.before != change.after:
                found.append(change)
    return found


def data(found: Sequence[PriceChange], currency: str) -> Mapping[str, Any]:
    """The data of a notice: all are counted, the first are listed."""
    return {
        "currency": currency,
        "count": len(found),
        "packages": [
            {
                "packageCode": change.package.package_code,
                "packageName": change.package.package_name,
                **_amount("before", change.before, currency),
                **_amount("after", change.after, currency),
            }
            for change in found[:MOST_LISTED]
        ],
    }


def _amount(name: str, amount: int | None, currency: str) -> Mapping[str, str]:
    """Absent where the package is not on sale for the dealer."""
    return {} if amount is None else {name: money.text(amount, currency)}
