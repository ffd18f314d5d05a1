"""The texts by which orders are found by a part of them (docs/decisions/0041-search.md).

A row of `search_page` holds orders of all dealers that follow each other. A line of it is an order: transactionId and
remark in small letters, with a tab between them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dealer_server.db.connection import Fetching
from dealer_server.db.distributed import is_distributed
from dealer_server.db.session import Session


class Text(NamedTuple):
    """An order that is to be found by its texts."""

    tenant_id: int
    order_id: int
    transaction_id: str
    remark: str | None


class Page(NamedTuple):
    """Orders of a page, the newest first, with their lines."""

    first_order_id: int
    order_ids: list[int]
    tenant_ids: list[int]
    lines: str


async def lock(session: Session) -> int | None:
    """The id up to which orders were collected, locked until the transaction ends; None where another worker has it."""
    rows = await session.fetch("SELECT reached FROM search_progress FOR UPDATE SKIP LOCKED")
    return rows[0]["reached"] if rows else None


_UNCOLLECTED = """
SELECT tenant_id, order_id, transaction_id, remark FROM orders WHERE order_id >= $1 AND order_id < $2
ORDER BY order_id LIMIT $3
"""


async def uncollected(session: Fetching, first: int, end: int, limit: int) -> list[Text]:
    """The oldest orders between two ids, `end` not included."""
    if is_distributed(session):
        rows = await session.fetch(_UNCOLLECTED, first, end, limit)
        return [Text(**row) for row in rows]
    rows = await session.fetch(
        "SELECT t.tenant_id, o.order_id, o.transaction_id, o.remark FROM tenant t CROSS JOIN LATERAL ("
        "  SELECT order_id, transaction_id, remark FROM orders o WHERE o.tenant_id = t.tenant_id AND order_id >= $1"
        "   AND order_id < $2 ORDER BY order_id LIMIT $3"
        " ) o ORDER BY o.order_id LIMIT $3",
        first,
        end,
        limit,
    )
    return [Text(**row) for row in rows]


async def newest(session: Session) -> tuple[int, int] | None:
    """The newest page: its first orderId, and its size in bytes."""
    rows = await session.fetch(
        "SELECT first_order_id, octet_length(lines) + 16 * cardinality(order_ids) AS size FROM search_page"
        " ORDER BY first_order_id DESC LIMIT 1"
    )
    return (rows[0]["first_order_id"], rows[0]["size"]) if rows else None


async def write(session: Session, pages: Sequence[Page], reached: int) -> None:
    """Writes pages; the orders of one that is there are put before those it has. `reached`: orders before this id are
    collected now."""
    for page in pages:
        await session.fetch(
            "INSERT INTO search_page AS p (first_order_id, order_ids, tenant_ids, lines) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (first_order_id) DO UPDATE SET order_ids = EXCLUDED.order_ids || p.order_ids,"
            " tenant_ids = EXCLUDED.tenant_ids || p.tenant_ids, lines = EXCLUDED.lines || E'\\n' || p.lines",
            *page,
        )
    await session.fetch("UPDATE search_progress SET reached = $1", reached)
