"""What operators see of webhooks: the health of each dealer's endpoint, and the log of all deliveries."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, get_args

from dealer_server.db.by_tenant import OF_ALL, rows_of
from dealer_server.db.connection import Connection
from dealer_server.rules.incidents.health import HEALTHY_PERCENT, LEAST_FAILED
from dealer_server.rules.webhooks import answers as rules
from dealer_server.store.console import pages, queues
from dealer_server.store.console.pages import ListPage, ScanRange
from dealer_server.store.distribution.due import fetch_all
from dealer_server.store.webhooks import answers
from dealer_server.store.webhooks.log import TRIED
from esim_dealer.wire.vocabulary import AttemptError, ChangeHint, DeliveryState, EndpointState, EventType


class EndpointRow(NamedTuple):
    """A dealer's endpoint. `attempts` of the last 24 hours, `accepted` with success. `failed`: all deliveries that
    failed, COUNTED at most. p50, p95: within how many milliseconds so much of its attempts of 24 hours ended."""

    tenant_id: int
    dealer: str
    url: str
    state: EndpointState
    consecutive_failures: int
    last_success_at: datetime | None
    waiting: int
    failed: int
    p50: int | None
    p95: int | None
    attempts: int = 0
    accepted: int = 0


class Wanted(NamedTuple):
    """Which deliveries: all that is given must match. Without a state: all but those that were not needed."""

    tenant_id: int | None = None
    state: DeliveryState | None = None
    event_type: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    tried: bool = False  # had an attempt that failed
    answer: str | None = None  # to the last attempt, or with `tried` to the last one that failed: 500, 5xx, TIMEOUT


class DeliveryRow(NamedTuple):
    """A delivery in the log, with the result of its last attempt that is still kept. `next_attempt_at`: None where no
    attempt is due. `failed_status`, `failed_error`: of the last attempt of several that failed."""

    tenant_id: int
    dealer: str
    delivery_id: int
    order_id: int
    event_type: EventType
    hints: Sequence[ChangeHint] | None
    state: DeliveryState
    attempt_count: int
    next_attempt_at: datetime | None
    created_at: datetime
    http_status: int | None
    error: AttemptError | None
    duration_ms: int | None
    failed_status: int | None
    failed_error: AttemptError | None


COUNTED = 1_000
ANSWERS = 2_000
"""Deliveries whose answers a page looks at, where it wants some of these."""
BY_INDEX: tuple[DeliveryState, ...] = ("RETRY", "FAILED")
"""States of few deliveries, which have an index: they are read by it and not by spans of ids."""
_NONE, _EPOCH, _SOON = 2**53, datetime.fromtimestamp(0, UTC), 64
# Found first, and looked up then: of each dealer as many are found as of all of them together.
_DELIVERIES = """
WITH found AS MATERIALIZED (
    SELECT d.*, t.name AS dealer FROM tenant t CROSS JOIN LATERAL (
        SELECT tenant_id, delivery_id, order_id, event_type, hints, state, attempt_count, due_at, created_at
        FROM webhook_delivery d WHERE d.tenant_id = t.tenant_id AND delivery_id >= $2 AND delivery_id < $3
            {state} AND ($4::text IS NULL OR event_type = $4)
            AND ($5::timestamptz IS NULL OR created_at >= $5) AND ($6::timestamptz IS NULL OR created_at < $6)
        ORDER BY delivery_id {direction} LIMIT $7
    ) d
    WHERE $1::bigint IS NULL OR t.tenant_id = $1 ORDER BY delivery_id {direction} LIMIT $7
)
SELECT f.tenant_id, f.dealer, f.delivery_id, f.order_id, f.event_type, f.hints, f.state, f.attempt_count,
    CASE WHEN f.state IN ('READY', 'RETRY') THEN f.due_at END AS next_attempt_at, f.created_at, last.http_status,
    last.error, last.duration_ms, failed.http_status AS failed_status, failed.error AS failed_error
