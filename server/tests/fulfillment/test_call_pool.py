"""What becomes of work when its pool is stopped, and of answers while the node of a dealer is away?"""

import asyncio
import gc
from collections.abc import Sequence
from itertools import chain

from dealer_server.db.errors import DatabaseLost
from dealer_server.fulfillment.call_pool import CallPool
from support.patience import PATIENCE


class LostWork:
    """The database is lost while it looks for work."""

    name, parallel, interval_seconds, grace_seconds, keeps_locked, by_dealer = "lost", 1, 0.0, 0.0, False, False

    def __init__(self) -> None:
        self.wake, self.looking, self.lost = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def begin(self, room: int) -> int:
        self.looking.set()
        await self.lost.wait()
        raise DatabaseLost(sent=False)

    async def record(self, answered: Sequence[tuple[int, int]]) -> None: ...

    def dealer(self, claim: int) -> int:
        return claim

    def unanswered(self, claim: int, fault: str) -> int:
        return claim

    async def give_up(self, claim: int, error: Exception, /) -> None: ...


async def test_a_database_that_is_lost_while_the_pool_stops_is_no_error_of_its_own():
    unseen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context["message"]))
    work = LostWork()
    running = asyncio.create_task(CallPool[int, int](work).run())
    await work.looking.wait()
    running.cancel()
    work.lost.set()
    await asyncio.wait([running])
    assert running.cancelled()
    del running
    gc.collect()  # asyncio tells of an exception that nobody looked at once its task is gone
    assert unseen == []


class WorkOfTwoNodes(LostWork):
    """A pool of one call at a time. The answers of dealer 1 cannot be recorded while its node is away."""

    by_dealer = True

    def __init__(self, due: list[int]) -> None:
        super().__init__()
        self._due, self.node_is_away = due, True
        self.refused = asyncio.Event()
        self.recorded: list[list[int]] = []
        self.pool = CallPool[int, int](self)

    async def begin(self, room: int) -> int:
        begun = self._due[:room]
        for dealer in begun:
            self._due.remove(dealer)
            self.pool.start([dealer], self._answer(dealer))
        return len(begun)

    async def _answer(self, dealer: int) -> list[tuple[int, int]]:
        return [(dealer, dealer)]

    async def record(self, answered: Sequence[tuple[int, int]]) -> None:
        dealers = [dealer for dealer, _ in answered]
        if 1 in dealers and self.node_is_away:
            self.refused.set()
            raise DatabaseLost(sent=False)
        self.recorded.append(dealers)
        self.wake.set()


async def test_while_the_node_of_one_dealer_is_away_the_answers_of_others_are_recorded():
    work = WorkOfTwoNodes([1, 1, 2, 3, 2])
    running = asyncio.create_task(work.pool.run())
    try:
        async with asyncio.timeout(PATIENCE):
            while len(work.recorded) < 3:
                work.wake.set()
                await asyncio.sleep(0.01)
            assert work.recorded == [[2], [3], [2]]
            work.node_is_away = False
            while [*chain(*work.recorded)].count(1) < 2:
                await asyncio.sleep(0.01)
        assert sorted(chain(*work.recorded)) == [1, 1, 2, 2, 3]
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_pool_that_is_run_once_waits_for_the_node_of_a_dealer():
    work = WorkOfTwoNodes([1])
    running = asyncio.create_task(work.pool.run_once())
    await work.refused.wait()
    work.node_is_away = False
    assert await running == 1
    assert work.recorded == [[1]]
