"""Orders, webhooks and calls hour by hour, over all dealers; and how long recent deliveries took."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.access import latency_histogram
from dealer_server.rules.orders import identity

HOUR = timedelta(hours=1)


class Hour(NamedTuple):
    """`turnover`: the amount of orders, in ten-thousandths by currency. `attempts`: webhooks posted, `answered` of them
    with success. `reads`, `writes`: calls of the API by how long they took (rules.access.latency_histogram),
    `failed` of them with an error of the service."""

    start: datetime
    orders: int
    turnover: Mapping[str, int]
    attempts: int
    answered: int
    reads: Sequence[int]
    writes: Sequence[int]
    failed: int


async def hours(connection: Connection, start: datetime, count: int) -> list[Hour]:
    """`count` hours from `start` on, oldest first. Orders are found by primary key, dealer by dealer; attempts by the
    block ranges of their times."""
    end = start + count * HOUR
    turnover: dict[int, dict[str, int]] = defaultdict(dict)
    orders: Counter[int] = Counter()
    for row in await connection.fetch(_ORDERS, *identity.ids_between(start, end), _seconds(start)):
        turnover[row["at"]][row["currency"]] = row["amount"]
        orders[row["at"]] += row["orders"]
    attempts = {row["at"]: row for row in await connection.fetch(_ATTEMPTS, start, end)}
    calls: dict[tuple[int, bool], list[int]] = defaultdict(lambda: [0] * latency_histogram.BUCKETS)
    for row in await connection.fetch(_CALLS, start, end):
        calls[row["at"], row["writes"]][row["class"]] = row["calls"]
    failed = {row["at"]: row["failed"] for row in await connection.fetch(_FAILED, start, end)}
    return [
        Hour(
            start=start + at * HOUR,
            orders=orders[at],
            turnover=turnover[at],
            attempts=attempts[at]["attempts"] if at in attempts else 0,
            answered=attempts[at]["answered"] if at in attempts else 0,
            reads=calls[at, False],
            writes=calls[at, True],
            failed=failed.get(at, 0),
        )
        for at in range(count)
    ]


# $1, $2: from the first id on, before the second; $3: the second, counted as ids count, in which the first hour begins.
_ORDERS = f"""
SELECT ((order_id / {identity.SEQUENCE} - $3) / 3600)::int AS at, o.currency, count(*)::bigint AS orders,
    sum(o.amount)::bigint AS amount
FROM tenant t CROSS JOIN LATERAL (
    SELECT order_id, currency, amount FROM orders o WHERE o.tenant_id = t.tenant_id AND order_id >= $1 AND order_id < $2
) o GROUP BY at, o.currency
"""


def _by_hour(time: str, columns: str, source: str, also: str = "") -> str:
    return (
        f"SELECT floor(extract(epoch FROM {time} - $1) / 3600)::int AS at, {columns} FROM {source}"
        f" WHERE {time} >= $1 AND {time} < $2 GROUP BY at{also}"
    )


_ATTEMPTS = _by_hour(
    "started_at",
    "count(*)::bigint AS attempts, count(*) FILTER (WHERE error IS NULL)::bigint AS answered",
    "webhook_attempt",
)
_CALLS = _by_hour(
    "minute",
    "writes, (place - 1)::int AS class, sum(calls)::bigint AS calls",
    "api_minute CROSS JOIN unnest(spread) WITH ORDINALITY AS class(calls, place)",
    ", writes, place",
)
_FAILED = _by_hour("minute", "sum(failed)::bigint AS failed", "api_minute")


def _seconds(at: datetime) -> int:
    return int(at.timestamp()) - identity.EPOCH_SECONDS


async def delivery_seconds(connection: Connection, keys: Sequence[tuple[int, int]]) -> list[float]:
    """From payment to the first profile delivered, of each of these (tenant_id, orderId); the quickest first."""
    rows = await connection.fetch(
        "SELECT extract(epoch FROM changed - paid)::float8 AS seconds FROM ("
        " SELECT min(created_at) FILTER (WHERE event_type = 'ORDER_PAID') AS paid,"
        "  min(created_at) FILTER (WHERE event_type = 'DELIVERY_UPDATED') AS changed"
        " FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id)"
        " JOIN webhook_delivery USING (tenant_id, order_id) GROUP BY tenant_id, order_id"
        ") took WHERE changed IS NOT NULL AND paid IS NOT NULL ORDER BY seconds",
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    return [row["seconds"] for row in rows]
