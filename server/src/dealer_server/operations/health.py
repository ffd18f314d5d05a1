"""Can this process do its work? It checks the database once a second: its answer, its clock and its schema.

A change is logged once: `database_lost` and `database_back`, `clock_off` and `clock_back`.
"""

import asyncio
import time

import structlog

from dealer_server.db.connection import measure_clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.store import schema

log = structlog.get_logger(__name__)

CHECK_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0


class Health:
    """One per process. `draining`: the process is stopping."""

    def __init__(self, database: Database):
        self._session = database.session(application_name="esim-dealer health")
        self._clock = database.clock
        self._lost_at: float | None = None
        self._schema = ""
        self._clock_off = False
        self.draining = False

    def not_ready(self) -> list[str]:
        """Why no calls should be sent here; empty where they may."""
        reasons = ["draining: this process is stopping"] if self.draining else []
        if self._lost_at is not None:
            reasons.append("database: the connection is lost")
        if self._schema:
            reasons.append(f"schema: {self._schema}")
        if self._clock.apart:
            reasons.append(f"clock: this machine's is {_apart(self._clock.ahead_seconds)} the database's")
        return reasons

    async def watch(self) -> None:
        """Checks until cancelled."""
        while True:
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await self._check()
            except TimeoutError:
                self._lost("no answer")
            except DatabaseLost as error:
                self._lost(repr(error.__cause__ or error))
            except Exception as error:
                self._lost(repr(error))
            await asyncio.sleep(CHECK_SECONDS)

    async def close(self) -> None:
        await self._session.close()

    async def _check(self) -> None:
        await measure_clock(self._session, self._clock)
        try:
            await schema.require_no_older(self._session)
        except schema.OlderSchema as older:
            self._schema = str(older)
        else:
            self._schema = ""
        if self._lost_at is not None:
            log.info("database_back", seconds=round(time.monotonic() - self._lost_at, 1))
            self._lost_at = None
        if self._clock.apart != self._clock_off:
            self._clock_off = self._clock.apart
            if self._clock_off:
                log.warning("clock_off", ahead_seconds=round(self._clock.ahead_seconds, 1))
            else:
                log.info("clock_back", ahead_seconds=round(self._clock.ahead_seconds, 1))

    def _lost(self, reason: str) -> None:
        self._session.drop()
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            log.error("database_lost", reason=reason)


def _apart(ahead_seconds: float) -> str:
    return f"{abs(ahead_seconds):.1f} s {'ahead of' if ahead_seconds > 0 else 'behind'}"
