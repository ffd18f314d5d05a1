"""How is a package taken on or off sale, for every dealer?"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.catalogue.package import Package
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import packages as package_store


async def set_package_status(
    database: Database, package_codes: Sequence[str], status: Literal["ON_SALE", "OFF_SALE"], author: str, clock: Clock
) -> int:
    """Changes all packages or none; gives how many had another status. Raises OperatorError."""

    async def work(connection: Connection) -> int:
        await store.tenant.touch_catalogue(connection)
        packages = await _lock(connection, package_codes)
        changed = [msgspec.structs.replace(package, status=status) for package in packages if package.status != status]
        await store.package.put(connection, changed, clock())
        codes = [package.package_code for package in changed]
        before = {"status": "OFF_SALE" if status == "ON_SALE" else "ON_SALE"}
        detail = {"packages": codes, "before": before, "after": {"status": status}}
        await record_act(connection, author, "catalog.status", None, detail)
        return len(changed)

    return await database.run(work)


async def _lock(connection: Connection, package_codes: Sequence[str]) -> Sequence[Package]:
    """Raises OperatorError where there is no such package."""
    packages = await package_store.lock(connection, package_codes)
    if missing := set(package_codes) - packages.keys():
        raise OperatorError(f"no package {min(missing)}")
    return list(packages.values())
