"""Dealers: their terms, credentials and prices, and the versions that tell processes of changes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_values
from dealer_server.rules.orders.pricing import OwnPrice, PriceList


class Access(NamedTuple):
    """What authenticating and pricing a dealer's calls needs, with sealed secrets. Processes cache it until it
    changes."""

    tenant_id: int
    app_key: str
    name: str
    active: bool
    qps: int
    ip_allow: tuple[str, ...]
    secret_version: int
    sealed_secret: bytes
    previous_secret: bytes | None
    previous_until: datetime | None
    prices: PriceList


class Tenant(NamedTuple):
    """A dealer as operators see it."""

    tenant_id: int
    name: str
    status: str
    currency: str
    balance: int
    credit_limit: int
    low_balance_threshold: int
    frozen: bool
    qps: int
    ip_allow: list[str]
    markup_basis_points: int
    app_key: str
    credential_status: str


_PRICES = """w.currency, t.markup_basis_points, t.markup_updated_at,
    (SELECT array_agg((p.package_code, p.price, p.updated_at) ORDER BY p.package_code)
        FROM price p WHERE p.tenant_id = t.tenant_id) AS prices"""


async def load_access(connection: Connection, app_key: str) -> Access | None:
    row = await connection.fetchrow(
        "SELECT t.tenant_id, c.app_key, t.name, t.status = 'ACTIVE' AND c.status = 'ACTIVE' AS active, t.qps,"
        f" t.ip_allow, c.secret_version, c.sealed_secret, c.previous_secret, c.previous_until, {_PRICES}"
        " FROM credential c JOIN tenant t USING (tenant_id) JOIN wallet w USING (tenant_id) WHERE c.app_key = $1",
        app_key,
    )
    if row is None:
        return None
    columns = dict(row)
    prices = _price_list(columns)
    return Access(**columns | {"ip_allow": tuple(columns["ip_allow"]), "prices": prices})


async def load_prices(connection: Connection, tenant_id: int) -> PriceList:
    """The prices of a dealer, whichever credentials it has."""
    row = await connection.fetchrow(
        f"SELECT {_PRICES} FROM tenant t JOIN wallet w USING (tenant_id) WHERE t.tenant_id = $1", tenant_id
    )
    assert row is not None, "a dealer has a wallet"
    return _price_list(dict(row))


def _price_list(columns: dict[str, Any]) -> PriceList:
    """Takes the columns of _PRICES out of a row."""
    return PriceList(
        currency=columns.pop("currency"),
        markup_basis_points=columns.pop("markup_basis_points"),
        markup_updated_at=columns.pop("markup_updated_at"),
        single=tuple((code, OwnPrice(price, at)) for code, price, at in columns.pop("prices") or ()),
    )


async def create(connection: Connection, name: str, qps: int) -> int:
    sql = "INSERT INTO tenant (name, qps) VALUES ($1, $2) RETURNING tenant_id"
    return await connection.fetchval(sql, name, qps) or 0


async def add_credential(connection: Connection, tenant_id: int, app_key: str, sealed_secret: bytes) -> None:
    await connection.execute(
        "INSERT INTO credential (app_key, tenant_id, sealed_secret) VALUES ($1, $2, $3)",
        app_key,
        tenant_id,
        sealed_secret,
    )


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


async def set_credential_status(connection: Connection, app_key: str, status: str) -> tuple[int, str] | None:
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


async def lock_credential(connection: Connection, app_key: str) -> tuple[int, int] | None:
    """(tenant_id, secret_version) of a credential, locked until the transaction ends."""
    row = await connection.fetchrow(
        "SELECT tenant_id, secret_version FROM credential WHERE app_key = $1 FOR UPDATE", app_key
    )
    return (row["tenant_id"], row["secret_version"]) if row else None


async def update(
    connection: Connection,
    tenant_id: int,
    *,
    name: str | None,
    status: str | None,
    qps: int | None,
    ip_allow: Sequence[str] | None,
    markup_basis_points: int | None,
) -> bool:
    done = await connection.execute(
        "UPDATE tenant SET name = coalesce($2, name), status = coalesce($3, status), qps = coalesce($4, qps),"
        " ip_allow = coalesce($5::text[], ip_allow), markup_basis_points = coalesce($6, markup_basis_points),"
        " markup_updated_at = CASE WHEN $6 <> markup_basis_points THEN now() ELSE markup_updated_at END"
        " WHERE tenant_id = $1",
        tenant_id,
        name,
        status,
        qps,
        ip_allow,
        markup_basis_points,
    )
    return done == "UPDATE 1"


async def set_price(connection: Connection, tenant_id: int, package_code: str, price: int | None) -> bool:
    """False where there is no such package."""
    done = await connection.execute(
        "INSERT INTO price (tenant_id, package_code, price)"
        " SELECT $1, package_code, $3 FROM package WHERE package_code = $2"
        " ON CONFLICT (tenant_id, package_code) DO UPDATE SET price = excluded.price, updated_at = now()",
        tenant_id,
        package_code,
        price,
    )
    return done == "INSERT 0 1"


async def remove_price(connection: Connection, tenant_id: int, package_code: str) -> bool:
    """Removes a dealer's own price; False if there was none. Prices that follow the markup count as changed from now
    on, since nothing else tells dealers who mirror the catalogue of the removal."""
    removed = await connection.fetchval(
        "WITH removed AS (DELETE FROM price WHERE tenant_id = $1 AND package_code = $2 RETURNING tenant_id)"
        " UPDATE tenant t SET markup_updated_at = now() FROM removed WHERE t.tenant_id = removed.tenant_id"
        " RETURNING true",
        tenant_id,
        package_code,
    )
    return bool(removed)


async def prices(connection: Connection, tenant_id: int, package_codes: Sequence[str]) -> dict[str, int | None]:
    """A dealer's own prices of these packages; None: not on sale. Those without one are missing."""
    rows = await connection.fetch(
        "SELECT package_code, price FROM price WHERE tenant_id = $1 AND package_code = ANY($2::text[])",
        tenant_id,
        package_codes,
    )
    return {row["package_code"]: row["price"] for row in rows}


