"""How many deliveries of each dealer does this worker have in flight, and how many of them at the receiver?

A delivery is in flight from its claim until its outcome is recorded. It is at the receiver only while it is posted. A
receiver that answers quickly is read ahead for: more than the dealer's cap is claimed, so that batches are large, and
each delivery waits for its turn to be posted.
"""

import asyncio
from collections import defaultdict

READ_AHEAD = 3  # times the cap; should the receiver hang all at once, the last wait 20 s, and the lease is 60 s
_WEIGHT = 0.3  # of the latest answer in the average


class InFlight:
    """The deliveries of one dealer. `turns` lets as many be posted at a time as the dealer's cap allows."""

    def __init__(self, quick_seconds: float) -> None:
        self._quick_seconds = quick_seconds
        self.turns = asyncio.Semaphore(1)
        self._cap = 1
        self._claimed = 0
        self._accepted = 0
        self._seconds: float | None = None  # that the receiver takes on average; None after a failure

    def room(self, cap: int, counted: int) -> int:
        """How many more may be claimed; `counted` are in flight by the database, of all workers.

        What this worker's receiver has accepted leaves room before it is recorded. Those of other workers count until
        then.
        """
        if cap > 1 and cap != self._cap:  # 1 is that of a probe: what was claimed before does not wait for it
            self._cap, self.turns = cap, asyncio.Semaphore(cap)
        quick = self._seconds is not None and self._seconds <= self._quick_seconds
        most = cap * READ_AHEAD if cap > 1 and quick else cap
        return most - (self._claimed - self._accepted) - max(counted - self._claimed, 0)

    def claimed(self) -> None:
        self._claimed += 1

    def answered(self, seconds: float, *, accepted: bool) -> None:
        if accepted:
            self._accepted += 1
            before = seconds if self._seconds is None else self._seconds
            self._seconds = before + _WEIGHT * (seconds - before)
        else:
            self._seconds = None

    def ended(self, *, accepted: bool) -> None:
        """Its outcome is recorded, or left to its lease."""
        self._claimed -= 1
        self._accepted -= accepted


ByTenant = defaultdict[int, InFlight]
"""Of the dealers that had deliveries since the worker started, by tenant_id."""
