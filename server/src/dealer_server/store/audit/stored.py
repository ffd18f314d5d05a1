"""What is there at all? Of a backup, to see how old it is."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.orders import identity


class Stored(NamedTuple):
    orders: int
    newest_order_at: datetime | None


async def stored(connection: Connection) -> Stored:
    row = await connection.fetchrow("SELECT count(*) AS orders, max(order_id) AS newest FROM orders")
    assert row is not None
    return Stored(row["orders"], None if row["newest"] is None else identity.created_at(row["newest"]))
