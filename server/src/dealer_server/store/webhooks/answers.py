"""How did each dealer's endpoint answer, hour by hour? A worker counts each hour once, when it is over."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.by_tenant import OF_ALL
from dealer_server.db.connection import Connection
from dealer_server.store.distribution.due import fetch_all

HOUR = timedelta(hours=1)
MOST = 2_000
"""Attempts of a dealer that are looked at: those of the newest deliveries."""


class Answers(NamedTuple):
    """Attempts that began in an hour and were answered alike. `http_status`: 0 where no answer came. `error`: "" where
    the webhook was accepted. `took_ms`: all of them together."""

    hour: datetime
    http_status: int
    error: str
    attempts: int
    took_ms: int


class Latency(NamedTuple):
    """Within how many milliseconds half, and 95 % of the newest attempts ended; None where there was none."""

    p50: int | None = None
    p95: int | None = None


class LastFailure(NamedTuple):
    """The newest attempt that failed in one way."""

    http_status: int | None
    error: str
    started_at: datetime
    delivery_id: int


class Answered(NamedTuple):
    """Of so many attempts so many were accepted."""

    accepted: int = 0
    attempts: int = 0


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


NEWEST = 500
"""Attempts of a dealer since the last counted hour, of which a list looks at no more; a latency is of these too."""
_COUNTED_OF = """
SELECT key.tenant_id, coalesce(sum(h.attempts) FILTER (WHERE h.error = ''), 0)::bigint AS accepted,
    sum(h.attempts)::bigint AS attempts
FROM unnest($1::bigint[]) AS key(tenant_id)
JOIN webhook_hour h ON h.tenant_id = key.tenant_id AND h.hour >= $2 GROUP BY key.tenant_id
"""
_NEWEST_OF = f"""
SELECT key.tenant_id, count(*) FILTER (WHERE a.error IS NULL) AS accepted, count(*) AS attempts
FROM unnest($1::bigint[]) AS key(tenant_id) CROSS JOIN LATERAL (
    SELECT started_at, error FROM webhook_attempt a WHERE a.tenant_id = key.tenant_id
    ORDER BY delivery_id DESC, number DESC LIMIT {NEWEST}
) a WHERE a.started_at >= $2 GROUP BY key.tenant_id
"""


_ALL_COUNTED = f"""
SELECT hour, http_status, error, sum(attempts)::bigint AS attempts, sum(took_ms)::bigint AS took_ms
FROM webhook_hour WHERE {OF_ALL} hour >= $1 GROUP BY 1, 2, 3
"""
_ALL_NEWEST = f"""
SELECT date_trunc('hour', started_at, 'UTC') AS hour, {_ALIKE}, {_SUMS}
FROM webhook_attempt WHERE {OF_ALL} started_at >= $1 GROUP BY 1, 2, 3
"""
PERCENTILES = (
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY duration_ms)::int AS p50,"
    " percentile_disc(0.95) WITHIN GROUP (ORDER BY duration_ms)::int AS p95"
)
_LATENCY = f"""
SELECT {PERCENTILES} FROM (SELECT started_at, duration_ms FROM webhook_attempt WHERE tenant_id = $1
    ORDER BY delivery_id DESC, number DESC LIMIT {NEWEST}) a WHERE started_at >= $2
"""
_LATENCIES = f"""
SELECT date_bin($3::interval, started_at, $2) AS start, {PERCENTILES} FROM (
    SELECT started_at, duration_ms FROM webhook_attempt WHERE tenant_id = $1
    ORDER BY delivery_id DESC, number DESC LIMIT {MOST}) a WHERE started_at >= $2 GROUP BY 1
"""
_LAST_FAILURES = f"""
SELECT DISTINCT ON (http_status, error) http_status, error, started_at, delivery_id
FROM (SELECT http_status, error, started_at, delivery_id FROM webhook_attempt WHERE tenant_id = $1
    ORDER BY delivery_id DESC, number DESC LIMIT {MOST}) a
WHERE error IS NOT NULL AND started_at >= $2 ORDER BY http_status, error, started_at DESC
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


async def of_dealers(connection: Connection, tenant_ids: Sequence[int], since: datetime) -> dict[int, Answered]:
    """How these dealers' endpoints answered since an hour: by dealer, of those with any attempt."""
    until: datetime | None = await connection.fetchval("SELECT max(start) FROM overview_hour WHERE by_dealer")
    counted = await connection.fetch(_COUNTED_OF, list(tenant_ids), since)
    newest = await connection.fetch(_NEWEST_OF, list(tenant_ids), since if until is None else max(since, until + HOUR))
    found = dict[int, Answered]()
    for row in (*counted, *newest):
        before = found.get(row["tenant_id"], Answered())
        found[row["tenant_id"]] = Answered(before.accepted + row["accepted"], before.attempts + row["attempts"])
    return found


async def of_all(connection: Connection, since: datetime) -> Sequence[Answers]:
    """Of all dealers together: the hours that were counted, and those after them as they are now."""
    counted = await fetch_all(connection, _ALL_COUNTED, since)
    until: datetime | None = await connection.fetchval("SELECT max(start) FROM overview_hour WHERE by_dealer")
    newest = await fetch_all(connection, _ALL_NEWEST, since if until is None else max(since, until + HOUR))
    return [Answers(**row) for row in (*counted, *newest)]


async def latency(connection: Connection, tenant_id: int, since: datetime) -> Latency:
    """Of the newest attempts of a dealer, NEWEST of them."""
    row = await connection.fetchrow(_LATENCY, tenant_id, since)
    return Latency(**row) if row else Latency()


async def latencies(
    connection: Connection, tenant_id: int, since: datetime, each: timedelta
) -> Mapping[datetime, Latency]:
    """The same by spans of time from `since` on, by the beginnings of those with any attempt."""
    rows = await connection.fetch(_LATENCIES, tenant_id, since, each)
    return {row["start"]: Latency(row["p50"], row["p95"]) for row in rows}


async def last_failures(connection: Connection, tenant_id: int, since: datetime) -> list[LastFailure]:
    """One of each way, among the newest attempts of a dealer, MOST of them."""
    return [LastFailure(**row) for row in await connection.fetch(_LAST_FAILURES, tenant_id, since)]


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
