"""How do AppKeys come about, and how are they limited, shown, reset, disabled and enabled? (specification 2.1)"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import MasterKeys, credential_context
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.random_text import base62
from dealer_server.rules.access import allowlist, scopes
from dealer_server.rules.notices.notice import NewNotice
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.notices import outbox
from dealer_server.store.tenants import credential as store
from dealer_server.store.tenants import tenant
from dealer_server.store.wallets import wallet

OVERLAP = timedelta(hours=24)
MOST_KEYS = 20
MOST_NAME_CHARACTERS = 60


class KeyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What to set of an AppKey, as typed; None leaves it. ip_allow: [] for wherever its dealer may call from."""

    name: str | None = None
    scopes: Sequence[str] | None = None
    ip_allow: Sequence[str] | None = None


class NewKey(NamedTuple):
    """The secret is shown this once."""

    app_key: str
    app_secret: str


def new_key(environment: str) -> NewKey:
    label = "live" if environment == "production" else "test"
    return NewKey(f"ak_{label}_{base62(24)}", f"sk_{label}_{base62(40)}")


async def create_key(
    database: Database, master_keys: MasterKeys, environment: str, tenant_id: int, limits: KeyLimits, author: str
) -> NewKey:
    """Another AppKey of a dealer, without limits where none are given. Raises OperatorError."""
    key = new_key(environment)
    parsed = _parsed(store.UNLIMITED, limits)
    sealed = master_keys.seal(key.app_secret.encode(), credential_context(tenant_id, key.app_key, 1))

    async def work(connection: Connection) -> NewKey:
        if tenant_id not in await wallet.lock(connection, [tenant_id]):  # of two at once, one counts the other
            raise OperatorError(f"no tenant {tenant_id}")
        if len(await store.of_tenant(connection, tenant_id)) >= MOST_KEYS:
            raise OperatorError(f"a dealer has at most {MOST_KEYS} AppKeys")
        await store.add(connection, tenant_id, key.app_key, sealed, parsed)
        await tenant.touch(connection, tenant_id)
        detail = {"appKey": key.app_key}
        await record_change(connection, author, "credentials.create", tenant_id, detail, {}, _described(parsed))
        return key

    return await database.run(work)


async def set_limits(database: Database, app_key: str, limits: KeyLimits, author: str) -> None:
    """Of calls from now on. Raises OperatorError, which names the field."""
    await database.run(lambda connection: set_limits_within(connection, app_key, limits, author))


async def set_limits_within(connection: Connection, app_key: str, limits: KeyLimits, author: str) -> None:
    """Raises OperatorError, which names the field."""
    found = await _found(connection, app_key)
    after = _parsed(found.limits, limits)
    await store.set_limits(connection, app_key, after)
    await tenant.touch(connection, found.tenant_id)
    before, detail = _described(found.limits), {"appKey": app_key}
    await record_change(connection, author, "credentials.set", found.tenant_id, detail, before, _described(after))


async def sign_webhooks(database: Database, app_key: str, author: str) -> None:
    """Its secret signs the dealer's webhooks from now on. Raises OperatorError."""

    async def work(connection: Connection) -> None:
        found = await _found(connection, app_key)
        if found.status != "ACTIVE":
            raise OperatorError(f"{app_key} is disabled; enable it first")
        await store.sign_webhooks(connection, found.tenant_id, app_key)
        await record_act(connection, author, "credentials.sign_webhooks", found.tenant_id, {"appKey": app_key})

    await database.run(work)


async def list_keys(database: Database, tenant_id: int) -> list[store.Credential]:
    async with database.connection() as connection:
        return await store.of_tenant(connection, tenant_id)


async def _found(connection: Connection, app_key: str) -> store.Credential:
    """Locked. Raises OperatorError."""
    found = await store.find(connection, app_key)
    if found is None:
        raise OperatorError(f"no credential {app_key!r}")
    return found


def _parsed(before: store.Limits, limits: KeyLimits) -> store.Limits:
    """Raises OperatorError, which names the field."""
    name = before.name if limits.name is None else limits.name.strip()
    if len(name) > MOST_NAME_CHARACTERS or not name.isprintable():
        raise OperatorError(f"a name of an AppKey has at most {MOST_NAME_CHARACTERS} visible characters", "name")
    try:
        return store.Limits(
            name,
            before.scopes if limits.scopes is None else scopes.parse(limits.scopes),
            before.ip_allow if limits.ip_allow is None else allowlist.parse(limits.ip_allow),
        )
    except ValueError as error:
        raise OperatorError(str(error), "ip_allow") from None


def _described(limits: store.Limits) -> dict[str, object]:
    return {"name": limits.name, "scopes": list(limits.scopes), "ipAllow": list(limits.ip_allow)}


async def view_secret(database: Database, master_keys: MasterKeys, app_key: str, author: str) -> str:
    """The current AppSecret; the audit log records who viewed it. Raises OperatorError."""

    async def work(connection: Connection) -> str:
        credential = await store.sealed_secret(connection, app_key)
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
        credential = await store.lock(connection, app_key)
        if credential is None:
            raise OperatorError(f"no credential {app_key!r}")
        tenant_id, version = credential
        secret = f"{app_key[:8].replace('ak', 'sk', 1)}{base62(40)}"
        sealed = master_keys.seal(secret.encode(), credential_context(tenant_id, app_key, version + 1))
        until = clock() + overlap
        assert await store.reset_secret(connection, app_key, tenant_id, version + 1, sealed, until)
        await tenant.touch(connection, tenant_id)
        valid = {"previousUntil": f"{until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"} if overlap else {}
        await _tell(connection, tenant_id, app_key, "RESET", until - overlap, **valid)
        before, after = {"secretVersion": version}, {"secretVersion": version + 1, "previousUntil": str(until)}
        await record_change(connection, author, "credentials.reset", tenant_id, {"appKey": app_key}, before, after)
        return secret

    return await database.run(work)


async def disable_credential(database: Database, app_key: str, author: str, clock: Clock) -> None:
    """From now on every call with it is refused. Raises OperatorError."""
    await _set_status(database, app_key, "DISABLED", "credentials.disable", author, clock)


async def enable_credential(database: Database, app_key: str, author: str, clock: Clock) -> None:
    """Calls with it are accepted again, with the same AppSecret. Raises OperatorError."""
    await _set_status(database, app_key, "ACTIVE", "credentials.enable", author, clock)


async def _set_status(database: Database, app_key: str, status: str, action: str, author: str, clock: Clock) -> None:
    """Raises OperatorError."""

    async def work(connection: Connection) -> None:
        credential = await store.set_status(connection, app_key, status)
        if credential is None:
            raise OperatorError(f"no credential {app_key!r}")
        tenant_id, before = credential
        await tenant.touch(connection, tenant_id)
        if status != before:
            change = "DISABLED" if status == "DISABLED" else "ENABLED"
            await _tell(connection, tenant_id, app_key, change, clock())
        detail = {"appKey": app_key}
        await record_change(connection, author, action, tenant_id, detail, {"status": before}, {"status": status})

    await database.run(work)


async def _tell(connection: Connection, tenant_id: int, app_key: str, change: str, now: datetime, **more: str) -> None:
    """The dealer is told what became of its AppKey."""
    found = await _found(connection, app_key)
    data = {"appKey": app_key, "name": found.name, "change": change, **more}
    fact = f"{app_key}:{change}:{now.isoformat()}"
    await outbox.add(connection, [NewNotice(tenant_id, "CREDENTIALS_CHANGED", fact, data)], now)
