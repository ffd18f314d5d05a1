"""Does a check say what the order would come to? The same rules decide both (specification 4.2.1)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.dev import catalogue
from dealer_server.rules import refusal
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money
from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders import check, order, priced_lines
from dealer_server.rules.orders.order import ExistingOrder, Placed
from dealer_server.rules.orders.priced_lines import Offer, PricedLines
from esim_dealer.wire.calls import CheckOrder, OrderCheck, PlaceOrder

TENANT_ID, ORDER_ID = 10001, 217325730000041
NOW = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
PACKAGES = {package.package_code: package for package in catalogue.catalogue("test")}
STOCKED = PACKAGES["DEMO-STOCK"]
DAILY = msgspec.structs.replace(PACKAGES["TEST-OK"], data_type="DAILY_CUTOFF", min_period_num=2, max_period_num=30)


def offer(code: str, package: Package, price: int | None) -> Offer:
    return Offer(msgspec.structs.replace(package, package_code=code), price)


OFFERS: Mapping[str, Offer | None] = {
    "TEST-OK": offer("TEST-OK", PACKAGES["TEST-OK"], 18_000),
    "DAILY": offer("DAILY", DAILY, 9_500),
    "STOCK": offer("STOCK", STOCKED, 25_000),
    "ROUTED": offer("ROUTED", msgspec.structs.replace(STOCKED, fallback="simulated"), 25_000),
    "OFF": offer("OFF", PACKAGES["TEST-DELAY"], None),
    "UNKNOWN": None,
}
Json = dict[str, Any]


def wallet(balance: int = 10_000_000, credit_limit: int = 0, frozen: bool = False) -> Wallet:
    return Wallet(TENANT_ID, "USD", balance, credit_limit, 1, frozen)


def said(outcome: object) -> object:
    """A decision as values that can be compared; None where the order is, or would be, placed."""
    if isinstance(outcome, refusal.Refusal):
        return outcome.code, outcome.message, dict(outcome.data)
    return None if isinstance(outcome, Placed) else outcome


def decoded(kind: type, call: Json) -> Any:
    return msgspec.json.decode(msgspec.json.encode(call), type=kind)


def ordered(call: Json, wallet: Wallet, existing: bytes | None, stock: Mapping[str, int]) -> object:
    """What /esim/order makes of the call."""
    placing: PlaceOrder = decoded(PlaceOrder, call)
    try:
        priced = priced_lines.price_lines(placing, "USD", OFFERS.__getitem__)
    except refusal.Refusal as malformed:
        return said(malformed)
    request = order.order_request(TENANT_ID, placing, priced)
    key = (TENANT_ID, placing.transaction_id)
    if request.refused is not None and existing is None:
        return said(request.refused)
    before = {key: ExistingOrder(ORDER_ID, existing or b"")} if existing is not None else {}
    (decision,) = order.decide([request], {TENANT_ID: wallet}, before, stock, lambda _: (ORDER_ID, 1), NOW)
    return said(decision)


def priced(checking: CheckOrder) -> PricedLines:
    return priced_lines.price_check(checking, "USD", [OFFERS[line.package_code] for line in checking.items])


def checked(call: Json, wallet: Wallet, existing: bytes | None, stock: Mapping[str, int]) -> object:
    checking: CheckOrder = decoded(CheckOrder, call)
    try:
        request = order.order_request(TENANT_ID, checking, priced(checking))
    except refusal.Refusal as malformed:
        return said(malformed)
    before = ExistingOrder(ORDER_ID, existing) if existing is not None else None
    return said(order.check(request, before, wallet, stock))


def answered(
    call: Json, wallet: Wallet, stock: Mapping[str, int] | None = None, before: ExistingOrder | None = None
) -> OrderCheck:
    checking: CheckOrder = decoded(CheckOrder, call)
    request = order.order_request(TENANT_ID, checking, priced(checking))
    outcome = order.check(request, before, wallet, stock or {})
    offers = [OFFERS[line.package_code] for line in checking.items]
    return check.answer(checking, offers, outcome, before, wallet, stock or {})


CODES = ("TEST-OK", "DAILY", "STOCK", "ROUTED", "TEST-OK", "DAILY", "STOCK", "ROUTED", "OFF", "UNKNOWN")


@st.composite
def lines(draw: st.DrawFn) -> Json:
    """A line, right more often than not."""
    code = draw(st.sampled_from(CODES))
    days = draw(st.sampled_from([2, 3, 4, 2, 1, None] if code == "DAILY" else [None, None, None, None, 1, 2]))
    return {"packageCode": code, "quantity": draw(st.integers(1, 4))} | ({"periodNum": days} if days else {})


def price_of(line: Json) -> int:
    offered = OFFERS[line["packageCode"]]
    return (offered.price if offered else None) or 0


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Json, Json]:
    """An order's call, right or spoilt, and the check of it, which leaves out some of what is right."""
    items, shortened, total = [], [], 0
    for line in draw(st.lists(lines(), min_size=1, max_size=3)):
        price = price_of(line) + draw(st.sampled_from([0, 0, 0, 0, 0, 100]))
        total += price * line["quantity"] * line.get("periodNum", 1)
        items.append({**line, "price": money.text(price, "USD")})
        leave_out = price == price_of(line) and draw(st.booleans())
        shortened.append({**line, "price": None} if leave_out else items[-1])
    call = {"transactionId": "t", "items": items}
    if currency := draw(st.sampled_from([None, None, None, "USD", "KWD"])):
        call["currency"] = currency
    amount = total + draw(st.sampled_from([0, 0, 0, 0, 0, 100]))
    leave_out = amount == total and draw(st.booleans())
    given_amount = {} if leave_out else {"amount": money.text(amount, "USD")}
    return {**call, "amount": money.text(amount, "USD")}, {**call, "items": shortened, **given_amount}


