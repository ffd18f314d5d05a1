"""How did each dealer's endpoint answer, hour by hour? A worker counts each hour once, when it is over."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.store.webhooks.recent import MOST

HOUR = timedelta(hours=1)


class Answers(NamedTuple):
    """Attempts that began in an hour and were answered alike. `http_status`: 0 where no answer came. `error`: "" where
    the webhook was accepted. `took_ms`: all of them together."""

    hour: datetime
    http_status: int
    error: str
    attempts: int
    took_ms: int


_ALIKE = "coalesce(http_status, 0) AS http_status, coalesce(error, '') AS error"
_SUMS = "count(*)::bigint AS attempts, coalesce(sum(duration_ms), 0)::bigint AS took_ms"
_COUNT = (
    f"SELECT tenant_id, {_ALIKE}, {_SUMS} FROM webhook_attempt"
    " WHERE started_at >= $1 AND started_at < $2 GROUP BY tenant_id, 2, 3"
)
_NEWEST = f"""
SELECT date_trunc('hour', started_at, 'UTC') AS hour, {_ALIKE}, {_SUMS}
FROM (SELECT started_at, http_status, error, duration_ms FROM webhook_attempt WHERE tenant_id = $1
    ORDER BY delivery_id DESC, number DESC LIMIT {MOST}) a
WHERE started_at >= $2 GROUP BY 1, 2, 3
"""


async def uncounted(connection: Connection, first: datetime, end: datetime) -> list[datetime]:
    """Hours of this span that were counted over all dealers, but not by dealer yet; the newest first."""
    rows = await connection.fetch(
        "SELECT start FROM overview_hour WHERE start >= $1 AND start < $2 AND NOT by_dealer ORDER BY start DESC",
        first,
        end,
    )
    return [row["start"] for row in rows]


async def count(connection: Connection, hour: datetime) -> int:
    """Counts an hour that is over, by dealer and answer; how many attempts there were. One worker counts at a time."""
    rows = await connection.fetch(_COUNT, hour, hour + HOUR)
    await connection.executemany(
        "INSERT INTO webhook_hour (tenant_id, hour, http_status, error, attempts, took_ms)"
        " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        [(row["tenant_id"], hour, row["http_status"], row["error"], row["attempts"], row["took_ms"]) for row in rows],
    )
    await connection.execute("UPDATE overview_hour SET by_dealer = true WHERE start = $1", hour)
    return sum(row["attempts"] for row in rows)


async def forget(connection: Connection, before: datetime) -> None:
    """Hours that no page looks at any more."""
    await connection.execute("DELETE FROM webhook_hour WHERE hour < $1", before)


async def hours(connection: Connection, tenant_id: int, since: datetime) -> Sequence[Answers]:
    """Of one dealer: the hours that were counted, and those after them from the newest attempts, MOST of them."""
    counted = await connection.fetch(
        "SELECT hour, http_status, error, attempts, took_ms FROM webhook_hour WHERE tenant_id = $1 AND hour >= $2",
        tenant_id,
        since,
    )
    until: datetime | None = await connection.fetchval("SELECT max(start) FROM overview_hour WHERE by_dealer")
    newest = await connection.fetch(_NEWEST, tenant_id, since if until is None else max(since, until + HOUR))
    return [Answers(**row) for row in (*counted, *newest)]
