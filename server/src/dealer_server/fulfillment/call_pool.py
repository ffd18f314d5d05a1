"""Runs the calls to one supplier side by side: as many as it takes are claimed, each answer is recorded as it comes.

So no claim waits for its turn, and none outlives its lease because others are slow.
"""

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import structlog

from dealer_server.db.errors import DatabaseLost, LockTimeout
from dealer_server.db.polling import pause_until
from dealer_server.fulfillment.faults import fault_text
from dealer_server.fulfillment.worker_loop import run_to_end

log = structlog.get_logger()

LOST_SECONDS = 1.0
LOCKED_SECONDS = 0.2  # until an answer that a lock kept from being recorded is tried again
Claim = TypeVar("Claim")
AnyClaim = TypeVar("AnyClaim", contravariant=True)
Answer = TypeVar("Answer")
Answered = Sequence[tuple[Claim, Answer]]
"""Claims, each with its answer."""
Call = Coroutine[Any, Any, Answered[Claim, Answer]]


class CalledWork(Protocol[AnyClaim, Answer]):
    """What a pool works off, whenever `wake` says that there is some. `parallel`: calls at a time.
    `interval_seconds`: how far apart two looks that find some are at least, so that batches form.
    `grace_seconds`: how long calls may still run once the pool is stopped. `keeps_locked`: an answer that a lock kept
    from being recorded is kept and recorded later; else it is given up like any that cannot be recorded.
    `by_dealer`: each dealer's answers are recorded in a transaction of their own. While the node of one is away the
    others' are recorded."""

    name: str
    parallel: int
    interval_seconds: float
    grace_seconds: float
    keeps_locked: bool
    by_dealer: bool
    wake: asyncio.Event

    async def begin(self, room: int) -> int:
        """Claims due work and starts at most `room` calls for it; how much work there was."""
        ...

    async def record(self, answered: Answered[AnyClaim, Answer]) -> None:
        """Records answers in one transaction."""
        ...

    def dealer(self, claim: AnyClaim) -> int:
        """Whose claim it is: a tenant_id."""
        ...

    def unanswered(self, claim: AnyClaim, fault: str) -> Answer:
        """The answer of a call that broke."""
        ...

    async def give_up(self, claim: AnyClaim, error: Exception, /) -> None:
        """The answer to this claim cannot be recorded."""
        ...


