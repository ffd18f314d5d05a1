"""What does a search text of an operator name? Orders and profiles are looked up by index, tenant by tenant."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

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


async def orders(connection: Connection, order_id: int | None, transaction_id: str) -> list[OrderHit]:
    """By orderId, or by the dealers' transactionId, which several dealers may use."""
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name AS dealer, o.order_id, o.transaction_id FROM tenant t CROSS JOIN LATERAL ("
        "  SELECT order_id, transaction_id FROM orders o WHERE o.tenant_id = t.tenant_id AND o.order_id = $1"
        "  UNION SELECT order_id, transaction_id FROM orders o"
        "   WHERE o.tenant_id = t.tenant_id AND o.transaction_id = $2"
        f" ) o ORDER BY o.order_id DESC LIMIT {MOST}",
        order_id,
        transaction_id,
    )
    return [OrderHit(**row) for row in rows]


async def profiles(connection: Connection, profile_id: int | None, iccid: str) -> list[ProfileHit]:
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name AS dealer, p.order_id, p.profile_id, p.iccid FROM tenant t CROSS JOIN LATERAL ("
        "  SELECT order_id, profile_id, iccid FROM profile p WHERE p.tenant_id = t.tenant_id AND p.profile_id = $1"
        "   AND p.recharges IS NULL"
        "  UNION SELECT order_id, profile_id, iccid FROM profile p WHERE p.tenant_id = t.tenant_id AND p.iccid = $2"
        f" ) p ORDER BY p.profile_id DESC LIMIT {MOST}",
        profile_id,
        iccid,
    )
    return [ProfileHit(**row) for row in rows]


async def dealers(connection: Connection, text: str) -> list[DealerHit]:
    """By tenantId, by a part of the name, or by an AppKey or how it begins."""
    rows = await connection.fetch(
        "SELECT DISTINCT ON (t.tenant_id) t.tenant_id, t.name, c.app_key FROM tenant t JOIN credential c"
        " USING (tenant_id) WHERE t.tenant_id::text = $1 OR position(lower($1) IN lower(t.name)) > 0"
        " OR (length($1) >= 8 AND starts_with(c.app_key, $1))"
        f" ORDER BY t.tenant_id, c.created_at LIMIT {MOST}",
        text,
    )
    return [DealerHit(**row) for row in rows]


async def refused_calls(connection: Connection, text: str) -> list[CallHit]:
    """By RT-RequestID as it came, or by X-Trace-Id; the newest first."""
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name AS dealer, c.number, c.at, c.path, c.code FROM ("
        "  SELECT * FROM refused_call WHERE request_id = $1 UNION SELECT * FROM refused_call WHERE trace_id = $1"
        f" ) c JOIN tenant t USING (tenant_id) ORDER BY c.at DESC LIMIT {MOST}",
        text,
    )
    return [CallHit(**row) for row in rows]
