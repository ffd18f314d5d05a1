"""Which dealers are told of changed prices? Each whose price of a package changed, in the transaction of the change."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.notices import prices
from dealer_server.rules.notices.notice import NewNotice
from dealer_server.rules.orders.pricing import OwnPrice, PriceList
from dealer_server.rules.price_lists import price_list
from dealer_server.rules.price_lists.price_list import Cost, PriceListTerms
from dealer_server.store.notices import outbox

Book = Mapping[int, Mapping[str, OwnPrice]]
"""What packages cost on each price list, by its id."""


async def tell_dealer(
    connection: Connection, tenant_id: int, before: PriceList, after: PriceList, now: datetime
) -> None:
    """The terms of a dealer changed from `before` to `after`."""
    packages = await store.package.some(connection, _touched(before, after))
    lists = [number for number in {before.price_list_id, after.price_list_id} if number is not None]
    costs = await store.price_list.costs(connection) if lists else {}
    book = _book(packages, costs, await store.price_list.load(connection, lists) if lists else [])
    pairs = [(package, package) for package in packages]
    found = prices.changes(pairs, before, after, _listed(book, before), _listed(book, after))
    if found:
        data = prices.data(found, after.currency)
        await outbox.add(connection, [NewNotice(tenant_id, "PRICE_CHANGED", f"terms:{now.isoformat()}", data)], now)


async def tell_all(
    connection: Connection,
    before: Sequence[Package],
    after: Sequence[Package],
    now: datetime,
    costs_before: Mapping[str, Cost] | None = None,
) -> None:
    """Packages were written. `before`: as they stood; those that are new changed no price. `costs_before`: what they
    cost, where their routes were written too."""
    known = {package.package_code: package for package in before}
    costs = await store.price_list.costs(connection, [package.package_code for package in after])
    old_costs = costs if costs_before is None else costs_before
    pairs = [
        (old, new)
        for new in after
        if (old := known.get(new.package_code)) is not None
        and (old.price != new.price or _amount(old, old_costs) != _amount(new, costs))
    ]
    if not pairs:
        return
    lists = await store.price_list.load(connection)
    books = _book([old for old, _ in pairs], old_costs, lists), _book([new for _, new in pairs], costs, lists)
    terms = await store.tenant.active_prices(connection, [new.package_code for _, new in pairs])
    await _tell(connection, pairs, terms, *books, f"catalogue:{now.isoformat()}", now)


async def tell_list(
    connection: Connection, before: PriceListTerms, after: PriceListTerms, packages: Sequence[Package], now: datetime
) -> None:
    """A price list changed. `packages`: those whose price on it may differ."""
    number, costs = after.price_list_id, await store.price_list.costs(connection)
    books = _book(packages, costs, [before]), _book(packages, costs, [after])
    pairs = [
        (package, package)
        for package in packages
        if books[0][number][package.package_code].price != books[1][number][package.package_code].price
    ]
    if pairs:
        terms = await store.tenant.active_prices(connection, [package.package_code for package, _ in pairs], number)
        await _tell(connection, pairs, terms, *books, f"list:{now.isoformat()}", now)


async def _tell(
    connection: Connection,
    pairs: Sequence[tuple[Package, Package]],
    dealers: Mapping[int, PriceList],
    before: Book,
    after: Book,
    fact: str,
    now: datetime,
) -> None:
    """Dealers with the same terms have the same changes: they are worked out once."""
    told, known = list[NewNotice](), dict[PriceList, Mapping[str, object]]()
    for tenant_id, terms in dealers.items():
        alike = msgspec.structs.replace(terms, markup_updated_at=None)
        if alike not in known:
            found = prices.changes(pairs, terms, terms, _listed(before, terms), _listed(after, terms))
            known[alike] = prices.data(found, terms.currency) if found else {}
        if data := known[alike]:
            told.append(NewNotice(tenant_id, "PRICE_CHANGED", fact, data))
    await outbox.add(connection, told, now)


def _book(packages: Sequence[Package], costs: Mapping[str, Cost], lists: Iterable[PriceListTerms]) -> Book:
    return {terms.price_list_id: price_list.resolve(packages, costs, terms) for terms in lists}


def _listed(book: Book, terms: PriceList) -> Mapping[str, OwnPrice] | None:
    return None if terms.price_list_id is None else book.get(terms.price_list_id, {})


def _amount(package: Package, costs: Mapping[str, Cost]) -> int | None:
    return price_list.agreed_cost(package, costs.get(package.package_code))


def _touched(before: PriceList, after: PriceList) -> Collection[str] | None:
    """The packages whose price may differ; None: all may."""
    if (before.markup_basis_points, before.price_list_id) != (after.markup_basis_points, after.price_list_id):
        return None
    old, new = dict(before.single), dict(after.single)
    return [code for code in old.keys() | new.keys() if old.get(code) != new.get(code)]
