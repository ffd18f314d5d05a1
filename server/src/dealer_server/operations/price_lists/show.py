"""What stands on a price list, beside what it costs?"""

from collections.abc import Iterable, Mapping

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.operations.catalogue.below_cost import cost_text
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.price_lists import list_file, price_list
from dealer_server.rules.price_lists.effect import Effect, effect
from dealer_server.rules.price_lists.list_file import Line
from dealer_server.rules.price_lists.price_list import Cost, PriceListTerms


async def load_list(connection: Connection, price_list_id: int) -> PriceListTerms | None:
    return next(iter(await store.price_list.load(connection, [price_list_id])), None)


async def list_named(connection: Connection, name: str) -> PriceListTerms:
    """By its name, or by its number. Raises OperatorError."""
    number = await store.price_list.find(connection, name)
    if number is None and name.isascii() and name.isdigit() and len(name) <= 18:
        number = int(name)
    terms = await load_list(connection, number) if number is not None else None
    if terms is None:
        raise OperatorError(f"no price list {name!r}")
    return terms


def lines(packages: Iterable[Package], costs: Mapping[str, Cost], terms: PriceListTerms) -> list[Line]:
    """What each package costs on a list, with what is left of it."""
    return [_line(package, costs.get(package.package_code), terms) for package in packages]


async def shown_effect(connection: Connection, packages: Iterable[Package], terms: PriceListTerms) -> Effect:
    """What these terms come to for these packages."""
    return effect(lines(packages, await store.price_list.costs(connection), terms))


async def export(connection: Connection, terms: PriceListTerms) -> str:
    """All packages, as a file for spreadsheet programs."""
    packages = await store.package.some(connection, None)
    return list_file.write(lines(packages, await store.price_list.costs(connection), terms), cost_text)


def _line(package: Package, cost: Cost | None, terms: PriceListTerms) -> Line:
    known, paid = price_list.current_cost(package, cost), price_list.price(package, cost, terms)
    margin = price_list.margin(paid, known) if paid is not None and known is not None else None
    return Line(package, known, package.package_code in terms.exceptions, paid, margin)
