"""Dealers: their terms, credentials and prices, and the versions that tell processes of changes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.db.rows import as_values
from dealer_server.rules.orders.pricing import OwnPrice, PriceList
from esim_dealer.wire.vocabulary import Scope

RtFace = Literal["off", "signed", "access-code"]
"""Whether a dealer's clients of the RT family are let in: not at all, signed, or by AppKey and address alone."""


class Access(NamedTuple):
    """What authenticating and pricing a dealer's calls needs, with sealed secrets. Processes cache it until it
    changes. `key_ip_allow`: of the AppKey, within `ip_allow` of the dealer."""

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
    scopes: tuple[Scope, ...]
    key_ip_allow: tuple[str, ...]
    rt_face: RtFace


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
    edits_ip_allow: bool
    manages_keys: bool
    rt_face: RtFace
    app_key: str
    credential_status: str


_PRICES = """w.currency, t.markup_basis_points, t.markup_updated_at, t.price_list_id,
    (SELECT array_agg((p.package_code, p.price, p.updated_at) ORDER BY p.package_code)
        FROM price p WHERE p.tenant_id = w.tenant_id) AS prices"""


_OWN = "(SELECT array_agg((p.package_code, p.price, p.updated_at) ORDER BY p.package_code)"


def _by_column(sql: str) -> str:
    """Where tables are distributed rows cannot come from a node within a row: each column comes as an array."""
    begin = sql.index(_OWN)
    end = sql.index(") AS prices", begin)
    source = sql[begin + len(_OWN) : end]
    return (
        sql[:begin]
        + ", ".join(
            f"(SELECT array_agg(p.{column} ORDER BY p.package_code){source}) AS price_{column}"
            for column in ("package_code", "price", "updated_at")
        )
        + sql[end + len(") AS prices") :]
    )


_ACCESS = (
    "SELECT t.tenant_id, c.app_key, t.name, t.status = 'ACTIVE' AND c.status = 'ACTIVE' AS active, t.qps,"
    f" t.ip_allow, c.secret_version, c.sealed_secret, c.previous_secret, c.previous_until, {_PRICES},"
    " c.scopes, c.ip_allow AS key_ip_allow, t.rt_face"
    " FROM credential c JOIN tenant t USING (tenant_id) JOIN wallet w USING (tenant_id) WHERE c.app_key = $1"
)


async def load_access(connection: Connection, app_key: str) -> Access | None:
    sql, args = _ACCESS, list[object]([app_key])
    if is_distributed(connection):  # the other nodes are not asked, and may be away
        sql = _by_column(sql).replace("p.tenant_id = w.tenant_id", "p.tenant_id = $2")
        sql += " AND w.tenant_id = $2 AND t.tenant_id = $2 AND c.tenant_id = $2"
        args.append(await connection.fetchval("SELECT tenant_id FROM credential WHERE app_key = $1", app_key))
    row = await connection.fetchrow(sql, *args)
    if row is None:
        return None
    columns = dict(row)
    prices = _price_list(columns)
    for name in ("ip_allow", "scopes", "key_ip_allow"):
        columns[name] = tuple(columns[name])
    return Access(**columns, prices=prices)


async def load_prices(connection: Connection, tenant_id: int) -> PriceList:
    """The prices of a dealer, whichever credentials it has."""
    sql = f"SELECT {_PRICES} FROM tenant t JOIN wallet w USING (tenant_id) WHERE t.tenant_id = $1"
    if is_distributed(connection):
        sql = _by_column(sql).replace("p.tenant_id = w.tenant_id", "p.tenant_id = $1")
    row = await connection.fetchrow(sql, tenant_id)
    assert row is not None, "a dealer has a wallet"
    return _price_list(dict(row))


def _own_prices(columns: dict[str, Any]) -> Sequence[tuple[str, int | None, datetime]]:
    if "prices" in columns:
        return columns.pop("prices") or ()
    codes, prices, times = (columns.pop(f"price_{column}") or () for column in ("package_code", "price", "updated_at"))
    return list(zip(codes, prices, times, strict=True))


