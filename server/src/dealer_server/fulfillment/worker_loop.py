"""Works in batches until cancelled: one after the other while there is work, then whenever it is woken."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from dealer_server.db.errors import DatabaseLost
from dealer_server.fulfillment.faults import fault_text

log = structlog.get_logger()

IDLE_SECONDS = 15.0  # the longest pause
TROUBLE_SECONDS = 1.0


async def run_to_end(name: str, work: Awaitable[int]) -> int:
    """What `work` answers. Once begun it is ended, also when this is cancelled; then an error of it is logged."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, DatabaseLost):
            log.error("work_failed", work=name, error=fault_text(error))
        raise


async def keep_working(name: str, run_once: Callable[[], Awaitable[int]], wake: asyncio.Event) -> None:
    """`run_once` says how much it did. A batch that is begun is ended, also when this is cancelled. `wake` ends the
    pause after one that did nothing, or lost its database."""
    while True:
        pause = IDLE_SECONDS
        try:
            if await run_to_end(name, run_once()):
                continue
        except DatabaseLost:
            pause = TROUBLE_SECONDS
        except Exception as error:
            log.error("work_failed", work=name, error=fault_text(error))
            await asyncio.sleep(TROUBLE_SECONDS)
            continue
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await wake.wait()
        wake.clear()
