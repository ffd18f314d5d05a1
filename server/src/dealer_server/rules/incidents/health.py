"""How healthy is what we ask: a supplier, a dealer's endpoint? One rule for all pages.

What does not answer at present is down or failing. A supplier fails, too, while it answers and none of what it was
asked lately went well, LEAST_FAILED times at least. What answers is degraded while less than HEALTHY_PERCENT of what it
was asked lately went well and LEAST_FAILED failed. Else it is healthy. What is degraded, failing or down has a notice,
and only what has one is coloured: other failures are told in grey.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

HEALTHY_PERCENT = 95
LEAST_FAILED = 3
"""Fewer failures are chance, whatever their share: 1 of 10, 2 of 20."""
HOUR, COUNTED_HOURS, LOOKED_BACK = timedelta(hours=1), 24, timedelta(days=7)
Hours = Mapping[datetime, tuple[int, int]]
"""By the start of an hour, how much of what was asked in it went well, and how much was asked."""


def is_degraded(good: int, asked: int) -> bool:
    """Of so many times that it was asked lately, so many went well."""
    return asked - good >= LEAST_FAILED and 100 * good < HEALTHY_PERCENT * asked


def is_failing(good: int, asked: int) -> bool:
    """None of it went well. It is degraded, too."""
    return not good and asked >= LEAST_FAILED


def bad_since(hours: Hours, now: datetime, is_bad: Callable[[int, int], bool] = is_degraded) -> datetime:
    """Since when what is degraded now has been so: since which hour COUNTED_HOURS have always been too bad,
    LOOKED_BACK at most. `is_bad`: is_failing asks the same of what is failing."""
    at = current = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    good, asked = (sum(hours.get(at - n * HOUR, (0, 0))[part] for n in range(1, COUNTED_HOURS + 1)) for part in (0, 1))
    while at > current - LOOKED_BACK and is_bad(good, asked):
        at -= HOUR
        left, joins = hours.get(at, (0, 0)), hours.get(at - COUNTED_HOURS * HOUR, (0, 0))
        good, asked = good - left[0] + joins[0], asked - left[1] + joins[1]
    return min(at + HOUR, current)


def share_text(good: int, asked: int) -> str:
    """To a tenth: 85.7 %, 90.0 %. 100 % is all of it, and 0 % none."""
    if not asked:
        return "–"
    nearest = min(max(round(1000 * good / asked), 1 if good else 0), 999 if good < asked else 1000)
    return f"{nearest // 10} %" if nearest in (0, 1000) else f"{nearest / 10:.1f} %"


def share_of(good: int, asked: int) -> str:
    """As a sentence says it: 94.1 % of 185; none of 3."""
    return f"{share_text(good, asked) if good else 'none'} of {asked:,}"


def supplier_word(up: bool | None, good: int, asked: int) -> str:
    """UP, DEGRADED, FAILING, DOWN; NOT ASKED where no worker has asked it yet."""
    if up is None:
        return "NOT ASKED"
    if not up:
        return "DOWN"
    return "FAILING" if is_failing(good, asked) else "DEGRADED" if is_degraded(good, asked) else "UP"
