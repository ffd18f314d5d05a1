"""What happened in an hour, over all dealers; and how long delivery took of late."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.rules import identity
from dealer_server.store.database import Connection

HOUR = timedelta(hours=1)


class Hour(NamedTuple):
    """`turnover`: what orders came to, in ten-thousandths by currency. `attempts`: webhooks posted, `answered` of them
    with success."""

    start: datetime
    orders: int
    turnover: Mapping[str, int]
    attempts: int
    answered: int


async def hour(connection: Connection, start: datetime) -> Hour:
    """The orders by primary key, dealer by dealer; the attempts by their times' block ranges."""
    orders = await connection.fetch(
        "SELECT o.currency, count(*)::bigint, sum(o.amount)::bigint FROM tenant t CROSS JOIN LATERAL ("
        " SELECT currency, amount FROM orders o WHERE o.tenant_id = t.tenant_id AND order_id >= $1 AND order_id < $2"
        ") o GROUP BY o.currency",
        *identity.ids_between(start, start + HOUR),
    )
    attempts = await connection.fetchrow(
        "SELECT count(*)::bigint, count(*) FILTER (WHERE error IS NULL)::bigint FROM webhook_attempt"
        " WHERE started_at >= $1 AND started_at < $2",
        start,
        start + HOUR,
    )
    assert attempts is not None
    return Hour(start, sum(row[1] for row in orders), {row[0]: row[2] for row in orders}, attempts[0], attempts[1])


async def delivery_seconds(connection: Connection, keys: Sequence[tuple[int, int]]) -> list[float]:
    """From payment to the first profile delivered, of each of these (tenant_id, orderId); the quickest first."""
    rows = await connection.fetch(
        "SELECT extract(epoch FROM changed - paid)::float8 FROM ("
        " SELECT min(created_at) FILTER (WHERE event_type = 'ORDER_PAID') AS paid,"
        "  min(created_at) FILTER (WHERE event_type = 'DELIVERY_UPDATED') AS changed"
        " FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id)"
        " JOIN webhook_delivery USING (tenant_id, order_id) GROUP BY tenant_id, order_id"
        ") took WHERE changed IS NOT NULL AND paid IS NOT NULL ORDER BY 1",
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    return [row[0] for row in rows]
