"""The bars of a report that is grouped: by day, or by week where days are many."""

from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.reports.stack import MOST_DAYS, OTHERS, Stack, stack

FIRST = date(2026, 1, 1)  # a Thursday


def total(days: int, revenue: int = 10) -> dict[date, int]:
    return {FIRST + timedelta(days=number): revenue for number in range(days)}


def sums(found: Stack) -> list[int]:
    return [sum(of_bar) for of_bar in zip(*(layer.revenues for layer in found.layers), strict=True)]


@given(st.integers(1, 400), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 399), st.integers(0, 5))))
def test_bars_hold_what_was_sold(days: int, sales: list[tuple[str, int, int]]):
    sold = [(value, FIRST + timedelta(days=at), revenue) for value, at, revenue in sales if at < days]
    of_all = total(days, 0)
    for _, day, revenue in sold:
        of_all[day] += revenue
    found = stack({"a": "A", "b": "B"}, sold, of_all)
    for layer, value in zip(found.layers, "ab", strict=False):
        assert sum(layer.revenues) == sum(revenue for name, _, revenue in sold if name == value)
    assert sums(found) == list(of_all.values()) if not found.weekly else sum(sums(found)) == sum(of_all.values())
    assert [layer.name for layer in found.layers] == ["A", "B"]


def test_a_bar_is_a_day_or_where_they_are_many_a_week_from_monday():
    daily = stack({"a": "A"}, [("a", FIRST, 4)], total(MOST_DAYS))
    assert not daily.weekly and daily.starts == list(total(MOST_DAYS))
    assert [layer.revenues[0] for layer in daily.layers] == [4, 6] and daily.layers[1].name == OTHERS
    weekly = stack({"a": "A"}, [("a", FIRST, 4)], total(MOST_DAYS + 1))
    assert weekly.weekly and weekly.starts[:3] == [FIRST, date(2026, 1, 5), date(2026, 1, 12)]
    assert [layer.revenues[:2] for layer in weekly.layers] == [[4, 0], [36, 70]]
    assert len(weekly.starts) == 14 and sums(weekly)[-1] == 50
