"""Percentages: how they are rounded and written."""

import pytest

from dealer_server.rules.money import percent


@pytest.mark.parametrize(
    ("part", "whole", "basis_points"),
    [
        (151_754, 1_000_000, 1_518),
        (151_749, 1_000_000, 1_517),
        (151_750, 1_000_000, 1_518),
        (-151_754, 1_000_000, -1_518),
        (-151_750, 1_000_000, -1_518),
        (-151_749, 1_000_000, -1_517),
        (2_500, 12_000, 2_083),
        (0, 5, 0),
        (5, 5, 10_000),
        (1, 20_000, 1),
        (1, 20_001, 0),
        (30, 10, 30_000),
    ],
)
def test_a_share_is_rounded_half_up(part: int, whole: int, basis_points: int):
    assert percent.share(part, whole) == basis_points


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (151_754, 1_000_000, "15.2 %"),
        (15_145, 100_000, "15.1 %"),  # it is rounded once
        (15_150, 100_000, "15.2 %"),
        (-1, 3, "−33.3 %"),
        (-1, 3_000, "0.0 %"),
        (12, 1, "1,200.0 %"),
        (1, 0, ""),
        (1, -1, ""),
    ],
)
def test_a_share_is_shown_to_a_tenth(part: int, whole: int, text: str):
    assert percent.tenths(part, whole) == text


@pytest.mark.parametrize(
    ("basis_points", "number", "shown"),
    [
        (0, "0", "0 %"),
        (1_250, "12.5", "12.5 %"),
        (1_518, "15.18", "15.18 %"),
        (5, "0.05", "0.05 %"),
        (-500, "-5", "−5 %"),
        (-1_112, "-11.12", "−11.12 %"),
        (10_000, "100", "100 %"),
        (1_000_000, "10000", "10,000 %"),
    ],
)
def test_a_percentage_has_a_minus_for_people_and_a_hyphen_for_programs(basis_points: int, number: str, shown: str):
    assert (percent.number(basis_points), percent.shown(basis_points)) == (number, shown)


@pytest.mark.parametrize(
    ("basis_points", "text"), [(1_518, "15.18 %"), (2_000, "20.00 %"), (5, "0.05 %"), (-500, "−5.00 %"), (0, "0.00 %")]
)
def test_percentages_below_each_other_have_two_decimals(basis_points: int, text: str):
    assert percent.fixed(basis_points) == text


@pytest.mark.parametrize(
    ("basis_points", "text"), [(3_926, "39.3 %"), (3_904, "39.0 %"), (-37, "−0.4 %"), (5, "0.1 %")]
)
def test_margins_beside_each_other_have_one_decimal(basis_points: int, text: str):
    assert percent.one_decimal(basis_points) == text
