"""How did a dealer's receiver answer lately? Its attempts by the hour, and how much is still to be sent."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.store.webhooks import answers


class Hour(NamedTuple):
    """Attempts that began in an hour. `took_ms`: all of them together."""

    hour: datetime
    delivered: int = 0
    failed: int = 0
    took_ms: int = 0


async def hours(connection: Connection, tenant_id: int, since: datetime) -> Sequence[Hour]:
    """Those hours with any."""
    found: dict[datetime, Hour] = {}
    for one in await answers.hours(connection, tenant_id, since):
        before = found.get(one.hour, Hour(one.hour))
        found[one.hour] = Hour(
            one.hour,
            before.delivered + (0 if one.error else one.attempts),
            before.failed + (one.attempts if one.error else 0),
            before.took_ms + one.took_ms,
        )
    return [*found.values()]


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
