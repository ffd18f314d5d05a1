"""Calls a function at a fixed interval, without end."""

import asyncio
from collections.abc import Awaitable, Callable

from dealer_server.db.errors import DatabaseLost


async def poll(interval_seconds: float, call: Callable[[], Awaitable[None]]) -> None:
    """Awaits `call` again and again; after a lost database it waits twice the interval."""
    while True:
        try:
            await call()
        except DatabaseLost:
            await asyncio.sleep(interval_seconds)
        await asyncio.sleep(interval_seconds)
