"""What does a search text name whole? Orders and profiles are looked up by index, tenant by tenant. tenant_id: whose
they are to be; None: anybody's."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import columns
from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed

MOST = 20


class OrderHit(NamedTuple):
    tenant_id: int
    dealer: str
    order_id: int
    transaction_id: str


class ProfileHit(NamedTuple):
    tenant_id: int
    dealer: str
    order_id: int
    profile_id: int
    iccid: str | None


class OrderFacts(NamedTuple):
    """What is told of an order that was found. `lines`: packageCodes and quantities."""

    amount: int
    currency: str
    order_status: str
    delivery_status: str
    lines: tuple[tuple[str, int], ...]


class ProfileFacts(NamedTuple):
    """What the state of an eSIM that was found is made of, and its package."""

    package_code: str
    lifecycle_status: str
    plan_use_status: str
    smdp_status: str | None
    failed: bool
    refunded: bool
    held: bool
    data_total_bytes: int | None
    data_usage_bytes: int


class CallHit(NamedTuple):
    """A refused call."""

    tenant_id: int
    dealer: str
    number: int
    at: datetime
    path: str
    code: str


class DealerHit(NamedTuple):
    tenant_id: int
    name: str
    app_key: str
    status: str
    created_at: datetime


class DeliveryHit(NamedTuple):
    tenant_id: int
    dealer: str
    order_id: int
    event_type: str
    state: str
    created_at: datetime


def _either(connection: Connection, rows: str, one: str, other: str) -> str:
    """Rows that meet one of two conditions, each found by its index; Citus takes no UNION within LATERAL."""
    if is_distributed(connection):
        return f"{rows} AND ({one} OR {other})"
    return f"{rows} AND {one} UNION {rows} AND {other}"


async def orders(
    connection: Connection, tenant_id: int | None, order_id: int | None, transaction_id: str
) -> list[OrderHit]:
    """By orderId, or by the dealers' transactionId, which several dealers may use."""
    found = _either(
        connection,
        "SELECT order_id, transaction_id FROM orders o WHERE o.tenant_id = t.tenant_id",
        "o.order_id = $2",
        "o.transaction_id = $3",
    )
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name AS dealer, o.order_id, o.transaction_id FROM tenant t CROSS JOIN LATERAL ("
        f"{found}) o WHERE $1::bigint IS NULL OR t.tenant_id = $1 ORDER BY o.order_id DESC LIMIT {MOST}",
        tenant_id,
        order_id,
        transaction_id,
    )
    return [OrderHit(**row) for row in rows]


async def order_facts(connection: Connection, keys: Sequence[tuple[int, int]]) -> dict[int, OrderFacts]:
    """Of these (tenant_id, order_id), by orderId."""
    rows = await connection.fetch(
        "SELECT o.order_id, o.amount, o.currency, o.order_status, o.delivery_status,"
        " array_agg(i.package_code ORDER BY i.line) AS packages,"
        " array_agg(i.quantity::int ORDER BY i.line) AS quantities"
        " FROM orders o JOIN unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id) USING (tenant_id, order_id)"
        " JOIN order_item i USING (tenant_id, order_id) GROUP BY o.tenant_id, o.order_id, o.amount, o.currency,"
        " o.order_status, o.delivery_status",
        *columns(keys, 2),
    )
    return {
        row["order_id"]: OrderFacts(
            row["amount"],
            row["currency"],
            row["order_status"],
            row["delivery_status"],
            tuple(zip(row["packages"], row["quantities"], strict=True)),
        )
        for row in rows
    }


async def profile_facts(connection: Connection, keys: Sequence[tuple[int, int]]) -> dict[int, ProfileFacts]:
    """Of these (tenant_id, profile_id), by profileId."""
    rows = await connection.fetch(
        f"SELECT profile_id, {', '.join(ProfileFacts._fields)} FROM profile"
        " JOIN unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, profile_id) USING (tenant_id, profile_id)"
        " JOIN order_item USING (tenant_id, order_id, line)",
        *columns(keys, 2),
    )
    return {row["profile_id"]: ProfileFacts(**{name: row[name] for name in ProfileFacts._fields}) for row in rows}


