"""ICCIDs: what is one, and its check digit (ITU-T E.118)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.esim import iccid


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("8943108170001029631", "8943108170001029631"),
        ("89852245280000942210", "89852245280000942210"),
        ("894310817000102963", "894310817000102963"),
        ("8943108170001029631F", "8943108170001029631"),
        ("8943108170001029631f", "8943108170001029631"),
        ("894310817000102963FF", "894310817000102963"),
    ],
)
def test_an_iccid_has_18_to_20_digits_without_padding(text: str, digits: str):
    assert iccid.parse(text) == digits


@pytest.mark.parametrize(
    "text",
    [
        *("", "F", "89431081700010296", "894310817000102963101", "8943108170001029631 ", " 8943108170001029631"),
        *("8943108170001029631\n", "89431081700010F9631", "F8943108170001029631", "8.943108170001029631e18"),
        *("８９４３１０８１７０００１０２９６３１", "٨943108170001029631", "+943108170001029631"),
    ],
)
def test_other_texts_are_not_iccids(text: str):
    with pytest.raises(ValueError, match="18 to 20 digits"):
        iccid.parse(text)


# From the design: those of the field pass, three samples of vendors' documentation do not.
@pytest.mark.parametrize("number", ["8943108170001029631", "8944538532008160222", "89852245280000942210"])
def test_real_iccids_end_in_their_check_digit(number: str):
    assert iccid.is_luhn(number)


@pytest.mark.parametrize("number", ["8997250230000292199", "89852000263413436720", "89860468152080349618"])
def test_made_up_iccids_fail_the_check(number: str):
    assert not iccid.is_luhn(number)


@given(st.text("0123456789", min_size=17, max_size=19), st.integers(0, 16), st.integers(1, 9))
def test_one_wrong_digit_is_noticed(digits: str, at: int, by: int):
    number = digits + iccid.luhn_digit(digits)
    wrong = number[:at] + str((int(number[at]) + by) % 10) + number[at + 1 :]
    assert iccid.is_luhn(number) and not iccid.is_luhn(wrong)
