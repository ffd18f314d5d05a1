"""How webhooks fare, dealer by dealer, and which of them have failed."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

SAMPLE = 200
"""How many of a dealer's latest deliveries its share of successes is taken from."""


class Health(NamedTuple):
    """A dealer's endpoint. Of its last deliveries that have ended: `delivered`, and all in `ended`. `failed`: on the
    list of failures, COUNTED at most."""

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


class Failed(NamedTuple):
    """A delivery that nobody tries any more, with what its last attempt met."""

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
SELECT d.tenant_id, t.name, d.delivery_id, d.order_id, d.event_type, d.attempt_count, d.created_at, d.finished_at,
    last.http_status, last.error
FROM tenant t CROSS JOIN LATERAL (
    SELECT * FROM webhook_delivery d WHERE d.tenant_id = t.tenant_id AND d.state = 'FAILED'
        AND ($2::bigint IS NULL OR d.delivery_id < $2) ORDER BY d.delivery_id DESC LIMIT $3
) d LEFT JOIN LATERAL (
    SELECT http_status, error FROM webhook_attempt a WHERE a.tenant_id = d.tenant_id AND a.delivery_id = d.delivery_id
    ORDER BY number DESC LIMIT 1
) last ON true
WHERE $1::bigint IS NULL OR t.tenant_id = $1 ORDER BY d.delivery_id DESC LIMIT $3
"""


async def health(connection: Connection, after: int | None, limit: int) -> list[Health]:
    """Dealers by tenantId, after one of them."""
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name, coalesce(e.url, ''), coalesce(e.state, 'NOT_SET'),"
        " coalesce(e.consecutive_failures, 0), e.last_success_at, w.waiting, s.ended, s.delivered, f.failed"
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
    return [Health(*row) for row in rows]


async def failed(connection: Connection, tenant_id: int | None, before: int | None, limit: int) -> list[Failed]:
    """The newest first, of one dealer or of all."""
    return [Failed(*row) for row in await connection.fetch(_FAILED, tenant_id, before, limit)]
