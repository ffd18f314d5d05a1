"""What may be refunded and for how much: the rules, by tables and by random sequences."""

import random
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dealer_server.rules import refusal
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.refunds import refund
from dealer_server.rules.refunds.refund import Scope
from esim_dealer.wire.calls import RefundItem, RefundProfile

NOW = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
ORDER_ID = identity.first_id_at(int(NOW.timestamp())) + 41
FIRST = 1_000


def delivered(profile_id: int, **changed: object) -> Profile:
    profile = Profile(
        profile_id,
        "DELIVERED",
        iccid=f"89{profile_id:017d}",
        activation_code="LPA:1$rsp.test$X",
        qr_token="t",
        esim_status="GOT_RESOURCE",
        smdp_status="RELEASED",
    )
    return msgspec.structs.replace(profile, **changed)


def order(*lines: list[Profile], price: int = 18_000, period_num: int = 1) -> Order:
    items = tuple(
        Item(line, "TEST-OK", "simulated", len(of), period_num, price, of[0].profile_id, "DELIVERED", tuple(of))
        for line, of in enumerate(lines)
    )
    count = sum(len(of) for of in lines)
    return Order(
        7, ORDER_ID, "t-1", "USD", price * period_num * count, 0, "PAID", "DELIVERED", "COMPLETED", 3, NOW, items
    )


def at_once(item: Item, profile: Profile) -> refund.Way:
    return "AT_ONCE"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"lifecycle_status": "PENDING", "iccid": None, "smdp_status": None}, None),
        ({"lifecycle_status": "PENDING", "iccid": None, "smdp_status": None, "failed": True}, None),
        ({"smdp_status": None}, None),
        ({"refunded": True, "cancelled": True, "lifecycle_status": "CANCELLED"}, "REFUNDED"),
        ({"cancelled": True, "lifecycle_status": "CANCELLED"}, "CANCELLED"),
        ({"held": True}, "PENDING_REFUND"),
        ({"lifecycle_status": "ACTIVATING"}, "ACTIVATED"),
        ({"lifecycle_status": "ACTIVATED"}, "ACTIVATED"),
        ({"smdp_status": "DOWNLOAD"}, "INSTALLED"),
        ({"smdp_status": "DELETED"}, "INSTALLED"),
        ({"data_usage_bytes": 1}, "USED"),
        ({"plan_use_status": "STARTED"}, "USED"),
        ({"plan_use_status": "ENDED"}, "USED"),
    ],
)
def test_a_profile_is_refundable_or_has_a_reason(changed: dict[str, object], reason: str | None):
    assert refund.refuse(delivered(FIRST, **changed)) == reason


def test_a_profile_that_is_being_cancelled_is_not_refunded():
    assert refund.refuse(delivered(FIRST), {FIRST: "CANCELLED"}) == "CANCELLED"


def test_the_amount_is_the_unit_price_paid_times_the_period():
    paid = order([delivered(FIRST), delivered(FIRST + 1)], price=9_500, period_num=7)
    plan = refund.plan(paid, Scope({0: frozenset({FIRST})}), at_once)
    assert (plan.amount, plan.at_once) == (66_500, True)


@pytest.mark.parametrize(
    ("items", "lines"),
    [
        (None, None),
        ([("0", None)], {0: None}),
        ([("0", [])], {0: None}),
        ([("1", [FIRST + 2])], {1: {FIRST + 2}}),
        ([("0", [FIRST]), ("0", [FIRST + 1])], {0: {FIRST, FIRST + 1}}),
        ([("0", [FIRST]), ("0", None)], {0: None}),
        ([("0", None), ("0", [FIRST])], {0: None}),
        ([("0", None), ("1", [FIRST + 2, FIRST + 2])], {0: None, 1: {FIRST + 2}}),
    ],
)
def test_a_call_names_a_scope(items: list | None, lines: dict | None):
    paid = order([delivered(FIRST), delivered(FIRST + 1)], [delivered(FIRST + 2)])
    sent = items and [
        RefundItem(
            item_no=identity.item_no(ORDER_ID, int(line)),
            profiles=None if ids is None else tuple(RefundProfile(profile_id=each) for each in ids),
        )
        for line, ids in items
    ]
    assert refund.resolve(paid, sent).lines == lines


