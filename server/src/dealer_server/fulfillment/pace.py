"""Spaces out calls to a supplier that allows so many a second."""

import asyncio


class Pace:
    """`step` returns when the next call may go: evenly spaced, in the order of asking. None: no limit."""

    def __init__(self, per_second: float | None):
        self._gap = 1 / per_second if per_second else 0.0
        self._next = 0.0

    async def step(self) -> None:
        if not self._gap:
            return
        now = asyncio.get_running_loop().time()
        at = max(self._next, now)
        self._next = at + self._gap
        await asyncio.sleep(at - now)
