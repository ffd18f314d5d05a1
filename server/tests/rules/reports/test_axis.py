"""Where the axes of charts end."""

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
