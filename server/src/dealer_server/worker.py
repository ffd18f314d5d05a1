"""Door 3: the loops over due work. They meet the API in rows only; any number of workers may run on one database."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run(*loops: Coroutine[Any, Any, None]) -> None:
    """Runs the loops until cancelled; a loop that breaks ends them all, so that the process is restarted whole."""
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop)
