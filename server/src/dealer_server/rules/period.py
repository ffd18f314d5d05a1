"""Over which hours are figures, with which hours are they compared, and how are they grouped for a chart?"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeVar

Range = Literal["24h", "today", "7d", "30d", "custom"]
RECENT: Mapping[Range, str] = {"24h": "24 hours", "7d": "7 days", "30d": "30 days"}
"""Those that end now, and what they are called."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MOST_DAYS = 92
T = TypeVar("T")


class Period(NamedTuple):
    """Hours from `start` on and before `end`, in UTC; `open`: the last one is not over yet. `bucket`: what a chart
    shows as one. `length`: how far back the period before lies."""

    name: Range
    start: datetime
    end: datetime
    bucket: timedelta
    length: timedelta
    open: bool

    @property
    def hours(self) -> int:
        return (self.end - self.start) // HOUR

    @property
    def closed_hours(self) -> int:
        """How many of them are over."""
        return self.hours - self.open

    @property
    def compared_hours(self) -> int:
        """How many of them are compared with the period before: whole days, as reports do; of the last 24 hours, and of
        today alone, the hours that are over."""
        return self._whole_days or self.closed_hours

    @property
    def _whole_days(self) -> int:
        """Hours of the days that are over; 0 where hours are compared."""
        if self.name == "24h":
            return 0
        return ((self.end - HOUR).replace(hour=0) - self.start) // HOUR if self.open else self.hours

    @property
    def previous(self) -> tuple[datetime, datetime]:
        """The period before, from the first hour on, before the second; where hours are compared as many as those. The
        last `compared_hours` of it are what is compared."""
        start = self.start - self.length
        return start, self.start if self._whole_days else start + self.closed_hours * HOUR


def period(name: Range, first: datetime | None, last: datetime | None, now: datetime) -> Period:
    """24h: the hours of the last 24, the current one among them. today: those of the day. 7d and 30d: so many days,
    today among them. custom: from the day `first` to the end of the day `last`, MOST_DAYS at most; without a day,
    today."""
    current = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    after, today = current + HOUR, current.replace(hour=0)
    match name:
        case "24h":
            start, end = after - DAY, after
        case "today":
            start, end = today, after
        case "7d":
            start, end = today - 6 * DAY, after
        case "30d":
            start, end = today - 29 * DAY, after
        case "custom":
            start = min(first or last or today, today)
            end = min(max(min(last or today, today), start) + DAY, start + MOST_DAYS * DAY, after)
    length = {"24h": DAY, "7d": 7 * DAY, "30d": 30 * DAY}.get(name, -(-(end - start) // DAY) * DAY)
    return Period(name, start, end, _bucket(end - start), length, end == after)


def _bucket(length: timedelta) -> timedelta:
    return HOUR if length <= 2 * DAY else DAY


def grouped(hours: Sequence[T], of: Period, value: Callable[[T], float]) -> list[float]:
    """The sum of each bucket of a period whose hours these are."""
    size = of.bucket // HOUR
    return [sum(value(hour) for hour in hours[at : at + size]) for at in range(0, len(hours), size)]


def starts(of: Period) -> list[datetime]:
    """Of each bucket."""
    count = -(-(of.end - of.start) // of.bucket)
    return [of.start + at * of.bucket for at in range(count)]


def change_percent(now: float, before: float) -> float | None:
    """By how much more or less it is than it was; None where it was nothing."""
    return 100 * (now - before) / before if before else None


def change_text(now: float, before: float) -> str:
    """+12 %, −3 %, "no change"; "" where there is nothing to compare with."""
    percent = change_percent(now, before)
    if percent is None:
        return ""
    whole = round(percent)
    if not whole:
        return "no change"
    return f"{'+' if whole > 0 else '−'}{abs(whole):,} %"
