"""How many calls of each dealer were served and refused, hour by hour? Those of the last seven days."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

KEPT = 7 * 24
"""Hours of a dealer that are kept."""
# Of an hour that is older than the one in its place nothing is counted. In tenant order, as other counters are locked.
_ADD = f"""
INSERT INTO call_hour AS c (tenant_id, slot, hour, served, refused)
SELECT tenant_id, (extract(epoch FROM hour) / 3600)::bigint % {KEPT}, hour, served, refused
FROM unnest($1::bigint[], $2::timestamptz[], $3::bigint[], $4::bigint[]) AS fresh(tenant_id, hour, served, refused)
ORDER BY tenant_id, hour
ON CONFLICT (tenant_id, slot) DO UPDATE SET hour = excluded.hour,
    served = excluded.served + CASE WHEN c.hour = excluded.hour THEN c.served ELSE 0 END,
    refused = excluded.refused + CASE WHEN c.hour = excluded.hour THEN c.refused ELSE 0 END
WHERE c.hour <= excluded.hour
"""


class CallHour(NamedTuple):
    """`hour`: when it began, in UTC."""

    tenant_id: int
    hour: datetime
    served: int = 0
    refused: int = 0


async def add(connection: Connection, hours: Sequence[CallHour]) -> None:
    """Each hour of a dealer once."""
    if hours:
        await connection.execute(_ADD, *map(list, zip(*hours, strict=True)))


async def since(connection: Connection, tenant_id: int, start: datetime) -> Sequence[CallHour]:
    """Those with any call, the oldest first."""
    rows = await connection.fetch(
        "SELECT tenant_id, hour, served, refused FROM call_hour WHERE tenant_id = $1 AND hour >= $2 ORDER BY hour",
        tenant_id,
        start,
    )
    return [CallHour(**row) for row in rows]
