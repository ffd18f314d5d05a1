"""What does a package cost the dealers of a price list, and what is left of it?

A list's exception for the package wins over its markup. Prices are rounded half-up to the currency's decimals, as every
price is (specification 2.6), and are at least its smallest amount.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money, percent
from dealer_server.rules.orders.pricing import OwnPrice

Basis = Literal["PRICE", "COST"]
LOWEST_MARKUP, HIGHEST_MARKUP = -9_999, 1_000_000
"""In hundredths of a percent."""


class Cost(NamedTuple):
    """What a package's first supplier asks for a unit, in ten-thousandths of its currency. `agreed`: as the route was
    set, which is what lists count from, and since when; `current`: as it is now."""

    agreed: int | None
    current: int | None
    currency: str
    since: datetime


class PriceListTerms(msgspec.Struct, frozen=True):
    """A price list. `basis`: what the markup (hundredths of a percent) is added to, the package's own price or its
    cost. `exceptions` by packageCode: None, not on sale. `updated_at`: when it, or what exceptions it has, changed."""

    price_list_id: int
    name: str
    basis: Basis
    markup_basis_points: int
    updated_at: datetime
    exceptions: Mapping[str, OwnPrice] = {}


def rule(basis: str, markup_basis_points: int) -> str:
    """Terms for people: Dealer price + 8 %, Cost + 20 %, Dealer price − 10 %."""
    of = "Cost" if basis == "COST" else "Dealer price"
    if not markup_basis_points:
        return of
    return f"{of} {'+' if markup_basis_points > 0 else '−'} {percent.shown(abs(markup_basis_points))}"


def price(package: Package, cost: Cost | None, terms: PriceListTerms) -> int | None:
    """The unit price in ten-thousandths, None where the list says that it is not on sale; whether the package itself
    is on sale is not asked. Over a cost that is not known in the package's currency: the package's own price."""
    exception = terms.exceptions.get(package.package_code)
    if exception is not None:
        return exception.price
    if terms.basis == "PRICE":
        return _marked_up(package.price, terms, package.currency)
    known = agreed_cost(package, cost)
    return package.price if known is None else _marked_up(known, terms, package.currency)


def resolve(packages: Iterable[Package], costs: Mapping[str, Cost], terms: PriceListTerms) -> dict[str, OwnPrice]:
    """What each package costs the dealers of a list, by packageCode, and since when."""
    return {package.package_code: _resolved(package, costs.get(package.package_code), terms) for package in packages}


def agreed_cost(package: Package, cost: Cost | None) -> int | None:
    """What lists count from, in the package's currency; None where it is not known, or is in another one."""
    return cost.agreed if cost is not None and cost.currency == package.currency else None


def current_cost(package: Package, cost: Cost | None) -> int | None:
    """What margins count from, in the package's currency; None where it is not known, or is in another one."""
    return cost.current if cost is not None and cost.currency == package.currency else None


def margin(price: int, cost: int) -> int:
    """What is left of a price, in hundredths of a percent of it; below 0 exactly where it costs more."""
    if not price:
        return -10_000 if cost else 0
    share = percent.share(price - cost, price)
    return min(share, -1) if cost > price else share


def _resolved(package: Package, cost: Cost | None, terms: PriceListTerms) -> OwnPrice:
    exception = terms.exceptions.get(package.package_code)
    if exception is not None:
        return exception
    since = max(terms.updated_at, cost.since) if terms.basis == "COST" and cost is not None else terms.updated_at
    return OwnPrice(price(package, cost, terms), since)


def _marked_up(amount: int, terms: PriceListTerms, currency: str) -> int:
    return max(money.marked_up(amount, terms.markup_basis_points, currency), money.unit(currency))
