"""What charts draw: the period before as an area, gaps in lines, and a legend of what there is."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from dealer_server.console.shared import rendering

DAYS = [datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=number) for number in range(4)]
KEY = re.compile(r'<span class="layer-([a-z0-9]+)">').findall


def charts() -> Any:
    return rendering.environment().get_template("charts.html").module


def test_the_period_before_is_an_area_behind_the_bars_up_to_what_is_not_over():
    page = charts().bars("Sold", DAYS, [(1, "Sold", [1, 2, 3, 4])], open=True, before=[4, 2, 0, 1])
    assert 'd="M0 100V0.0h10V50.0h10V100.0h10V100"' in page
    assert page.index("chart-before") < page.index('layer-1" x='), "bars stand in front of it"
    assert KEY(page) == ["1", "before", "unfinished"]
    gap = charts().bars("Sold", DAYS, [(1, "Sold", [4, 4, 4, 4])], before=[4, None, 2, 1])
    assert 'd="M0 100V0.0h10V100M20 100V50.0h10V75.0h10V100"' in gap


def test_a_legend_names_what_is_drawn():
    layers = [("good", "Accepted", [1, 0, 2, 0]), ("bad", "Failed", [0, 0, 0, 0])]
    assert KEY(charts().bars("Attempts", DAYS, layers, open=True)) == ["good"]
    layers[1] = ("bad", "Failed", [0, 0, 0, 1])
    assert KEY(charts().bars("Attempts", DAYS, layers, open=True)) == ["good", "bad", "unfinished"]


def test_a_line_has_gaps_and_what_stands_alone_is_a_dot():
    page = charts().lines("Time", DAYS, [(1, "p50", [2, None, 4, 4])])
    assert 'layer-1" d="M25 0.0L35 0.0"' in page and 'chart-dots layer-1" d="M5 50.0h0"' in page
    page = charts().lines("Time", DAYS, [(1, "p50", [2, 2, 4, None])], open=True)
    assert 'd="M5 50.0L15 50.0L25 0.0"' in page and KEY(page) == ["1"], "nothing of now is drawn"
    page = charts().lines("Time", DAYS, [(1, "p50", [2, 2, 4, 4])], open=True)
    assert 'unfinished layer-1" d="M25 0.0L35 0.0"' in page and KEY(page) == ["1", "unfinished"]
