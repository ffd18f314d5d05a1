"""How did a dealer's last 30 days go, beside those before, and how long does its balance last?"""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import NamedTuple

from dealer_server.rules.period import change_text
from dealer_server.rules.reports import sums as rules
from dealer_server.rules.reports.period import DAY, Period, preset
from dealer_server.rules.reports.sums import DaySums, Sums

PACE_DAYS = 7
"""The balance is spent as fast as in so many whole days."""


class Recent(NamedTuple):
    """`days`: the last 30, the last of which is today, which is not over. `before`: of the 30 before them. `change`: of
    what was spent on those that are over against as many before them, "" where there is nothing to compare with."""

    days: Sequence[date]
    sums: Sequence[Sums]
    before: Sequence[Sums]
    change: str

    @property
    def total(self) -> Sums:
        return rules.total(self.sums)


def shown(today: date) -> Period:
    return preset("30-days", today)


def compared(today: date) -> Period:
    """The days that must be known: those shown, and those they are compared with."""
    return Period(shown(today).before.first, shown(today).last)


def recent(days: Iterable[DaySums], currency: str, today: date) -> Recent:
    """`days`: those of `compared`."""
    wanted = shown(today).days
    every = rules.series(days, currency, compared(today).days)
    before, sums = every[: -len(wanted)], every[-len(wanted) :]
    return Recent(wanted, sums, before, change_text(rules.total(sums[:-1]).revenue, rules.total(before[1:]).revenue))


def days_left(available: int, found: Recent) -> int | None:
    """For how many days `available` lasts at what was spent and not refunded in the last 7 whole days; None where that
    is nothing."""
    return lasts(available, lately(found))


def lately(found: Recent) -> int:
    """What was spent and not refunded in the last PACE_DAYS whole days."""
    return rules.total(found.sums[-1 - PACE_DAYS : -1]).net


def per_day(found: Recent) -> int:
    """The same for a day, in whole hundredths."""
    return lately(found) // (PACE_DAYS * 100) * 100


def pace(today: date) -> Period:
    """The whole days whose pace counts."""
    return Period(today - PACE_DAYS * DAY, today - DAY)


def lasts(available: int, spent: int) -> int | None:
    """For how many days, at what was spent in PACE_DAYS; None where that is nothing."""
    return max(available, 0) * PACE_DAYS // spent if spent > 0 else None
