"""What operators have written down about an order."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

LONGEST = 2_000
"""Characters."""


class Note(NamedTuple):
    author: str
    note: str
    created_at: datetime


async def add(connection: Connection, tenant_id: int, order_id: int, note: Note) -> None:
    await connection.execute(
        "INSERT INTO order_note (tenant_id, order_id, author, note, created_at) VALUES ($1, $2, $3, $4, $5)",
        tenant_id,
        order_id,
        *note,
    )


async def of_order(connection: Connection, tenant_id: int, order_id: int, limit: int) -> list[Note]:
    """The newest."""
    rows = await connection.fetch(
        "SELECT author, note, created_at FROM order_note WHERE tenant_id = $1 AND order_id = $2"
        " ORDER BY note_id DESC LIMIT $3",
        tenant_id,
        order_id,
        limit,
    )
    return [Note(**row) for row in rows]
