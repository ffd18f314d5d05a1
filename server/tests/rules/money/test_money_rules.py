"""Money: what is read, what is written, and how a price is rounded."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.money import money

CURRENCIES = st.sampled_from(sorted(money.EXPONENTS))
AMOUNTS = st.integers(0, 10**12 * money.SCALE - 1)


@pytest.mark.parametrize(
    ("exponent", "currencies"),
    [
        (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
        (2, "USD EUR GBP CNY HKD IDR MGA MRU TRY ZAR XCG ZWG"),
        (3, "BHD IQD JOD KWD LYD OMR TND"),
        (4, "CLF UYW"),
    ],
)
def test_each_currency_has_the_decimals_of_iso_4217(exponent: int, currencies: str):
    assert {money.exponent_of(currency) for currency in currencies.split()} == {exponent}
    if exponent != 2:
        assert {code for code, decimals in money.EXPONENTS.items() if decimals == exponent} == set(currencies.split())


def test_every_currency_code_is_three_capitals():
    assert len(money.EXPONENTS) > 160
    assert all(len(code) == 3 and code.isascii() and code.isupper() for code in money.EXPONENTS)


@pytest.mark.parametrize("code", ["", "usd", "USX", "XXX", "XAU", "XTS", "HRK", "BGN", "ANG", "ZWL", "US", "USDD"])
def test_a_code_that_is_no_active_currency_is_refused(code: str):
    for ask in (lambda: money.parse("1", code), lambda: money.text(0, code), lambda: money.unit(code)):
        with pytest.raises(ValueError, match="ISO 4217"):
            ask()


@pytest.mark.parametrize(
    ("text", "currency", "amount"),
    [
        ("0", "USD", 0),
        ("1.80", "USD", 18_000),
        ("1.8", "USD", 18_000),
        ("0.01", "USD", 100),
        ("180", "JPY", 1_800_000),
        ("1.805", "KWD", 18_050),
        ("0.0001", "CLF", 1),
        ("999999999999.99", "USD", 9_999_999_999_999_900),
    ],
)
def test_a_decimal_is_read_as_written(text: str, currency: str, amount: int):
    assert money.parse(text, currency) == amount


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "-1",
            "+1",
            "01",
            "00",
            "1.",
            ".5",
            "1.234",
            "1,80",
            "1_0",
            "1e2",
            "1E1000000",
            "0x10",
            "NaN",
            "inf",
        ),
        *(
            "1 ",
            " 1",
            "1\n",
            "1\x00",
            "$1",
            "1.80 USD",
            "1'000",
            "1 000",
            "1000000000000",
            "١",
            "１",
            "1.８",
            "½",
            "true",
        ),
    ],
)
def test_other_spellings_are_refused(text: str):
    with pytest.raises(ValueError, match=r"must be a decimal such as 1\.80, at most 12 digits and 2 decimals"):
        money.parse(text, "USD")


@pytest.mark.parametrize("text", ["1.0", "1.", "0.5"])
def test_decimals_of_a_currency_without_decimals_are_refused(text: str):
    with pytest.raises(ValueError, match="JPY has no decimals"):
        money.parse(text, "JPY")


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (0, "USD", "0.00"),
        (18_000, "USD", "1.80"),
        (-18_000, "USD", "-1.80"),
        (-100, "USD", "-0.01"),
        (1_800_000, "JPY", "180"),
        (-10_000, "JPY", "-1"),
        (18_050, "KWD", "1.805"),
        (1, "CLF", "0.0001"),
    ],
)
def test_an_amount_is_written_with_the_currencys_decimals(amount: int, currency: str, text: str):
    assert money.text(amount, currency) == text


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [(1, "USD", "0.0001"), (18_050, "USD", "1.8050"), (5_000, "JPY", "0.5000"), (-1, "KWD", "-0.0001")],
)
def test_a_fraction_of_the_smallest_unit_is_shown_in_full(amount: int, currency: str, text: str):
    assert money.text(amount, currency) == text


@given(AMOUNTS, CURRENCIES)
def test_an_amount_survives_writing_and_reading(amount: int, currency: str):
    amount -= amount % money.unit(currency)
    assert money.parse(money.text(amount, currency), currency) == amount


@given(st.text(st.sampled_from("0123456789.,-+eE_ ١"), max_size=18), CURRENCIES)
def test_any_accepted_text_is_the_amount_of_its_digits(text: str, currency: str):
    try:
        amount = money.parse(text, currency)
    except ValueError:
        return
    assert Fraction(amount, money.SCALE) == Fraction(text)
    assert amount % money.unit(currency) == 0


@pytest.mark.parametrize(
    ("price", "basis_points", "currency", "result"),
    [
        (18_000, 0, "USD", 18_000),
        (18_000, 1_000, "USD", 19_800),
        (18_000, -10_000, "USD", 0),
        (100, 5_000, "USD", 200),  # 1.5 cents: half goes up
        (100, 4_999, "USD", 100),
        (300, -5_000, "USD", 200),  # 1.5 cents again, from above
        (18_050, 0, "USD", 18_100),  # a sub-cent list price is rounded too
        (10_000, 5_000, "JPY", 20_000),
        (10_000, 4_999, "JPY", 10_000),
        (10, 5_000, "KWD", 20),
        (1, 5_000, "CLF", 2),
    ],
)
def test_a_marked_up_price_is_rounded_half_up(price: int, basis_points: int, currency: str, result: int):
    assert money.marked_up(price, basis_points, currency) == result


@given(AMOUNTS, st.integers(-10_000, 100_000), CURRENCIES)
def test_a_marked_up_price_is_payable_and_nearest(price: int, basis_points: int, currency: str):
    result, unit = money.marked_up(price, basis_points, currency), money.unit(currency)
    exact = Fraction(price * (10_000 + basis_points), 10_000)
    assert result % unit == 0
    assert -Fraction(unit, 2) < result - exact <= Fraction(unit, 2)


@pytest.mark.parametrize(("price", "basis_points"), [(-1, 0), (100, -10_001)])
def test_no_price_falls_below_zero(price: int, basis_points: int):
    with pytest.raises(AssertionError):
        money.marked_up(price, basis_points, "USD")
