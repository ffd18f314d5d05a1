"""A recharge begins a new generation: what was told of the one before ends nothing any more, in whatever order it
comes."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.lifecycle import lifecycle as life
from dealer_server.rules.lifecycle.lifecycle import Lifecycle
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders import plans
from dealer_server.rules.orders.model import AppliedPlan, Profile
from rules.test_life_rules import DAY, GB, NEW, REPORTS, TERMS, at, esim, told, used

RECHARGED = at(DAY)
ADDED = AppliedPlan(2, "ADD", 72, "MORE", data_bytes=GB, seconds=7 * DAY, applied_at=RECHARGED)
State = tuple[Profile, Lifecycle]
FIRST = st.lists(REPORTS.map(lambda report: msgspec.structs.replace(report, generation=1)), max_size=6)
SECOND = st.lists(REPORTS.map(lambda report: msgspec.structs.replace(report, generation=2)), max_size=6)


def recharged(*before: Report, after: tuple[Report, ...] = (), added: AppliedPlan = ADDED) -> State:
    profile, known = recharge(*told(*before), added)
    return told(*after, profile=profile, known=known)


def recharge(profile: Profile, known: Lifecycle, added: AppliedPlan = ADDED) -> State:
    return life.recharge(plans.with_first(profile, 71, "PLAIN"), known, added)


@given(FIRST, SECOND, st.data())
def test_any_order_and_repetition_of_two_generations_gives_the_same(
    first: list[Report], second: list[Report], data: st.DataObject
):
    """Reports of the first may come before or after the recharge, also between those of the second."""
    expected = recharged(*first, after=tuple(second))
    early = [report for report in first if data.draw(st.booleans())]
    late = data.draw(st.permutations([*first, *second, *second]))
    assert recharged(*early, after=tuple(late)) == expected
    assert life.by_time(*recharged(*early, after=tuple(late)), at(99 * DAY)) == life.by_time(*expected, at(99 * DAY))


@pytest.mark.parametrize("word", ["USED_UP", "USED_EXPIRED"])
def test_a_late_end_of_the_first_plan_ends_nothing(word: str):
    for late in (msgspec.structs.replace(esim(word, 90), generation=1), esim(word, 90)):
        profile, _ = recharged(esim("IN_USE", 10), after=(late,))
        assert (profile.plan_use_status, profile.esim_status) == ("STARTED", "IN_USE")


def test_what_is_used_up_is_in_use_again():
    ended, _ = told(used(GB, 80), esim("USED_UP", 90))
    profile, known = recharged(used(GB, 80), esim("USED_UP", 90))
    assert (ended.plan_use_status, profile.plan_use_status, profile.esim_status) == ("ENDED", "STARTED", "IN_USE")
    assert (profile.data_total_bytes, profile.data_usage_bytes) == (2 * GB, GB)
    assert profile.plan_use_start_at is not None
    assert profile.plan_use_end_at == profile.plan_use_start_at + timedelta(days=14)
    again, _ = told(esim("USED_UP", 3 * DAY), profile=profile, known=known)
    assert again.plan_use_status == "ENDED"


def test_an_added_plan_begins_when_it_is_added_and_what_is_spent_before_the_end_has_no_end():
    first, second = plans.applied(recharged(used(GB, 1), esim("USED_UP", 2))[0])
    assert (first.status, first.started_at, first.ends_at) == ("ENDED", at(1), None)
    assert (second.status, second.started_at) == ("ACTIVE", RECHARGED)


@given(FIRST, SECOND)
def test_no_plan_ends_before_it_began(first: list[Report], second: list[Report]):
    for plan in plans.applied(recharged(*first, after=tuple(second))[0]):
        assert plan.started_at is None or plan.ends_at is None or plan.started_at <= plan.ends_at, plan


def test_what_was_never_used_waits_for_its_first_use():
    profile, _ = recharged()
    assert (profile.plan_use_status, profile.esim_status, profile.data_total_bytes) == (
        "NOT_STARTED",
        "GOT_RESOURCE",
        2 * GB,
    )


def test_what_time_ended_lives_on_for_the_period_added():
    profile, known = life.by_time(*told(esim("IN_USE", 0)), at(8 * DAY))
    assert profile.plan_use_status == "ENDED"
    profile, known = recharge(profile, known, msgspec.structs.replace(ADDED, applied_at=at(8 * DAY)))
    assert profile.plan_use_status == "STARTED"
    assert life.by_time(profile, known, at(13 * DAY)) == (profile, known)
    assert life.by_time(profile, known, at(14 * DAY))[0].plan_use_status == "ENDED"


def test_unlimited_stays_unlimited_and_makes_unlimited():
    unlimited = msgspec.structs.replace(NEW, data_total_bytes=None)
    assert recharge(unlimited, TERMS)[0].data_total_bytes is None
    assert recharged(added=msgspec.structs.replace(ADDED, data_bytes=None))[0].data_total_bytes is None


def test_a_supplier_that_says_the_new_end_is_believed():
    end = at(40 * DAY)
    profile, _ = recharged(esim("IN_USE", 1), added=msgspec.structs.replace(ADDED, seconds=None, ends_at=end))
    assert profile.plan_use_end_at == end


def test_nothing_is_added_to_what_is_cancelled():
    cancelled = told(esim("CANCEL"))[0]
    profile, _ = recharged(esim("CANCEL"))
    assert profile == msgspec.structs.replace(cancelled, plans=profile.plans)
    assert [plan.status for plan in plans.applied(profile)] == ["CANCELLED", "CANCELLED"]


def test_a_cancellation_counts_in_whatever_generation_it_was_told():
    profile, _ = recharged(after=(msgspec.structs.replace(esim("CANCEL", 5), generation=1),))
    assert profile.cancelled
