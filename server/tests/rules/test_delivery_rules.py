"""Delivery: every status follows from the profiles (specification 3), also if reports repeat, are late or unordered."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.delivery import delivery
from dealer_server.rules.delivery.delivery import Codes, Failed
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.refunds import refund
from esim_dealer.wire.vocabulary import LifecycleStatus

PAID_AT = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
LATER = PAID_AT + timedelta(seconds=3)
RANK: Mapping[LifecycleStatus, int] = {"PENDING": 0, "DELIVERED": 1, "ACTIVATING": 2, "ACTIVATED": 3, "CANCELLED": 4}
ITEM_RANK = {"PAID": 0, "PENDING": 1, "FAILED": 2, "DELIVERED": 2, "ACTIVATING": 3, "ACTIVATED": 4, "REFUNDED": 5}


def codes(profile_id: int) -> Codes:
    return Codes(f"8900{profile_id:014}", f"LPA:1$rsp.example.com$K{profile_id}", f"token{profile_id}")


def paid(*quantities: int) -> Order:
    """An order as its payment left it: a line for each quantity, profileIds from 1."""
    items, first = [], 1
    for line, quantity in enumerate(quantities):
        profiles = tuple(Profile(first + n) for n in range(quantity))
        items.append(Item(line, f"P-{line}", "simulated", quantity, 1, 18_000, first, "PAID", profiles))
        first += quantity
    amount = 18_000 * (first - 1)
    return Order(10001, 7, "t-1", "USD", amount, 0, "PAID", "PENDING", "PAID", 1, PAID_AT, tuple(items))


def allocate(order: Order, answers: Mapping[int, Codes | Failed], *lines: int) -> Order:
    return delivery.allocate(order, answers, frozenset(lines), LATER)


def changed(order: Order, profile_id: int, **fields: Any) -> Order:
    """The order after a report on one profile, settled."""
    items = tuple(
        msgspec.structs.replace(
            item,
            profiles=tuple(
                msgspec.structs.replace(one, **fields) if one.profile_id == profile_id else one for one in item.profiles
            ),
        )
        for item in order.items
    )
    return delivery.settle(order, items, LATER)


def cancelled(order: Order, profile_id: int) -> Order:
    return changed(order, profile_id, lifecycle_status="CANCELLED", cancelled=True)


def refunded(order: Order, profile_id: int) -> Order:
    return changed(order, profile_id, lifecycle_status="CANCELLED", cancelled=True, refunded=True)


def statuses(order: Order) -> str:
    return f"{order.order_status} {order.delivery_status} {' '.join(item.item_status for item in order.items)}"


FAILED = Failed()


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({}, "FULFILLING PENDING PENDING PENDING"),
        ({1: codes(1)}, "FULFILLING PARTIAL PENDING PENDING"),
        ({1: codes(1), 2: codes(2)}, "FULFILLING PARTIAL DELIVERED PENDING"),
        ({1: codes(1), 2: codes(2), 3: codes(3)}, "COMPLETED DELIVERED DELIVERED DELIVERED"),
        ({1: FAILED}, "FULFILLING PENDING PENDING PENDING"),
        ({1: FAILED, 2: FAILED}, "FULFILLING PENDING FAILED PENDING"),
        ({1: codes(1), 2: FAILED}, "FULFILLING PARTIAL PENDING PENDING"),
        ({1: codes(1), 2: FAILED, 3: FAILED}, "FULFILLING PARTIAL PENDING FAILED"),
        ({1: FAILED, 2: FAILED, 3: FAILED}, "FULFILLING FAILED FAILED FAILED"),
        ({3: codes(3), 99: codes(99)}, "FULFILLING PARTIAL PENDING DELIVERED"),
    ],
)
def test_statuses_follow_from_supplier_answers(answers: dict[int, Codes | Failed], expected: str):
    assert statuses(allocate(paid(2, 1), answers, 0, 1)) == expected


def test_line_not_in_fulfillment_stays_paid():
    assert statuses(allocate(paid(2, 1), {}, 1)) == "FULFILLING PENDING PAID PENDING"
    assert statuses(allocate(paid(2, 1), {})) == "PAID PENDING PAID PAID"
    assert statuses(allocate(paid(2, 1), {1: codes(1)})) == "FULFILLING PARTIAL PENDING PAID"


def test_codes_appear_together_on_delivery():
    order = allocate(paid(1), {1: codes(1)}, 0)
    (profile,) = order.profiles
    assert profile == Profile(
        1,
        "DELIVERED",
        iccid=codes(1).iccid,
        activation_code=codes(1).activation_code,
        qr_token=codes(1).qr_token,
        esim_status="GOT_RESOURCE",
        smdp_status="RELEASED",
    )
    assert (order.version, order.updated_at) == (2, LATER)


def test_answer_without_effect_returns_the_same_order():
    order = allocate(paid(1), {1: codes(1)}, 0)
    assert allocate(order, {1: codes(1)}, 0) is order
    assert allocate(order, {1: codes(5)}, 0) is order
    assert allocate(order, {1: FAILED}, 0) is order
    failed = allocate(paid(1), {1: FAILED}, 0)
    assert allocate(failed, {1: codes(1)}, 0) is failed


def test_cancelled_profile_gets_no_codes_and_does_not_block_completion():
    order = allocate(cancelled(paid(2), 1), {1: codes(1), 2: codes(2)}, 0)
    assert order.profiles[0].iccid is None and order.profiles[0].lifecycle_status == "CANCELLED"
    assert statuses(order) == "COMPLETED DELIVERED DELIVERED"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("", "COMPLETED DELIVERED DELIVERED"),
        ("1 ACTIVATING", "COMPLETED DELIVERED ACTIVATING"),
        ("1 ACTIVATED", "COMPLETED DELIVERED ACTIVATING"),
        ("1 ACTIVATED, 2 ACTIVATED", "COMPLETED DELIVERED ACTIVATED"),
        ("1 ACTIVATED, 2 CANCELLED", "COMPLETED DELIVERED ACTIVATED"),
        ("2 CANCELLED, 1 ACTIVATED", "COMPLETED DELIVERED ACTIVATED"),
        ("1 ACTIVATING, 1 CANCELLED", "COMPLETED DELIVERED ACTIVATING"),
        ("1 CANCELLED, 2 CANCELLED", "COMPLETED DELIVERED DELIVERED"),
        ("1 ACTIVATED, 2 ACTIVATED, 1 CANCELLED", "COMPLETED DELIVERED ACTIVATED"),
        ("1 ACTIVATED, 2 ACTIVATED, 1 CANCELLED, 2 CANCELLED", "COMPLETED DELIVERED ACTIVATED"),
    ],
)
def test_status_of_a_delivered_line_follows_the_use_of_its_profiles(steps: str, expected: str):
    order = allocate(paid(2), {1: codes(1), 2: codes(2)}, 0)
    for step in filter(None, steps.split(", ")):
        profile_id, status = step.split()
        order = cancelled(order, int(profile_id)) if status == "CANCELLED" else changed(
            order, int(profile_id), lifecycle_status=status, activated=status == "ACTIVATED"
        )  # fmt: skip
    assert statuses(order) == expected


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (refunded(paid(1, 1), 1), "FULFILLING PENDING REFUNDED PAID"),
        (refunded(refunded(paid(1, 1), 1), 2), "REFUNDED PENDING REFUNDED REFUNDED"),
        (refunded(allocate(paid(2), {1: codes(1)}, 0), 2), "COMPLETED DELIVERED DELIVERED"),
        (refunded(allocate(paid(2), {1: codes(1), 2: FAILED}, 0), 2), "COMPLETED DELIVERED DELIVERED"),
        (refunded(allocate(paid(2), {1: codes(1)}, 0), 1), "FULFILLING PENDING PENDING"),
        (refunded(allocate(paid(2), {1: codes(1), 2: FAILED}, 0), 1), "FULFILLING FAILED FAILED"),
        (cancelled(paid(1), 1), "COMPLETED PENDING PAID"),
        (refunded(cancelled(paid(2), 1), 2), "COMPLETED PENDING PAID"),
    ],
)
def test_refunded_and_cancelled_profiles_do_not_count_for_the_statuses(order: Order, expected: str):
    assert statuses(order) == expected


def test_delivery_does_not_change_a_refunded_order():
    order = allocate(msgspec.structs.replace(paid(1), order_status="REFUNDED"), {1: codes(1)}, 0)
    assert (order.order_status, order.delivery_status) == ("REFUNDED", "DELIVERED")


def test_held_profile_makes_the_order_refunding_and_gets_no_codes():
    order = refund.hold(paid(2), {1}, LATER)
    after = allocate(order, {1: codes(1), 2: codes(2)}, 0)
    assert (after.order_status, after.delivery_status) == ("REFUNDING", "PARTIAL")
    assert [one.iccid is None for one in after.profiles] == [True, False]
    assert refund.release(after, {1}, LATER).order_status == "FULFILLING"


# Whatever the sequence


@st.composite
def steps(draw: st.DrawFn) -> tuple[Order, list[tuple[str, int]]]:
    """An order, and what happens to its profiles, in any order and as often as it likes."""
    order = paid(*draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    happening = st.sampled_from(["taken", "codes", "failed", "ACTIVATING", "ACTIVATED", "cancelled", "refunded"])
    return order, draw(st.lists(st.tuples(happening, st.integers(1, len(order.profiles))), max_size=30))


def happens(order: Order, what: str, profile_id: int) -> Order:
    """One step, as far as it is allowed now."""
    profile = order.profiles[profile_id - 1]
    line = next(item.line for item in order.items if profile in item.profiles)
    if what in ("taken", "codes", "failed"):
        answers = {"taken": {}, "codes": {profile_id: codes(profile_id)}, "failed": {profile_id: FAILED}}
        return allocate(order, answers[what], line)
    if what == "refunded":
        return order if profile.cancelled else refunded(order, profile_id)
    if what == "cancelled":
        return cancelled(order, profile_id)
    if profile.iccid is None or RANK[profile.lifecycle_status] >= RANK[what]:  # type: ignore[index]
        return order
    return changed(order, profile_id, lifecycle_status=what, activated=what == "ACTIVATED")


@given(steps())
def test_statuses_never_move_back_and_completion_needs_all_profiles(story: tuple[Order, list[tuple[str, int]]]):
    before, happenings = story
    for happening in happenings:
        after = happens(before, *happening)
        for old, new in zip(before.profiles, after.profiles, strict=True):
            assert RANK[new.lifecycle_status] >= RANK[old.lifecycle_status]
            assert new.iccid == (old.iccid or new.iccid)
            assert not (old.failed and new.iccid)
        for old, new in zip(before.items, after.items, strict=True):
            assert ITEM_RANK[new.item_status] >= ITEM_RANK[old.item_status]
            assert not (new.item_status == "PAID" and any(one.iccid for one in new.profiles))
        live = [profile for profile in after.profiles if profile.live]
        lacking = [profile for profile in live if profile.iccid is None]
        assert not (after.order_status == "COMPLETED" and lacking)
        assert not (live and (after.delivery_status == "DELIVERED") == bool(lacking))
        assert after.order_status == "REFUNDED" or bool(live and lacking) == (after.order_status != "COMPLETED")
        assert (after.order_status == "REFUNDED") == all(profile.refunded for profile in after.profiles)
        assert (after is before) == (after == before)
        assert after.version == before.version + (after is not before)
        assert delivery.settle(after, after.items, LATER) is after
        before = after


@given(steps())
def test_each_step_is_idempotent(story: tuple[Order, list[tuple[str, int]]]):
    order, happenings = story
    for happening in happenings:
        order = happens(order, *happening)
        assert happens(order, *happening) is order


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_answers_in_any_order_and_portions_give_the_same_result(quantities: list[int], data: st.DataObject):
    order = paid(*quantities)
    answers = {
        one.profile_id: data.draw(st.sampled_from([codes(one.profile_id), FAILED]), label=str(one.profile_id))
        for one in order.profiles
    }
    lines = frozenset(range(len(quantities)))
    at_once = delivery.allocate(order, answers, lines, LATER)
    shuffled = list(answers.items()) * 2
    data.draw(st.randoms(use_true_random=False), label="order").shuffle(shuffled)
    for answer in shuffled:
        order = delivery.allocate(order, dict([answer]), lines, LATER)
    assert msgspec.structs.replace(order, version=0) == msgspec.structs.replace(at_once, version=0)
