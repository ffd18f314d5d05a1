"""What happened hour by hour, over all dealers; and how long delivery took of late."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.access import latency_histogram
from dealer_server.rules.orders import identity

HOUR = timedelta(hours=1)


class Hour(NamedTuple):
    """`turnover`: what orders came to, in ten-thousandths by currency. `attempts`: webhooks posted, `answered` of them
    with success. `reads`, `writes`: calls of the API by how long they took (rules.access.latency_histogram),
    `failed` of them
    answered with a fault of ours."""

    start: datetime
    orders: int
    turnover: Mapping[str, int]
    attempts: int
    answered: int
    reads: Sequence[int]
    writes: Sequence[int]
    failed: int


async def hours(connection: Connection, start: datetime, count: int) -> list[Hour]:
    """So many hours from `start` on, oldest first. Orders are found by primary key, dealer by dealer; attempts by their
    times' block ranges."""
    end = start + count * HOUR
    orders: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in await connection.fetch(_ORDERS, *identity.ids_between(start, end), _seconds(start)):
        orders[row[0]][row[1]] = row[2], row[3]
    attempts = {row[0]: (row[1], row[2]) for row in await connection.fetch(_ATTEMPTS, start, end)}
    calls: dict[tuple[int, bool], list[int]] = defaultdict(lambda: [0] * latency_histogram.BUCKETS)
    for row in await connection.fetch(_CALLS, start, end):
        calls[row[0], row[1]][row[2]] = row[3]
    failed = {row[0]: row[1] for row in await connection.fetch(_FAILED, start, end)}
    return [
        Hour(
            start + at * HOUR,
            sum(number for number, _ in orders[at].values()),
            {currency: amount for currency, (_, amount) in orders[at].items()},
            *attempts.get(at, (0, 0)),
            *(calls[at, False], calls[at, True], failed.get(at, 0)),
        )
        for at in range(count)
    ]


# $1, $2: from the first id on, before the second; $3: the second, counted as ids count, in which the first hour begins.
_ORDERS = f"""
SELECT ((order_id / {identity.SEQUENCE} - $3) / 3600)::int AS at, o.currency, count(*)::bigint, sum(o.amount)::bigint
FROM tenant t CROSS JOIN LATERAL (
    SELECT order_id, currency, amount FROM orders o WHERE o.tenant_id = t.tenant_id AND order_id >= $1 AND order_id < $2
) o GROUP BY at, o.currency
"""


def _by_hour(time: str, columns: str, source: str, also: str = "") -> str:
    return (
        f"SELECT floor(extract(epoch FROM {time} - $1) / 3600)::int AS at, {columns} FROM {source}"
        f" WHERE {time} >= $1 AND {time} < $2 GROUP BY at{also}"
    )


_ATTEMPTS = _by_hour("started_at", "count(*)::bigint, count(*) FILTER (WHERE error IS NULL)::bigint", "webhook_attempt")
_CALLS = _by_hour(
    "minute",
    "writes, (place - 1)::int, sum(calls)::bigint",
    "api_minute CROSS JOIN unnest(spread) WITH ORDINALITY AS class(calls, place)",
    ", writes, place",
)
_FAILED = _by_hour("minute", "sum(failed)::bigint", "api_minute")


def _seconds(at: datetime) -> int:
    return int(at.timestamp()) - identity.EPOCH_SECONDS


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
