"""Items that wait for rows locked by another transaction, apart from all other items."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from dealer_server.db.batcher import Answer, Batcher
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost, LockTimeout
from dealer_server.db.session import Session

LOCK_WAITER_SESSIONS = 4


class OfTenant(Protocol):
    """An item that belongs to a dealer."""

    @property
    def tenant_id(self) -> int: ...


T = TypeVar("T", bound=OfTenant)
R = TypeVar("R")


class LockWaiters(Generic[T, R]):
    """Runs items whose rows another transaction holds: `run` waits for the locks. Each dealer's items form batches of
    their own, so that no other dealer waits with them. One dealer occupies one session; all dealers share four. A
    dealer whose last batch had several items stays here: another process is likely to hold its rows again."""

    def __init__(
        self,
        database: Database,
        run: Callable[[Session, Sequence[T]], Awaitable[Sequence[Answer[R]]]],
        *,
        bound: int,
        weight: Callable[[T], int] | None = None,
        name: str | None = None,
        sessions: int = LOCK_WAITER_SESSIONS,
        **settings: str,
    ):
        self._run = run
        self._name = name
        self._bound = bound
        self._weight = weight
        self._free: asyncio.LifoQueue[Session] = asyncio.LifoQueue()
        self._sessions = [database.session(**settings) for _ in range(sessions)]
        for session in self._sessions:
            self._free.put_nowait(session)
        self._batchers: dict[int, Batcher[T, R]] = {}
        self._busy: set[int] = set()  # dealers whose last batch had several items

    def __contains__(self, tenant_id: int) -> bool:
        """Whether later items of this dealer should be submitted here, as earlier ones wait or many did."""
        return tenant_id in self._batchers

    def submit(self, item: T) -> asyncio.Future[R]:
        tenant_id = item.tenant_id
        batcher = self._batchers.get(tenant_id)
        if batcher is None:
            batcher = self._batchers[tenant_id] = Batcher(
                self._with_session, bound=self._bound, weight=self._weight, name=self._name
            )
        future = batcher.submit(item)
        future.add_done_callback(lambda _: self._forget(tenant_id))
        return future

    async def open(self) -> None:
        """Opens one session before the first batch needs it. Raises DatabaseLost."""
        await self._sessions[-1].open()

    async def drain(self) -> None:
        for batcher in list(self._batchers.values()):
            await batcher.drain()

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()

    def _forget(self, tenant_id: int) -> None:
        batcher = self._batchers.get(tenant_id)
        if batcher is not None and batcher.idle and tenant_id not in self._busy:
            del self._batchers[tenant_id]

    async def _with_session(self, items: Sequence[T]) -> Sequence[Answer[R]]:
        (self._busy.add if len(items) > 1 else self._busy.discard)(items[0].tenant_id)
        session = await self._free.get()
        try:
            return await self._run(session, items)
        except LockTimeout:
            return [DatabaseLost(sent=False) for _ in items]
        finally:
            self._free.put_nowait(session)
