"""Calls to one supplier side by side: as many are claimed as can be asked now, each is recorded as it ends.

So no claim waits for its turn, and none outlives its lease because others are slow.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import structlog

from dealer_server.db.errors import DatabaseLost, LockTimeout
from dealer_server.fulfillment.supplier_calls import fault_text

log = structlog.get_logger()

POLL_SECONDS = 0.2
LOST_SECONDS = 1.0
GRACE_SECONDS = 5.0
Claim = TypeVar("Claim")
Answer = TypeVar("Answer")


class CallPool(Generic[Claim, Answer]):
    """`begin(room)` claims work, calls `start` for at most `room` of it, and says how much it found. `record` writes
    down answers in one transaction; one that it cannot write is recorded as `unrecorded(claim, fault)` instead. One
    whose rows another transaction holds is kept, and recorded in a later turn."""

    def __init__(
        self,
        name: str,
        most: int,
        begin: Callable[[int], Awaitable[int]],
        record: Callable[[Sequence[tuple[Claim, Answer]]], Awaitable[None]],
        unrecorded: Callable[[Claim, str], Answer],
    ):
        self.wake = asyncio.Event()
        self._name = name
        self._most = most
        self._begin = begin
        self._record = record
        self._unrecorded = unrecorded
        self._running: dict[asyncio.Task[Answer], Claim] = {}
        self._locked_out: list[asyncio.Task[Answer]] = []  # of the running: ended, but not recorded because of a lock

    def start(self, claim: Claim, call: Coroutine[Any, Any, Answer]) -> None:
        self._running[asyncio.create_task(call)] = claim

    async def run(self) -> None:
        """Until cancelled; then calls that are under way get a moment to end, and what they brought is recorded."""
        try:
            while True:
                await self._turn()
        finally:
            await asyncio.shield(asyncio.create_task(self._end()))

    async def run_once(self) -> int:
        """What is due now, and the calls for it, to their end; how much there was."""
        count = await self._begin(self._room())
        while self._running:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            await self._record_ended()
        return count

    def _room(self) -> int:
        return max(self._most - len(self._running), 0)

    async def _turn(self) -> None:
        pause = POLL_SECONDS
        try:
            busy = await self._uncancelled(self._begin(self._room()))
            await self._uncancelled(self._record_ended())
            if busy:
                return
        except DatabaseLost:
            pause = LOST_SECONDS
        except Exception as error:
            log.error("calls_failed", work=self._name, error=fault_text(error))
            pause = LOST_SECONDS
        await self._something_happens(pause)

    async def _uncancelled(self, work: Awaitable[int]) -> int:
        """A transaction that was begun is ended, also when this is cancelled."""
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def _something_happens(self, seconds: float) -> None:
        """A call ends, the bell rings, or the time is over."""
        ringing = asyncio.create_task(self.wake.wait())
        running = [task for task in self._running if task not in self._locked_out]
        try:
            await asyncio.wait([ringing, *running], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ringing.cancel()
        self.wake.clear()

    async def _end(self) -> None:
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=GRACE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.wait(self._running)
        self._locked_out.clear()  # all are tried once more
        with suppress(DatabaseLost):
            await self._record_ended()

    async def _record_ended(self) -> int:
        """Records the calls that have ended; how many. They stay in hand while the database is away. Of those that a
        lock kept from being recorded one is tried, so that the others' answers do not wait for many locks."""
        ended = [task for task in self._running if task.done() and task not in self._locked_out]
        return await self._record_or_split(ended) + await self._record_or_split(self._locked_out[:1])

    def _answer(self, task: asyncio.Task[Answer]) -> Answer:
        """A call that broke harms no other."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        return task.result() if error is None else self._unrecorded(self._running[task], fault_text(error))

    async def _record_or_split(self, ended: Sequence[asyncio.Task[Answer]]) -> int:
        """How many of them are done with."""
        if not ended:
            return 0
        answers = [(self._running[task], self._answer(task)) for task in ended]
        try:
            await self._record(answers)
        except DatabaseLost:
            raise
        except Exception as error:
            if len(ended) > 1:
                return sum([await self._record_or_split([task]) for task in ended])
            if isinstance(error, LockTimeout):
                return self._keep(ended[0])
            await self._record_instead(answers[0][0], error)
        for task in ended:
            del self._running[task]
        self._locked_out = [task for task in self._locked_out if task in self._running]
        return len(ended)

    def _keep(self, task: asyncio.Task[Answer]) -> int:
        """It is tried again once those have been that were kept before."""
        if task in self._locked_out:
            self._locked_out.remove(task)
        else:
            log.warning("answer_waits_for_a_lock", work=self._name)
        self._locked_out.append(task)
        return 0

    async def _record_instead(self, claim: Claim, error: Exception) -> None:
        """What cannot be written even so is left to its lease."""
        try:
            await self._record([(claim, self._unrecorded(claim, fault_text(error)))])
        except DatabaseLost:
            raise
        except Exception as again:
            log.error("answer_left_to_its_lease", work=self._name, error=fault_text(again))
