"""How does an operator make and change a price list? Its name, its markup, its exceptions."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations import versions
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.catalogue import below_cost
from dealer_server.operations.catalogue.below_cost import Loss
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.notices import price_changes
from dealer_server.operations.tenants import parsing
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money, percent
from dealer_server.rules.price_lists import list_file, price_list
from dealer_server.rules.price_lists.price_list import HIGHEST_MARKUP, LOWEST_MARKUP, Basis, Cost, PriceListTerms
from dealer_server.store.audit.audit_log import record_act

MAX_NAME_LENGTH = 100
T = TypeVar("T")


class ListForm(NamedTuple):
    """What an operator types: `basis` PRICE or COST, `markup` in percent."""

    name: str
    basis: str
    markup: str


async def create_list(database: Database, form: ListForm, author: str, clock: Clock) -> int:
    """The id of a new list, without exceptions. Raises OperatorError."""
    name, basis, markup = _checked(form)

    async def work(connection: Connection) -> int:
        await store.tenant.touch_catalogue(connection)
        price_list_id = await store.price_list.create(connection, name, basis, markup, clock())
        if price_list_id is None:
            raise OperatorError(f"there is a price list {name!r} already", "name")
        detail = {"priceListId": price_list_id, "after": _texts(name, basis, markup)}
        await record_act(connection, author, "price_list.create", None, detail)
        return price_list_id

    return await database.run(work)


async def set_list(
    database: Database,
    price_list_id: int,
    form: ListForm,
    version: str | None,
    author: str,
    clock: Clock,
    *,
    allow_below_cost: bool = False,
) -> None:
    """`version`: of the terms that the operator saw, None: of any. Raises OperatorError, ChangedMeanwhile,
    BelowCost."""
    name, basis, markup = _checked(form)

    async def work(connection: Connection, before: PriceListTerms) -> tuple[str, Mapping[str, object]]:
        was, now = _texts(before.name, before.basis, before.markup_basis_points), _texts(name, basis, markup)
        versions.require(version, was, now)
        if await store.price_list.find(connection, name) not in (None, price_list_id):
            raise OperatorError(f"there is a price list {name!r} already", "name")
        await store.price_list.update(connection, price_list_id, name, basis, markup, clock())
        return "price_list.set", {"before": was, "after": now}

    await _change(database, price_list_id, work, author, clock, allow_below_cost)


async def set_exceptions(
    database: Database,
    price_list_id: int,
    prices: Mapping[str, str],
    author: str,
    clock: Clock,
    *,
    version: str | None = None,
    allow_below_cost: bool = False,
) -> None:
    """`prices` by packageCode: an amount, `off` (not on sale) or `list` (as the markup says). `version`: of the
    exceptions that the operator saw, None: of any. Raises OperatorError, ChangedMeanwhile, BelowCost."""

    async def work(connection: Connection, before: PriceListTerms) -> tuple[str, Mapping[str, object]]:
        packages = {package.package_code: package for package in await store.package.some(connection, prices.keys())}
        yours = {f"price {code}": "" if text == list_file.LIST else text for code, text in prices.items()}
        versions.require(version, _exception_texts(before, packages), yours)
        new = {code: _exception(code, text, packages) for code, text in prices.items() if text != list_file.LIST}
        gone = [code for code, text in prices.items() if text == list_file.LIST]
        if missing := [code for code in gone if code not in before.exceptions]:
            raise OperatorError(f"{missing[0]!r} has no exception on this list")
        return "price_list.exceptions", await write_exceptions(connection, before, packages, new, gone, clock)

    await _change(database, price_list_id, work, author, clock, allow_below_cost)


async def write_exceptions(
    connection: Connection,
    before: PriceListTerms,
    packages: Mapping[str, Package],
    new: Mapping[str, int | None],
    gone: Sequence[str],
    clock: Clock,
) -> Mapping[str, object]:
    """Writes them; gives what changed, for the audit log."""
    now = clock()
    await store.price_list.put_exceptions(connection, before.price_list_id, new, now)
    await store.price_list.remove_exceptions(connection, before.price_list_id, gone, now)
    was = {code: _price_text(before.exceptions[code].price, packages[code]) for code in [*new, *gone]
           if code in before.exceptions and code in packages}  # fmt: skip
    after = {code: _price_text(price, packages[code]) for code, price in new.items()}
    changed = [code for code in [*new, *gone] if was.get(code) != after.get(code)]
    return {
        "before": {code: was.get(code, list_file.LIST) for code in changed},
        "after": {code: after.get(code, list_file.LIST) for code in changed},
    }


async def remove_list(database: Database, price_list_id: int, author: str) -> None:
    """Raises OperatorError, also while a dealer has it."""

    async def work(connection: Connection) -> None:
        await store.tenant.touch_catalogue(connection)
        terms = await locked(connection, price_list_id)
        if dealers := await store.price_list.dealers(connection, price_list_id, 1):
            raise OperatorError(f"{dealers[0].name} has the price list: take it away from its dealers first")
        await store.price_list.remove(connection, price_list_id)
        detail = {"priceListId": price_list_id, "name": terms.name, "exceptions": len(terms.exceptions)}
        await record_act(connection, author, "price_list.remove", None, detail)

    await database.run(work)


async def locked(connection: Connection, price_list_id: int) -> PriceListTerms:
    """A list that stays locked until the transaction ends. Raises OperatorError."""
    if not await store.price_list.lock(connection, price_list_id):
        raise OperatorError(f"no price list {price_list_id}")
    [terms] = await store.price_list.load(connection, [price_list_id])
    return terms


async def finish(
    connection: Connection, before: PriceListTerms, allow_below_cost: bool, clock: Clock
) -> PriceListTerms:
    """After a list was written: asks for confirmation of prices below the cost, and tells its dealers. Raises
    BelowCost."""
    [after] = await store.price_list.load(connection, [before.price_list_id])
    packages = await store.package.some(connection, None)
    below_cost.require_confirmed(
        new_losses(packages, await store.price_list.costs(connection), before, after), allow_below_cost
    )
    await price_changes.tell_list(connection, before, after, packages, clock())
    return after


def new_losses(
    packages: Sequence[Package], costs: Mapping[str, Cost], before: PriceListTerms, after: PriceListTerms
) -> list[Loss]:
    """The prices that changed and are below the cost now."""
    return below_cost.new_losses(
        packages,
        costs,
        lambda package, cost: price_list.price(package, cost, before),
        lambda package, cost: price_list.price(package, cost, after),
    )


def list_version(terms: PriceListTerms) -> str:
    """Of the form with name, basis and markup."""
    return versions.version_of(_texts(terms.name, terms.basis, terms.markup_basis_points))


def exceptions_version(terms: PriceListTerms, packages: Sequence[Package]) -> str:
    """Of the exceptions for these packages, or that there are none."""
    return versions.version_of(_exception_texts(terms, {package.package_code: package for package in packages}))


def _exception_texts(terms: PriceListTerms, packages: Mapping[str, Package]) -> dict[str, str]:
    return {
        f"price {code}": _price_text(own.price, packages[code])
        for code, own in terms.exceptions.items()
        if code in packages
    }


async def _change(
    database: Database,
    price_list_id: int,
    write: Callable[[Connection, PriceListTerms], Coroutine[Any, Any, tuple[str, Mapping[str, object]]]],
    author: str,
    clock: Clock,
    allow_below_cost: bool,
) -> None:
    async def work(connection: Connection) -> None:
        await store.tenant.touch_catalogue(connection)
        before = await locked(connection, price_list_id)
        action, changes = await write(connection, before)
        await finish(connection, before, allow_below_cost, clock)
        detail = {"priceListId": price_list_id, "name": before.name}
        was, now = cast("Mapping[str, object]", changes["before"]), cast("Mapping[str, object]", changes["after"])
        await record_change(connection, author, action, None, detail, was, now)

    await database.run(work)


def _checked(form: ListForm) -> tuple[str, Basis, int]:
    """Raises OperatorError."""
    name = form.name.strip()
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise OperatorError(f"a price list's name has 1 to {MAX_NAME_LENGTH} characters in one line", "name")
    if form.basis not in ("PRICE", "COST"):
        raise OperatorError(f"basis is {form.basis!r}; accepted: PRICE (the package's price), COST", "basis")
    markup = parsing.basis_points(form.markup.strip() or "0")
    parsing.require_range("markup in hundredths of a percent", markup, LOWEST_MARKUP, HIGHEST_MARKUP, "markup")
    basis: Literal["PRICE", "COST"] = "PRICE" if form.basis == "PRICE" else "COST"
    return name, basis, markup


def proposed(terms: PriceListTerms, basis: str | None, markup: str | None) -> PriceListTerms:
    """The terms with another basis and markup, to see what they come to. Raises OperatorError."""
    kept = percent.number(terms.markup_basis_points)
    _, base, points = _checked(ListForm(terms.name, basis or terms.basis, kept if markup is None else markup))
    return msgspec.structs.replace(terms, basis=base, markup_basis_points=points)


def _texts(name: str, basis: str, markup_basis_points: int) -> dict[str, str]:
    return {"name": name, "basis": basis, "markup": percent.number(markup_basis_points)}


def _exception(package_code: str, text: str, packages: Mapping[str, Package]) -> int | None:
    """Raises OperatorError."""
    package = packages.get(package_code)
    if package is None:
        raise OperatorError(f"no package {package_code!r}", "package")
    try:
        return list_file.parse(text.strip(), package)
    except ValueError as error:
        raise OperatorError(f"price of {package_code} {text!r}: {error}", f"price {package_code}") from None


def _price_text(price: int | None, package: Package) -> str:
    return list_file.OFF if price is None else money.text(price, package.currency)


def replaced(before: PriceListTerms, exceptions: Mapping[str, Any]) -> PriceListTerms:
    """The list with other exceptions, to look at."""
    return msgspec.structs.replace(before, exceptions=exceptions)
