"""What calls leave in memory is written to the database in the background, and all of it at an orderly end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background_flush(run: Coroutine[Any, Any, None], flush: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Runs `run`, which writes repeatedly, while this is open; `flush` writes what is left at the end."""
    writing = asyncio.create_task(run)
    try:
        yield
    finally:
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writing
        await flush()
