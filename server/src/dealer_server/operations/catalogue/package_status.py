"""Taking packages on and off sale, for every dealer."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.tenants.tenant import OperatorError
from dealer_server.rules.catalogue.package import Package
from dealer_server.store.console import packages as console_packages


async def set_status(
    database: Database, package_codes: Sequence[str], status: Literal["ON_SALE", "OFF_SALE"], author: str, clock: Clock
) -> int:
    """All or none; how many were not so before. Processes know within a second. Raises OperatorError."""

    async def work(connection: Connection) -> int:
        await store.tenant.touch_catalogue(connection)
        packages = await _locked(connection, package_codes)
        changed = [msgspec.structs.replace(one, status=status) for one in packages if one.status != status]
        await store.package.put(connection, changed, clock())
        codes = [one.package_code for one in changed]
        detail = {"packages": codes, "after": {"status": status}}
        await store.audit_log.record_act(connection, author, "catalog.status", None, detail)
        return len(changed)

    return await database.run(work)


async def _locked(connection: Connection, package_codes: Sequence[str]) -> Sequence[Package]:
    """Raises OperatorError where one is not there."""
    found = await console_packages.lock(connection, package_codes)
    if missing := set(package_codes) - found.keys():
        raise OperatorError(f"no package {min(missing)}")
    return list(found.values())