WALLETS = st.builds(
    wallet,
    st.sampled_from([-5, 0, 5, 10, 20, 100]).map(lambda dollars: dollars * money.SCALE),
    st.just(5 * money.SCALE),
    st.sampled_from([False, False, False, True]),
)
STOCK = st.fixed_dictionaries({"STOCK": st.integers(0, 5), "ROUTED": st.integers(0, 5)})


@given(pairs(), WALLETS, STOCK, st.sampled_from([None, None, None, b"other", b"same"]))
def test_a_check_and_the_order_never_disagree(
    pair: tuple[Json, Json], wallet: Wallet, stock: Mapping[str, int], existing: bytes | None
):
    call, shorter = pair
    if existing == b"same":
        try:
            existing = priced_lines.price_lines(decoded(PlaceOrder, call), "USD", OFFERS.__getitem__).digest
        except refusal.Refusal:
            existing = b"other"
    assert checked(call, wallet, existing, stock) == ordered(call, wallet, existing, stock)
    assert checked(shorter, wallet, existing, stock) == ordered(call, wallet, existing, stock)


@given(pairs(), WALLETS, STOCK)
def test_the_answer_is_the_order_that_would_be_placed(
    pair: tuple[Json, Json], wallet: Wallet, stock: Mapping[str, int]
):
    try:
        told = answered(pair[1], wallet, stock)
    except refusal.Refusal as malformed:
        assert malformed.code == "000105"
        return
    again = msgspec.to_builtins(told) | {"transactionId": "another"}
    if told.would_refuse:
        assert not told.balance_after
        return
    assert told.balance_after and told.amount
    assert ordered(again, wallet, None, stock) is None
    assert money.parse(told.amount, "USD") == sum(
        price_of(msgspec.to_builtins(item)) * item.quantity * (item.period_num or 1) for item in told.items
    )