def _price_list(columns: dict[str, Any]) -> PriceList:
    """Takes the columns of _PRICES out of a row."""
    return PriceList(
        currency=columns.pop("currency"),
        markup_basis_points=columns.pop("markup_basis_points"),
        markup_updated_at=columns.pop("markup_updated_at"),
        price_list_id=columns.pop("price_list_id"),
        single=tuple((code, OwnPrice(price, at)) for code, price, at in _own_prices(columns)),
    )


async def active_prices(
    connection: Connection, package_codes: Sequence[str], price_list_id: int | None = None
) -> dict[int, PriceList]:
    """The prices of every active dealer, or of those who have a price list; of own prices those of these packages."""
    sql = (
        "SELECT t.tenant_id, w.currency, t.markup_basis_points, t.markup_updated_at, t.price_list_id,"
        f" {_OWN} FROM price p WHERE p.tenant_id = w.tenant_id AND p.package_code = ANY($1::text[])) AS prices"
        " FROM tenant t JOIN wallet w USING (tenant_id) WHERE t.status = 'ACTIVE'"
        " AND ($2::bigint IS NULL OR t.price_list_id = $2) ORDER BY t.tenant_id"
    )
    rows = await connection.fetch(_by_column(sql) if is_distributed(connection) else sql, package_codes, price_list_id)
    columns = [dict(row) for row in rows]
    return {row.pop("tenant_id"): _price_list(row) for row in columns}


async def create(connection: Connection, name: str, qps: int) -> int:
    sql = "INSERT INTO tenant (name, qps) VALUES ($1, $2) RETURNING tenant_id"
    return await connection.fetchval(sql, name, qps) or 0


async def update(
    connection: Connection,
    tenant_id: int,
    *,
    name: str | None,
    status: str | None,
    qps: int | None,
    ip_allow: Sequence[str] | None,
    markup_basis_points: int | None,
    edits_ip_allow: bool | None,
    manages_keys: bool | None,
    rt_face: RtFace | None,
) -> bool:
    done = await connection.execute(
        "UPDATE tenant SET name = coalesce($2, name), status = coalesce($3, status), qps = coalesce($4, qps),"
        " ip_allow = coalesce($5::text[], ip_allow), markup_basis_points = coalesce($6, markup_basis_points),"
        " markup_updated_at = CASE WHEN $6 <> markup_basis_points THEN (SELECT now()) ELSE markup_updated_at END,"
        " edits_ip_allow = coalesce($7, edits_ip_allow), manages_keys = coalesce($8, manages_keys),"
        " rt_face = coalesce($9, rt_face)"
        " WHERE tenant_id = $1",
        tenant_id,
        name,
        status,
        qps,
        ip_allow,
        markup_basis_points,
        edits_ip_allow,
        manages_keys,
        rt_face,
    )
    return done == "UPDATE 1"


async def set_price(connection: Connection, tenant_id: int, package_code: str, price: int | None) -> bool:
    """False where there is no such package."""
    done = await connection.execute(
        "INSERT INTO price (tenant_id, package_code, price, updated_at)"
        " SELECT $1, package_code, $3, now() FROM package WHERE package_code = $2"
        " ON CONFLICT (tenant_id, package_code) DO UPDATE SET price = excluded.price, updated_at = excluded.updated_at",
        tenant_id,
        package_code,
        price,
    )
    return done == "INSERT 0 1"


async def remove_price(connection: Connection, tenant_id: int, package_code: str) -> bool:
    """Removes a dealer's own price; False if there was none. Prices that follow the markup count as changed from now
    on, since nothing else tells dealers who mirror the catalogue of the removal. Call it inside a transaction."""
    done = await connection.execute(
        "DELETE FROM price WHERE tenant_id = $1 AND package_code = $2", tenant_id, package_code
    )
    if done != "DELETE 1":
        return False
    await connection.execute("UPDATE tenant SET markup_updated_at = now() WHERE tenant_id = $1", tenant_id)
    return True


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
        " w.frozen, t.qps, t.ip_allow, t.markup_basis_points, t.edits_ip_allow, t.manages_keys,"
        " t.rt_face,"
        " c.app_key, c.status AS credential_status"
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
