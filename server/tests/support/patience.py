"""How long does a test wait for an event before it gives up? Only a test that fails waits so long."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 180.0  # seconds: enough on a machine that does other things as well
FIRST_SECONDS, LONGEST_SECONDS = 0.01, 0.05


async def found(look: Callable[[], Awaitable[T | None]]) -> T:
    """What `look` gives once it is not None. It looks less and less often, as each look costs what it looks at.
    Raises TimeoutError after PATIENCE."""
    pause = FIRST_SECONDS
    async with asyncio.timeout(PATIENCE):
        while (seen := await look()) is None:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_SECONDS)
    return seen
