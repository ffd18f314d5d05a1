"""How do packages get into the catalogue? From an operator's CSV file (docs/guides/catalog-import.md)."""

from collections.abc import Sequence

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.rules.catalogue import importing
from dealer_server.rules.catalogue.package import SUPPLIED_FIELDS, Package
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.suppliers.purchase import Hop


def with_route(package: Package, route: Sequence[Hop]) -> Package:
    """The package with the suppliers of its route: the first, and the second as fallback where the first is stock."""
    if not route:
        return package
    fallback = route[1].supplier if route[0].supplier == STOCK and len(route) > 1 else ""
    return msgspec.structs.replace(package, supplier=route[0].supplier, fallback=fallback)


class ImportResult(msgspec.Struct, frozen=True):
    """All packages of a file are imported or, where there are faults, none. `changed` counts new and different ones."""

    packages: int
    changed: int
    faults: tuple[importing.Fault, ...]


async def import_csv(database: Database, text: str, author: str, clock: Clock) -> ImportResult:
    async with database.connection() as connection:
        suppliers = [*SUPPLIED_FIELDS, *await store.supplier.codes(connection)]
    content = importing.read(text, suppliers)
    if content.faults:
        return ImportResult(len(content.packages), 0, content.faults)
    return ImportResult(len(content.packages), await put_packages(database, content.packages, author, clock), ())


async def put_packages(database: Database, packages: Sequence[Package], author: str, clock: Clock) -> int:
    """Writes packages and lets every process reload the catalogue; gives how many are new or different."""

    async def work(connection: Connection) -> int:
        await store.tenant.touch_catalogue(connection)
        routes = await store.purchase.routes(connection, [package.package_code for package in packages])
        routed = [with_route(package, routes.get(package.package_code, [])) for package in packages]
        changed = await store.package.put(connection, routed, clock())
        await record_act(connection, author, "catalog.import", None, {"packages": len(packages), "changed": changed})
        return changed

    return await database.run(work)
