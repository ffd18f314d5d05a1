"""Putting packages on sale: an operator's CSV, or the generated catalogue of a new test environment."""

from collections.abc import Sequence

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.rules.catalogue import importing
from dealer_server.rules.catalogue.package import SUPPLIED_FIELDS, Package
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.suppliers.purchase import Hop


def made_by(package: Package, route: Sequence[Hop]) -> Package:
    """The package as its route has it made: by the first, or by the second where that is a stock which is short."""
    if not route:
        return package
    fallback = route[1].supplier if route[0].supplier == STOCK and len(route) > 1 else ""
    return msgspec.structs.replace(package, supplier=route[0].supplier, fallback=fallback)


class Imported(msgspec.Struct, frozen=True):
    """What an import did: all packages or, where there are faults, none. `changed` counts new and different ones."""

    packages: int
    changed: int
    faults: tuple[importing.Fault, ...]


async def import_csv(database: Database, text: str, author: str, clock: Clock) -> Imported:
    """All or nothing."""
    async with database.connection() as connection:
        known = [*SUPPLIED_FIELDS, *await store.supplier.codes(connection)]
    read = importing.read(text, known)
    if read.faults:
        return Imported(len(read.packages), 0, read.faults)
    return Imported(len(read.packages), await put(database, read.packages, author, clock), ())


async def put(database: Database, packages: Sequence[Package], author: str, clock: Clock) -> int:
    """Writes packages and lets every process know; gives how many are new or different."""

    async def work(connection: Connection) -> int:
        await store.tenant.touch_catalogue(connection)
        routes = await store.purchase.routes(connection, [package.package_code for package in packages])
        routed = [made_by(package, routes.get(package.package_code, [])) for package in packages]
        changed = await store.package.put(connection, routed, clock())
        detail = {"packages": len(packages), "changed": changed}
        await store.audit_log.record_act(connection, author, "catalog.import", None, detail)
        return changed

    return await database.run(work)
