"""Can this process do its work? It looks at the database once a second: whether it answers, its time, its schema.

What changes is said once: `database_lost` and `database_back`, `clock_off` and `clock_back`.
"""

import asyncio
import time

import structlog

from dealer_server.db.connection import measure_clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.store import schema

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
ANSWER_SECONDS = 10.0


class Health:
    """One per process. `draining`: it was told to stop."""

    def __init__(self, database: Database):
        self._session = database.session(application_name="esim-dealer health")
        self._clock = database.clock
        self._lost_at: float | None = None
        self._schema = ""
        self._clock_off = False
        self.draining = False

    def not_ready(self) -> list[str]:
        """Why no calls should come here; none where they may."""
        reasons = ["draining: this process was told to stop"] if self.draining else []
        if self._lost_at is not None:
            reasons.append("database: it is lost")
        if self._schema:
            reasons.append(f"schema: {self._schema}")
        if self._clock.apart:
            reasons.append(f"clock: this machine's is {_apart(self._clock.ahead_seconds)} the database's")
        return reasons

    async def watch(self) -> None:
        """Looks until cancelled."""
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._look()
            except TimeoutError:
                self._lost("no answer")
            except DatabaseLost as error:
                self._lost(repr(error.__cause__ or error))
            except Exception as error:
                self._lost(repr(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        await self._session.close()

    async def _look(self) -> None:
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

    def _lost(self, why: str) -> None:
        self._session.drop()
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            log.error("database_lost", reason=why)


def _apart(ahead_seconds: float) -> str:
    return f"{abs(ahead_seconds):.1f} s {'ahead of' if ahead_seconds > 0 else 'behind'}"
