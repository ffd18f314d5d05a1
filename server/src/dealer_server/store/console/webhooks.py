"""What operators see of webhooks: the health of each dealer's endpoint, and failed deliveries."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.by_tenant import OF_ALL, rows_of
from dealer_server.db.connection import Connection
from dealer_server.store.console import pages
from dealer_server.store.distribution.due import fetch_all
from esim_dealer.wire.vocabulary import EndpointState

SAMPLE = 200
"""How many of a dealer's latest deliveries its success rate is computed from."""


class EndpointRow(NamedTuple):
    """A dealer's endpoint. `attempts` counts those of its latest deliveries, `accepted` those with success. `failed`:
    all deliveries that failed, COUNTED at most."""

    tenant_id: int
    dealer: str
    url: str
    state: EndpointState
    consecutive_failures: int
    last_success_at: datetime | None
    waiting: int
    attempts: int
    accepted: int
    failed: int


class FailedDelivery(NamedTuple):
    """A delivery that is not tried any more, with the result of its last attempt."""

    tenant_id: int
    dealer: str
    delivery_id: int
    order_id: int
    event_type: str
    attempt_count: int
    created_at: datetime
    finished_at: datetime | None
    http_status: int | None
    error: str | None


COUNTED = 1_000
_FAILED = """
SELECT d.tenant_id, t.name AS dealer, d.delivery_id, d.order_id, d.event_type, d.attempt_count, d.created_at,
    d.finished_at, last.http_status, last.error
FROM tenant t CROSS JOIN LATERAL (
    SELECT * FROM webhook_delivery d WHERE d.tenant_id = t.tenant_id AND d.state = 'FAILED'
        AND ($2::bigint IS NULL OR d.delivery_id {beyond} $2) ORDER BY d.delivery_id {direction} LIMIT $3
) d LEFT JOIN LATERAL (
    SELECT http_status, error FROM webhook_attempt a WHERE a.tenant_id = d.tenant_id AND a.delivery_id = d.delivery_id
    ORDER BY number DESC LIMIT 1
) last ON true
WHERE $1::bigint IS NULL OR t.tenant_id = $1 ORDER BY d.delivery_id {direction} LIMIT $3
"""


_HAS_NONE = "coalesce(e.state, 'NOT_SET') = 'NOT_SET' AND coalesce(e.rt_url, '') = ''"
"""A dealer without an endpoint, of either dialect."""
# A delivery that was accepted had one good attempt; the others of it failed.
_ENDPOINTS = f"""
SELECT t.tenant_id, t.name AS dealer, coalesce(e.url, '') AS url, coalesce(e.state, 'NOT_SET') AS state,
    coalesce(e.consecutive_failures, 0) AS consecutive_failures, e.last_success_at, w.waiting, s.attempts,
    s.accepted, f.failed
FROM (
    SELECT tenant_id, name, CASE WHEN e.state = 'ACTIVE' AND e.consecutive_failures > 0 THEN 0
        WHEN e.state = 'DISABLED' THEN 1 WHEN e.state = 'ACTIVE' THEN 2 ELSE 3 END AS place,
        coalesce(e.consecutive_failures, 0) AS failures
    FROM tenant LEFT JOIN webhook_endpoint e USING (tenant_id) WHERE $3 OR NOT ({_HAS_NONE})
    ORDER BY place, failures DESC, tenant_id LIMIT $2 OFFSET $1
) t LEFT JOIN webhook_endpoint e USING (tenant_id) {rows_of("wallet", "t", "tenant_id")}
CROSS JOIN LATERAL (SELECT count(*)::int AS waiting FROM (SELECT FROM webhook_delivery d
    WHERE d.tenant_id = t.tenant_id AND d.state IN ('WAITING', 'READY', 'IN_FLIGHT', 'RETRY') LIMIT {COUNTED}) d) w
CROSS JOIN LATERAL (SELECT coalesce(sum(d.attempt_count), 0)::int AS attempts,
    count(*) FILTER (WHERE d.state = 'DELIVERED')::int AS accepted
    FROM (SELECT state, attempt_count FROM webhook_delivery d WHERE d.tenant_id = t.tenant_id
        ORDER BY delivery_id DESC LIMIT {SAMPLE}) d WHERE d.state <> 'IN_FLIGHT') s
CROSS JOIN LATERAL (SELECT count(*)::int AS failed FROM (SELECT FROM webhook_delivery d
    WHERE d.tenant_id = t.tenant_id AND d.state = 'FAILED' LIMIT {COUNTED}) d) f
ORDER BY t.place, t.failures DESC, t.tenant_id
"""


async def endpoints(connection: Connection, offset: int, limit: int, *, with_none: bool = False) -> list[EndpointRow]:
    """First those that fail, with the most failures in a row first, then those that are paused and the healthy ones;
    `with_none`: then the dealers without one."""
    return [EndpointRow(**row) for row in await connection.fetch(_ENDPOINTS, offset, limit, with_none)]


async def dealers_with_none(connection: Connection) -> int:
    """How many dealers have no endpoint."""
    sql = f"SELECT count(*)::int FROM tenant LEFT JOIN webhook_endpoint e USING (tenant_id) WHERE {_HAS_NONE}"
    return await connection.fetchval(sql) or 0


async def count_failed(connection: Connection) -> int:
    """Of all dealers, COUNTED at most."""
    failed = f"SELECT 1 FROM webhook_delivery WHERE {OF_ALL} state = 'FAILED' LIMIT {COUNTED}"
    rows = await fetch_all(connection, f"SELECT count(*)::int AS failed FROM ({failed}) d")
    return min(sum(row["failed"] for row in rows), COUNTED)


async def failed(
    connection: Connection, tenant_id: int | None, seen: int | None, limit: int, *, oldest_first: bool = False
) -> list[FailedDelivery]:
    """After the one seen last, of one dealer or of all."""
    sql = _FAILED.format(**pages.by_id(oldest_first=oldest_first))
    return [FailedDelivery(**row) for row in await connection.fetch(sql, tenant_id, seen, limit)]
