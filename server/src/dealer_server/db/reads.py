"""Where are lists, reports and exports read? From a replica while it is recent, else from the primary
(docs/decisions/0048-read-replicas.md).

How old the replica is follows from the primary's log: once a second its position is noted with the time. What the
replica has replayed is as old as the newest position that it has reached.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import asyncpg
import structlog

from dealer_server import metrics
from dealer_server.db.batcher import Batcher
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.db.session import Session

log = structlog.get_logger(__name__)
T = TypeVar("T")

MEASURE_SECONDS = 1.0
SILENT_SECONDS = 2.0
SAMPLES = 600
CATCH_UP_SECONDS = (0.0, 0.002, 0.01, 0.03)  # pauses before each look whether an exact read may go to the replica
# What a replica raises that a primary would not: it replayed what removes the rows, or the view writes.
REFUSED = (asyncpg.SerializationError, asyncpg.ReadOnlySQLTransactionError)


class Position:
    """How far a server's log is, asked once for all who ask at the same time."""

    def __init__(self, dsn: str, sql: str):
        self._session = Session(dsn, {"application_name": "esim-dealer replication"})
        self._sql = sql
        self._batcher: Batcher[None, int] = Batcher(self._ask, bound=1_000)

    async def now(self) -> int:
        """In bytes. Raises DatabaseLost, also after SILENT_SECONDS."""
        timer = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._session.drop)
        try:
            return await self._batcher.submit(None)
        finally:
            timer.cancel()

    async def close(self) -> None:
        self._session.drop()
        await self._batcher.drain()

    async def _ask(self, batch: Sequence[None]) -> Sequence[int]:
        [row] = await self._session.fetch(self._sql)
        if row["position"] is None:
            self._session.drop()
            raise DatabaseLost(sent=False)
        return [row["position"]] * len(batch)


class Reads:
    """Runs reads on the replica or on the primary; on the primary without a DSN. `name` is that of the metrics;
    `bound_seconds`: how old a replica may be; `read_timeout_seconds`: of one statement. `primary` is also for what a
    listing has to write."""

    def __init__(
        self, name: str, primary: Database, dsn: str | None, *, bound_seconds: float, read_timeout_seconds: float
    ):
        self._name = name
        self.primary = primary
        self._dsn = dsn
        self._bound_seconds = bound_seconds
        self._read_timeout_seconds = read_timeout_seconds
        self._replica: Database | None = None
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)
        self._metrics = metrics.Reads(name) if dsn else None
        self._lag_seconds: float | None = None
        self._measured_at = 0.0
        self._told = False  # that the replica is lost
        if dsn:
            self._wrote = Position(
                primary.dsn, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS position"
            )
            self._replayed = Position(
                dsn,
                "SELECT CASE WHEN pg_is_in_recovery()"
                " THEN pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint END AS position",
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Reads"]:
        """Measures the replica meanwhile."""
        watching = asyncio.create_task(self._watch()) if self._dsn else None
        try:
            yield self
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait([watching])
                self._leave()
                await self._wrote.close()
                await self._replayed.close()

    async def run(self, read: Callable[[Database], Awaitable[T]], *, exact: bool) -> T:
        """What `read` gives, which changes nothing and may run twice. `exact`: it sees every commit before this call;
        otherwise what was committed up to `bound_seconds` ago. Raises what `read` raises on the primary."""
        if self._metrics is not None:
            replica = self._replica
            if replica is not None and self._is_recent() and (not exact or await self._has_caught_up()):
                with suppress(DatabaseLost, *REFUSED):
                    result = await read(replica)
                    self._metrics.replica.inc()
                    return result
            self._metrics.primary.inc()
        return await read(self.primary)

    def _is_recent(self) -> bool:
        if self._lag_seconds is None:
            return False
        return self._lag_seconds + time.monotonic() - self._measured_at <= self._bound_seconds

    async def _has_caught_up(self) -> bool:
        """Whether the replica has all that was committed before this call; it is waited for a moment."""
        with suppress(DatabaseLost):
            needed = await self._wrote.now()
            for pause in CATCH_UP_SECONDS:
                await asyncio.sleep(pause)
                if await self._replayed.now() >= needed:
                    return True
        return False

    async def _watch(self) -> None:
        while True:
            try:
                await self._measure()
            except (DatabaseLost, StatementTimeout) as error:
                self._lost(repr(error.__cause__ or error))
            except Exception as error:
                self._lost(repr(error))
            await asyncio.sleep(MEASURE_SECONDS)

    async def _measure(self) -> None:
        at, wrote = time.monotonic(), await self._wrote.now()
        self._samples.append((at, wrote))
        replayed = await self._replayed.now()
        if replayed > await self._wrote.now():
            raise DatabaseLost(sent=False)  # it has what the primary has not: it follows another one
        reached = next((then for then, position in reversed(self._samples) if position <= replayed), None)
        lag = None if reached is None else time.monotonic() - reached
        if self._replica is None:
            assert self._dsn is not None
            self._replica = await Database.open(self._dsn, read_timeout_seconds=self._read_timeout_seconds)
            log.info("read_replica_used", reader=self._name)
            self._told = False
        self._lag_seconds, self._measured_at = lag, time.monotonic()
        if self._metrics is not None:
            self._metrics.lag.set(float("inf") if lag is None else lag)

    def _lost(self, reason: str) -> None:
        if not self._told:
            log.warning("read_replica_lost", reader=self._name, reason=reason)
            self._told = True
        self._leave()

    def _leave(self) -> None:
        """Ends what is being read there; it is read from the primary."""
        self._lag_seconds = None
        if self._metrics is not None:
            self._metrics.lag.set(float("nan"))
        if self._replica is not None:
            self._replica.terminate()
            self._replica = None
