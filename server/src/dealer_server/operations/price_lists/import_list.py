"""How do the exceptions of a price list get out of an operator's CSV file? Looked at first, then written as seen."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations import versions
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.catalogue.below_cost import Loss
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.price_lists import change, show
from dealer_server.rules.catalogue.importing import Fault
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.orders.pricing import OwnPrice
from dealer_server.rules.price_lists import list_file
from dealer_server.rules.price_lists.list_file import Line
from dealer_server.rules.price_lists.price_list import PriceListTerms


class ListPlan(NamedTuple):
    """What a file would change: each package before and after. With `faults` it changes nothing; `losses`: prices below
    the cost, which are to be confirmed. `packages` counts those of the file."""

    packages: int
    changes: Sequence[tuple[Line, Line]]
    faults: Sequence[Fault]
    losses: Sequence[Loss]
    version: str


class _Read(NamedTuple):
    plan: ListPlan
    packages: Mapping[str, Package]
    new: Mapping[str, int | None]
    gone: Sequence[str]


async def plan_list(connection: Connection, terms: PriceListTerms, text: str) -> ListPlan:
    return (await _read(connection, terms, text)).plan


async def import_list(
    database: Database,
    price_list_id: int,
    text: str,
    author: str,
    clock: Clock,
    *,
    version: str | None = None,
    allow_below_cost: bool = False,
) -> ListPlan:
    """Writes what a file changes, all or nothing. `version`: of the plan that was looked at; None: of none. Raises
    OperatorError where the plan is another one now, and BelowCost."""

    async def work(connection: Connection) -> ListPlan:
        await store.tenant.touch_catalogue(connection)
        before = await change.locked(connection, price_list_id)
        plan, packages, new, gone = await _read(connection, before, text)
        if plan.faults:
            return plan
        if version not in (None, plan.version):
            raise OperatorError("The prices changed since the preview: nothing was imported. Preview the file again")
        acted = await change.write_exceptions(connection, before, packages, new, gone, clock)
        await change.finish(connection, before, allow_below_cost, clock)
        detail = {"priceListId": price_list_id, "name": before.name, "packages": plan.packages}
        was, now = acted["before"], acted["after"]
        assert isinstance(was, Mapping) and isinstance(now, Mapping)
        await record_change(connection, author, "price_list.import", None, detail, was, now)
        return plan

    return await database.run(work)


async def _read(connection: Connection, terms: PriceListTerms, text: str) -> _Read:
    content = list_file.read(text)
    packages = {package.package_code: package for package in await store.package.some(connection, content.cells.keys())}
    faults, new, gone = list(content.faults), dict[str, int | None](), list[str]()
    for code, (line, cell) in content.cells.items():
        package = packages.get(code)
        if package is None:
            faults.append(Fault(line, "packageCode", f"there is no package {code[:64]}"))
        elif cell:
            try:
                new[code] = list_file.parse(cell, package)
            except ValueError as error:
                faults.append(Fault(line, "exception", f"{error}, not {cell[:64]!r}"))
        elif code in terms.exceptions:
            gone.append(code)
    costs = await store.price_list.costs(connection, packages.keys())
    kept = {code: price for code, price in terms.exceptions.items() if code not in gone}
    after = change.replaced(terms, {**kept, **{code: OwnPrice(price, terms.updated_at) for code, price in new.items()}})
    both = list(packages.values())
    pairs = zip(show.lines(both, costs, terms), show.lines(both, costs, after), strict=True)
    changes = [(was, now) for was, now in pairs if (was.excepted, was.price) != (now.excepted, now.price)]
    losses = change.new_losses(both, costs, terms, after)
    version = versions.fingerprint([changes, losses])
    ordered = sorted(faults, key=lambda fault: fault.line)
    return _Read(ListPlan(len(content.cells), changes, ordered, losses, version), packages, new, gone)
