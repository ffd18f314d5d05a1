"""How did a dealer's receiver answer lately? Its attempts by the hour."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

MOST = 2_000
"""Attempts that are looked at: those of the newest deliveries."""
_HOURS = """
SELECT date_trunc('hour', started_at, 'UTC') AS hour, count(*) FILTER (WHERE error IS NULL)::int AS delivered,
    count(*) FILTER (WHERE error IS NOT NULL)::int AS failed, sum(duration_ms)::bigint AS took_ms
FROM (SELECT started_at, error, duration_ms FROM webhook_attempt WHERE tenant_id = $1
    ORDER BY delivery_id DESC, number DESC LIMIT $3) a
WHERE started_at >= $2 GROUP BY 1
"""


class Hour(NamedTuple):
    """Attempts that began in an hour. `took_ms`: all of them together."""

    hour: datetime
    delivered: int = 0
    failed: int = 0
    took_ms: int = 0


async def hours(connection: Connection, tenant_id: int, since: datetime) -> list[Hour]:
    """Those hours with any."""
    rows = await connection.fetch(_HOURS, tenant_id, since, MOST)
    return [Hour(**row) for row in rows]


async def unfinished(connection: Connection, tenant_id: int, most: int) -> int:
    """How many deliveries are still to be made; `most` + 1 where there are more."""
    return (
        await connection.fetchval(
            "SELECT count(*) FROM (SELECT FROM webhook_delivery WHERE tenant_id = $1"
            " AND state IN ('WAITING', 'READY', 'IN_FLIGHT', 'RETRY') LIMIT $2) waiting",
            tenant_id,
            most + 1,
        )
        or 0
    )
