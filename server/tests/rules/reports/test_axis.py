"""Where the axes of charts end."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules import axis


@given(st.integers(0, 10**12))
def test_an_axis_ends_at_an_even_number_above_all_and_not_far_above(most: int) -> None:
    end = axis.end(most)
    assert end >= most and end % 2 == 0
    assert end <= max(2, most * 3 / 2)


@pytest.mark.parametrize(("most", "end"), [(0, 2), (3, 4), (10, 10), (11, 12), (215, 240), (401, 500), (999, 1_000)])
def test_it_is_a_round_number(most: int, end: int) -> None:
    assert axis.end(most) == end


@given(st.lists(st.none() | st.decimals(-(10**9), 10**9, places=2), max_size=9))
def test_an_axis_holds_all_values_and_zero(values: list[Decimal | None]) -> None:
    found = axis.axis(values)
    for value in (0, *values):
        assert value is None or 0 <= found.height(value) <= 100
    top, middle, bottom = found.marks
    assert top - middle == middle - bottom and found.height(middle) == 50
