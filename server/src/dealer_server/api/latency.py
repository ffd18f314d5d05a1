"""How many calls are answered, and how fast? Histograms in memory, written to the database every few seconds."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import structlog

from dealer_server.api.background_flush import background_flush
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.rules.access import latency_histogram
from dealer_server.store.tenants import api_latency
from dealer_server.store.tenants.api_latency import Minute

FLUSH_SECONDS = 5.0
FIRST_SERVER_ERROR = 500
log = structlog.get_logger(__name__)


class LatencyRecorder:
    """One per process. `answered` only counts; `running` writes."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock
        self._process = secrets.randbits(62)
        self._begin(clock())

    def _begin(self, now: datetime) -> None:
        self._minute = _minute(now)
        self._histograms = [0] * latency_histogram.BUCKETS, [0] * latency_histogram.BUCKETS
        self._failed = [0, 0]
        self._written = 0

    def answered(self, writes: bool, seconds: float, status: int) -> None:
        """Counts a call that was not refused: the seconds from its last byte to its answer."""
        self._histograms[writes][latency_histogram.bucket(seconds)] += 1
        if status >= FIRST_SERVER_ERROR:
            self._failed[writes] += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Writes while it is open, and once more at the end."""
        async with background_flush(self._run(), self.flush):
            yield

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await asyncio.shield(asyncio.ensure_future(self.flush()))

    async def flush(self) -> None:
        """Writes the current minute, or the one that has just ended; dropped where the database is lost."""
        now, minute, counted = self._clock(), self._minute, self._counted()
        total = sum(sum(minute_counts.spread) for minute_counts in counted)
        changed = total != self._written
        self._written = total
        if ended := _minute(now) != minute:
            self._begin(now)
        if not changed and not ended:
            return
        try:
            async with self._database.transaction() as connection:
                await api_latency.put(connection, minute, self._process, counted)
                if ended:
                    await api_latency.sweep(connection, now)
        except Exception as error:
            self._written = 0
            if not isinstance(error, DatabaseLost):
                log.error("api_minute_not_written", error=repr(error))

    def _counted(self) -> list[Minute]:
        return [
            Minute(writes, list(counts), failed)
            for writes, counts, failed in zip((False, True), self._histograms, self._failed, strict=True)
            if any(counts)
        ]


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)
