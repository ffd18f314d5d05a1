"""How does a call wait for what the worker does?"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
FIRST_SECONDS, LONGEST_SECONDS = 0.02, 0.5


async def until(look: Callable[[], Awaitable[T | None]], seconds: float) -> T | None:
    """What `look` finds, asked again and again, each time after a longer pause; None after so many seconds."""
    loop, pause = asyncio.get_running_loop(), FIRST_SECONDS
    end = loop.time() + seconds
    while (found := await look()) is None:
        if loop.time() >= end:
            return None
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_SECONDS)
    return found