def line(code: str, quantity: int = 1, **more: Any) -> Json:
    return {"packageCode": code, "quantity": quantity, **more}


@pytest.mark.parametrize(
    ("items", "stock", "code", "availability", "left"),
    [
        ([line("TEST-OK")], {}, None, ["AVAILABLE"], [None]),
        ([line("STOCK", 3)], {"STOCK": 3}, None, ["AVAILABLE"], [3]),
        ([line("STOCK", 4)], {"STOCK": 3}, "200011", ["OUT_OF_STOCK"], [3]),
        ([line("STOCK")], {}, "200011", ["OUT_OF_STOCK"], [0]),
        ([line("STOCK", 2), line("STOCK", 2)], {"STOCK": 3}, "200008", ["OUT_OF_STOCK"] * 2, [3, 3]),
        ([line("ROUTED", 4)], {"ROUTED": 3}, None, ["AVAILABLE"], [None]),
        (
            [line("OFF"), line("UNKNOWN"), line("TEST-OK")],
            {},
            "310241",
            ["NOT_ON_SALE", "NOT_FOUND", "AVAILABLE"],
            [None] * 3,
        ),
    ],
)
def test_each_line_says_whether_it_can_be_had(
    items: list[Json], stock: Mapping[str, int], code: str | None, availability: list[str], left: list[int | None]
):
    told = answered({"items": items}, wallet(), stock)
    assert (told.would_refuse.code if told.would_refuse else None) == code
    assert [item.availability for item in told.items] == availability
    assert [None if item.stock is msgspec.UNSET else item.stock for item in told.items] == left


def test_lines_are_priced_beside_one_that_cannot_be():
    told = answered({"items": [line("TEST-OK", 2), line("UNKNOWN"), line("DAILY", 3, periodNum=5)]}, wallet())
    assert [(item.price or None, item.amount or None) for item in told.items] == [
        ("1.80", "3.60"),
        (None, None),
        ("0.95", "14.25"),
    ]
    assert told.would_refuse and told.would_refuse.code == "310241"
    assert not told.amount and not told.balance_after


def test_a_wrong_price_is_answered_with_the_right_one():
    told = answered({"items": [line("TEST-OK", 2, price="1.79")], "amount": 3.58}, wallet())
    assert told.would_refuse and told.would_refuse.code == "200005"
    assert (told.items[0].price, told.items[0].amount, told.amount) == ("1.80", "3.60", "3.60")


def test_a_repeat_is_not_debited_again():
    call = {"transactionId": "t", "items": [line("TEST-OK")]}
    before = ExistingOrder(ORDER_ID, priced(decoded(CheckOrder, call)).digest)
    told = answered(call, wallet(frozen=True), before=before)
    assert (told.duplicate, told.order_no) == (True, "D261120081530000041")
    assert not told.would_refuse and told.balance_after == told.balance == "1000.00"


def test_the_transaction_id_of_another_order_names_that_order():
    before = ExistingOrder(ORDER_ID, b"other")
    told = answered({"transactionId": "t", "items": [line("TEST-OK")]}, wallet(), before=before)
    assert told.would_refuse and told.would_refuse.code == "310402"
    assert (told.duplicate, told.order_no) == (False, "D261120081530000041")


def test_credit_may_be_used_and_the_balance_falls_below_zero():
    told = answered({"items": [line("TEST-OK")]}, wallet(balance=0, credit_limit=18_000))
    assert (told.balance, told.credit_limit, told.available_balance, told.balance_after) == (
        "0.00",
        "1.80",
        "1.80",
        "-1.80",
    )


@pytest.mark.parametrize("absent", [{}, {"amount": None}])
def test_an_amount_that_no_order_can_have_is_refused_as_it_would_be(absent: Json):
    items = [line("TEST-OK", 100, price="999999999999.99")]
    with pytest.raises(refusal.ParameterInvalid, match="amount must be"):
        answered({"items": items, **absent}, wallet())
