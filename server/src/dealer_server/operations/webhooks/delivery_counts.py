"""How many deliveries match a filter? They are counted up to 10 000 (specification 4.6). Where there are more, that is
remembered for a minute, so that not each page of a long list reads 10 000 rows to count them."""

import time

from dealer_server.db.connection import Connection
from dealer_server.store.webhooks import log
from dealer_server.store.webhooks.log import MOST_COUNTED, Filter

KEPT_SECONDS = 60.0
MOST_KEPT = 10_000  # filters


class DeliveryCounts:
    """One per process."""

    def __init__(self) -> None:
        # When those were counted that have more than MOST_COUNTED, oldest first.
        self._counted_at: dict[tuple[int, Filter], float] = {}

    async def count(self, connection: Connection, tenant_id: int, filter: Filter) -> int:
        """MOST_COUNTED + 1 where there are more than that, or were when they were last counted."""
        key, now = (tenant_id, filter), time.monotonic()
        counted_at = self._counted_at.get(key)
        if counted_at is not None and now - counted_at < KEPT_SECONDS:
            return MOST_COUNTED + 1
        self._counted_at.pop(key, None)
        total = await log.count(connection, tenant_id, filter)
        if total > MOST_COUNTED:
            if len(self._counted_at) >= MOST_KEPT:
                del self._counted_at[next(iter(self._counted_at))]
            self._counted_at[key] = now
        return total
