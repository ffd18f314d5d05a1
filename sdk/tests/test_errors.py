import pickle
from decimal import Decimal
from typing import get_args

import pytest

from esim_dealer import errors
from esim_dealer.errors import CLASS_OF_CODE, DealerError, class_of
from esim_dealer.wire.vocabulary import SUCCESS, ResultCode


def test_every_code_of_the_contract_has_a_class():
    assert set(CLASS_OF_CODE) == set(get_args(ResultCode)) - {SUCCESS}


def test_an_unknown_code_is_a_plain_dealer_error():
    assert class_of("777777", {}) is DealerError


def test_every_error_is_a_dealer_error_and_says_what_it_means():
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(classes) > 25
    assert all(issubclass(each, DealerError) and each.__doc__ for each in classes)


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({}, "went wrong"),
        ({"code": "200007"}, "200007 went wrong"),
        ({"request_id": "R"}, "R: went wrong"),
        ({"request_id": "R", "trace_id": "X", "code": "200007"}, "R (trace X): 200007 went wrong"),
    ],
)
def test_text_starts_with_the_request_id(known: dict, text: str):
    assert str(DealerError("went wrong", **known)) == text


def test_unknown_outcome_in_the_data_outweighs_the_code():
    assert class_of("900001", {}) is errors.ServiceUnavailable
    assert class_of("900001", {"outcome": "UNKNOWN"}) is errors.OutcomeUnknown


def test_a_refusal_by_profiles_prints_each_with_its_reason():
    found = [{"profileId": 217808503000000, "reason": "TOPPED_UP"}, {"profileId": 217808503000001, "reason": "USED"}]
    error = errors.Conflict("nothing can be refunded", code="200003", data={"profiles": found})
    assert str(error) == "200003 nothing can be refunded (217808503000000 TOPPED_UP, 217808503000001 USED)"
    many = errors.Conflict("no", data={"profiles": found * 4})
    assert str(many).endswith("217808503000000 TOPPED_UP and 3 more)")
    assert str(errors.Conflict("no", data={"profiles": [7, {"reason": "USED"}]})) == "no"


def test_a_wrong_signature_prints_the_hash_of_the_body_that_came():
    assert "check AppSecret" in str(errors.WrongSignature("no"))
    assert "compare data.bodySha256 12ab with" in str(errors.WrongSignature("no", data={"bodySha256": "12ab"}))


def test_insufficient_balance_has_both_amounts():
    data = {"requiredAmount": "5.40", "availableBalance": "1.80", "currency": "USD"}
    error = errors.InsufficientBalance("too little", data=data)
    assert (error.required_amount, error.available_balance, error.currency) == (Decimal("5.40"), Decimal("1.80"), "USD")


def test_price_changed_has_the_expected_prices():
    line = {"index": 1, "packageCode": "P", "expectedPrice": "2.00", "currency": "USD"}
    error = errors.PriceChanged("changed", data={"lines": [line]})
    assert error.lines == (errors.ExpectedPrice(1, "P", Decimal("2.00"), "USD"),)


def test_amount_mismatch_has_the_expected_amount():
    assert errors.AmountMismatch("no", data={"expectedAmount": "5.40"}).expected_amount == Decimal("5.40")


def test_details_that_the_service_left_out_are_none_not_another_error():
    assert errors.InsufficientBalance("no").required_amount is None
    assert errors.AmountMismatch("no").expected_amount is None
    assert errors.PriceChanged("no").lines == ()


def test_errors_survive_pickling_as_task_queues_do_it():
    error = errors.InsufficientBalance("no", code="200007", request_id="R", data={"requiredAmount": "1"})
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.data) == (type(error), str(error), error.data)
