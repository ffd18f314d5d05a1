"""The plans of an eSIM: what each holds and what of it is used follows from the eSIM's totals."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.lifecycle import lifecycle
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders import plans
from dealer_server.rules.orders.model import AppliedPlan, Profile
from rules.test_life_rules import DELIVERED_AT, GB, NEW, TERMS

VOLUMES = st.lists(st.integers(1, 3 * GB), min_size=1, max_size=5)


def pending(plan_no: int, **changed: Any) -> Profile:
    return msgspec.structs.replace(Profile(100 + plan_no, recharges=NEW.profile_id, plan_no=plan_no), **changed)


def made(plan_no: int, **changed: Any) -> Profile:
    return pending(plan_no, lifecycle_status="DELIVERED", plan_mode="ADD", data_total_bytes=GB, **changed)


def esim(first: int | None, *added: int | None, used: int = 0, **changed: Any) -> Profile:
    """An eSIM that was sold with the first volume, to which the others were added."""
    volumes = (first, *added)
    total = None if None in volumes else sum(volume or 0 for volume in volumes)
    applied = [
        AppliedPlan(number, "ADD" if number > 1 else None, 70 + number, "MORE", volume, begun_at=DELIVERED_AT)
        for number, volume in enumerate(volumes, 1)
    ]
    return msgspec.structs.replace(NEW, data_total_bytes=total, data_usage_bytes=used, plans=tuple(applied), **changed)


@given(VOLUMES, st.integers(0, 20 * GB), st.sampled_from(["STARTED", "ENDED"]))
def test_usage_of_all_plans_is_the_counter(volumes: list[int], used: int, status: str):
    found = plans.applied(esim(*volumes, used=used, plan_use_status=status))
    assert [plan.total_bytes for plan in found] == volumes
    assert sum(plan.used_bytes for plan in found) == used
    assert all(plan.used_bytes <= (plan.total_bytes or 0) for plan in found[:-1])
    assert sum(plan.status == "ACTIVE" for plan in found) == (status == "STARTED")
    assert all(plan.used_bytes == 0 for plan in found if plan.status == "QUEUED")


def test_an_unlimited_plan_takes_all_usage_that_follows():
    found = plans.applied(esim(None, GB, GB, used=5 * GB, plan_use_status="STARTED"))
    assert [(plan.total_bytes, plan.used_bytes) for plan in found] == [(None, 5 * GB), (GB, 0), (GB, 0)]


@pytest.mark.parametrize(
    ("profile", "status"),
    [
        (pending(2), "PENDING"),
        (pending(2, held=True), "PENDING"),
        (pending(2, failed=True), "FAILED"),
        (pending(2, failed=True, refunded=True, cancelled=True), "FAILED"),
        (pending(2, refunded=True, cancelled=True), "CANCELLED"),
        (made(2), "QUEUED"),
        (made(2, cancelled=True, refunded=True), "CANCELLED"),
    ],
)
def test_the_status_of_a_recharge_by_itself(profile: Profile, status: str):
    assert plans.status(profile) == status


def test_what_a_supplier_tells_beyond_the_recharges_is_the_first_plans():
    for generation, told in ((1, 3 * GB), (2, 4 * GB)):
        report = Report(DELIVERED_AT, data_total_bytes=told, generation=generation)
        profile, _ = lifecycle.apply(esim(GB, GB), TERMS, report)
        assert [plan.total_bytes for plan in plans.applied(profile)] == [3 * GB, GB]
        assert profile.data_total_bytes == 4 * GB


def test_a_plan_that_is_used_up_is_over():
    found = plans.applied(esim(GB, GB, used=GB + 1, plan_use_status="STARTED"))
    assert [(plan.status, plan.used_bytes) for plan in found] == [("ENDED", GB), ("ACTIVE", 1)]


def test_the_plans_of_a_void_esim_are_void():
    void = esim(GB, GB, used=5, plan_use_status="STARTED", cancelled=True, lifecycle_status="CANCELLED")
    assert [plan.status for plan in plans.applied(void)] == ["CANCELLED", "CANCELLED"]
