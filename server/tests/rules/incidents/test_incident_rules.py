"""Which sentence is said of what is wrong, and what stands first?"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dealer_server.rules.incidents import dealer, overview, receiver, supplier
from dealer_server.rules.incidents.dealer import Answered, Dealer, Ending, Own
from dealer_server.rules.incidents.delay import delay_text
from dealer_server.rules.incidents.health import HOUR, LOOKED_BACK, bad_since, is_failing, share_text, supplier_word
from dealer_server.rules.incidents.incident import Incident, worst_first
from dealer_server.rules.incidents.overview import Balance, Findings, LowStock, Mails, Queued
from dealer_server.rules.incidents.receiver import Receiver
from dealer_server.rules.incidents.supplier import NOTHING, Supplier, Waiting
from dealer_server.rules.notices.subjects import Subject, covers

NOW = datetime(2026, 11, 20, 7, 11, tzinfo=UTC)
SIX = datetime(2026, 11, 20, 6, 46, tzinfo=UTC)
USD = 10_000


def told(incident: Incident | None) -> str:
    """The sentence, as a page writes it."""
    if incident is None:
        return ""
    since = f"{', the oldest' * incident.several} since {incident.since:%H:%M}" if incident.since else ""
    return f"{incident.text}{since}{': ' if incident.detail else ''}{incident.detail}"


def of_supplier(**changed: Any) -> Supplier:
    given: dict[str, Any] = {"code": "rt:redtea", "paused": False, "paused_reason": "", "changed_at": SIX, "up": True}
    return Supplier(**{**given, "since": SIX, "packages": 3, **changed})


def waiting(lines: int, orders: int = 0, minutes: float = 25, **changed: Any) -> Waiting:
    given = {"purchases": lines, "lines": lines, "orders": orders or lines, **changed}
    return Waiting(oldest_at=NOW - timedelta(minutes=minutes), **given)


TWELVE = waiting(12)
DOWN, PAUSED = of_supplier(up=False), of_supplier(paused=True)
REFUSED = of_supplier(paused=True, paused_reason="CONFIG: certificate expired")


@pytest.mark.parametrize(
    ("one", "waits", "sentence"),
    [
        (of_supplier(), NOTHING, ""),
        (of_supplier(up=None), NOTHING, ""),
        (of_supplier(), waiting(12, minutes=9), ""),
        (of_supplier(), waiting(1), "1 item has waited at supplier rt:redtea since 06:46"),
        (
            of_supplier(),
            waiting(12, failing=9, reason="INSUFFICIENT_FUNDS: top up"),
            "12 items have waited at supplier rt:redtea since 06:46: the last attempt for 9 of 12 eSIMs failed"
            " (our balance at the supplier is too low)",
        ),
        (DOWN, NOTHING, "Supplier rt:redtea has been down since 06:46: nothing waits for it"),
        (DOWN, TWELVE, "Supplier rt:redtea has been down since 06:46: 12 items wait, the oldest for 25 min"),
        (DOWN, waiting(1), "Supplier rt:redtea has been down since 06:46: 1 item waits, for 25 min"),
        (PAUSED, NOTHING, ""),
        (
            PAUSED,
            waiting(2, minutes=200),
            "Supplier rt:redtea has been paused since 06:46: 2 items wait, the oldest for 3 h 20 min",
        ),
        (
            REFUSED,
            NOTHING,
            "Supplier rt:redtea has been paused (CONFIG: certificate expired) since 06:46: nothing waits for it",
        ),
    ],
)
def test_what_is_said_of_a_supplier(one: Supplier, waits: Waiting, sentence: str):
    assert told(supplier.incident(one, waits, NOW)) == sentence


def of_receiver(**changed: Any) -> Receiver:
    given: dict[str, Any] = {"tenant_id": 10001, "dealer": "Acme", "state": "ACTIVE", "failures": 34}
    return Receiver(**{**given, "last_success_at": SIX, "unheard": 12, "unheard_since": SIX, **changed})


@pytest.mark.parametrize(
    ("one", "own", "sentence"),
    [
        (
            of_receiver(),
            False,
            "The endpoint of Acme has been failing since 06:46: 12 webhooks not delivered, 34 failures in a row",
        ),
        (of_receiver(failures=2), False, ""),
        (
            of_receiver(failures=1, unheard=1),
            True,
            "Your endpoint has been failing since 06:46: 1 webhook not delivered, 1 failure in a row",
        ),
        (
            of_receiver(unheard=1_000),
            False,
            "The endpoint of Acme has been failing since 06:46: 1,000 webhooks or more not delivered,"
            " 34 failures in a row",
        ),
        (
            of_receiver(state="DISABLED", unheard=0),
            False,
            "The endpoint of Acme answered 410, so nothing is sent to it",
        ),
        (of_receiver(failures=0), False, ""),
        (of_receiver(state="NOT_SET", failures=0), True, ""),
    ],
)
def test_what_is_said_of_a_receiver(one: Receiver, own: bool, sentence: str):
    assert told(receiver.incident(one, NOW, own=own)) == sentence


@pytest.mark.parametrize(
    ("state", "failures", "last_success_at", "word"),
    [
        ("ACTIVE", 0, SIX, "Healthy"),
        ("ACTIVE", 0, None, "Not tried"),
        ("ACTIVE", 1, SIX, "Failing"),
        ("ACTIVE", 34, None, "Failing"),
        ("DISABLED", 0, SIX, "Paused"),
        ("DISABLED", 34, SIX, "Paused"),
        ("NOT_SET", 0, None, "Not set"),
    ],
)
def test_the_health_of_a_receiver_in_a_word(state: Any, failures: int, last_success_at: datetime | None, word: str):
    assert receiver.health(state, failures, last_success_at) == word


@pytest.mark.parametrize(("accepted", "word"), [(94, "Degraded"), (95, "Healthy"), (100, "Healthy")])
def test_an_endpoint_that_accepts_less_than_95_percent_is_not_healthy(accepted: int, word: str):
    assert receiver.health("ACTIVE", 0, SIX, accepted, 100) == word
    assert receiver.health("ACTIVE", 2, SIX, accepted, 100) == "Failing"


@pytest.mark.parametrize(
    ("up", "good", "asked", "word"),
    [
        (None, 0, 0, "NOT ASKED"),
        (True, 0, 0, "UP"),
        (True, 95, 100, "UP"),
        (True, 94, 100, "DEGRADED"),
        (True, 0, 2, "UP"),
        (True, 0, 3, "FAILING"),
        (True, 1, 4, "DEGRADED"),
        (False, 0, 3, "DOWN"),
        (True, 18, 20, "UP"),  # two failures are chance
        (True, 38, 40, "UP"),
        (False, 100, 100, "DOWN"),
    ],
)
def test_the_health_of_a_supplier_in_a_word(up: bool | None, good: int, asked: int, word: str):
    assert supplier_word(up, good, asked) == word


def found(**changed: Any) -> Findings:
    nothing: dict[str, Any] = {"worker_seen_at": NOW, "suppliers": [], "queues": [], "receivers": [], "stock": []}
    return Findings(**{**nothing, "more_receivers": 0, "stock_low": 10, "queue_hours": 24.0, **changed})


DAYS_AGO = NOW - timedelta(days=2, minutes=1)


@pytest.mark.parametrize(
    ("what", "sentences"),
    [
        ({}, []),
        ({"worker_seen_at": NOW - timedelta(minutes=3)}, []),
        ({"worker_seen_at": SIX}, ["No worker has been seen since 06:46: nothing is delivered, no webhook is sent"]),
        ({"worker_seen_at": None}, ["No worker has run yet: nothing is delivered, no webhook is sent"]),
        (
            {"queues": [Queued("UNCONFIRMED", 3, SIX, {"USD": 4 * USD, "EUR": 2 * USD}, "rt:near")]},
            ["3 purchases at rt:near, 2.00 EUR and 4.00 USD, are unconfirmed, the oldest since 06:46"],
        ),
        (
            {"queues": [Queued("UNCONFIRMED", 1, SIX, {}, "rt:near")]},
            ["1 purchase at rt:near has been unconfirmed since 06:46"],
        ),
        (
            {"queues": [Queued("REFUNDS", 3, SIX, {"USD": USD})], "more_receivers": 1},
            [
                "1 more endpoint is failing or paused",
                "3 refunds, 1.00 USD, wait for a decision, the oldest since 06:46",
            ],
        ),
        ({"queues": [Queued("VOIDS", 3, SIX, {"USD": USD})]}, []),
        (
            {"queues": [Queued("REFUNDS", 3, DAYS_AGO, {"USD": USD})]},
            ["3 refunds, 1.00 USD, wait for a decision, the oldest since 07:10"],
        ),
        ({"queues": [Queued("VOIDS", 3, DAYS_AGO, {"USD": USD})], "queue_hours": 0.0}, []),
        (
            {"queues": [Queued("TOPUPS", 1, DAYS_AGO, {"JPY": 500 * USD})]},
            ["1 top-up, 500 JPY, has waited for approval since 07:10"],
        ),
        (
            {"queues": [Queued("FAILED", 2, SIX, {"USD": USD})]},
            ["2 failed orders, 1.00 USD, wait for a refund, the oldest since 06:46"],
        ),
        ({"stock": [LowStock("A", 10)]}, []),
        ({"stock": [LowStock("A", 3)]}, ["Package A is low on stock: 3 eSIMs left"]),
        (
            {"stock": [LowStock("A", 0), LowStock("B", 1), LowStock("C", 2)]},
            ["Package A is sold out", "2 packages are low on stock: B has 1, C has 2"],
        ),
        (
            {"stock": [LowStock(code, 0) for code in "EDCBA"]},
            ["5 packages are sold out: A, B, C and 2 more"],
        ),
        (
            {"mails": Mails(4, SIX, True, "no such user")},
            ["4 emails could not be sent, the oldest since 06:46: no such user"],
        ),
        (
            {"mails": Mails(1, SIX, False, "connection refused")},
            ["No email has been sent since 06:46: 1 email not sent (connection refused)"],
        ),
        ({"one_factor": True}, ["Two-factor sign-in is off for your account: your password alone opens the console"]),
        ({"more_receivers": 4}, ["4 more endpoints are failing or paused"]),
    ],
)  # fmt: skip
def test_what_is_said_of_the_platform(what: dict[str, Any], sentences: list[str]):
    assert [told(one) for one in overview.incidents(found(**what), NOW)] == sentences


def test_the_most_harm_stands_first():
    """Orders × minutes; a webhook counts a fifth of an order, a purchase that nobody knows about double."""
    dozen = [(of_supplier(code="rt:a", up=False), waiting(12))]  # 300, and 37 for its three packages
    parked = [Queued("UNCONFIRMED", 7, SIX, {}, "rt:b")]  # 350
    deaf = of_receiver(unheard=100)  # 500
    idle = (of_supplier(code="rt:c", up=False), NOTHING)  # 37
    seen = SIX + timedelta(minutes=5)  # 20 minutes of everything: 2,000
    all_of_it = found(
        suppliers=[idle, *dozen], queues=parked, receivers=[deaf], worker_seen_at=seen, stock=[LowStock("A", 0)]
    )
    order = [(one.kind, one.subject) for one in overview.incidents(all_of_it, NOW)]
    assert order == [
        ("WORKER", ""),
        ("RECEIVER", "10001"),
        ("UNCONFIRMED", "rt:b"),
        ("SUPPLIER", "rt:a"),
        ("SUPPLIER", "rt:c"),
        ("STOCK", "A"),
    ]


def test_what_is_broken_stands_first_then_what_is_degraded_then_tasks():
    """Whatever harm they do: 9 days of 100 refunds are 64,800 order-minutes."""
    all_of_it = found(
        queue_hours=0.0,
        suppliers=[(of_supplier(answered=7, asked=10), NOTHING), (of_supplier(code="b", up=False), NOTHING)],
        queues=[Queued("REFUNDS", 100, NOW - timedelta(days=9), {}), Queued("TOPUPS", 1, SIX, {})],
        balances=[Balance(10001, "Acme", 5 * USD, "USD", 1), Balance(10002, "Beta", 5 * USD, "USD", 6)],
        mails=Mails(1, SIX, False, ""),
        one_factor=True,
    )
    assert [(one.level, one.kind, one.subject) for one in overview.incidents(all_of_it, NOW)] == [
        ("fault", "SUPPLIER", "b"),
        ("fault", "MAILS", ""),
        ("degraded", "SUPPLIER", "rt:redtea"),
        ("degraded", "BALANCE", "10001"),
        ("degraded", "BALANCE", "10002"),
        ("waiting", "REFUNDS", ""),
        ("waiting", "TOPUPS", ""),
        ("note", "TWO_FACTOR", ""),
    ]
    late = overview.incidents(found(queues=[Queued("REFUNDS", 1, DAYS_AGO, {})]), NOW)
    assert [one.level for one in late] == ["degraded"]


def test_a_low_balance_for_which_a_top_up_waits_is_told_with_it():
    acme, beta = [
        Balance(tenant_id, name, 5 * USD, "USD", days, topped_up=True)
        for tenant_id, name, days in ((1, "Acme", 1), (2, "Beta", 6))
    ]
    queues = [Queued("TOPUPS", 1, SIX, {"USD": 20 * USD})]
    pace = "5.00 USD left, at the pace of the last 7 days"

    def said(*balances: Balance, queues: Sequence[Queued] = queues) -> list[tuple[str, str, str]]:
        incidents = overview.incidents(found(queues=queues, balances=balances), NOW)
        return [(one.kind, one.level, one.detail) for one in incidents]

    assert said(beta) == [("TOPUPS", "degraded", "the balance of Beta lasts about 6 days")]
    both = "the balance of Acme lasts about 1 day, 1 more balance lasts 7 days or less"
    assert said(acme, beta) == [("TOPUPS", "degraded", both)]
    [merged] = overview.incidents(found(queues=queues, balances=[acme, beta]), NOW)
    low = [Subject("BALANCE", name) for name in "123"]
    assert [covers(merged, one) for one in (Subject("TOPUPS"), *low)] == [True, True, True, False]
    assert said(beta._replace(topped_up=False)) == [("BALANCE", "degraded", pace), ("TOPUPS", "waiting", "")]
    assert said(beta, queues=[]) == [("BALANCE", "degraded", pace)]


def test_suppliers_that_are_degraded_are_one_incident():
    some = [
        of_supplier(code="a", answered=174, asked=185, cause="out of stock"),
        of_supplier(code="b", answered=7, asked=10, cause="out of stock"),
        of_supplier(code="c", up=False),
        of_supplier(code="d", answered=18, asked=20),
    ]
    down, degraded = overview.incidents(found(suppliers=[(one, NOTHING) for one in some]), NOW)
    assert down.subject == "c" and degraded.subject == "a,b"
    assert told(degraded) == (
        "Suppliers a and b are degraded: 94.1 % of 185 and 70.0 % of 10 calls succeeded in the last 24 hours,"
        " the latest failed: out of stock"
    )


def test_suppliers_of_which_no_call_succeeded_are_failing_and_stand_before_those_that_are_degraded():
    none, bad = of_supplier(code="a", answered=0, asked=3, cause="out of stock"), of_supplier(answered=7, asked=10)
    failing, degraded = overview.incidents(found(suppliers=[(bad, NOTHING), (none, NOTHING)]), NOW)
    assert (failing.level, degraded.level) == ("fault", "degraded")
    said = "none of 3 calls succeeded in the last 24 hours, the latest failed: out of stock"
    assert told(failing) == f"Supplier a is failing: {said}"
    [waits] = overview.incidents(found(suppliers=[(none, TWELVE)]), NOW)
    assert told(waits) == f"Supplier a is failing: {said}; 12 items wait, the oldest for 25 min" and waits.waits
    two = [(none, NOTHING), (none._replace(code="b", asked=1_000), NOTHING)]
    [both] = overview.incidents(found(suppliers=two), NOW)
    assert both.text == "Suppliers a and b are failing" and both.detail.startswith("none of 3 and none of 1,000 calls")


def test_what_is_degraded_has_been_so_since_the_hour_in_which_too_much_failed():
    now, hour = datetime(2026, 11, 21, 9, 30, tzinfo=UTC), datetime(2026, 11, 21, 9, tzinfo=UTC)
    fine = {hour - n * HOUR: (10, 10) for n in range(1, 8 * 24)}
    assert bad_since({**fine, hour - 3 * HOUR: (0, 20)}, now) == hour - 2 * HOUR, "the hour is over then"
    assert bad_since(fine, now) == hour, "it became so after the hours that were counted"
    assert bad_since(dict.fromkeys(fine, (1, 2)), now) == hour - LOOKED_BACK + HOUR, "as far as is looked back"
    assert bad_since({**fine, hour - 30 * HOUR: (0, 3)}, now, is_failing) == hour, "something went well until now"
    alone = {hour - 9 * HOUR: (0, 3), hour - 40 * HOUR: (9, 10)}
    assert bad_since(alone, now, is_failing) == hour - 8 * HOUR, "none since the hour of the first"
    [told_since] = overview.incidents(
        found(suppliers=[(of_supplier(answered=7, asked=10, bad_since=SIX), NOTHING)]), NOW
    )
    assert told_since.text.endswith("has been degraded") and told_since.since == SIX and not told_since.waits


def test_what_does_equal_harm_stands_by_its_words():
    rows = [Incident("STOCK", "", "fault", text, harm=1.0) for text in "ba"]
    assert [one.text for one in worst_first(rows)] == ["a", "b"]


def of_dealer(**changed: Any) -> Dealer:
    given: dict[str, Any] = {"tenant_id": 10001, "name": "Acme", "disabled": False, "frozen": False, "currency": "USD"}
    given |= {"available": 100 * USD, "threshold": 0, "cheapest": 2 * USD, "credentials": 1, "receiver": None}
    return Dealer(**{**given, **changed})


@pytest.mark.parametrize(
    ("changed", "sentences"),
    [
        ({}, []),
        ({"disabled": True, "credentials": 0}, ["Acme is suspended: every call is refused"]),
        ({"credentials": 0}, ["Acme has no AppKey that works: every call is refused"]),
        ({"frozen": True}, ["The wallet is frozen: every new order is refused"]),
        (
            {"available": USD},
            ["The wallet has 1.00 USD, too little for the cheapest order of late: that one came to 2.00 USD"],
        ),
        ({"available": 2 * USD}, []),
        ({"available": 0, "cheapest": None}, []),
        ({"threshold": 200 * USD}, ["The wallet has 100.00 USD, less than the threshold of 200.00 USD"]),
        (
            {"frozen": True, "receiver": of_receiver(state="DISABLED", unheard=0)},
            ["The wallet is frozen: every new order is refused",
             "The endpoint of Acme answered 410, so nothing is sent to it"],
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_a_dealer(changed: dict[str, Any], sentences: list[str]):
    assert [told(one) for one in dealer.incidents(of_dealer(**changed), NOW)] == sentences


@pytest.mark.parametrize(
    ("own", "sentences"),
    [
        (Own(), []),
        (Own(failed=1), ["1 order failed and is not refunded"]),
        (Own(failed=2), ["2 orders failed and are not refunded"]),
        (Own(refunds=[Answered(1, 2 * USD, True, SIX)]), ["A refund of 2.00 USD was rejected"]),
        (
            Own(refunds=[Answered(1, 2 * USD, False, SIX), Answered(2, USD, True, SIX), Answered(3, USD, True, SIX)]),
            ["2 refunds were rejected, 2.00 USD in all", "A refund of 2.00 USD was credited"],
        ),
        (Own(topups=1, sum_of_topups=50 * USD), ["1 top-up of 50.00 USD waits for review"]),
        (Own(topups=2, sum_of_topups=50 * USD), ["2 top-ups of 50.00 USD wait for review"]),
        (
            Own(failed=1, refused=1),
            ["1 order failed and is not refunded", "1 API call was refused in the last 24 hours"],
        ),
        (
            Own(returned=[7]),
            ["1 order failed in the last 24 hours: you have the money back, the buyer has no eSIM"],
        ),
        (
            Own(topups=1, sum_of_topups=USD, unmailed=34, ending=Ending(1, 0), returned=[7, 8]),
            [
                "2 orders failed in the last 24 hours: you have the money back, the buyer has no eSIM",
                "1 plan ends today: recharge where the package allows it, or sell another eSIM",
                "34 eSIMs are not mailed yet: add an email, or send the link yourself",
                "1 top-up of 1.00 USD waits for review",
            ],
        ),
        (Own(days_left=8), []),
        (Own(days_left=1), ["Your balance lasts about 1 day: as fast as you spent it in the last 7 days"]),
        (Own(days_left=0), ["Your balance lasts less than a day: as fast as you spent it in the last 7 days"]),
        (Own(secrets=[("shop", SIX)]), ["The previous AppSecret of shop ends"]),
        (
            Own(ending=Ending(1, 2)),
            ["1 plan ends today, 2 plans tomorrow: recharge where the package allows it, or sell another eSIM"],
        ),
        (
            Own(ending=Ending(0, 1_300)),
            ["1,300 plans end tomorrow: recharge where the package allows it, or sell another eSIM"],
        ),
        (Own(ending=Ending(2, 0, 0)), ["2 plans end today: none can be recharged, sell another eSIM"]),
        (Own(ending=Ending(0, 1, 0)), ["1 plan ends tomorrow: it cannot be recharged, sell another eSIM"]),
        (Own(ending=Ending(2, 0, 2)), ["2 plans end today: all can be recharged"]),
        (
            Own(ending=Ending(1, 2, 2)),
            ["1 plan ends today, 2 plans tomorrow: 2 of 3 can be recharged, for the others sell another eSIM"],
        ),
        (Own(unmailed=1), ["1 eSIM is not mailed yet: add an email, or send the link yourself"]),
        (Own(refused=12), ["12 API calls were refused in the last 24 hours"]),
    ],
)
def test_what_a_dealer_reads_of_its_own_account(own: Own, sentences: list[str]):
    assert [told(one) for one in dealer.own_incidents(of_dealer(), own, NOW)] == sentences


@pytest.mark.parametrize(
    ("state", "reason", "ailing", "text"),
    [
        ("PLANNED", "INSUFFICIENT_FUNDS: rt:near has no money", "", "the supplier does not take orders at present"),
        ("PLANNED", "TEMPORARY: rt:near says so", "down", "the supplier does not answer at present"),
        ("PLANNED", "", "paused", "the supplier is paused at present"),
        ("PLANNED", "", "", ""),
        ("PLANNED", "rt:near: what it said", "", ""),
        ("PENDING", "", "down", "the supplier is making it"),
        ("UNKNOWN", "ClientConnectorError", "", "the supplier has not confirmed it yet"),
        ("PARKED", "ClientConnectorError", "", "the operator is finding out whether it was made"),
        ("DONE", "", "", ""),
    ],
)
def test_why_it_takes_so_long_is_said_without_a_name(state: str, reason: str, ailing: str, text: str):
    assert delay_text(state, reason, ailing) == text


@pytest.mark.parametrize(
    ("good", "asked", "text"),
    [
        (0, 0, "–"),
        (0, 9, "0 %"),
        (9, 9, "100 %"),
        (82, 83, "98.8 %"),
        (90, 100, "90.0 %"),
        (1, 100_000, "0.1 %"),  # some are not none
        (99_999, 100_000, "99.9 %"),  # not all
    ],
)
def test_a_share_says_all_or_none_only_where_it_is(good: int, asked: int, text: str):
    assert share_text(good, asked) == text
