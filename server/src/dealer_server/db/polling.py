"""How do loops work and wait?"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from dealer_server.db.errors import DatabaseLost, LockTimeout

log = structlog.get_logger()


async def poll(interval_seconds: float, call: Callable[[], Awaitable[None]]) -> None:
    """Awaits `call` at a fixed interval, without end; after a lost database it waits twice the interval."""
    while True:
        try:
            await call()
        except DatabaseLost:
            await asyncio.sleep(interval_seconds)
        await asyncio.sleep(interval_seconds)


async def work(
    name: str, step: Callable[[], Awaitable[int]], poll_seconds: float, wake: asyncio.Event | None = None
) -> None:
    """Step after step until cancelled. Where there was nothing to do it pauses, and then waits for `wake` if there is
    one."""
    while True:
        if not await attempt(name, step):
            await asyncio.sleep(poll_seconds)
            if wake is not None:
                await wake.wait()
                wake.clear()


async def attempt(name: str, step: Callable[[], Awaitable[int]]) -> int:
    """How much a step did; 0 where it failed. A lost database and a lock that others hold are no news; what else was
    wrong is logged."""
    try:
        return await step()
    except (DatabaseLost, LockTimeout):
        return 0
    except Exception:
        log.exception("step_failed", work=name)
        return 0


async def pause_until(at: float) -> None:
    """`at`: loop time; one that is over is not waited for."""
    if (seconds := at - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(seconds)


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Returns once the event is set, which happens after so many seconds at the latest."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