def test_equal_scopes_have_equal_digests():
    first, second = Scope({0: frozenset({1, 2}), 1: None}), Scope({1: None, 0: frozenset({2, 1})})
    assert first.digest == second.digest
    different = [Scope(None), Scope({0: None}), Scope({0: frozenset({1})}), Scope({0: frozenset({1, 2})}), first]
    assert len({scope.digest for scope in different}) == len(different)


def test_an_item_of_another_order_is_not_in_this_one():
    paid = order([delivered(FIRST)])
    for item_no in (identity.item_no(ORDER_ID + 1, 0), identity.item_no(ORDER_ID, 1), "x", "D1-I-2"):
        with pytest.raises(refusal.ItemNotInOrder):
            refund.resolve(paid, [RefundItem(item_no=item_no)])


profiles = st.sampled_from(
    [
        {},
        {"lifecycle_status": "PENDING", "iccid": None, "activation_code": None, "qr_token": None, "smdp_status": None},
        {"cancelled": True, "lifecycle_status": "CANCELLED"},
        {"lifecycle_status": "ACTIVATED", "activated": True},
        {"data_usage_bytes": 5},
    ]
)


@settings(max_examples=200)
@given(st.lists(st.lists(profiles, min_size=1, max_size=4), min_size=1, max_size=3), st.integers(0, 2**32))
def test_money_and_statuses_agree_after_any_sequence_of_refunds(lines: list[list[dict]], seed: int):
    """Random refunds, holds and releases: never more than was paid, never a profile twice."""
    chance, number = random.Random(seed), iter(range(FIRST, FIRST + 100))
    state = order(*[[delivered(next(number), **changed) for changed in line] for line in lines])
    paid_back: dict[int, int] = {}
    held: list[tuple[refund.Part, ...]] = []
    for _ in range(12):
        if held and chance.random() < 0.4:
            parts = held.pop()
            if chance.random() < 0.5:
                state = refund.release(state, {part.profile_id for part in parts}, NOW)
            else:
                state = refund.credit(state, parts, NOW)
                paid_back |= {part.profile_id: part.amount for part in parts}
            continue
        scope = _any_scope(state, chance)
        try:
            plan = refund.plan(state, scope, at_once)
        except (refusal.NothingRefundable, refusal.RefundInProgress):
            continue
        assert not {part.profile_id for part in plan.parts} & paid_back.keys()
        if chance.random() < 0.5:
            state = refund.credit(state, plan.parts, NOW)
            paid_back |= {part.profile_id: part.amount for part in plan.parts}
        else:
            state = refund.hold(state, {part.profile_id for part in plan.parts}, NOW)
            held.append(plan.parts)
        assert state.refund_amount == sum(paid_back.values()) <= state.amount
        assert (state.pay_status == "REFUNDED") == (state.refund_amount == state.amount)
        assert (state.order_status == "REFUNDING") == any(profile.held for profile in state.profiles)
        assert {profile.profile_id for profile in state.profiles if profile.refunded} == paid_back.keys()
        assert all(
            profile.cancelled and profile.lifecycle_status == "CANCELLED"
            for profile in state.profiles
            if profile.refunded
        )


def _any_scope(state: Order, chance: random.Random) -> Scope:
    if chance.random() < 0.3:
        return Scope(None)
    lines: dict[int, frozenset[int] | None] = {}
    for item in state.items:
        if chance.random() < 0.6:
            ids = [profile.profile_id for profile in item.profiles if chance.random() < 0.5]
            lines[item.line] = frozenset(ids) or None
    return Scope(lines or None)
