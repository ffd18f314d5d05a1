"""Each hour that is over is counted once, for the console's overview (docs/decisions/0042-overview.md).

The worker that counts is also the one that is seen: the overview says when none is.
"""

import asyncio
from datetime import UTC, datetime, timedelta

import structlog

from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost, LockTimeout, StatementTimeout
from dealer_server.store.console import overview
from dealer_server.store.console.overview import HOUR
from dealer_server.store.webhooks import answers

log = structlog.get_logger()

EVERY_SECONDS = 60.0
PAUSE_SECONDS = 1.0
"""While hours are still to be counted, as after an upgrade."""
CLOSED_AFTER = timedelta(minutes=5)
"""What was under way as an hour ended is stored by then."""
KEPT_BACK = timedelta(days=2 * 92)
"""As far back as a page looks: the longest range and the one before it."""
KEPT_BY_DEALER = timedelta(days=31)
"""As far back as the page of an endpoint looks."""
HOURS_AT_ONCE = 8
COUNTED_AT_ONCE = 50_000
"""Orders and attempts: a round ends once it has counted so many."""
MOST_HOURS = 96


class HourCounter:
    """One per worker process; of several, one counts at a time."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            left = False
            try:
                left = await self.count()
            except (DatabaseLost, LockTimeout, StatementTimeout):
                pass
            except Exception:
                log.exception("hours_not_counted")
            await asyncio.sleep(PAUSE_SECONDS if left else EVERY_SECONDS)

    async def count(self) -> bool:
        """Counts some hours that are over, the newest first; whether there are more. Raises DatabaseLost,
        LockTimeout, StatementTimeout."""
        now = self._clock()
        async with self._database.transaction() as connection:
            await overview.worker_seen(connection, now)
        end = (now - CLOSED_AFTER).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        async with self._database.transaction() as connection:
            if not await overview.only_count(connection):
                return False
            left = await overview.missing(connection, end - KEPT_BACK, end)
            work = done = 0
            while left and work < COUNTED_AT_ONCE and done < MOST_HOURS:
                together = 1
                while together < min(HOURS_AT_ONCE, len(left)) and left[together - 1] - left[together] == HOUR:
                    together += 1
                hours = await overview.hours(connection, left[together - 1], together)
                await overview.put(connection, hours)
                work += sum(hour.orders + hour.attempts for hour in hours)
                left, done = left[together:], done + together
            by_dealer = await _count_by_dealer(connection, end)
        return bool(left) or not by_dealer


async def _count_by_dealer(connection: Connection, end: datetime) -> bool:
    """Counts how endpoints answered in hours that are counted over all dealers already, the newest first; whether that
    is all of them."""
    work = 0
    for hour in await answers.uncounted(connection, end - KEPT_BY_DEALER, end):
        if work >= COUNTED_AT_ONCE:
            return False
        work += await answers.count(connection, hour)
    await answers.forget(connection, end - KEPT_BY_DEALER)
    return True
