"""Over which hours are figures, and with which are they compared?"""

from datetime import UTC, datetime, timedelta

import pytest

from dealer_server.rules.period import HOUR, MOST_DAYS, Range, change_text, grouped, period, starts

NOW = datetime(2026, 11, 20, 17, 30, tzinfo=UTC)
NEVER = datetime(9999, 12, 31, tzinfo=UTC)


def day(number: int, hour: int = 0) -> datetime:
    return datetime(2026, 11, number, hour, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "first", "last", "hours", "compared", "bucket"),
    [
        ("24h", None, None, (day(19, 18), day(20, 18)), (day(18, 18), day(19, 17)), 1),
        ("7d", None, None, (day(14), day(20, 18)), (day(7), day(14)), 24),
        ("30d", None, None, (datetime(2026, 10, 22, tzinfo=UTC), day(20, 18)), None, 24),
        ("custom", None, None, (day(20), day(20, 18)), (day(19), day(19, 17)), 1),
        ("custom", day(2), day(3), (day(2), day(4)), (datetime(2026, 10, 31, tzinfo=UTC), day(2)), 1),
        ("custom", day(3), day(2), (day(3), day(4)), (day(2), day(3)), 1),
        ("custom", day(25), day(28), (day(20), day(20, 18)), (day(19), day(19, 17)), 1),
        ("custom", day(19), day(28), (day(19), day(20, 18)), (day(17), day(19)), 1),
        ("custom", NEVER, NEVER, (day(20), day(20, 18)), (day(19), day(19, 17)), 1),
        ("custom", day(19), NEVER, (day(19), day(20, 18)), (day(17), day(19)), 1),
    ],
)
def test_a_period_and_the_one_before(
    name: Range,
    first: datetime | None,
    last: datetime | None,
    hours: tuple[datetime, datetime],
    compared: tuple[datetime, datetime] | None,
    bucket: int,
):
    of = period(name, first, last, NOW)
    assert (of.start, of.end) == hours
    assert compared is None or of.previous == compared
    assert of.bucket == bucket * HOUR
    assert of.open == (of.end > NOW)
    before = of.previous
    assert of.compared_hours <= min(of.closed_hours, (before[1] - before[0]) // HOUR) and before[1] <= of.start


def test_a_period_is_not_longer_than_pages_can_show():
    of = period("custom", datetime(2020, 1, 1, tzinfo=UTC), None, NOW)
    assert of.end - of.start == timedelta(days=MOST_DAYS)


def test_hours_are_grouped_as_the_chart_shows_them():
    of = period("7d", None, None, NOW)
    sums = grouped(range(of.hours), of, lambda hour: hour)
    assert len(sums) == len(starts(of)) == 7
    assert sums[0] == sum(range(24)) and sum(sums) == sum(range(of.hours))


@pytest.mark.parametrize(
    ("now", "before", "text"),
    [(112, 100, "+12 %"), (97, 100, "−3 %"), (100, 100, "no change"), (5, 0, ""), (0, 5, "−100 %"),
     (3_000, 100, "+2,900 %")],
)  # fmt: skip
def test_a_change_in_words(now: float, before: float, text: str):
    assert change_text(now, before) == text
