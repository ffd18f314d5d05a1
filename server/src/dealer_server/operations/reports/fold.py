"""What keeps the sums of reports up to date? The worker adds what is new every few seconds
(docs/decisions/0040-reports.md).

Any number of workers may run on one database: one adds at a time, and each fact is added in the transaction that moves
the cursor past it, so that a worker that dies adds nothing twice and leaves nothing out.
"""

import asyncio
from collections.abc import Callable

import structlog

from dealer_server import failpoints
from dealer_server.clock import Clock
from dealer_server.db import polling
from dealer_server.db.database import Database
from dealer_server.db.session import Session
from dealer_server.store.reports import fold

log = structlog.get_logger()

POLL_SECONDS = 5.0
FACTS_AT_ONCE = 5_000
REST = 19.0
"""How much longer than it takes the worker waits after a batch that was full."""
PROGRESS_SECONDS = 10.0
DEALER_BATCHES = 20
"""How many batches a statement waits for."""


class ReportFolder:
    """One per worker process. Tests drive it by hand with `fold`."""

    def __init__(self, database: Database, facts_at_once: int = FACTS_AT_ONCE):
        self._session = database.session(synchronous_commit="off")
        self._facts_at_once = facts_at_once
        self._told_at = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await polling.work("reports", self.step, POLL_SECONDS)
        finally:
            await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def fold(self) -> int:
        """Adds all that is new; how many facts. Raises DatabaseLost, LockTimeout."""
        total = 0
        while facts := await fold_batch(self._session, self._facts_at_once, wait=True):
            total += facts
        return total

    async def step(self) -> int:
        """Adds a batch; how many facts, 0 where there are no more. After a full one it waits so long that it is busy
        for a twentieth of the time: orders keep their speed, and what a burst of them left is added after it. Raises
        DatabaseLost, LockTimeout."""
        time = asyncio.get_running_loop().time
        begun = time()
        facts = await fold_batch(self._session, self._facts_at_once, wait=False)
        if facts < self._facts_at_once:
            return 0
        await self._tell_progress(time())
        await asyncio.sleep(REST * (time() - begun))
        return facts

    async def _tell_progress(self, now: float) -> None:
        if now - self._told_at >= PROGRESS_SECONDS:
            self._told_at = now
            log.info("reports_behind", entries=await fold.behind(self._session))


async def fold_batch(session: Session, limit: int, tenant_id: int | None = None, *, wait: bool) -> int:
    """Adds the next facts, of one dealer or of all; how many, 0 also where another process adds and this one does not
    `wait` for it. Raises DatabaseLost, LockTimeout."""
    async with session.transaction():
        if not await fold.lock(session, wait=wait):
            return 0
        facts = await fold.add_entries(session, limit, tenant_id)
        facts += await fold.add_purchases(session, limit, tenant_id)
        failpoints.hit("report.added")
    if facts:
        failpoints.hit("report.committed")
    return facts


async def fold_dealer(database: Database, tenant_id: int) -> bool:
    """Adds what is new of a dealer; False where that is too much to wait for. Raises DatabaseLost, LockTimeout."""
    session = database.session(synchronous_commit="off")
    try:
        for _ in range(DEALER_BATCHES):
            if await fold_batch(session, FACTS_AT_ONCE, tenant_id, wait=True) < FACTS_AT_ONCE:
                return True
        return False
    finally:
        await session.close()


async def rebuild(database: Database, clock: Clock, progress: Callable[[int], None]) -> int:
    """Adds everything up anew; how many dealers it began with. One that was interrupted goes on where it was.
    `progress` hears how many ledger entries are left. Raises DatabaseLost, LockTimeout."""
    session = database.session(synchronous_commit="off")
    try:
        started_at = await fold.begin_rebuild(session, clock())
        dealers = await fold.to_rebuild(session, started_at)
        for tenant_id in dealers:
            async with session.transaction():
                await fold.lock(session, wait=True)
                await fold.empty(session, tenant_id, started_at)
                failpoints.hit("report.emptied")
        while await fold_batch(session, FACTS_AT_ONCE, wait=True):
            progress(await fold.behind(session))
        async with session.transaction():
            await fold.lock(session, wait=True)
            await fold.end_rebuild(session)
        return len(dealers)
    finally:
        await session.close()
