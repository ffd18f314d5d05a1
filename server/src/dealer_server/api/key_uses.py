"""From which addresses is each AppKey used? Noted in memory, written to the database about once a minute."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from dealer_server.api.background_flush import background_flush
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.store.tenants import credential

FLUSH_SECONDS = 60.0
FIRST_FLUSH_SECONDS = 2.0  # so that a dealer sees its first call soon
MOST_NOTED = 10_000
log = structlog.get_logger(__name__)


class KeyUses:
    """One per process. `note` only puts into memory; `running` writes."""

    def __init__(self, database: Database, clock: Clock, seconds: float = FLUSH_SECONDS):
        self._database = database
        self._clock = clock
        self._seconds = seconds
        self._noted: set[tuple[str, str]] = set()
        self._known: set[tuple[str, str]] = set()
        self._new = asyncio.Event()

    def note(self, app_key: str, address: str) -> None:
        """An AppKey was used from an address, perhaps not for the first time."""
        use = app_key, address
        if use not in self._noted and len(self._noted) < MOST_NOTED:
            self._noted.add(use)
            if use not in self._known:
                self._new.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Writes while it is open, and once more at the end."""
        async with background_flush(self._run(), self.flush):
            yield

    async def _run(self) -> None:
        """A use that was not seen before is written within seconds, the others within a minute."""
        while True:
            self._new.clear()
            try:
                async with asyncio.timeout(self._seconds):
                    await self._new.wait()
                await asyncio.sleep(min(FIRST_FLUSH_SECONDS, self._seconds))
            except TimeoutError:
                pass
            await asyncio.shield(asyncio.ensure_future(self.flush()))

    async def flush(self) -> None:
        """Writes what was noted; dropped where the database is lost."""
        noted, self._noted = self._noted, set()
        if not noted:
            return
        self._known = noted if len(self._known) >= MOST_NOTED else self._known | noted
        try:
            async with self._database.transaction() as connection:
                await credential.record_uses(connection, sorted(noted), self._clock())
        except Exception as error:
            if not isinstance(error, DatabaseLost):
                log.error("key_uses_not_written", error=repr(error))