class CallPool(Generic[Claim, Answer]):
    def __init__(self, work: CalledWork[Claim, Answer]):
        self._work = work
        self._running: dict[asyncio.Task[Answered[Claim, Answer]], Sequence[Claim]] = {}
        self._ended: dict[int, tuple[Claim, Answer]] = {}  # numbered; not recorded yet
        self._locked_out: list[int] = []  # of the ended: not recorded because of a lock
        self._away: dict[int, float] = {}  # of the ended: not recorded because a node is away; tried again at this time
        self._numbers = itertools.count()

    def start(self, claims: Sequence[Claim], call: Call[Claim, Answer]) -> None:
        """One call, which brings the answers to all these claims."""
        self._running[asyncio.create_task(call)] = claims

    async def run(self) -> None:
        """Until cancelled; then calls that are under way get a moment to end, and their answers are recorded."""
        try:
            while True:
                await self._turn()
        finally:
            await asyncio.shield(asyncio.create_task(self._end()))

    async def run_once(self) -> int:
        """Works off what is due now; how much there was. Answers wait for a database that is away."""
        count = await self._work.begin(self._room())
        while self._running or self._ended:
            if self._running:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            try:
                await self._record_ended()
                if self._away:
                    await asyncio.sleep(LOST_SECONDS / 4)
            except DatabaseLost:
                await asyncio.sleep(LOST_SECONDS / 4)
        return count

    async def record(self, answered: Answered[Claim, Answer]) -> None:
        """Records what needs no call. Raises DatabaseLost: it is recorded later."""
        for one in answered:
            self._ended[next(self._numbers)] = one
        await self._record_ended()

    def _room(self) -> int:
        ended = len(self._ended) - len(self._away)  # no more are claimed of a dealer whose node is away
        return max(self._work.parallel - len(self._running) - ended, 0)

    async def _turn(self) -> None:
        begun_at = asyncio.get_running_loop().time()
        try:
            recorded = await run_to_end(self._work.name, self._record_ended())
            self._work.wake.clear()
            begun = await run_to_end(self._work.name, self._work.begin(self._room()))
            if recorded or begun:
                await pause_until(begun_at + self._work.interval_seconds)
            else:
                await self._wait_for_work(LOCKED_SECONDS if self._locked_out else LOST_SECONDS if self._away else None)
        except DatabaseLost:
            await self._wait_for_work(LOST_SECONDS)
        except Exception as error:
            log.error("work_failed", work=self._work.name, error=fault_text(error))
            await asyncio.sleep(LOST_SECONDS)

    async def _wait_for_work(self, seconds: float | None) -> None:
        """Until a call ends, the work is woken, or the time is over."""
        wake = self._work.wake
        waking = asyncio.create_task(wake.wait())
        try:
            await asyncio.wait([waking, *self._running], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()

    async def _end(self) -> None:
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=self._work.grace_seconds)
            for task in late:
                task.cancel()
            await asyncio.wait(self._running)
        self._locked_out.clear()  # all are tried once more
        self._away.clear()
        with suppress(DatabaseLost):
            await self._record_ended()

    async def _record_ended(self) -> int:
        """Records the answers that have come; how many. They are kept while the database is away. Of those that a lock
        kept from being recorded one is tried, so that the others do not wait for many locks."""
        for task in [task for task in self._running if task.done()]:
            for answered in self._answers(task, self._running.pop(task)):
                self._ended[next(self._numbers)] = answered
        now = asyncio.get_running_loop().time()
        tried = [number for number in self._ended if self._away.get(number, now) <= now]
        fresh = [number for number in tried if number not in self._locked_out]
        locked_out = [number for number in self._locked_out if number in tried]
        groups = [*self._transactions(fresh), locked_out[:1]]
        return sum([await self._record_unless_away(together) for together in groups])

    def _transactions(self, numbers: Sequence[int]) -> Sequence[Sequence[int]]:
        """The answers that one transaction each records."""
        if not self._work.by_dealer:
            return [numbers]
        groups: dict[int, list[int]] = {}
        for number in numbers:
            groups.setdefault(self._work.dealer(self._ended[number][0]), []).append(number)
        return list(groups.values())

    async def _record_unless_away(self, numbers: Sequence[int]) -> int:
        """Records answers or, where only their dealer's node may be away, keeps them for later."""
        for number in numbers:
            self._away.pop(number, None)
        try:
            return await self._record_or_split(numbers)
        except DatabaseLost:
            if not self._work.by_dealer:
                raise
            until = asyncio.get_running_loop().time() + LOST_SECONDS
            self._away |= {number: until for number in numbers if number in self._ended}
            return 0

    def _answers(self, task: asyncio.Task[Answered[Claim, Answer]], claims: Sequence[Claim]) -> Answered[Claim, Answer]:
        """A call that fails does not affect the others."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return task.result()
        return [(claim, self._work.unanswered(claim, fault_text(error))) for claim in claims]

    async def _record_or_split(self, numbers: Sequence[int]) -> int:
        """Records these answers together or, where that fails, one by one; how many are done with."""
        if not numbers:
            return 0
        try:
            await self._work.record([self._ended[number] for number in numbers])
        except DatabaseLost:
            raise
        except Exception as error:
            if len(numbers) > 1:
                log.warning("batch_failed", work=self._work.name, claims=len(numbers), error=fault_text(error))
                return sum([await self._record_or_split([number]) for number in numbers])
            if isinstance(error, LockTimeout) and self._work.keeps_locked:
                return self._keep(numbers[0])
            await self._give_up(numbers[0], error)
        for number in numbers:
            del self._ended[number]
        self._locked_out = [number for number in self._locked_out if number in self._ended]
        return len(numbers)

    def _keep(self, number: int) -> int:
        """It is tried again after those that were kept before."""
        if number in self._locked_out:
            self._locked_out.remove(number)
        else:
            log.warning("answer_waits_for_a_lock", work=self._work.name)
        self._locked_out.append(number)
        return 0

    async def _give_up(self, number: int, error: Exception) -> None:
        """What cannot be written even so is left to its lease."""
        claim, _ = self._ended[number]
        try:
            await self._work.give_up(claim, error)
        except DatabaseLost:
            raise
        except Exception as again:
            log.error("answer_left_to_its_lease", work=self._work.name, error=fault_text(again))
