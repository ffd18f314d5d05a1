"""When was a supplier down? Each outage with its begin and end, and the orders that waited meanwhile."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

COUNTED = 10_000
WAITING = """
SELECT count(*)::int FROM (SELECT DISTINCT tenant_id, order_id FROM (SELECT tenant_id, order_id FROM purchase
    WHERE supplier = $1 AND due_at IS NOT NULL LIMIT $2) p) o
"""


class Outage(NamedTuple):
    """`ended_at`: None while it lasts. `orders`: that waited at once, at most; COUNTED purchases are looked at."""

    began_at: datetime
    ended_at: datetime | None
    detail: str
    orders: int


async def go_on(connection: Connection, code: str, since: datetime, detail: str) -> None:
    """The supplier has been down since then, and still is."""
    orders = await connection.fetchval(WAITING, code, COUNTED)
    await connection.execute(
        "INSERT INTO supplier_outage AS o (code, began_at, detail, orders) SELECT code, $2, $3, $4 FROM supplier"
        " WHERE code = $1 ON CONFLICT (code) WHERE ended_at IS NULL"
        " DO UPDATE SET detail = excluded.detail, orders = greatest(o.orders, excluded.orders)",
        code,
        since,
        detail,
        orders or 0,
    )


async def end(connection: Connection, code: str, now: datetime) -> None:
    """The supplier answers. Changes nothing where it did before."""
    await connection.execute("UPDATE supplier_outage SET ended_at = $2 WHERE code = $1 AND ended_at IS NULL", code, now)


async def since(connection: Connection, code: str, first: datetime, limit: int) -> list[Outage]:
    """Of the newest `limit` those that lasted then or later, whenever they began; the newest first."""
    rows = await connection.fetch(
        "SELECT * FROM (SELECT began_at, ended_at, detail, orders FROM supplier_outage"
        " WHERE code = $1 ORDER BY began_at DESC LIMIT $3) o WHERE ended_at IS NULL OR ended_at >= $2",
        code,
        first,
        limit,
    )
    return [Outage(**row) for row in rows]


async def latest(connection: Connection) -> dict[str, Outage]:
    """Of each supplier that had one."""
    rows = await connection.fetch(
        "SELECT s.code, o.* FROM supplier s CROSS JOIN LATERAL (SELECT began_at, ended_at, detail, orders"
        " FROM supplier_outage o WHERE o.code = s.code ORDER BY began_at DESC LIMIT 1) o"
    )
    return {row["code"]: Outage(*list(row)[1:]) for row in rows}