FROM found f {rows} LEFT JOIN LATERAL (
    SELECT http_status, error, duration_ms FROM webhook_attempt a
    WHERE a.tenant_id = f.tenant_id AND a.delivery_id = f.delivery_id ORDER BY number DESC LIMIT 1
) last ON true LEFT JOIN LATERAL (
    SELECT http_status, error FROM webhook_attempt a
    WHERE a.tenant_id = f.tenant_id AND a.delivery_id = f.delivery_id AND f.attempt_count > 1 AND error IS NOT NULL
    ORDER BY number DESC LIMIT 1
) failed ON true ORDER BY f.delivery_id {direction}
"""
MOST_GAPS = 3
"""Of deliveries that were not needed, which a page passes by."""
# Of each dealer the first that was needed, or the row at which the search for it ends.
_NEEDED = f"""
SELECT d.delivery_id AS id FROM tenant t CROSS JOIN LATERAL (
    SELECT delivery_id FROM (
        SELECT delivery_id, state,
            row_number() OVER (PARTITION BY d.tenant_id ORDER BY d.delivery_id {{direction}}) AS n
        FROM webhook_delivery d WHERE d.tenant_id = t.tenant_id AND delivery_id >= $2 AND delivery_id < $3
    ) d WHERE state <> 'SKIPPED' OR n = {pages.MAX_SCANNED} LIMIT 1
) d WHERE t.tenant_id = ANY($1::bigint[])
"""
_ROWS = rows_of("webhook_delivery", "f", "tenant_id", "delivery_id")
# By the BRIN index of created_at: ids hold no time, but rise with it.
_FIRST = f"SELECT min(delivery_id) AS id FROM webhook_delivery WHERE {OF_ALL} created_at >= $1 AND created_at < $2"
_LAST = f"SELECT max(delivery_id) AS id FROM webhook_delivery WHERE {OF_ALL} created_at >= $1 AND created_at < $2"


_HAS_NONE = "coalesce(e.state, 'NOT_SET') = 'NOT_SET' AND coalesce(e.rt_url, '') = ''"
"""A dealer without an endpoint, of either dialect."""
_ENDPOINTS = f"""
SELECT t.tenant_id, t.name AS dealer, coalesce(e.url, '') AS url, coalesce(e.state, 'NOT_SET') AS state,
    coalesce(e.consecutive_failures, 0) AS consecutive_failures, e.last_success_at, w.waiting, f.failed,
    l.p50, l.p95
FROM (
    SELECT tenant_id, name, CASE WHEN e.state = 'ACTIVE' AND e.consecutive_failures > 0 THEN 0
        WHEN e.state = 'DISABLED' THEN 1 WHEN tenant_id = ANY($4::bigint[]) THEN 2 WHEN e.state = 'ACTIVE' THEN 3
        ELSE 4 END AS place,
        coalesce(e.consecutive_failures, 0) AS failures
    FROM tenant LEFT JOIN webhook_endpoint e USING (tenant_id) WHERE $3 OR NOT ({_HAS_NONE})
    ORDER BY place, failures DESC, tenant_id LIMIT $2 OFFSET $1
) t LEFT JOIN webhook_endpoint e USING (tenant_id) {rows_of("wallet", "t", "tenant_id")}
CROSS JOIN LATERAL (SELECT count(*)::int AS waiting FROM (SELECT FROM webhook_delivery d
    WHERE d.tenant_id = t.tenant_id AND d.state IN ('WAITING', 'READY', 'IN_FLIGHT', 'RETRY') LIMIT {COUNTED}) d) w
CROSS JOIN LATERAL (SELECT {answers.PERCENTILES} FROM (SELECT started_at, duration_ms FROM webhook_attempt a
    WHERE a.tenant_id = t.tenant_id ORDER BY delivery_id DESC, number DESC LIMIT {answers.NEWEST}) a
    WHERE a.started_at >= $5) l
CROSS JOIN LATERAL (SELECT count(*)::int AS failed FROM (SELECT FROM webhook_delivery d
    WHERE d.tenant_id = t.tenant_id AND d.state = 'FAILED' LIMIT {COUNTED}) d) f
