"""Items whose rows another transaction holds wait for them here, apart from all others."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import structlog

from dealer_server.db.batcher import Answer, Batcher
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost, LockTimeout
from dealer_server.db.session import Session

log = structlog.get_logger()
T = TypeVar("T")
R = TypeVar("R")
LOCK_WAITER_SESSIONS = 4


class LockWaiters(Generic[T, R]):
    """Items whose rows another transaction holds. They wait for the lock here, each dealer's in batches of its own, so
    that no other dealer waits with them. One dealer keeps one session busy; all share a few of them."""

    def __init__(
        self,
        database: Database,
        run: Callable[[Session, Sequence[T]], Awaitable[Sequence[Answer[R]]]],
        tenant: Callable[[T], int],
        *,
        bound: int,
    ):
        self._run = run
        self._tenant = tenant
        self._bound = bound
        self._free: asyncio.LifoQueue[Session] = asyncio.LifoQueue()
        self._sessions = [database.session() for _ in range(LOCK_WAITER_SESSIONS)]
        for one in self._sessions:
            self._free.put_nowait(one)
        self._batchers: dict[int, Batcher[T, R]] = {}

    def __contains__(self, tenant_id: int) -> bool:
        """Whether items of this dealer wait: then later ones had better wait behind them."""
        return tenant_id in self._batchers

    def submit(self, item: T) -> asyncio.Future[R]:
        tenant_id = self._tenant(item)
        batcher = self._batchers.get(tenant_id)
        if batcher is None:
            log.debug("lock_waited_for", tenant_id=tenant_id)
            batcher = self._batchers[tenant_id] = Batcher(self._with_session, bound=self._bound)
        future = batcher.submit(item)
        future.add_done_callback(lambda _: self._forget(tenant_id))
        return future

    async def drain(self) -> None:
        for batcher in list(self._batchers.values()):
            await batcher.drain()

    async def close(self) -> None:
        for one in self._sessions:
            await one.close()

    def _forget(self, tenant_id: int) -> None:
        batcher = self._batchers.get(tenant_id)
        if batcher is not None and batcher.idle:
            del self._batchers[tenant_id]

    async def _with_session(self, items: Sequence[T]) -> Sequence[Answer[R]]:
        session = await self._free.get()
        try:
            return await self._run(session, items)
        except LockTimeout:
            return [DatabaseLost(sent=False) for _ in items]
        finally:
            self._free.put_nowait(session)
