"""How long did calls take? Counts of calls by how long, small enough to keep of every minute, close enough for a 95th
percentile: each class ends a fifth above the one before."""

from bisect import bisect_left
from collections.abc import Sequence

FIRST, STEP, CLASSES = 0.0002, 1.2, 64
BOUNDS = tuple(FIRST * STEP**place for place in range(CLASSES - 1))
"""Seconds up to which each class goes, 0.2 ms to 16 s; the last one has no end."""


def place(seconds: float) -> int:
    """The class of a call."""
    return bisect_left(BOUNDS, seconds)


def percentile(counts: Sequence[int], percent: float) -> float | None:
    """Seconds within which so many percent of the calls were answered, rounded up to the end of a class; None for no
    call at all."""
    wanted, seen = sum(counts) * percent / 100, 0
    if wanted <= 0:
        return None
    for at, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return BOUNDS[min(at, len(BOUNDS) - 1)]
    raise AssertionError("the classes hold all calls")
