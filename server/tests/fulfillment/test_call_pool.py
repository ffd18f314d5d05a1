"""What becomes of a look for work that is under way when its pool is stopped?"""

import asyncio
import gc
from collections.abc import Sequence

from dealer_server.db.errors import DatabaseLost
from dealer_server.fulfillment.call_pool import CallPool


class LostWork:
    """The database is lost while it looks for work."""

    name, parallel, interval_seconds, grace_seconds, keeps_locked = "lost", 1, 0.0, 0.0, False

    def __init__(self) -> None:
        self.wake, self.looking, self.lost = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def begin(self, room: int) -> int:
        self.looking.set()
        await self.lost.wait()
        raise DatabaseLost(sent=False)

    async def record(self, answered: Sequence[tuple[int, int]]) -> None: ...

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
