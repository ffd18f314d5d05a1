"""What operators see of webhooks: the health of each dealer's endpoint, and failed deliveries."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

SAMPLE = 200
"""How many of a dealer's latest deliveries its success rate is computed from."""


class EndpointRow(NamedTuple):
    """A dealer's endpoint. `ended` counts its latest finished deliveries, `delivered` those with success. `failed`: all
    that failed, COUNTED at most."""

    tenant_id: int
    dealer: str
    url: str
    state: str
    consecutive_failures: int
    last_success_at: datetime | None
    waiting: int
    ended: int
    delivered: int
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
        AND ($2::bigint IS NULL OR d.delivery_id < $2) ORDER BY d.delivery_id DESC LIMIT $3
) d LEFT JOIN LATERAL (
    SELECT http_status, error FROM webhook_attempt a WHERE a.tenant_id = d.tenant_id AND a.delivery_id = d.delivery_id
    ORDER BY number DESC LIMIT 1
) last ON true
WHERE $1::bigint IS NULL OR t.tenant_id = $1 ORDER BY d.delivery_id DESC LIMIT $3
"""


async def endpoints(connection: Connection, after: int | None, limit: int) -> list[EndpointRow]:
    """Of the dealers after a tenantId."""
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name AS dealer, coalesce(e.url, '') AS url, coalesce(e.state, 'NOT_SET') AS state,"
        " coalesce(e.consecutive_failures, 0) AS consecutive_failures, e.last_success_at, w.waiting, s.ended,"
        " s.delivered, f.failed"
        " FROM (SELECT * FROM tenant WHERE $1::bigint IS NULL OR tenant_id > $1 ORDER BY tenant_id LIMIT $2) t"
        " LEFT JOIN webhook_endpoint e USING (tenant_id)"
        " CROSS JOIN LATERAL (SELECT count(*)::int AS waiting FROM (SELECT FROM webhook_delivery d"
        "   WHERE d.tenant_id = t.tenant_id AND d.state IN ('WAITING', 'READY', 'IN_FLIGHT', 'RETRY')"
        f"  LIMIT {COUNTED}) d) w"
        " CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE d.state IN ('DELIVERED', 'FAILED'))::int AS ended,"
        "   count(*) FILTER (WHERE d.state = 'DELIVERED')::int AS delivered"
        "   FROM (SELECT state FROM webhook_delivery d WHERE d.tenant_id = t.tenant_id"
        f"   ORDER BY delivery_id DESC LIMIT {SAMPLE}) d) s"
        " CROSS JOIN LATERAL (SELECT count(*)::int AS failed FROM (SELECT FROM webhook_delivery d"
        f"  WHERE d.tenant_id = t.tenant_id AND d.state = 'FAILED' LIMIT {COUNTED}) d) f"
        " ORDER BY t.tenant_id",
        after,
        limit,
    )
    return [EndpointRow(**row) for row in rows]


async def failed(connection: Connection, tenant_id: int | None, before: int | None, limit: int) -> list[FailedDelivery]:
    """The newest first, of one dealer or of all."""
    return [FailedDelivery(**row) for row in await connection.fetch(_FAILED, tenant_id, before, limit)]
