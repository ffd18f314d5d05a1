"""How are a dealer's credentials shown, reset, disabled and enabled? (specification 2.1)"""

from datetime import timedelta

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import MasterKeys, credential_context
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.random_text import base62
from dealer_server.store.audit.audit_log import record_act

OVERLAP = timedelta(hours=24)


async def view_secret(database: Database, master_keys: MasterKeys, app_key: str, author: str) -> str:
    """The current AppSecret; the audit log records who viewed it. Raises OperatorError."""

    async def work(connection: Connection) -> str:
        credential = await store.tenant.sealed_secret(connection, app_key)
        if credential is None:
            raise OperatorError(f"no credential {app_key!r}")
        tenant_id, version, sealed = credential
        await record_act(connection, author, "credentials.view", tenant_id, {"appKey": app_key})
        return master_keys.open(sealed, credential_context(tenant_id, app_key, version)).decode()

    return await database.run(work)


async def reset_secret(
    database: Database,
    master_keys: MasterKeys,
    app_key: str,
    author: str,
    clock: Clock,
    overlap: timedelta = OVERLAP,
) -> str:
    """The new AppSecret. The old one stays valid for `overlap`. Raises OperatorError."""

    async def work(connection: Connection) -> str:
        credential = await store.tenant.lock_credential(connection, app_key)
        if credential is None:
            raise OperatorError(f"no credential {app_key!r}")
        tenant_id, version = credential
        secret = f"{app_key[:8].replace('ak', 'sk', 1)}{base62(40)}"
        sealed = master_keys.seal(secret.encode(), credential_context(tenant_id, app_key, version + 1))
        until = clock() + overlap
        assert await store.tenant.reset_secret(connection, app_key, tenant_id, version + 1, sealed, until)
        await store.tenant.touch(connection, tenant_id)
        before, after = {"secretVersion": version}, {"secretVersion": version + 1, "previousUntil": str(until)}
        await record_change(connection, author, "credentials.reset", tenant_id, {"appKey": app_key}, before, after)
        return secret

    return await database.run(work)


async def disable_credential(database: Database, app_key: str, author: str) -> None:
    """From now on every call with it is refused. Raises OperatorError."""
    await _set_status(database, app_key, "DISABLED", "credentials.disable", author)


async def enable_credential(database: Database, app_key: str, author: str) -> None:
    """Calls with it are accepted again, with the same AppSecret. Raises OperatorError."""
    await _set_status(database, app_key, "ACTIVE", "credentials.enable", author)


async def _set_status(database: Database, app_key: str, status: str, action: str, author: str) -> None:
    """Raises OperatorError."""

    async def work(connection: Connection) -> None:
        credential = await store.tenant.set_credential_status(connection, app_key, status)
        if credential is None:
            raise OperatorError(f"no credential {app_key!r}")
        tenant_id, before = credential
        await store.tenant.touch(connection, tenant_id)
        detail = {"appKey": app_key}
        await record_change(connection, author, action, tenant_id, detail, {"status": before}, {"status": status})

    await database.run(work)
