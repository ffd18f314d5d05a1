"""Which days does a report cover? All days are days of UTC."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

LONGEST_DAYS = 366
DAY = timedelta(days=1)
PRESETS: Mapping[str, str] = {"this-month": "This month", "last-month": "Last month", "30-days": "30 days"}
_MONTH = re.compile(r"(?P<year>20[0-9]{2})-(?P<month>0[1-9]|1[0-2])", re.ASCII)


class Period(NamedTuple):
    """From the first day to the last one, both included."""

    first: date
    last: date

    @property
    def days(self) -> list[date]:
        return [self.first + n * DAY for n in range((self.last - self.first).days + 1)]

    @property
    def before(self) -> "Period":
        """As many days, up to the one before its first."""
        return Period(self.first - (self.last - self.first) - DAY, self.first - DAY)

    @property
    def title(self) -> str:
        """For people: November 2026, 29 Nov 2026, 31 Oct – 29 Nov 2026, 30 Dec 2025 – 2 Jan 2026."""
        if self == month_of(self.first).period:
            return month_of(self.first).title
        return self.days_text

    @property
    def days_text(self) -> str:
        """The same, a whole month too by its days: 1 Nov – 30 Nov 2026."""
        end = _day_text(self.last, year=True)
        if self.first == self.last:
            return end
        return f"{_day_text(self.first, year=self.first.year != self.last.year)} – {end}"

    @property
    def whole_months(self) -> tuple[date, date]:
        """The first day of those months that are in it from their first day to their last, and the day after them.
        Where there are none, both are its first day."""
        first = month_of(self.first - DAY).next_first
        end = month_of(self.last + DAY).period.first
        return (first, end) if first < end else (self.first, self.first)


class Month(NamedTuple):
    year: int
    number: int

    def __str__(self) -> str:
        return f"{self.year:04}-{self.number:02}"

    @property
    def period(self) -> Period:
        return Period(date(self.year, self.number, 1), self.next_first - DAY)

    @property
    def next_first(self) -> date:
        """The first day of the month that follows."""
        return date(self.year + self.number // 12, self.number % 12 + 1, 1)

    @property
    def before(self) -> "Month":
        return month_of(date(self.year, self.number, 1) - DAY)

    @property
    def title(self) -> str:
        return f"{date(self.year, self.number, 1):%B %Y}"


def _day_text(day: date, *, year: bool) -> str:
    return f"{day.day} {day:%b}" + (f" {day.year}" if year else "")


def month_of(day: date) -> Month:
    return Month(day.year, day.month)


def parse_month(text: str) -> Month:
    """A month such as 2026-10. Raises ValueError, whose text says what is accepted."""
    form = _MONTH.fullmatch(text)
    if form is None:
        raise ValueError("must be a month from 2000-01 to 2099-12, such as 2026-10")
    return Month(int(form["year"]), int(form["month"]))


def day_of(at: datetime) -> date:
    return at.astimezone(UTC).date()


def start_of(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def months(first: date, today: date, most: int) -> list[Month]:
    """The months from that of `first` to that of `today`, the newest first, `most` at most."""
    found, month = list[Month](), month_of(today)
    while len(found) < most and month >= month_of(first):
        found.append(month)
        month = month.before
    return found


def preset(name: str, today: date) -> Period:
    """The days of one of PRESETS, up to today."""
    if name == "last-month":
        return month_of(today).before.period
    if name == "30-days":
        return Period(today - 29 * DAY, today)
    return Period(today.replace(day=1), today)


def between(first: str, last: str, today: date) -> Period:
    """Days as written: 2026-11-01. One that is missing is the end that makes 30 days, or today. Raises
    ValueError, whose text names the field, what was wrong and what is accepted."""
    end = _day("to", last) if last else max(today, _day("from", first)) if first else today
    begin = _day("from", first) if first else end - 29 * DAY
    if begin > end:
        raise ValueError(f"from {begin} is after to {end}: the first day must not be after the last")
    if (end - begin).days >= LONGEST_DAYS:
        raise ValueError(f"from {begin} to {end} is longer than {LONGEST_DAYS} days: choose a shorter range")
    return Period(begin, end)


def _day(field: str, text: str) -> date:
    try:
        found = datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        found = date.min
    if not 2000 <= found.year <= 2099 or f"{found}" != text:
        raise ValueError(f"{field} {text[:20]!r}: a day from 2000-01-01 to 2099-12-31 is expected, such as 2026-11-01")
    return found
