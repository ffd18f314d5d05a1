"""What an answer makes of a purchase, and when a supplier is left alone: tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dealer_server.fulfillment.purchases.breaker import FAILURES, OPEN_SECONDS, REFUSALS, Breaker, Refusals
from dealer_server.fulfillment.purchases.purchase_decision import (
    FRESH_IDS,
    PARK_SECONDS,
    PATIENCE_SECONDS,
    PENDING_SECONDS,
    PurchaseDecision,
    decide,
    first_hop,
)
from dealer_server.store.suppliers.purchase import Claimed, Hop
from dealer_server.suppliers.contract import Done, FromStock, Outcome, Pending, Rejected, RejectedCode, Unknown

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NEAR, FAR = Hop("near", "SKU", 18_000, "USD"), Hop("far", "SKU-F", 19_000, "USD")
ROUTE = [NEAR, FAR]
DONE = Done("8944538532008160222", "LPA:1$a.example$B", supplier_ref="order", unit_ref="esim")


def claimed(**changed: Any) -> Claimed:
    """A purchase at `near` that has just been made known, about to be asked for."""
    one = Claimed(
        10_001,
        7,
        0,
        5,
        0,
        "u-5-0-1",
        "near",
        "SKU",
        18_000,
        "USD",
        "PLANNED",
        "",
        None,
        None,
        None,
        None,
        None,
        1,
        0,
        None,
        NOW,
        "TEST-OK",
        1,
        1,
        7,
        True,
        False,
        None,
    )
    return one._replace(**changed)


def rejected(code: RejectedCode, elsewhere: bool = True) -> Rejected:
    return Rejected(code, elsewhere, "words")


def asked(
    outcome: Outcome, route: list[Hop] | None = None, plans_ids: bool = False, **changed: Any
) -> PurchaseDecision:
    return decide(claimed(**changed), outcome, ROUTE if route is None else route, plans_ids, NOW)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize("was", ["PLANNED", "SENT", "PENDING", "UNKNOWN"])
def test_what_was_bought_is_done(was: str):
    judged = asked(DONE, was=was, failures=3, unknown_since=ago(9))
    assert (judged.answered.state, judged.answered.iccid, judged.answered.due_at) == ("DONE", DONE.iccid, None)
    assert (judged.answered.supplier_ref, judged.answered.unit_ref) == ("order", "esim")
    assert judged.answered.unknown_since is None and judged.instead is None and not judged.failed


@pytest.mark.parametrize("was", ["PLANNED", "SENT", "UNKNOWN", "PENDING"])
def test_unknown_stays_where_it_is_and_is_asked_about_again(was: str):
    judged = asked(Unknown("reset"), was=was)
    assert (judged.answered.state, judged.answered.unknown_since) == ("UNKNOWN", NOW)
    assert judged.answered.due_at == NOW + timedelta(seconds=5)
    assert judged.instead is None and not judged.failed


def test_unknown_for_too_long_waits_for_an_operator():
    judged = asked(Unknown("reset"), was="UNKNOWN", unknown_since=ago(PARK_SECONDS + 1))
    assert (judged.answered.state, judged.answered.due_at) == ("PARKED", None)
    assert judged.instead is None and not judged.failed


def test_an_answer_that_is_none_of_the_words_is_unknown():
    assert asked(FromStock()).answered.state == "UNKNOWN"


def test_pending_keeps_what_it_says_and_is_asked_when_it_says():
    judged = asked(Pending(7, "QUERY", "order", "esim"))
    assert judged.answered[1:6] == ("PENDING", NOW + timedelta(seconds=7), "QUERY", "order", "esim")
    assert asked(Pending(10**6)).answered.due_at == NOW + timedelta(seconds=300)


def test_pending_for_a_day_waits_for_an_operator():
    assert asked(Pending(1), created_at=ago(PENDING_SECONDS + 1)).answered.state == "PARKED"
    assert asked(rejected("TEMPORARY"), was="PENDING", created_at=ago(PENDING_SECONDS + 1)).answered.state == "PARKED"


@pytest.mark.parametrize("code", ["OUT_OF_STOCK", "CONFIG", "BAD_REQUEST", "NOT_ALLOWED", "INSUFFICIENT_FUNDS"])
@pytest.mark.parametrize("was", ["PLANNED", "UNKNOWN", "PENDING"])
def test_a_refusal_goes_to_the_next_of_the_route(code: RejectedCode, was: str):
    judged = asked(rejected(code), was=was)
    assert judged.answered.state == "REJECTED"
    assert judged.instead is not None and judged.instead[6:] == (*FAR, None)
    assert (judged.instead.position, judged.instead.unit_key) == (1, "u-5-0-1")


@pytest.mark.parametrize(
    ("outcome", "route"),
    [
        (rejected("OUT_OF_STOCK"), [NEAR]),
        (rejected("OUT_OF_STOCK"), [FAR, NEAR]),
        (rejected("OUT_OF_STOCK"), [FAR]),  # it is not on the route any more
        (rejected("OUT_OF_STOCK", elsewhere=False), ROUTE),
        (rejected("CONFLICT", elsewhere=False), ROUTE),
    ],
)
def test_what_nobody_else_may_make_has_failed(outcome: Rejected, route: list[Hop]):
    judged = asked(outcome, route)
    assert (judged.answered.state, judged.instead, judged.failed) == ("REJECTED", None, True)


def test_a_question_that_did_not_get_through_leaves_the_unknown_unknown():
    for was in ("SENT", "UNKNOWN"):
        judged = asked(rejected("TEMPORARY"), was=was, unknown_since=ago(60))
        assert (judged.answered.state, judged.answered.unknown_since) == ("UNKNOWN", ago(60))
        assert judged.instead is None


@pytest.mark.parametrize("was", ["SENT", "UNKNOWN"])
def test_a_supplier_that_refuses_us_altogether_says_nothing_of_what_was_asked_before(was: str):
    judged = asked(Rejected("CONFIG", True, "words", whole=True), was=was, unknown_since=ago(60))
    assert (judged.answered.state, judged.answered.unknown_since) == ("UNKNOWN", ago(60))
    assert judged.instead is None and not judged.failed


def test_a_supplier_that_is_down_is_tried_three_times_before_the_next():
    for failures, state in ((0, "PLANNED"), (1, "PLANNED"), (2, "REJECTED")):
        judged = asked(rejected("TEMPORARY"), failures=failures)
        assert judged.answered.state == state
        assert (judged.instead is not None) == (state == "REJECTED")


@pytest.mark.parametrize("code", ["TEMPORARY", "INSUFFICIENT_FUNDS", "CONFIG"])
def test_the_only_supplier_is_waited_for(code: RejectedCode):
    waiting = asked(rejected(code), [NEAR], failures=9)
    assert (waiting.answered.state, waiting.answered.outcome, waiting.failed) == ("PLANNED", f"REJECTED {code}", False)
    given_up = asked(rejected(code), [NEAR], created_at=ago(PATIENCE_SECONDS + 1))
    assert (given_up.answered.state, given_up.failed) == ("REJECTED", True)


@pytest.mark.parametrize(
    ("asks", "ceiling", "taken"),
    [
        (18_100, 18_100, True),
        (18_100, 18_099, False),
        (18_100, None, False),
        (17_000, None, True),
        (18_000, 99_000, False),  # the price that was offered
        (None, 99_000, False),
    ],
)
def test_a_new_price_is_taken_up_to_the_ceiling(asks: int | None, ceiling: int | None, taken: bool):
    refused = Rejected("CONFIG", True, "words", asks=asks)
    judged = decide(claimed(failures=2), refused, [NEAR], False, NOW, ceiling=ceiling)
    assert (judged.answered.state, judged.failed) == ("PLANNED", False)
    due = NOW if taken else NOW + timedelta(seconds=20)
    assert (judged.answered.cost, judged.answered.due_at) == (asks if taken else None, due)


def test_a_clash_of_our_ids_is_answered_with_fresh_ones_a_few_times():
    clash = rejected("CONFLICT", elsewhere=False)
    again = asked(clash, plans_ids=True, planned_iccid="89")
    assert again.instead is not None and again.instead[6:] == (*NEAR, None) and not again.failed
    last = asked(clash, plans_ids=True, position=FRESH_IDS - 1)
    assert last.instead is None and last.failed


def test_what_is_written_off_is_no_plain_refusal_and_is_bought_again_under_fresh_ids():
    burnt = Rejected("CONFLICT", False, "words", written_off=True)
    judged = asked(burnt, plans_ids=True, was="PENDING", step="CANCEL 8.2.1/3.3")
    assert (judged.answered.state, judged.answered.outcome) == ("WRITTEN_OFF", "WRITTEN_OFF CONFLICT")
    assert judged.instead is not None and judged.instead[6:] == (*NEAR, None)


def test_a_line_begins_at_the_supplier_it_was_sold_from():
    def first(supplier: str, route: list[Hop]) -> Hop:
        return first_hop(supplier, "TEST-OK", route)

    assert first("far", ROUTE) == FAR
    assert first("gone", ROUTE) == NEAR
    assert first("near", []) == Hop("near", "TEST-OK", None, None)
    stock = Hop("stock", "TEST-OK", None, None)
    assert first("gone", [stock, *ROUTE]) == NEAR
    assert first("gone", [stock]) == Hop("gone", "TEST-OK", None, None)


def test_five_failures_in_a_row_keep_new_purchases_away_for_half_a_minute():
    breaker = Breaker()
    for _ in range(FAILURES - 1):
        breaker.record(Unknown("reset"), NOW)
    assert breaker.closed(NOW)
    breaker.record(rejected("TEMPORARY"), NOW)
    assert not breaker.closed(NOW)
    assert breaker.closed(NOW + timedelta(seconds=OPEN_SECONDS))


@pytest.mark.parametrize("outcome", [DONE, Pending(1), rejected("OUT_OF_STOCK")])
def test_any_answer_that_counts_closes_the_breaker(outcome: Outcome):
    breaker = Breaker()
    for _ in range(FAILURES):
        assert not breaker.record(Unknown("reset"), NOW)
    assert breaker.record(outcome, NOW)
    assert breaker.closed(NOW)
    breaker.record(Unknown("reset"), NOW)
    assert not breaker.record(outcome, NOW), "one failure is no outage"


@pytest.mark.parametrize(
    ("between", "paused"),
    [(Unknown("reset"), True), (rejected("TEMPORARY"), True), (DONE, False), (Pending(1), False),
     (rejected("CONFIG"), False)],
)  # fmt: skip
def test_only_an_answer_ends_a_row_of_refusals(between: Outcome, paused: bool):
    refusals = Refusals()
    for _ in range(REFUSALS):
        assert refusals.too_many() is None
        refusals.record(between)
        refusals.record(Rejected("CONFIG", True, "words", whole=True))
    assert (refusals.too_many() is not None) == paused
