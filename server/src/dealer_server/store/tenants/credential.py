"""A dealer's AppKeys: secrets, limits, and from where each was used."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, get_args

from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_values, columns_of
from esim_dealer.wire.vocabulary import Scope

ADDRESSES_KEPT = 20


class Limits(NamedTuple):
    """What an AppKey is called, which operations it may call, and from where; (): from wherever its dealer may."""

    name: str = ""
    scopes: Sequence[Scope] = get_args(Scope)
    ip_allow: Sequence[str] = ()


UNLIMITED = Limits()


class Credential(NamedTuple):
    """An AppKey without its secret. `previous_until`: until when the secret before opens calls too."""

    app_key: str
    tenant_id: int
    status: str
    secret_version: int
    previous_until: datetime | None
    created_at: datetime
    name: str
    scopes: list[Scope]
    ip_allow: list[str]
    signs_webhooks: bool

    @property
    def limits(self) -> Limits:
        return Limits(self.name, self.scopes, self.ip_allow)


class Use(NamedTuple):
    """When an AppKey was used last from an address."""

    app_key: str
    address: str
    used_at: datetime


async def add(
    connection: Connection,
    tenant_id: int,
    app_key: str,
    sealed_secret: bytes,
    limits: Limits = UNLIMITED,
    *,
    signs_webhooks: bool = False,
) -> None:
    await connection.execute(
        "INSERT INTO credential (app_key, tenant_id, sealed_secret, name, scopes, ip_allow, signs_webhooks)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7)",
        app_key,
        tenant_id,
        sealed_secret,
        *limits,
        signs_webhooks,
    )


async def find(connection: Connection, app_key: str) -> Credential | None:
    """Locked until the transaction ends."""
    rows = await connection.fetch(
        f"SELECT {columns_of(Credential)} FROM credential WHERE app_key = $1 FOR UPDATE", app_key
    )
    return next(iter(as_values(Credential, rows)), None)


async def of_tenant(connection: Connection, tenant_id: int) -> list[Credential]:
    """Oldest first."""
    rows = await connection.fetch(
        f"SELECT {columns_of(Credential)} FROM credential WHERE tenant_id = $1 ORDER BY created_at, app_key", tenant_id
    )
    return as_values(Credential, rows)


async def set_limits(connection: Connection, app_key: str, limits: Limits) -> None:
    await connection.execute(
        "UPDATE credential SET name = $2, scopes = $3, ip_allow = $4 WHERE app_key = $1", app_key, *limits
    )


async def sign_webhooks(connection: Connection, tenant_id: int, app_key: str) -> None:
    """Of the dealer's AppKeys this one signs its webhooks from now on."""
    await connection.execute(
        "UPDATE credential SET signs_webhooks = false WHERE tenant_id = $1 AND signs_webhooks AND app_key <> $2",
        tenant_id,
        app_key,
    )
    await connection.execute("UPDATE credential SET signs_webhooks = true WHERE app_key = $1", app_key)


async def record_uses(connection: Connection, uses: Sequence[tuple[str, str]], now: datetime) -> None:
    """(AppKey, address) of calls, sorted, so that no two processes wait for each other. The newest of each
    AppKey are kept. It is not flushed: a crash of the server may lose it."""
    await connection.execute("SET LOCAL synchronous_commit = off")
    app_keys, addresses = [use[0] for use in uses], [use[1] for use in uses]
    await connection.execute(
        "INSERT INTO credential_use (app_key, address, used_at)"
        " SELECT app_key, address, $3 FROM unnest($1::text[], $2::text[]) use(app_key, address)"
        " JOIN credential USING (app_key)"
        " ON CONFLICT (app_key, address) DO UPDATE SET used_at = excluded.used_at",
        app_keys,
        addresses,
        now,
    )
    await connection.execute(
        "DELETE FROM credential_use u USING unnest($1::text[]) used(app_key) WHERE u.app_key = used.app_key"
        " AND u.used_at < (SELECT used_at FROM credential_use n WHERE n.app_key = used.app_key"
        "  ORDER BY used_at DESC OFFSET $2 LIMIT 1)",
        sorted(set(app_keys)),
        ADDRESSES_KEPT - 1,
    )


async def uses_of_tenant(connection: Connection, tenant_id: int) -> list[Use]:
    """The newest first."""
    rows = await connection.fetch(
        f"SELECT {columns_of(Use, table='u')} FROM credential c JOIN credential_use u USING (app_key)"
        " WHERE c.tenant_id = $1 ORDER BY u.used_at DESC, u.address",
        tenant_id,
    )
    return as_values(Use, rows)


async def uses(connection: Connection, app_keys: Sequence[str]) -> list[Use]:
    """The newest first."""
    rows = await connection.fetch(
        f"SELECT {columns_of(Use)} FROM credential_use WHERE app_key = ANY($1::text[]) ORDER BY used_at DESC, address",
        app_keys,
    )
    return as_values(Use, rows)


async def reset_secret(
    connection: Connection, app_key: str, tenant_id: int, version: int, sealed: bytes, overlap_until: datetime
) -> bool:
    """Replaces the secret of version - 1; the old one still authenticates calls until `overlap_until`."""
    done = await connection.execute(
        "UPDATE credential SET previous_secret = sealed_secret, previous_until = $5, sealed_secret = $4,"
        " secret_version = $3 WHERE app_key = $1 AND tenant_id = $2 AND secret_version = $3 - 1",
        app_key,
        tenant_id,
        version,
        sealed,
        overlap_until,
    )
    return done == "UPDATE 1"


async def set_status(connection: Connection, app_key: str, status: str) -> tuple[int, str] | None:
    """(tenant_id, status before) of the credential, or None."""
    row = await connection.fetchrow(
        "UPDATE credential SET status = $2 FROM (SELECT status FROM credential WHERE app_key = $1 FOR UPDATE) before"
        " WHERE app_key = $1 RETURNING tenant_id, before.status",
        app_key,
        status,
    )
    return (row["tenant_id"], row["status"]) if row else None


async def sealed_secret(connection: Connection, app_key: str) -> tuple[int, int, bytes] | None:
    """(tenant_id, secret_version, sealed secret) of a credential."""
    row = await connection.fetchrow(
        "SELECT tenant_id, secret_version, sealed_secret FROM credential WHERE app_key = $1", app_key
    )
    return (row["tenant_id"], row["secret_version"], row["sealed_secret"]) if row else None


async def lock(connection: Connection, app_key: str) -> tuple[int, int] | None:
    """(tenant_id, secret_version) of a credential, locked until the transaction ends."""
    row = await connection.fetchrow(
        "SELECT tenant_id, secret_version FROM credential WHERE app_key = $1 FOR UPDATE", app_key
    )
    return (row["tenant_id"], row["secret_version"]) if row else None