ORDER BY t.place, t.failures DESC, t.tenant_id
"""


_DEGRADED = f"""
SELECT tenant_id FROM webhook_hour WHERE {OF_ALL} hour >= $1 GROUP BY tenant_id
HAVING 100 * coalesce(sum(attempts) FILTER (WHERE error = ''), 0) < {HEALTHY_PERCENT} * sum(attempts)
    AND sum(attempts) FILTER (WHERE error <> '') >= {LEAST_FAILED}
"""


async def endpoints(
    connection: Connection, offset: int, limit: int, since: datetime, *, with_none: bool = False
) -> list[EndpointRow]:
    """First those that fail, with the most failures in a row first, then those that are paused, degraded `since` and
    the healthy ones; `with_none`: then the dealers without one."""
    degraded = [row["tenant_id"] for row in await fetch_all(connection, _DEGRADED, since)]
    rows = [EndpointRow(**row) for row in await connection.fetch(_ENDPOINTS, offset, limit, with_none, degraded, since)]
    answered = await answers.of_dealers(connection, [row.tenant_id for row in rows], since)
    return [row._replace(**answered[row.tenant_id]._asdict()) if row.tenant_id in answered else row for row in rows]


async def dealers_with_none(connection: Connection) -> int:
    """How many dealers have no endpoint."""
    sql = f"SELECT count(*)::int FROM tenant LEFT JOIN webhook_endpoint e USING (tenant_id) WHERE {_HAS_NONE}"
    return await connection.fetchval(sql) or 0


async def counts(connection: Connection, tenant_id: int | None = None) -> dict[str, int]:
    """By state, COUNTED at most: those BY_INDEX; of all dealers also in ALL and what queues.by_status knows."""
    found = await queues.by_status(connection, "webhook_delivery", most=COUNTED) if tenant_id is None else {}
    if tenant_id is None and found.get("ALL", COUNTED) < COUNTED:
        found.setdefault("DELIVERED", 0)
    for state in BY_INDEX:
        whose = OF_ALL if tenant_id is None else "tenant_id = $1 AND"
        some = f"SELECT 1 FROM webhook_delivery WHERE {whose} state = '{state}' LIMIT {COUNTED}"
        sql = f"SELECT count(*)::int AS counted FROM ({some}) d"
        rows = await (fetch_all(connection, sql) if tenant_id is None else connection.fetch(sql, tenant_id))
        found[state] = min(sum(row["counted"] for row in rows), COUNTED)
    return found


async def count(connection: Connection, tenant_id: int, start: datetime | None, now: datetime) -> int | None:
    """Of one dealer since then, COUNTED at most, without those that are SKIPPED; None where these hide how many."""
    first, _ = await ids_between(connection, start, None, now)
    row = await connection.fetchrow(
        "SELECT count(*)::int AS rows, (count(*) FILTER (WHERE state <> 'SKIPPED'))::int AS listed FROM ("
        " SELECT state FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id >= $2"
        f" ORDER BY delivery_id DESC LIMIT {COUNTED}) d",
        tenant_id,
        first,
    )
    assert row is not None
    return row["listed"] if row["rows"] in (row["listed"], 0) or row["rows"] < COUNTED else None


async def deliveries(
    connection: Connection, wanted: Wanted, seen: int | None, size: int, now: datetime, *, oldest_first: bool = False
) -> ListPage[DeliveryRow]:
    """The newest that match, or the oldest ones, after the one seen last; of one dealer or of all."""
    first, end = await ids_between(connection, wanted.start, wanted.end, now)
    left = ScanRange("webhook_delivery", "delivery_id", wanted.tenant_id, first, end, oldest_first, step=1)

    async def matching(begin: int, end: int, limit: int) -> list[DeliveryRow]:
        assert wanted.state is None or wanted.state in get_args(DeliveryState), "it is a literal in the SQL"
        state = f"AND state = '{wanted.state}'" if wanted.state else "AND state <> 'SKIPPED'"
        state += f" AND {TRIED}" if wanted.tried else ""
        sql = _DELIVERIES.format(state=state, direction=left.direction, rows=_ROWS)
        times = wanted.event_type, wanted.start, wanted.end
        rows = await connection.fetch(sql, wanted.tenant_id, begin, end, *times, limit)
        return [DeliveryRow(**row) for row in rows]

    async def answered(begin: int, end: int, limit: int) -> list[DeliveryRow]:
        return _answered(await matching(begin, end, ANSWERS), wanted)[:limit]

    span = left.after(seen)
    if wanted.state not in BY_INDEX:
        read_rows, scanned = (answered, ANSWERS) if wanted.answer else (matching, pages.MAX_SCANNED)
        found = await pages.scan(connection, span, size, read_rows, _id, scanned)
        for _ in range(MOST_GAPS if wanted.state is None and wanted.answer is None and not wanted.tried else 0):
            if found.next is None:
                break
            over = await _over_skipped(connection, left.after(found.next))
            if over is None or len(found.rows) == size:
                return ListPage(found.rows, found.next if over is not None else None)
            more = await pages.scan(connection, left.after(over), size - len(found.rows), read_rows, _id, scanned)
            found = ListPage([*found.rows, *more.rows], more.next)
        return found
    read = await matching(span.first, span.end, ANSWERS if wanted.answer else size + 1)
    rows = _answered(read, wanted)
    if len(rows) > size:
        return ListPage(rows[:size], rows[size - 1].delivery_id)
    return ListPage(rows, read[-1].delivery_id if wanted.answer and len(read) == ANSWERS else None)


def _id(row: DeliveryRow) -> int:
    return row.delivery_id


async def _over_skipped(connection: Connection, left: ScanRange) -> int | None:
    """The id behind which the next delivery stands that was needed; None where there is no such. Where that is further
    than MAX_SCANNED rows of a dealer, an id on the way. Dealers who never had an endpoint have none."""
    rows = await fetch_all(connection, f"SELECT tenant_id FROM webhook_endpoint WHERE {OF_ALL} true")
    tenants = [row["tenant_id"] for row in rows if left.tenant_id in (None, row["tenant_id"])]
    needed = await connection.fetch(_NEEDED.format(direction=left.direction), tenants, left.first, left.end)
    ids = [row["id"] for row in needed]
    if not ids:
        return None
    return min(ids) - 1 if left.oldest_first else max(ids) + 1


def _answered(rows: list[DeliveryRow], wanted: Wanted) -> list[DeliveryRow]:
    answer = wanted.answer
    if answer is None:
        return rows
    return [
        row
        for row in rows
        if rules.matches(answer, row.http_status, row.error)
        or (wanted.tried and row.failed_error and rules.matches(answer, row.failed_status, row.failed_error))
    ]


async def ids_between(
    connection: Connection, start: datetime | None, end: datetime | None, now: datetime
) -> tuple[int, int]:
    """The ids of deliveries created at `start` or later and before `end`; the last one is none of them."""
    first = await _edge(connection, _FIRST, start, now) if start else 0
    last = await _edge(connection, _LAST, end, now) if end and end < now else _NONE
    return _NONE if first is None else first, 0 if last is None else min(last + 1, _NONE)


async def _edge(connection: Connection, sql: str, at: datetime, now: datetime) -> int | None:
    """The id next to a time: within ever longer spans of it, for most are short. Where none is found soon after a
    time, 0: it is before all deliveries, most likely."""
    hours, forward = 1, sql is _FIRST
    while True:
        span = timedelta(hours=hours)
        between = (at, at + span) if forward else (max(at, _EPOCH + span) - span, at)
        ids = [row["id"] for row in await fetch_all(connection, sql, *between) if row["id"] is not None]
        if ids:
            return min(ids) if forward else max(ids)
        if between[1] > now if forward else between[0] <= _EPOCH:
            return None
        if forward and hours >= _SOON:
            return 0
        hours *= 8
