"""Adds up reports as a worker does, and nothing else; each SIGUSR1 tells it to stop, or to go on.
bench/cases/console/group.py measures what that costs orders."""

import asyncio
import os
import signal

from dealer_server.db.database import Database
from dealer_server.operations.reports.fold import POLL_SECONDS, ReportFolder


async def main() -> None:
    database, on = await Database.open(os.environ["DATABASE_URL"]), asyncio.Event()
    on.set()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: on.clear() if on.is_set() else on.set())
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    folding = asyncio.create_task(_fold(ReportFolder(database), on))
    print("ready: folding", flush=True)
    await stop.wait()
    folding.cancel()
    await database.close()


async def _fold(folder: ReportFolder, on: asyncio.Event) -> None:
    while True:
        await on.wait()
        if not await folder.step():
            await asyncio.sleep(POLL_SECONDS)


if __name__ == "__main__":
    asyncio.run(main())
