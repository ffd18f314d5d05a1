"""Where do the lines of a wallet's chart stand?"""

from datetime import date, timedelta

import pytest

from dealer_server.rules.money.money import SCALE
from dealer_server.rules.reports.balance_curve import curve

DAYS = [date(2026, 11, 1) + timedelta(days=at) for at in range(3)]


@pytest.mark.parametrize(
    ("balances", "low", "top", "bottom", "shown_low"),
    [
        ((0, 0, 0), 0, 2, 0, 0),
        ((100, 900, 1_431), 300, 1_600, 0, 300),
        ((-90, 40, 10), 0, 40, -100, 0),
        ((-3, -2, -1), 5, 2, -4, 0),
        ((100, 100, 100), 300, 100, 0, 0),  # a line above the chart is left out
    ],
)
def test_the_axis_holds_all_balances(balances: tuple[int, ...], low: int, top: int, bottom: int, shown_low: int):
    shown = curve(DAYS, [balance * SCALE for balance in balances], low * SCALE)
    assert (shown.top, shown.bottom, shown.low) == (top, bottom, shown_low * SCALE)
    assert all(0 <= shown.height(balance * SCALE) <= 100 for balance in balances)
    assert shown.moved == (len(set(balances)) > 1)
