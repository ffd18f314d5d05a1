"""How do events reach their dealers? claim → prepare → post → record (docs/decisions/0006-webhook-lanes.md).

The loop claims a batch, starts its attempts and claims the next batch while they are under way.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import asyncpg
import structlog

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.polling import wait_for
from dealer_server.rules.webhooks import backoff
from dealer_server.webhooks import outcome
from dealer_server.webhooks.claim import LEASE_SECONDS, Attempt, Claimer
from dealer_server.webhooks.in_flight import ByTenant, InFlight
from dealer_server.webhooks.post import Poster
from dealer_server.webhooks.prepare import Preparer
from dealer_server.webhooks.record import Recorder
from dealer_server.webhooks.tasks import BackgroundTasks
from dealer_server.webhooks.upkeep import Upkeep

log = structlog.get_logger()

SLOW_SECONDS = 1.0  # an attempt under way for longer is slow
ATTEMPTS_PER_CLAIM = 200  # small enough that one batch is prepared while the last one is posted
ATTEMPTS_PER_TURN = 16
BUSY_SECONDS = 0.03  # after a claim it looks without being woken: messages come 20 ms apart (db/notifications.py)
BATCH_SECONDS = 0.012  # from one claim to the next at least, unless enough attempts ended, so that batches form
RETRY_SECONDS = 0.25  # after a failed claim
# A worker that is stopped inside a transaction must not hold its locks for ever. Claims are flushed before the posts;
# outcomes need not be: one that a crash of PostgreSQL loses is an attempt with the error LOST.
SESSION = {"idle_in_transaction_session_timeout": "30s"}


class Options(NamedTuple):
    """Limits of a worker. They are constant in production, except for the schedule; tests shorten them."""

    schedule: Sequence[float] = backoff.SCHEDULE_SECONDS  # seconds before each attempt; its length is their number
    lease_seconds: float = LEASE_SECONDS
    in_flight: int = 256  # attempts under way that are not slow
    most_in_flight: int = 2_048  # all attempts: slow receivers cost memory and sockets only
    quick_seconds: float = 0.1  # a receiver that answers within this is read ahead for
    stop_seconds: float = 5.0  # how long attempts under way may go on when the worker is stopped


DEFAULTS = Options()


class Batch:
    """Attempts started together: when, and how many are under way."""

    __slots__ = ("begun", "left")

    def __init__(self, begun: float, left: int):
        self.begun = begun
        self.left = left


class Deliverer:
    """The webhook worker, one per process; any number may run on one database. `wake` is set when deliveries
    are due, and again as long as some wait.

    Tests drive it by hand with `run_once`, `settle` and `upkeep.step`.
    """

    def __init__(
        self,
        database: Database,
        preparer: Preparer,
        poster: Poster,
        clock: Clock,
        wake: asyncio.Event,
        options: Options = DEFAULTS,
    ):
        claims, care = database.session(**SESSION), database.session(**SESSION)
        records = database.session(**SESSION, synchronous_commit="off")
        self._sessions = (claims, records, care)
        self.tasks = BackgroundTasks()
        self._in_flight = ByTenant(partial(InFlight, options.quick_seconds))
        self.claimer = Claimer(claims, preparer, clock, self._in_flight, options.lease_seconds)
        self.recorder = Recorder(records, clock, wake, self.tasks)
        self.upkeep = Upkeep(care, clock, self.recorder, wake, options.schedule, options.lease_seconds)
        self._poster = poster
        self._clock = clock
        self._wake = wake
        self._options = options
        self._batches: deque[Batch] = deque()
        self._claiming: asyncio.Task[int] | None = None

    async def run(self) -> None:
        """Delivers until cancelled; then lets attempts under way end for a few seconds, and records them."""
        upkeep = asyncio.create_task(self.upkeep.run())
        now, busy_until = asyncio.get_running_loop().time, 0.0
        try:
            while True:
                self._wake.clear()
                self.recorder.enough_ended.clear()
                begun_at = now()
                if await self._run_once_or_log():
                    busy_until = begun_at + BUSY_SECONDS
                elif now() > busy_until:
                    await self._wake.wait()
                if (seconds := begun_at + BATCH_SECONDS - now()) > 0:
                    await wait_for(self.recorder.enough_ended, seconds)
        finally:
            upkeep.cancel()
            await self.stop()

    async def run_once(self) -> int:
        """Claims a batch and starts its attempts; how many. Raises DatabaseLost."""
        limit = self._limit()
        if limit < max(self._options.in_flight // 8, 1):
            return 0
        # A task of its own: when the caller is cancelled during the COMMIT, the COMMIT must not be.
        self._claiming = asyncio.create_task(self._claim_and_start(limit))
        return await asyncio.shield(self._claiming)

    async def settle(self) -> None:
        """Returns once every attempt started has ended and is recorded."""
        while self.tasks:
            await self.tasks.wait()
        await self.recorder.drain()

    async def stop(self) -> None:
        """Ends what is under way: attempts get a few seconds, then they are cancelled and due again at once."""
        if self._claiming is not None:
            await asyncio.wait([self._claiming])
        await self.tasks.wait(self._options.stop_seconds)
        self.tasks.cancel()
        await self.settle()
        for session in self._sessions:
            await session.close()

    async def _run_once_or_log(self) -> int:
        """After a failed claim the loop waits and goes on: nothing was claimed, so nothing is lost."""
        try:
            return await self.run_once()
        except DatabaseLost:
            pass
        except (asyncpg.UniqueViolationError, asyncpg.DeadlockDetectedError):
            log.info("webhook_claim_conflict")  # another worker claimed a delivery of the same order
            return 0
        except Exception:
            log.exception("webhook_claim_failed")
        await asyncio.sleep(RETRY_SECONDS)
        return 0

    def _limit(self) -> int:
        """How many attempts may be started now.

        Slow attempts count against a far higher limit, so that a few receivers that hang do not delay the others.
        """
        since = asyncio.get_running_loop().time() - SLOW_SECONDS
        while self._batches and (self._batches[0].begun < since or not self._batches[0].left):
            self._batches.popleft()
        fast = sum([batch.left for batch in self._batches])
        return min(self._options.in_flight - fast, self._options.most_in_flight - len(self.tasks), ATTEMPTS_PER_CLAIM)

    async def _claim_and_start(self, limit: int) -> int:
        number, attempts, unchanged = await self.claimer.claim(limit)
        for delivery in unchanged:
            self.recorder.record_in_background(outcome.unchanged(delivery, number, self._clock()))
        for attempt in attempts:
            self._in_flight[attempt.delivery.tenant_id].claimed()
        if attempts:
            batch = Batch(asyncio.get_running_loop().time(), len(attempts))
            self._batches.append(batch)
            self.tasks.start(self._start(attempts, batch))
        return len(attempts)

    async def _start(self, attempts: Sequence[Attempt], batch: Batch) -> None:
        """Starts a few attempts per turn of the event loop, so that the next batch is claimed meanwhile."""
        for count, attempt in enumerate(attempts):
            if count % ATTEMPTS_PER_TURN == 0:
                await asyncio.sleep(0)
            self.tasks.start(self._attempt(attempt, batch))

    async def _attempt(self, attempt: Attempt, batch: Batch) -> None:
        in_flight, accepted = self._in_flight[attempt.delivery.tenant_id], False
        try:
            try:
                posted = await self._poster.post(attempt, in_flight.turns)
            finally:
                batch.left -= 1
            if posted is not None:
                accepted = posted.answer.error is None
                in_flight.answered(posted.duration_ms / 1000, accepted=accepted)
                result = outcome.after_attempt(attempt, posted, self._options.schedule, self._clock())
                await self.recorder.record(result)
        finally:
            in_flight.ended(accepted=accepted)
