"""A look every so many seconds, for ever; a lost database is waited out."""

import asyncio
from collections.abc import Awaitable, Callable

from dealer_server.db.errors import DatabaseLost


async def poll(seconds: float, look: Callable[[], Awaitable[None]]) -> None:
    """Calls `look` for ever; a lost database is waited out."""
    while True:
        try:
            await look()
        except DatabaseLost:
            await asyncio.sleep(seconds)
        await asyncio.sleep(seconds)
