"""How does an operator make or change one package, by the columns of the catalogue's file?"""

from collections.abc import Mapping

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations import versions
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.catalogue import below_cost
from dealer_server.operations.catalogue.import_packages import PackageChange, losses, suppliers, with_route
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.notices import price_changes
from dealer_server.rules.catalogue import importing
from dealer_server.rules.catalogue.package import Package
from dealer_server.store.console import packages as package_store


class WrongFields(OperatorError):
    """Nothing was written. `faults`: what is wrong, by column."""

    def __init__(self, faults: Mapping[str, str]):
        self.faults = faults
        super().__init__("; ".join(f"{name} {fault}" for name, fault in faults.items()))


async def create_package(
    database: Database, cells: Mapping[str, str], author: str, clock: Clock, *, allow_below_cost: bool = False
) -> Package:
    """`cells` by column, as a file has them. Raises WrongFields, BelowCost."""

    async def work(connection: Connection) -> Package:
        await store.tenant.touch_catalogue(connection)
        package = _made(cells, await suppliers(connection), None)
        if await package_store.lock(connection, [package.package_code]):
            raise WrongFields({"packageCode": f"{package.package_code} is that of another package"})
        return await _write(connection, package, None, author, clock, allow_below_cost)

    return await database.run(work)


async def edit_package(
    database: Database,
    package_code: str,
    cells: Mapping[str, str],
    version: str | None,
    author: str,
    clock: Clock,
    *,
    allow_below_cost: bool = False,
) -> Package:
    """Columns that are not given stay as they are. `version`: of the package that the operator saw, None: of any.
    Raises OperatorError, WrongFields, ChangedMeanwhile, BelowCost."""

    async def work(connection: Connection) -> Package:
        await store.tenant.touch_catalogue(connection)
        before = (await package_store.lock(connection, [package_code])).get(package_code)
        if before is None:
            raise OperatorError(f"no package {package_code}")
        versions.require(version, importing.texts(before), {name: cell.strip() for name, cell in cells.items()})
        package = _made(cells, await suppliers(connection), before)
        return await _write(connection, package, before, author, clock, allow_below_cost)

    return await database.run(work)


def _made(cells: Mapping[str, str], codes: list[str], before: Package | None) -> Package:
    """Raises WrongFields."""
    if unknown := set(cells) - set(importing.NAMES):
        raise WrongFields(dict.fromkeys(sorted(unknown), "is no column of a package"))
    package, faults = importing.read_form(cells, codes, before)
    if package is None:
        raise WrongFields(faults)
    return package


async def _write(
    connection: Connection, package: Package, before: Package | None, author: str, clock: Clock, confirmed: bool
) -> Package:
    routes, now = await store.purchase.routes(connection, [package.package_code]), clock()
    package = with_route(package, routes.get(package.package_code, []))
    below_cost.require_confirmed(losses([PackageChange(package, before, ())], routes), confirmed)
    await store.package.put(connection, [package], now)
    await price_changes.tell_all(connection, [] if before is None else [before], [package], now)
    action = "catalog.create" if before is None else "catalog.edit"
    was = {} if before is None else importing.texts(before)
    detail = {"package": package.package_code}
    await record_change(connection, author, action, None, detail, was, importing.texts(package))
    return package
