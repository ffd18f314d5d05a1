"""Group commit: callers that arrive while one batch runs are answered together by the next.

A COMMIT is never cancelled: a batch runs in a task of its own, which no client and no timeout can cancel.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

import structlog

from dealer_server.db.errors import DatabaseLost, LockTimeout

log = structlog.get_logger()
T = TypeVar("T")
R = TypeVar("R")
Answer = R | Exception | asyncio.Future[R]


class Batcher(Generic[T, R]):
    """Group commit: what arrives while one batch runs forms the next one. No timer: a lone item goes at once.

    `run` answers a whole batch, in order; an answer that is an exception is raised to its own caller only, and one that
    is a future answers when it is done. Where `run` itself fails, the batch's items are run one by one, so that a
    poisonous one fails alone. A `weight` bounds batches by what they cost rather than by how many they are.
    """

    def __init__(
        self,
        run: Callable[[Sequence[T]], Awaitable[Sequence[Answer[R]]]],
        *,
        bound: int,
        weight: Callable[[T], int] | None = None,
    ):
        self._run = run
        self._bound = bound
        self._weight = weight
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: T) -> asyncio.Future[R]:
        """A future of the item's own answer. Cancelling it cancels the waiting, never the work."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return future

    async def drain(self) -> None:
        """Returns once everything submitted is answered."""
        while self._task is not None:
            await asyncio.shield(self._task)

    @property
    def idle(self) -> bool:
        return self._task is None

    async def _work(self) -> None:
        batch: list[tuple[T, asyncio.Future[R]]] = []
        try:
            while self._waiting:
                batch = self._take()
                answers = await self._answer([item for item, _ in batch])
                for (_, future), answer in zip(batch, answers, strict=True):
                    if isinstance(answer, asyncio.Future):
                        answer.add_done_callback(partial(_pass_on, future))
                    else:
                        _settle(future, answer)
                batch = []
        finally:
            self._task = None
            # There are any only where this task itself was ended.
            for _, future in batch:
                _settle(future, DatabaseLost(sent=True))
            while self._waiting:
                _settle(self._waiting.popleft()[1], DatabaseLost(sent=False))

    def _take(self) -> list[tuple[T, asyncio.Future[R]]]:
        waiting, weight = self._waiting, self._weight
        if weight is None:
            return [waiting.popleft() for _ in range(min(len(waiting), self._bound))]
        batch, total = [waiting.popleft()], 0
        total = weight(batch[0][0])
        while waiting and total + (following := weight(waiting[0][0])) <= self._bound:
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
    if future.done():  # its caller has gone
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
