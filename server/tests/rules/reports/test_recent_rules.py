"""A dealer's last 30 days, without a database."""

from datetime import date, timedelta

import pytest

from dealer_server.rules.reports import recent
from dealer_server.rules.reports.period import Period
from dealer_server.rules.reports.sums import DaySums, Sums

TODAY = date(2026, 11, 28)


def _spent(**amounts: int) -> list[DaySums]:
    """What was spent so many days ago: d0 is today."""
    return [
        DaySums(TODAY - timedelta(days=int(name[1:])), "USD", Sums(sold=1, revenue=amount))
        for name, amount in amounts.items()
    ]


@pytest.mark.parametrize(
    ("days", "total", "change"),
    [
        (_spent(), 0, ""),
        (_spent(d0=70), 70, ""),
        (_spent(d1=120, d30=100), 120, "+20 %"),
        (_spent(d0=900, d29=80, d30=50, d58=50), 980, "−20 %"),
        (_spent(d1=100, d59=100), 100, ""),
    ],
)
def test_the_last_30_days_are_compared_with_as_many_whole_days_before(days: list[DaySums], total: int, change: str):
    found = recent.recent(days, "USD", TODAY)
    assert (len(found.days), found.days[-1]) == (30, TODAY)
    assert (found.total.revenue, found.change) == (total, change)
    assert recent.recent(days, "EUR", TODAY).total == Sums()


@pytest.mark.parametrize(
    ("days", "total", "change"),
    [
        (_spent(), 0, ""),
        (_spent(d0=70, d6=30, d7=500), 100, "−94 %"),
        (_spent(d1=120, d7=100), 120, "+20 %"),
        (_spent(d1=120, d12=100, d13=900), 120, "+20 %"),
    ],
)
def test_a_week_is_compared_with_the_whole_days_before_it(days: list[DaySums], total: int, change: str):
    found = recent.stretch(recent.recent(days, "USD", TODAY), 7)
    assert (found.sums.revenue, found.change) == (total, change)


def test_all_30_days_are_what_they_are_by_themselves():
    found = recent.recent(_spent(d0=900, d29=80, d30=50, d58=50), "USD", TODAY)
    assert recent.stretch(found, 30) == (30, found.total, found.change)


def test_days_that_must_be_known_are_those_shown_and_those_compared_with():
    assert recent.compared(TODAY) == Period(date(2026, 9, 30), TODAY)


@pytest.mark.parametrize(
    ("days", "available", "left"),
    [
        (_spent(), 500, None),
        (_spent(d0=500, d8=500), 500, None),
        (_spent(d1=30, d7=40), 500, 50),
        (_spent(d1=70), 5, 0),
        (_spent(d1=70), -40, 0),
    ],
)
def test_a_balance_lasts_as_long_as_the_last_week_was_spent(days: list[DaySums], available: int, left: int | None):
    assert recent.days_left(available, recent.recent(days, "USD", TODAY)) == left


def test_what_was_refunded_is_not_spent():
    given_back = [DaySums(TODAY - timedelta(days=1), "USD", Sums(sold=1, revenue=70, refunded=1, refunds=70))]
    assert recent.days_left(500, recent.recent(given_back, "USD", TODAY)) is None
