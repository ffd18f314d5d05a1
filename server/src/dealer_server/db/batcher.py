"""Group commit: items that arrive while one batch runs form the next batches (docs/decisions/0001-group-commit.md).

A batch runs in a task of its own, so that neither a client nor a timeout can cancel its COMMIT.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

import structlog

from dealer_server import metrics
from dealer_server.db.errors import DatabaseLost, LockTimeout
from dealer_server.db.polling import wait_for

log = structlog.get_logger()
T = TypeVar("T")
R = TypeVar("R")
Answer = R | Exception | asyncio.Future[R]


class Batcher(Generic[T, R]):
    """Collects items while a batch runs, and runs them as the next ones. An item that arrives alone runs at once.

    A batch takes at most half of the items under way: those that wait and those of the batch before, whose callers are
    likely to come again. So two groups take turns: while PostgreSQL works for one, this process works for the other.

    `run` returns one answer per item, in order. An answer that is an exception is raised to the caller of its item, and
    an answer that is a future is awaited. If `run` raises, the items are run one by one, so that only the item that
    causes the failure fails. A batch has at most `bound` items, or with `weight` at most that total weight.
    With `interval_seconds` batches begin at least so far apart, or once `enough` items wait, and take all that waits.
    `name`: in the metrics; without one they say nothing of it.
    """

    def __init__(
        self,
        run: Callable[[Sequence[T]], Awaitable[Sequence[Answer[R]]]],
        *,
        bound: int,
        weight: Callable[[T], int] | None = None,
        interval_seconds: float = 0.0,
        enough: int | None = None,
        name: str | None = None,
    ):
        self._run = run
        self._bound = bound
        self._weight = weight
        self._interval_seconds = interval_seconds
        self._enough = enough or bound
        self._metrics = metrics.of_batches(name) if name else None
        self._enough_wait = asyncio.Event()
        self._next_at = 0.0
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: T) -> asyncio.Future[R]:
        """A future of the item's answer. Cancelling it does not cancel the item."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if len(self._waiting) == self._enough:
            self._enough_wait.set()
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return future

    async def drain(self) -> None:
        """Returns once every submitted item is answered."""
        while self._task is not None:
            await asyncio.shield(self._task)

    @property
    def idle(self) -> bool:
        return self._task is None

    async def _work(self) -> None:
        batch: list[tuple[T, asyncio.Future[R]]] = []
        before = 0
        try:
            while self._waiting:
                await self._until_next()
                self._next_at = asyncio.get_running_loop().time() + self._interval_seconds
                under_way = len(self._waiting) + before
                batch = self._take(len(self._waiting) if self._interval_seconds else (under_way + 1) // 2)
                before = len(batch)
                began = asyncio.get_running_loop().time()
                answers = await self._answer([item for item, _ in batch])
                if self._metrics is not None:
                    self._metrics.done(len(batch), asyncio.get_running_loop().time() - began)
                for (_, future), answer in zip(batch, answers, strict=True):
                    if isinstance(answer, asyncio.Future):
                        answer.add_done_callback(partial(_pass_on, future))
                    else:
                        _settle(future, answer)
                batch = []
        finally:
            self._task = None
            # Items are left only if this task was cancelled.
            for _, future in batch:
                _settle(future, DatabaseLost(sent=True))
            while self._waiting:
                _settle(self._waiting.popleft()[1], DatabaseLost(sent=False))

    async def _until_next(self) -> None:
        """Until the next batch may begin."""
        seconds = self._next_at - asyncio.get_running_loop().time()
        if seconds > 0 and len(self._waiting) < self._enough:
            self._enough_wait.clear()
            await wait_for(self._enough_wait, seconds)

    def _take(self, most: int) -> list[tuple[T, asyncio.Future[R]]]:
        waiting, weight = self._waiting, self._weight
        most = min(most, len(waiting))
        if weight is None:
            return [waiting.popleft() for _ in range(min(most, self._bound))]
        batch = [waiting.popleft()]
        total = weight(batch[0][0])
        while len(batch) < most and total + (following := weight(waiting[0][0])) <= self._bound:
            batch.append(waiting.popleft())
            total += following
        return batch

    async def _answer(self, items: list[T]) -> Sequence[Answer[R]]:
        try:
            answers = await self._run(items)
            assert len(answers) == len(items), "one answer per item"
            return answers
        except DatabaseLost as lost:
            return [lost] * len(items)
        except Exception as error:
            if len(items) == 1:
                return [DatabaseLost(sent=False) if isinstance(error, LockTimeout) else error]
            log.warning("batch_failed", items=len(items), error=repr(error))
            return [(await self._answer([item]))[0] for item in items]


def _settle(future: asyncio.Future[R], answer: R | Exception) -> None:
    if future.done():  # its caller was cancelled
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _pass_on(future: asyncio.Future[R], answered: asyncio.Future[R]) -> None:
    error = asyncio.CancelledError() if answered.cancelled() else answered.exception()
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    else:
        _settle(future, error if isinstance(error, Exception) else answered.result())
