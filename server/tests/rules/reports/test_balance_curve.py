"""Where do the lines of a wallet's chart stand?"""

from datetime import date, timedelta

import pytest

from dealer_server.rules.money.money import SCALE
from dealer_server.rules.reports.balance_curve import curve, low_balance

DAYS = [date(2026, 11, 1) + timedelta(days=at) for at in range(3)]


@pytest.mark.parametrize(
    ("balances", "low", "top", "bottom", "shown_low"),
    [
        ((0, 0, 0), 0, 2, 0, 0),
        ((100, 900, 1_431), 300, 1_600, 0, 300),
        ((-90, 40, 10), 0, 40, -100, 0),
        ((-3, -2, -1), 5, 2, -4, None),
        ((100, 100, 100), 300, 100, 0, None),  # a line above the chart is left out
        ((100, 100, 100), -1, 100, 0, None),  # and one below
        ((-90, 40, 10), -50, 40, -100, -50),
        ((100, 900, 1_431), None, 1_600, 0, None),
    ],
)
def test_the_axis_holds_all_balances(
    balances: tuple[int, ...], low: int | None, top: int, bottom: int, shown_low: int | None
):
    shown = curve(DAYS, [balance * SCALE for balance in balances], None if low is None else low * SCALE)
    assert (shown.top, shown.bottom, shown.low) == (top, bottom, None if shown_low is None else shown_low * SCALE)
    assert all(0 <= shown.height(balance * SCALE) <= 100 for balance in balances)
    assert shown.moved == (len(set(balances)) > 1)


@pytest.mark.parametrize(
    ("threshold", "credit_limit", "limits", "low"),
    [
        (50, 0, (25, 10), 50),
        (50, 200, (25, 10), -150),  # a threshold is of what is available
        (0, 200, (25, 10), 25),
        (0, 200, (), None),
    ],
)
def test_a_balance_is_low_where_the_dealer_is_told(
    threshold: int, credit_limit: int, limits: tuple[int, ...], low: int | None
):
    assert low_balance(threshold, credit_limit, limits) == low
