"""How do webhooks fare as a whole? The gauges of metrics.py, from the tables."""

from datetime import datetime

from dealer_server.db.connection import Connection
from dealer_server.store.webhooks.circuit_breaker import BREAKER_FAILURES

_GAUGES = f"""
SELECT (SELECT coalesce(max(extract(epoch FROM $1 - due.due_at)), 0)::float FROM webhook_endpoint e CROSS JOIN LATERAL (
        SELECT d.due_at FROM webhook_delivery d WHERE d.tenant_id = e.tenant_id AND d.state IN ('READY', 'RETRY')
            AND d.due_at <= $1 ORDER BY d.due_at LIMIT 1) due
        WHERE e.state = 'ACTIVE' AND e.consecutive_failures < {BREAKER_FAILURES}) AS oldest_due_seconds,
    (SELECT count(*) FROM webhook_endpoint WHERE state = 'ACTIVE' AND consecutive_failures >= {BREAKER_FAILURES})
        AS breakers_open,
    (SELECT count(*) FROM webhook_endpoint WHERE state = 'ACTIVE') AS endpoints_active,
    (SELECT count(*) FROM webhook_endpoint WHERE state = 'DISABLED') AS endpoints_disabled,
    (SELECT count(*) FROM webhook_delivery WHERE state = 'IN_FLIGHT') AS in_flight,
    (SELECT count(*) FROM webhook_delivery WHERE state = 'FAILED') AS failed,
    (SELECT count(*) FROM webhook_job WHERE finished_at IS NULL) AS jobs_running
"""


async def read(connection: Connection, now: datetime) -> dict[str, float]:
    """The values by the names in metrics.py."""
    gauges = await connection.fetchrow(_GAUGES, now)
    assert gauges is not None
    return dict(gauges)
