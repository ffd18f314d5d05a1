"""Which tasks of the worker are under way? asyncio itself keeps weak references only."""

import asyncio
from collections.abc import Coroutine


class BackgroundTasks:
    """Tasks that run until they end, are awaited together and cancelled together."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, timeout: float | None = None) -> None:
        """Returns once the tasks under way now have ended, after `timeout` seconds at the latest."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
