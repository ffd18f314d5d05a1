"""Files of orders that dealers' users gave, with their lines."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import batch, columns
from dealer_server.db.connection import Connection
from dealer_server.rules.orders.bulk import BulkLine

_TEXTS = ("remark", "reference", "mail", "language")
KEPT = 100
"""How many files of a dealer are kept."""


class Bulk(NamedTuple):
    """`confirmed_at`: when it was first bought from, None where it was only looked at. `orders`: how many lines;
    `esims`: of all of them; `refused`: lines that were not placed the last time."""

    bulk_id: int
    token: str
    author: str
    created_at: datetime
    confirmed_at: datetime | None
    orders: int
    esims: int
    refused: int


class RefusedLine(NamedTuple):
    """Why a line was not placed the last time: a result code, and a sentence for people."""

    line: int
    refused: str
    message: str


class OrderState(NamedTuple):
    """`amount` in ten-thousandths."""

    order_id: int
    amount: int
    order_status: str
    delivery_status: str


async def add(
    connection: Connection,
    tenant_id: int,
    token: str,
    file_sha256: bytes,
    lines: Sequence[BulkLine],
    author: str,
    now: datetime,
) -> int:
    """Its number. Those of before that are too many go."""
    bulk_id: int | None = await connection.fetchval(
        "INSERT INTO bulk_order (tenant_id, token, file_sha256, author, created_at) VALUES ($1, $2, $3, $4, $5)"
        " RETURNING bulk_id",
        tenant_id,
        token,
        file_sha256,
        author,
        now,
    )
    assert bulk_id is not None, "a row is inserted"
    kinds = {"line": "integer", "package_code": "text", "quantity": "integer", "period_num": "integer"}
    await connection.execute(
        "INSERT INTO bulk_line (tenant_id, bulk_id, line, package_code, quantity, period_num, remark, reference, mail,"
        f" language) SELECT $1, $2, * FROM {batch('line', 3, **kinds, **dict.fromkeys(_TEXTS, 'text'))}",
        tenant_id,
        bulk_id,
        *columns(lines, 8),
    )
    await connection.execute(
        "DELETE FROM bulk_order WHERE tenant_id = $1 AND bulk_id <= (SELECT bulk_id FROM bulk_order"
        " WHERE tenant_id = $1 ORDER BY bulk_id DESC OFFSET $2 LIMIT 1)",
        tenant_id,
        KEPT,
    )
    return bulk_id


_BULK = (
    "SELECT bulk_id, token, author, created_at, confirmed_at, orders, esims, l.refused FROM bulk_order b"
    " CROSS JOIN LATERAL (SELECT count(*) AS orders, coalesce(sum(quantity), 0)::bigint AS esims,"
    "  count(refused) AS refused FROM bulk_line l WHERE l.tenant_id = b.tenant_id AND l.bulk_id = b.bulk_id) l"
)


async def find(connection: Connection, tenant_id: int, bulk_id: int) -> Bulk | None:
    row = await connection.fetchrow(f"{_BULK} WHERE tenant_id = $1 AND bulk_id = $2", tenant_id, bulk_id)
    return None if row is None else Bulk(**row)


async def newest(connection: Connection, tenant_id: int, limit: int) -> Sequence[Bulk]:
    rows = await connection.fetch(f"{_BULK} WHERE tenant_id = $1 ORDER BY bulk_id DESC LIMIT $2", tenant_id, limit)
    return [Bulk(**row) for row in rows]


async def bought_before(connection: Connection, tenant_id: int, bulk_id: int) -> int | None:
    """The newest earlier file of the same content that was bought from."""
    return await connection.fetchval(
        "SELECT max(b.bulk_id) FROM bulk_order b JOIN bulk_order this ON this.tenant_id = $1 AND this.bulk_id = $2"
        " WHERE b.tenant_id = $1 AND b.bulk_id < $2 AND b.file_sha256 = this.file_sha256"
        " AND b.confirmed_at IS NOT NULL",
        tenant_id,
        bulk_id,
    )


async def lines(connection: Connection, tenant_id: int, bulk_id: int) -> Sequence[BulkLine]:
    rows = await connection.fetch(
        "SELECT line, package_code, quantity, period_num, coalesce(remark, '') AS remark,"
        " coalesce(reference, '') AS reference, coalesce(mail, '') AS mail,"
        " coalesce(language, '') AS language FROM bulk_line WHERE tenant_id = $1 AND bulk_id = $2 ORDER BY line",
        tenant_id,
        bulk_id,
    )
    return [BulkLine(**row) for row in rows]


async def refused(connection: Connection, tenant_id: int, bulk_id: int) -> dict[int, RefusedLine]:
    """By line."""
    rows = await connection.fetch(
        "SELECT line, refused, message FROM bulk_line WHERE tenant_id = $1 AND bulk_id = $2 AND refused IS NOT NULL",
        tenant_id,
        bulk_id,
    )
    return {row["line"]: RefusedLine(**row) for row in rows}


async def confirm(connection: Connection, tenant_id: int, bulk_id: int, now: datetime) -> None:
    await connection.execute(
        "UPDATE bulk_order SET confirmed_at = coalesce(confirmed_at, $3) WHERE tenant_id = $1 AND bulk_id = $2",
        tenant_id,
        bulk_id,
        now,
    )
    await connection.execute(
        "UPDATE bulk_line SET refused = NULL, message = NULL WHERE tenant_id = $1 AND bulk_id = $2"
        " AND refused IS NOT NULL",
        tenant_id,
        bulk_id,
    )


async def record_refused(connection: Connection, tenant_id: int, bulk_id: int, left: Sequence[RefusedLine]) -> None:
    await connection.execute(
        "UPDATE bulk_line l SET refused = given.refused, message = given.message"
        f" FROM {batch('given', 3, line='integer', refused='text', message='text')}"
        " WHERE l.tenant_id = $1 AND l.bulk_id = $2 AND l.line = given.line",
        tenant_id,
        bulk_id,
        *columns(left, 3),
    )


async def states(connection: Connection, tenant_id: int, order_ids: Sequence[int]) -> dict[int, OrderState]:
    """By orderId."""
    rows = await connection.fetch(
        f"SELECT o.order_id, o.amount, o.order_status, o.delivery_status FROM {batch('key', 2, order_id='bigint')}"
        " CROSS JOIN LATERAL (SELECT order_id, amount, order_status, delivery_status FROM orders o"
        "  WHERE o.tenant_id = $1 AND o.order_id = key.order_id OFFSET 0) o",
        tenant_id,
        order_ids,
    )
    return {row["order_id"]: OrderState(**row) for row in rows}
