"""How do loops wait?"""

import asyncio
from collections.abc import Awaitable, Callable

from dealer_server.db.errors import DatabaseLost


async def poll(interval_seconds: float, call: Callable[[], Awaitable[None]]) -> None:
    """Awaits `call` at a fixed interval, without end; after a lost database it waits twice the interval."""
    while True:
        try:
            await call()
        except DatabaseLost:
            await asyncio.sleep(interval_seconds)
        await asyncio.sleep(interval_seconds)


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
