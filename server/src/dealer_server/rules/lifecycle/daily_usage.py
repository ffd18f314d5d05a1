"""How much data did an eSIM use on each day? By its supplier's counter, which is told of now and then.

Of each day the highest count is kept, so that reports may come late, twice and out of order. What was used between two
reports counts on the day of the later one.
"""

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

MOST_DAYS = 60
"""The newest days that are kept."""

Counts = tuple[tuple[date, int], ...]
"""Days in UTC, the oldest first, each with the highest count in bytes. A count goes from the first plan on."""


class DayUsage(NamedTuple):
    """`used`: in bytes."""

    day: date
    used: int


def counted(counts: Counts, at: datetime, count: int | None) -> Counts:
    """With a count of this moment. One that tells nothing new of its day leaves them as they are."""
    day = at.astimezone(UTC).date()
    if not count or dict(counts).get(day, 0) >= count:
        return counts
    return tuple(sorted({**dict(counts), day: count}.items())[-MOST_DAYS:])


def by_day(counts: Counts) -> list[DayUsage]:
    """Each day from the first to the last that is kept, MOST_DAYS at most. Where older days were dropped, the
    first one only says how much was used before, and is left out."""
    used: dict[date, int] = {}
    highest = 0
    for day, count in counts:
        used[day], highest = max(count - highest, 0), max(highest, count)
    if len(counts) == MOST_DAYS:
        del used[counts[0][0]]
    if not used:
        return []
    last = max(used)
    first = max(min(used), last - timedelta(days=MOST_DAYS - 1))
    days = [first + timedelta(days=at) for at in range((last - first).days + 1)]
    return [DayUsage(day, used.get(day, 0)) for day in days]
