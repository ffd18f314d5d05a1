"""Which lines wait for suppliers? Purchases without a final answer, by the indexes of what is due or parked."""

from datetime import datetime
from typing import NamedTuple

from asyncpg import Record

from dealer_server.db.by_tenant import rows_of
from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.rules.incidents.supplier import COUNTED, Waiting


class WaitingLine(NamedTuple):
    """A line of an order that waits at a supplier. `units`: how many eSIMs of it. `next_at`: when the next call may be
    made. `recharges`: it adds to an eSIM, which no other supplier can."""

    supplier: str
    state: str
    tenant_id: int
    dealer: str
    order_id: int
    line: int
    package_code: str
    units: int
    since: datetime
    next_at: datetime | None
    reason: str
    recharges: bool


async def by_supplier(connection: Connection, code: str | None = None) -> dict[str, Waiting]:
    """Of every supplier at which something waits, or of one."""
    if is_distributed(connection):
        rows = await _at_each(connection, code)
    else:
        rows = await connection.fetch(_WAITING, code)
    return {row["code"]: Waiting(**{name: row[name] for name in Waiting._fields}) for row in rows}


async def _at_each(connection: Connection, code: str | None) -> list[Record]:
    """The same where purchases are distributed: Citus does not count for each row of a table that every node has."""
    codes = [code] if code else [row["code"] for row in await connection.fetch("SELECT code FROM supplier")]
    counted = _WAITING_AT.format(code="$1::text")
    rows = [await connection.fetchrow(f"SELECT $1::text AS code, w.* FROM ({counted}) w", one) for one in codes]
    return [row for row in rows if row is not None and row["purchases"]]


_WAITING_AT = f"""
    SELECT count(*)::int AS purchases, count(DISTINCT (order_id, line))::int AS lines,
        count(DISTINCT order_id)::int AS orders, min(created_at) AS oldest_at,
        count(*) FILTER (WHERE failures > 0)::int AS failing,
        coalesce((array_agg(reason ORDER BY created_at) FILTER (WHERE failures > 0))[1], '') AS reason
    FROM (SELECT order_id, line, created_at, failures, reason FROM purchase p
        WHERE p.supplier = {{code}} AND p.due_at IS NOT NULL ORDER BY p.due_at LIMIT {COUNTED}) p
"""
_WAITING = f"""
SELECT s.code, w.* FROM supplier s CROSS JOIN LATERAL ({_WAITING_AT.format(code="s.code")}
) w WHERE w.purchases > 0 AND ($1::text IS NULL OR s.code = $1)
"""


async def lines(connection: Connection, supplier: str | None, state: str | None, limit: int) -> list[WaitingLine]:
    """The line that has waited longest first. PARKED ones are unconfirmed, and wait for an operator."""
    return [WaitingLine(**row) for row in await connection.fetch(_LINES, supplier, state, limit)]


_LINES = f"""
SELECT w.supplier, w.state, w.tenant_id, t.name AS dealer, w.order_id, w.line::int, i.package_code, w.units, w.since,
    w.next_at, w.reason, w.recharges
FROM (
    SELECT supplier, state, tenant_id, order_id, line, count(*)::int AS units, min(created_at) AS since,
        min(due_at) AS next_at, coalesce((array_agg(reason ORDER BY created_at))[1], '') AS reason,
        bool_or(recharges IS NOT NULL) AS recharges
    FROM (
        (SELECT * FROM purchase WHERE due_at IS NOT NULL AND ($1::text IS NULL OR supplier = $1) LIMIT {COUNTED})
        UNION ALL
        (SELECT * FROM purchase WHERE state = 'PARKED' AND ($1::text IS NULL OR supplier = $1) LIMIT {COUNTED})
    ) p WHERE $2::text IS NULL OR state = $2
    GROUP BY supplier, state, tenant_id, order_id, line ORDER BY since, order_id LIMIT $3
) w JOIN tenant t USING (tenant_id) {rows_of("order_item", "w", "tenant_id", "order_id", "line")}
CROSS JOIN LATERAL (SELECT package_code FROM order_item i
    WHERE i.tenant_id = w.tenant_id AND i.order_id = w.order_id AND i.line = w.line OFFSET 0) i
ORDER BY w.since, w.order_id, w.line
"""
