"""How long did calls take? A histogram small enough to keep for every minute and fine enough for a 95th percentile: the
bound of each bucket is a fifth above the one before."""

from bisect import bisect_left
from collections.abc import Sequence

FIRST, STEP, BUCKETS = 0.0002, 1.2, 64
BOUNDS = tuple(FIRST * STEP**bucket for bucket in range(BUCKETS - 1))
"""The upper bound of each bucket in seconds, 0.2 ms to 16 s; the last bucket has none."""


def bucket(seconds: float) -> int:
    """The bucket of a call."""
    return bisect_left(BOUNDS, seconds)


def percentile(counts: Sequence[int], percent: float) -> float | None:
    """Seconds within which that percentage of calls was answered, rounded up to the bound of a bucket; None where there
    were no calls."""
    rank, passed = sum(counts) * percent / 100, 0
    if rank <= 0:
        return None
    for number, count in enumerate(counts):
        passed += count
        if passed >= rank:
            return BOUNDS[min(number, len(BOUNDS) - 1)]
    raise AssertionError("the buckets hold all calls")
