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
