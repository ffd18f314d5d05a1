"""Spaces out calls to a supplier that limits calls a second."""

import asyncio

SLACK = 1.1  # where their second begins is not ours to know


class RateLimiter:
    """One per supplier and process, whatever the calls are for: `wait` returns when the next one may go, evenly spaced,
    counted from when the last one really went."""

    def __init__(self, per_second: float):
        self._gap = SLACK / per_second
        self._turn = asyncio.Lock()
        self._next = 0.0

    async def wait(self) -> None:
        clock = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(self._next - clock())
            self._next = clock() + self._gap
