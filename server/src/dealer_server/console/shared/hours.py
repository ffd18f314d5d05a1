"""How did something go in the last 24 hours, hour by hour? What hours.html draws."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.rules.incidents.health import share_text

HOURS = 24


class Hour(NamedTuple):
    """`start`: when it began."""

    start: datetime
    good: int = 0
    bad: int = 0


class Day(NamedTuple):
    """`most`: in one of its hours, 1 at least."""

    hours: Sequence[Hour]
    most: int
    good: int
    bad: int

    @property
    def total(self) -> int:
        return self.good + self.bad

    @property
    def share(self) -> str:
        return share_text(self.good, self.total)

    @property
    def bad_share(self) -> str:
        return share_text(self.bad, self.total)


def first_hour(now: datetime) -> datetime:
    """When the first of the last 24 hours began; the last one is not over yet."""
    return now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)


def last_day(found: Iterable[Hour], now: datetime) -> Day:
    """All its hours, those without any too."""
    by_start, first = {one.start: one for one in found}, first_hour(now)
    hours = [by_start.get(at, Hour(at)) for at in (first + timedelta(hours=number) for number in range(HOURS))]
    most = max(one.good + one.bad for one in hours)
    return Day(hours, max(most, 1), sum(one.good for one in hours), sum(one.bad for one in hours))
