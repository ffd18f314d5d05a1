"""The plans of an eSIM: what each holds and what of it is used follows from the eSIM's totals."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.orders import plans
from dealer_server.rules.orders.model import Profile
from rules.test_life_rules import GB, NEW

VOLUMES = st.lists(st.integers(1, 3 * GB), min_size=1, max_size=5)


def recharge(plan_no: int, volume: int | None = GB, **changed: Any) -> Profile:
    made = Profile(
        100 + plan_no,
        "DELIVERED",
        recharges=NEW.profile_id,
        plan_no=plan_no,
        plan_mode="ADD",
        data_total_bytes=volume,
    )
    return msgspec.structs.replace(made, **changed)


def pending(plan_no: int, **changed: Any) -> Profile:
    return recharge(plan_no, None, lifecycle_status="PENDING", plan_mode=None, **changed)


def esim(total: int | None, used: int = 0, **changed: Any) -> Profile:
    return msgspec.structs.replace(NEW, data_total_bytes=total, data_usage_bytes=used, **changed)


@given(VOLUMES, st.integers(0, 20 * GB), st.sampled_from(["STARTED", "ENDED"]))
def test_usage_of_all_plans_is_the_counter(volumes: list[int], used: int, status: str):
    base = esim(sum(volumes), used, plan_use_status=status)
    found = plans.of(base, [recharge(number, volume) for number, volume in enumerate(volumes[1:], 2)])
    assert [plan.total_bytes for plan in found] == volumes
    assert sum(plan.used_bytes for plan in found) == used
    assert all(plan.used_bytes <= (plan.total_bytes or 0) for plan in found[:-1])
    assert sum(plan.status == "ACTIVE" for plan in found) == (status == "STARTED")
    assert all(plan.used_bytes == 0 for plan in found if plan.status == "QUEUED")


def test_an_unlimited_plan_takes_all_usage_that_follows():
    found = plans.of(esim(None, 5 * GB, plan_use_status="STARTED"), [recharge(2), recharge(3)])
    assert [(plan.total_bytes, plan.used_bytes) for plan in found] == [(None, 5 * GB), (GB, 0), (GB, 0)]


@pytest.mark.parametrize(
    ("profile", "status"),
    [
        (pending(2), "PENDING"),
        (pending(2, held=True), "PENDING"),
        (pending(2, failed=True), "FAILED"),
        (pending(2, failed=True, refunded=True, cancelled=True), "FAILED"),
        (pending(2, refunded=True, cancelled=True), "CANCELLED"),
        (recharge(2), "QUEUED"),
    ],
)
def test_the_status_of_a_recharge_by_itself(profile: Profile, status: str):
    assert plans.status(profile) == status
    assert plans.of(esim(2 * GB), [profile])[1].status == status


def test_one_that_waits_between_others_takes_no_usage():
    found = plans.of(
        esim(2 * GB, GB + 1, plan_use_status="STARTED"), [pending(2), recharge(3), pending(4, failed=True)]
    )
    assert [(plan.status, plan.used_bytes) for plan in found] == [
        ("ENDED", GB),
        ("PENDING", 0),
        ("ACTIVE", 1),
        ("FAILED", 0),
    ]


def test_the_plans_of_a_void_esim_are_void():
    void = esim(2 * GB, 5, plan_use_status="STARTED", cancelled=True, lifecycle_status="CANCELLED")
    assert [plan.status for plan in plans.of(void, [recharge(2)])] == ["CANCELLED", "CANCELLED"]
