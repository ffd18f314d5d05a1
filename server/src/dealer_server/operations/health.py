"""Can this process do its work? It checks the database all the time: its answer, its clock and its schema.

Where the DSN names several hosts, a check that is not answered asks them who leads (db/cluster.py). A change is logged
once: `database_lost` and `database_back`, `clock_off` and `clock_back`.
"""

import asyncio
import time

import structlog

from dealer_server.clock import DatabaseClock
from dealer_server.db.cluster import cluster_of
from dealer_server.db.connection import measure_clock
from dealer_server.db.errors import DatabaseLost, logins
from dealer_server.db.session import Session
from dealer_server.store import schema

log = structlog.get_logger(__name__)

CHECK_SECONDS = 0.75
SILENT_SECONDS = 1.0  # without an answer no calls should come here
LOOK_SECONDS = 1.5  # without an answer other hosts are asked who leads
TIMEOUT_SECONDS = 10.0


class Health:
    """One per process, which it watches from its start. `draining`: the process is stopping."""

    def __init__(self, dsn: str, clock: DatabaseClock):
        self._session = Session(dsn, {"application_name": "esim-dealer health"})
        self._cluster = cluster_of(dsn)
        self._asked_at: float | None = None
        self._clock = clock
        self._lost_at: float | None = None
        self._rejected_logins = logins.rejected
        self._schema = ""
        self._clock_off = False
        self.draining = False

    def not_ready(self) -> list[str]:
        """Why no calls should be sent here; empty where they may."""
        reasons = ["draining: this process is stopping"] if self.draining else []
        if self._lost_at is not None:
            reasons.append("database: the connection is lost")
        elif self._asked_at is not None and time.monotonic() - self._asked_at > SILENT_SECONDS:
            reasons.append("database: it does not answer")
        if self._schema:
            reasons.append(f"schema: {self._schema}")
        if self._clock.apart:
            reasons.append(f"clock: this machine's is {_apart(self._clock.ahead_seconds)} the database's")
        return reasons

    async def watch(self) -> None:
        """Checks until cancelled."""
        while True:
            self._asked_at = time.monotonic()
            try:
                await self._check_in_time()
            except TimeoutError:
                self._lost("no answer")
            except DatabaseLost as error:
                self._lost(repr(error.__cause__ or error))
            except Exception as error:
                self._lost(repr(error))
            self._asked_at = None
            if self._cluster is not None:
                self._cluster.watched = True
            await asyncio.sleep(CHECK_SECONDS)

    async def close(self) -> None:
        if self._cluster is not None:
            self._cluster.watched = False
        await self._session.close()

    async def _check_in_time(self) -> None:
        """Raises TimeoutError, and what `_check` raises."""
        if self._cluster is not None and self._lost_at is not None:
            await self._cluster.look()
        checking = asyncio.create_task(self._check())
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while self._cluster is not None and not checking.done():
                    await asyncio.wait([checking], timeout=LOOK_SECONDS)
                    if not checking.done():
                        await self._cluster.look()
                await checking
        finally:
            checking.cancel()

    async def _check(self) -> None:
        if logins.rejected != self._rejected_logins:  # the connection that is open would say that all is well
            self._rejected_logins = logins.rejected
            self._session.drop()
        await measure_clock(self._session, self._clock)
        try:
            await schema.require_compatible(self._session)
        except (schema.OlderSchema, schema.NewerSchema) as unfit:
            self._schema = str(unfit)
        else:
            self._schema = ""
        if self._lost_at is not None:
            seconds = round(time.monotonic() - self._lost_at, 1)
            host = {"host": str(self._cluster.leader)} if self._cluster else {}
            log.info("database_back", seconds=seconds, **host)
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
