"""Orders, webhooks and calls hour by hour, over all dealers; and how long recent deliveries took.

A worker counts each hour once, when it is over (operations/overview/count_hours.py).
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.access import latency_histogram
from dealer_server.rules.orders import identity

HOUR = timedelta(hours=1)
_COUNT_LOCK = 5_382_034


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


# Hours that are over, counted once


async def stored(connection: Connection, start: datetime, end: datetime, *, calls: bool = True) -> list[Hour]:
    """The hours of this span that a worker has counted, oldest first. `calls`: with how long calls took."""
    columns = ", ".join(
        name if calls or name not in ("reads", "writes") else f"NULL AS {name}" for name in Hour._fields
    )
    rows = await connection.fetch(
        f"SELECT {columns} FROM overview_hour WHERE start >= $1 AND start < $2 ORDER BY start", start, end
    )
    return [
        Hour(
            **{
                **row,
                "turnover": json.loads(row["turnover"]),
                "reads": row["reads"] or (),
                "writes": row["writes"] or (),
            }
        )
        for row in rows
    ]


async def missing(connection: Connection, first: datetime, end: datetime) -> list[datetime]:
    """The hours of this span that no worker has counted, newest first; none before the first dealer was created."""
    rows = await connection.fetch(
        "SELECT hour FROM generate_series("
        "  greatest($1::timestamptz, date_trunc('hour', (SELECT min(created_at) FROM tenant), 'UTC')),"
        "  $2::timestamptz - interval '1 hour', interval '1 hour') hour"
        " WHERE EXISTS (SELECT FROM tenant) AND NOT EXISTS (SELECT FROM overview_hour o WHERE o.start = hour)"
        " ORDER BY hour DESC",
        first,
        end,
    )
    return [row["hour"] for row in rows]


async def put(connection: Connection, hours: Sequence[Hour]) -> None:
    """Hours that are over. What another worker has counted stays."""
    await connection.executemany(
        f"INSERT INTO overview_hour ({', '.join(Hour._fields)}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
        " ON CONFLICT DO NOTHING",
        [tuple(hour._replace(turnover=json.dumps(hour.turnover))) for hour in hours],
    )


async def only_count(connection: Connection) -> bool:
    """Whether no other worker counts at present; holds until the transaction ends."""
    return bool(await connection.fetchval(f"SELECT pg_try_advisory_xact_lock({_COUNT_LOCK})"))


async def worker_seen(connection: Connection, now: datetime) -> None:
    await connection.execute(
        "INSERT INTO worker_seen AS w (at) VALUES ($1)"
        " ON CONFLICT (one) DO UPDATE SET at = greatest(w.at, excluded.at)",
        now,
    )


async def first_dealer_at(connection: Connection) -> datetime | None:
    """When the first dealer was created: before that there is nothing to count."""
    return await connection.fetchval("SELECT min(created_at) FROM tenant")


async def delivery_seconds(connection: Connection, keys: Sequence[tuple[int, int]]) -> list[float]:
    """From payment to the first profile delivered, of each of these (tenant_id, orderId); the oldest order first."""
    rows = await connection.fetch(
        "SELECT extract(epoch FROM changed - paid)::float8 AS seconds FROM ("
        " SELECT order_id, min(created_at) FILTER (WHERE event_type = 'ORDER_PAID') AS paid,"
        "  min(created_at) FILTER (WHERE event_type = 'DELIVERY_UPDATED') AS changed"
        " FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id)"
        " JOIN webhook_delivery USING (tenant_id, order_id) GROUP BY tenant_id, order_id"
        ") took WHERE changed IS NOT NULL AND paid IS NOT NULL ORDER BY order_id",
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    return [row["seconds"] for row in rows]
