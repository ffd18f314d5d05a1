"""What is deleted once it is old enough? The worker sweeps every hour (docs/decisions/0027-retention.md).

Every transaction is small, and each is followed by a pause as long as itself. Any number of workers may sweep one
database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import NamedTuple

import structlog

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost, LockTimeout
from dealer_server.db.session import Session
from dealer_server.rules.retention.retention import Kind, deletable
from dealer_server.store.retention import buyer_mails, notices, progress, served_calls, sms, suppliers, webhooks
from dealer_server.store.retention.progress import Left, Subject

log = structlog.get_logger()

SWEEP_SECONDS = 3_600.0
SUBJECTS_AT_ONCE = 500
# A tenant is visited once its oldest row has been due for so long, so that a visit finds more than a row or two.
DUE_FOR = timedelta(hours=12)

Delete = Callable[[Session, int, Sequence[int], datetime], Awaitable[int]]


class Source(NamedTuple):
    """Where the subjects of a kind are: the next ones of a tenant after an id, and those with given ids."""

    after: Callable[[Session, int, int, int], Awaitable[list[Subject]]]
    find: Callable[[Session, int, Sequence[int]], Awaitable[list[Subject]]]


_SOURCES: Mapping[Kind, Source] = {
    "webhook_attempt": Source(webhooks.after, webhooks.find),
    "webhook_delivery": Source(webhooks.after, webhooks.find),
    "supplier_call": Source(suppliers.bought_after, suppliers.bought_for),
    "supplier_event": Source(suppliers.events_after, suppliers.events),
    "sms": Source(sms.after, sms.find),
    "notice": Source(notices.after, notices.find),
    "served_call": Source(served_calls.after, served_calls.find),
    "buyer_mail": Source(buyer_mails.after, buyer_mails.find),
}
# Deliveries are not here: which of them go depends on the others of their order.
_DELETES: Mapping[Kind, Delete] = {
    "webhook_attempt": webhooks.delete_attempts,
    "supplier_call": suppliers.delete_calls,
    "supplier_event": suppliers.delete_events,
    "sms": sms.delete_texts,
    "notice": notices.delete,
    "served_call": served_calls.delete,
    "buyer_mail": buyer_mails.delete,
}


class Step(NamedTuple):
    """What one transaction did. `more`: there is more to do for this tenant."""

    deleted: int = 0
    more: bool = False


class Sweeper:
    """`retention`: how long each kind is kept; a kind that is not there is kept for ever."""

    def __init__(self, database: Database, clock: Clock, retention: Mapping[Kind, timedelta]):
        self._session = database.session(synchronous_commit="off")
        self._clock = clock
        self._retention = retention

    async def run(self) -> None:
        """Sweeps every hour, until cancelled."""
        while True:
            try:
                await self._sweep_or_log()
            finally:
                await self.close()
            await asyncio.sleep(SWEEP_SECONDS)

    async def close(self) -> None:
        await self._session.close()

    async def sweep(self) -> dict[Kind, int]:
        """Deletes all that is old enough; how many rows of each kind. Raises DatabaseLost, LockTimeout."""
        return {kind: await self._sweep(kind, retention) for kind, retention in self._retention.items()}

    async def _sweep_or_log(self) -> None:
        try:
            deleted = await self.sweep()
        except DatabaseLost:
            return
        except LockTimeout:
            log.info("retention_sweep_waited")  # for a delivery that is just being sent again: the next sweep goes on
        except Exception:
            log.exception("retention_sweep_failed")
        else:
            if any(deleted.values()):
                log.info("retention_swept", **deleted)

    async def _sweep(self, kind: Kind, retention: timedelta) -> int:
        limit = self._clock() - retention
        await progress.begin(self._session, kind, limit)
        deleted = 0
        for tenant_id in await progress.due_tenants(self._session, kind, limit - DUE_FOR):
            step = Step(more=True)
            while step.more:
                step = await self._paced(self._visit(kind, tenant_id, limit))
                deleted += step.deleted
        deleted += await self._sweep_postponed(kind, limit)
        await progress.end(self._session, kind, deleted, self._clock())
        return deleted

    async def _sweep_postponed(self, kind: Kind, limit: datetime) -> int:
        deleted, more = 0, True
        while more:
            due = await progress.due_again(self._session, kind, limit, SUBJECTS_AT_ONCE)
            steps = [await self._paced(self._visit_again(kind, *one, limit)) for one in due.items()]
            deleted += sum(step.deleted for step in steps)
            more = any(step.more for step in steps)
        return deleted

    async def _visit(self, kind: Kind, tenant_id: int, limit: datetime) -> Step:
        """Visits a tenant's next subjects, up to the first that is too young.

        Ids grow with time, but not strictly: old subjects behind a young one wait until that one is old too, so none is
        passed over.
        """
        async with self._session.transaction() as session:
            reached = await progress.lock(session, kind, tenant_id)
            if reached is None:
                return Step()
            now = self._clock()
            subjects = await _SOURCES[kind].after(session, tenant_id, reached, SUBJECTS_AT_ONCE)
            old = list(takewhile(lambda subject: subject.created_at < limit, subjects))
            reached = old[-1].id if old else reached
            deleted = await self._delete(session, kind, tenant_id, old, reached, limit)
            whole = len(old) == SUBJECTS_AT_ONCE
            oldest_at = old[-1].created_at if whole else subjects[len(old)].created_at if subjects[len(old) :] else now
            await progress.advance(session, kind, tenant_id, reached, oldest_at)
            return Step(deleted, whole)

    async def _visit_again(self, kind: Kind, tenant_id: int, ids: Sequence[int], limit: datetime) -> Step:
        async with self._session.transaction() as session:
            reached = await progress.lock(session, kind, tenant_id)
            if reached is None:
                return Step()
            await progress.take(session, kind, tenant_id, ids)
            subjects = await _SOURCES[kind].find(session, tenant_id, ids)
            return Step(await self._delete(session, kind, tenant_id, subjects, reached, limit), more=True)

    async def _delete(
        self, session: Session, kind: Kind, tenant_id: int, subjects: Sequence[Subject], reached: int, limit: datetime
    ) -> int:
        """Deletes what is old enough of these subjects, and postpones the others."""
        ids = [subject.id for subject in subjects]
        if not ids:
            return 0
        finished = {subject.id: subject.finished_at for subject in subjects}
        if kind == "webhook_delivery":
            past = await webhooks.of_the_same_orders(session, tenant_id, ids, reached)
            deleted = await webhooks.delete(session, tenant_id, deletable(past, limit), limit)
            finished = {one.delivery_id: one.finished_at for one in past}
        else:
            over = [id for id, at in finished.items() if at is not None and at < limit]
            deleted = await _DELETES[kind](session, tenant_id, over, limit)
        now = self._clock()
        left = [Left(id, at or now) for id, at in finished.items() if at is None or at >= limit]
        if left:
            await progress.postpone(session, kind, tenant_id, left)
        return deleted

    async def _paced(self, step: Awaitable[Step]) -> Step:
        """Waits as long as the step took, so that half of the time is left to others."""
        time = asyncio.get_running_loop().time
        begun = time()
        done = await step
        await asyncio.sleep(time() - begun)
        return done
