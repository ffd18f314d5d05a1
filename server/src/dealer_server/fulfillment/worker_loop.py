"""Works in batches until cancelled: one after the other while there is work, then at intervals."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from dealer_server.db.errors import DatabaseLost
from dealer_server.fulfillment.faults import fault_text

log = structlog.get_logger()

POLL_SECONDS = 0.1
TROUBLE_SECONDS = 1.0


async def keep_working(name: str, run_once: Callable[[], Awaitable[int]], wake: asyncio.Event) -> None:
    """`run_once` says how much it did. A batch that is begun is ended, also when this is
    cancelled; `wake` ends a pause."""
    while True:
        pause = POLL_SECONDS
        working = asyncio.ensure_future(run_once())
        try:
            if await asyncio.shield(working):
                continue
        except asyncio.CancelledError:
            await asyncio.wait([working])
            raise
        except DatabaseLost:
            pause = TROUBLE_SECONDS
        except Exception as error:
            log.error("batch_not_done", work=name, error=fault_text(error))
            pause = TROUBLE_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await wake.wait()
        wake.clear()