async def profiles(
    connection: Connection, tenant_id: int | None, profile_id: int | None, iccid: str
) -> list[ProfileHit]:
    found = _either(
        connection,
        "SELECT order_id, profile_id, iccid FROM profile p WHERE p.tenant_id = t.tenant_id",
        "p.profile_id = $2 AND p.recharges IS NULL",
        "p.iccid = $3",
    )
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name AS dealer, p.order_id, p.profile_id, p.iccid FROM tenant t CROSS JOIN LATERAL ("
        f"{found}) p WHERE $1::bigint IS NULL OR t.tenant_id = $1 ORDER BY p.profile_id DESC LIMIT {MOST}",
        tenant_id,
        profile_id,
        iccid,
    )
    return [ProfileHit(**row) for row in rows]


async def names(connection: Connection, tenant_ids: Sequence[int]) -> dict[int, str]:
    rows = await connection.fetch(
        "SELECT tenant_id, name FROM tenant WHERE tenant_id = ANY($1::bigint[])", list(tenant_ids)
    )
    return {row["tenant_id"]: row["name"] for row in rows}


async def dealers(connection: Connection, text: str) -> list[DealerHit]:
    """By tenantId, by a part of the name, or by an AppKey or how it begins; the most alike first."""
    rows = await connection.fetch(
        "SELECT tenant_id, name, app_key, status, created_at FROM ("
        "  SELECT DISTINCT ON (t.tenant_id) t.tenant_id, t.name, c.app_key, t.status, t.created_at FROM tenant t"
        "  JOIN credential c USING (tenant_id) WHERE t.tenant_id::text = $1 OR position(lower($1) IN lower(t.name)) > 0"
        "  OR (length($1) >= 8 AND starts_with(c.app_key, $1)) ORDER BY t.tenant_id, c.created_at"
        " ) found ORDER BY tenant_id::text <> $1, NOT starts_with(lower(name), lower($1)), lower(name)"
        f" LIMIT {MOST}",
        text,
    )
    return [DealerHit(**row) for row in rows]


async def suppliers(connection: Connection, text: str, limit: int) -> list[tuple[str, str, str]]:
    """(code, kind, status) of those whose code holds the text."""
    rows = await connection.fetch(
        "SELECT code, kind, status FROM supplier WHERE position(lower($1) IN lower(code)) > 0 ORDER BY code LIMIT $2",
        text,
        limit,
    )
    return [(row["code"], row["kind"], row["status"]) for row in rows]


async def deliveries(connection: Connection, tenant_id: int | None, delivery_id: int) -> list[DeliveryHit]:
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name AS dealer, d.order_id, d.event_type, d.state, d.created_at"
        " FROM tenant t CROSS JOIN LATERAL ("
        "  SELECT order_id, event_type, state, created_at FROM webhook_delivery d"
        "  WHERE d.tenant_id = t.tenant_id AND d.delivery_id = $2"
        f" ) d WHERE $1::bigint IS NULL OR t.tenant_id = $1 LIMIT {MOST}",
        tenant_id,
        delivery_id,
    )
    return [DeliveryHit(**row) for row in rows]


async def refused_calls(connection: Connection, tenant_id: int | None, text: str) -> list[CallHit]:
    """By RT-RequestID as it came, or by X-Trace-Id; the newest first."""
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name AS dealer, c.number, c.at, c.path, c.code FROM ("
        "  SELECT * FROM refused_call WHERE request_id = $2 UNION SELECT * FROM refused_call WHERE trace_id = $2"
        " ) c JOIN tenant t USING (tenant_id) WHERE $1::bigint IS NULL OR t.tenant_id = $1"
        f" ORDER BY c.at DESC LIMIT {MOST}",
        tenant_id,
        text,
    )
    return [CallHit(**row) for row in rows]