async def listed(connection: Connection, tenant_id: int | None = None) -> list[Tenant]:
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name, t.status, w.currency, w.balance, w.credit_limit, w.low_balance_threshold,"
        " w.frozen, t.qps, t.ip_allow, t.markup_basis_points, c.app_key, c.status AS credential_status"
        " FROM tenant t JOIN wallet w USING (tenant_id) JOIN credential c USING (tenant_id)"
        " WHERE $1::bigint IS NULL OR t.tenant_id = $1"
        " ORDER BY t.tenant_id, c.created_at",
        tenant_id,
    )
    return as_values(Tenant, rows)


class Changes(NamedTuple):
    """What changed since a version. `tenants`: the dealers that changed, None if they are not known any more."""

    version: int
    tenants: frozenset[int] | None
    catalogue: int


CHANGES_KEPT = 1000


async def touch_catalogue(connection: Connection) -> None:
    """Counts a change of packages. Call it first in the transaction (docs/decisions/0016-lock-order.md)."""
    await connection.execute("UPDATE change SET version = version + 1 WHERE subject = 'catalogue'")


async def touch(connection: Connection, tenant_id: int) -> None:
    """Counts a change of a dealer, so that processes drop what they cached of it. Call it after all other writes but
    the audit log's (docs/decisions/0016-lock-order.md): then versions become visible in their order."""
    await connection.execute(
        "WITH changed AS ("
        " UPDATE change SET version = version + 1 WHERE subject = 'tenant' RETURNING version"
        "), gone AS ("
        " DELETE FROM tenant_change t USING changed WHERE t.version <= changed.version - $2"
        ") INSERT INTO tenant_change (version, tenant_id) SELECT version, $1 FROM changed",
        tenant_id,
        CHANGES_KEPT,
    )


async def changes(connection: Connection, since: int) -> Changes:
    """What changed since a version of the dealers."""
    row = await connection.fetchrow(
        "SELECT t.version, (SELECT array_agg(tenant_id) FROM tenant_change WHERE version > $1) AS tenants,"
        " c.version AS catalogue"
        " FROM change t, change c WHERE t.subject = 'tenant' AND c.subject = 'catalogue'",
        since,
    )
    assert row is not None
    version, tenants = row["version"], row["tenants"] or []
    return Changes(
        version=version,
        tenants=frozenset(tenants) if len(tenants) == version - since else None,
        catalogue=row["catalogue"],
    )
