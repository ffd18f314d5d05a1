from decimal import Decimal
from typing import Any

import msgspec
import pytest

from esim_dealer import Line
from esim_dealer.order import check_order, money, place_order
from esim_dealer.wire.calls import Package

from .conftest import package


@pytest.mark.parametrize("value", ["1.80", Decimal("1.80"), "0", 0, 7, Decimal("1E+2"), "999999999999.9999"])
def test_money_is_text_decimal_or_whole(value: str | Decimal | int):
    assert money(value) == Decimal(value)


@pytest.mark.parametrize("value", [1.8, 0.0, float("nan")])
def test_a_float_is_refused_and_told_why(value: float):
    with pytest.raises(TypeError, match="money must not be a float"):
        money(value)


@pytest.mark.parametrize("value", [True, None, b"1"])
def test_other_types_are_no_money(value: object):
    with pytest.raises(TypeError):
        money(value)


@pytest.mark.parametrize(
    "value", ["", "1,80", "-1", "1e3", "NaN", "1_0", "١", " 1", "1.", ".5", "01", Decimal("-0.01")]
)
def test_other_text_is_no_amount(value: str):
    with pytest.raises(ValueError, match="is not an amount"):
        money(value)


def test_amount_is_the_sum_over_price_quantity_and_days():
    lines = [Line("A", 3, "1.80"), Line("B", 2, Decimal("0.10"), period_num=7), Line("C", 1, 5)]
    body = msgspec.json.decode(msgspec.json.encode(place_order("T1", lines, None, None, None)))
    assert body["amount"] == "11.80"
    assert [item["price"] for item in body["items"]] == ["1.80", "0.10", "5"]


def test_what_is_not_given_is_not_sent():
    body = msgspec.json.decode(msgspec.json.encode(place_order("T1", [Line("A", 1, "1.80")], "1.80", None, None)))
    assert body == {
        "transactionId": "T1",
        "amount": "1.80",
        "items": [{"packageCode": "A", "quantity": 1, "price": "1.80"}],
    }


@pytest.mark.parametrize("lines", [Line("A", 1, "1.80"), [msgspec.convert(package("P"), Package)], ["P"], None])
def test_what_is_no_list_of_lines_is_refused_with_an_example(lines: Any):
    for made in (lambda: place_order("T1", lines, None, None, None), lambda: check_order(lines, None, None, None)):
        with pytest.raises(TypeError, match=r"such as \[Line.of\(package, 2\)\]"):
            made()


def test_a_line_of_a_package_takes_its_price():
    found = msgspec.convert(package("P"), Package)
    assert Line.of(found, 2) == Line("P", 2, "1.80")


def test_a_line_of_a_daily_package_takes_its_fewest_days():
    found = msgspec.convert(package("P", dataType="DAILY_REDUCED", minPeriodNum=3, maxPeriodNum=30), Package)
    assert Line.of(found).period_num == 3
    assert Line.of(found, period_num=5).amount == Decimal("9.00")
