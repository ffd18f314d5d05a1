"""Group commit under row locks: one batch for all dealers, except those whose rows another transaction holds
(docs/decisions/0013-locked-rows.md)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from dealer_server.db.batcher import Answer, Batcher
from dealer_server.db.database import Database
from dealer_server.db.lock_waiters import LockWaiters, OfTenant
from dealer_server.db.session import SHARED_LOCK_TIMEOUT, Session

T = TypeVar("T", bound=OfTenant)
R = TypeVar("R")
TENANT_SESSIONS = 8


class SessionBatcher(Batcher[T, R]):
    """A Batcher with a session of its own: one batch for all dealers."""

    def __init__(
        self,
        database: Database,
        run: Callable[[Session, Sequence[T]], Awaitable[Sequence[Answer[R]]]],
        *,
        bound: int,
        weight: Callable[[T], int] | None,
        name: str | None,
        **settings: str,
    ):
        session = self._session = database.session(**settings)
        super().__init__(lambda batch: run(session, batch), bound=bound, weight=weight, name=name)

    async def open(self) -> None:
        await self._session.open()

    async def close(self) -> None:
        await self._session.close()


def first_batches(
    database: Database,
    run: Callable[[Session, Sequence[T]], Awaitable[Sequence[Answer[R]]]],
    *,
    bound: int,
    weight: Callable[[T], int] | None = None,
    name: str | None = None,
    **settings: str,
) -> SessionBatcher[T, R] | LockWaiters[T, R]:
    """What runs items that wait for nobody: one batch for all dealers; where tables are distributed by tenant, a batch
    for each dealer, some of them at a time, so that no dealer waits for the node of another one."""
    if database.distributed:
        return LockWaiters(database, run, bound=bound, weight=weight, name=name, sessions=TENANT_SESSIONS, **settings)
    return SessionBatcher(database, run, bound=bound, weight=weight, name=name, **settings)


class LockingBatcher(Generic[T, R]):
    """A Batcher with a session of its own, and LockWaiters for the items whose rows another transaction holds.

    `run(session, batch, wait)` returns one answer per item, in order. Without `wait` it skips the rows that are locked,
    and answers the items that need them with `wait_for_lock(item)`. `settings` are PostgreSQL's, for the session.
    """

    def __init__(
        self,
        database: Database,
        run: Callable[[Session, Sequence[T], bool], Awaitable[Sequence[Answer[R]]]],
        *,
        bound: int,
        weight: Callable[[T], int] | None = None,
        name: str | None = None,
        **settings: str,
    ):
        self._batcher = first_batches(
            database,
            lambda session, batch: run(session, batch, False),
            bound=bound,
            weight=weight,
            name=name,
            lock_timeout=SHARED_LOCK_TIMEOUT,
            **settings,
        )
        self._waiters: LockWaiters[T, R] = LockWaiters(
            database, lambda session, batch: run(session, batch, True), bound=bound, name=name and f"{name}_waiting"
        )

    def makes_wait(self, tenant_id: int) -> bool:
        """Whether items of this dealer are for the lock waiters: earlier ones wait there or many did."""
        return tenant_id in self._waiters

    def submit(self, item: T) -> asyncio.Future[R]:
        """A future of the item's answer. It waits behind earlier items of its dealer that wait for a lock."""
        return (self._waiters if self.makes_wait(item.tenant_id) else self._batcher).submit(item)

    def wait_for_lock(self, item: T) -> asyncio.Future[R]:
        """The answer to an item whose rows another transaction holds: it is run again, with `wait`."""
        return self._waiters.submit(item)

    async def open(self) -> None:
        """Opens the session before the first batch needs it. Raises DatabaseLost."""
        await self._batcher.open()

    async def drain(self) -> None:
        """Returns once every submitted item is answered."""
        await self._batcher.drain()
        await self._waiters.drain()

    async def close(self) -> None:
        """Drains, then closes the connections."""
        await self.drain()
        await self._batcher.close()
        await self._waiters.close()
