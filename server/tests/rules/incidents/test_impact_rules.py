"""What does a supplier that fails stop, and who steps in?"""

from datetime import UTC, date, datetime

import pytest

from dealer_server.rules.incidents import impact

NOON = datetime(2026, 11, 20, 12, 40, tzinfo=UTC)
HOURS = 6 * 24 + 12


@pytest.mark.parametrize(
    ("sold", "text"),
    [
        (14 * HOURS, "about 14 eSIMs sold an hour lately"),
        (HOURS, "about 1 eSIM sold an hour lately"),
        (HOURS // 2, "about 1 eSIM sold an hour lately"),
        (HOURS // 2 - 1, "about 12 eSIMs sold a day lately"),
        (4, "about 1 eSIM sold a day lately"),
        (3, "less than 1 eSIM sold a day"),
        (0, "none sold in 7 days"),
    ],
)
def test_how_much_is_sold_is_told_by_the_hour_or_the_day(sold: int, text: str):
    assert impact.rate_text(sold, NOON) == text


def test_sales_of_a_week_are_counted_today_among_them():
    assert impact.first_day(NOON) == date(2026, 11, 14)
    assert impact.rate_text(5, NOON.replace(hour=0)) == "about 1 eSIM sold a day lately"


@pytest.mark.parametrize(
    ("route", "usable", "following"),
    [
        (["near", "far"], {"near", "far"}, "far"),
        (["near", "far", "third"], {"near", "third"}, "third"),
        (["far", "near"], {"near", "far"}, None),
        (["near"], {"near"}, None),
        (["far"], {"far"}, None),
        ([], {"far"}, None),
    ],
)
def test_the_next_supplier_that_can_be_asked_steps_in(route: list[str], usable: set[str], following: str | None):
    assert impact.following(route, "near", usable) == following
