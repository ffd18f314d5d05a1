"""A plan that is queued begins when the one before it ends, in whatever order that is told."""

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.lifecycle import generations
from dealer_server.rules.lifecycle import lifecycle as life
from dealer_server.rules.lifecycle.lifecycle import Lifecycle
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders import plans
from dealer_server.rules.orders.model import AppliedPlan, Profile
from rules.test_life_rules import DAY, GB, NEW, REPORTS, TERMS, at, esim, told, used

APPLIED = at(DAY / 2)
State = tuple[Profile, Lifecycle]


def queued(plan_no: int = 2, applied_at: datetime = APPLIED, **changed: object) -> AppliedPlan:
    plan = AppliedPlan(plan_no, "QUEUE", 70 + plan_no, "MORE", 2 * GB, seconds=3 * DAY, applied_at=applied_at)
    return msgspec.structs.replace(plan, **changed)


def recharged(*added: AppliedPlan, state: State = (NEW, TERMS)) -> State:
    profile, known = state
    profile = plans.with_first(profile, 71, "PLAIN")
    for plan in added:
        profile, known = life.recharge(profile, known, plan)
    return profile, known


def of(generation: int, *reports: Report) -> list[Report]:
    return [msgspec.structs.replace(report, generation=generation) for report in reports]


def after(state: State, *reports: Report) -> State:
    return told(*reports, profile=state[0], known=state[1])


def shown(state: State) -> list[tuple[str, int | None, int]]:
    return [(plan.status, plan.total_bytes, plan.used_bytes) for plan in plans.applied(state[0])]


FIRST, SECOND, THIRD = (
    st.lists(REPORTS.map(lambda report, number=number: msgspec.structs.replace(report, generation=number)), max_size=5)
    for number in (1, 2, 3)
)


def with_counter(reports: list[Report], least: int) -> list[Report]:
    """As a supplier tells them: its counter runs through all plans."""
    return [
        msgspec.structs.replace(report, data_usage_bytes=report.data_usage_bytes + least)
        if report.data_usage_bytes is not None
        else report
        for report in reports
    ]


@given(FIRST, SECOND, THIRD, st.data())
def test_any_order_and_repetition_of_three_plans_reports_gives_the_same(
    first: list[Report], second: list[Report], third: list[Report], data: st.DataObject
):
    second, third = with_counter(second, 3 * GB), with_counter(third, 6 * GB)
    expected = after(recharged(queued(2), queued(3)), *first, *second, *third)
    mixed = data.draw(st.permutations([*first, *second, *second, *third]))
    assert after(recharged(queued(2), queued(3)), *mixed) == expected


@given(FIRST, SECOND, THIRD)
def test_reports_may_come_before_or_after_the_recharge(first: list[Report], second: list[Report], third: list[Report]):
    second, third = with_counter(second, 3 * GB), with_counter(third, 6 * GB)
    between = recharged(queued(3), state=after(recharged(queued(2), state=told(*first)), *second))
    assert after(between, *third) == after(recharged(queued(2), queued(3)), *first, *second, *third)


@given(FIRST, SECOND, THIRD, st.data())
def test_usage_of_all_plans_is_the_counter_and_one_is_in_use(
    first: list[Report], second: list[Report], third: list[Report], data: st.DataObject
):
    mixed = data.draw(st.permutations([*first, *with_counter(second, 3 * GB), *with_counter(third, 6 * GB)]))
    state = after(recharged(queued(2), queued(3)), *mixed)
    counter = max([report.data_usage_bytes or 0 for report in mixed], default=0)
    assert sum(share for _, _, share in shown(state)) == counter or state[0].cancelled
    assert sum(status == "ACTIVE" for status, _, _ in shown(state)) <= 1


def test_it_waits_while_the_plan_before_it_is_in_use():
    state = after(recharged(queued()), *of(1, used(GB // 2, DAY)))
    assert shown(state) == [("ACTIVE", GB, GB // 2), ("QUEUED", 2 * GB, 0)]
    assert (state[0].data_total_bytes, state[0].data_usage_bytes) == (GB, GB // 2)


def test_it_begins_when_the_plan_before_it_is_used_up():
    state = after(recharged(queued()), *of(1, used(GB, DAY), esim("USED_UP", DAY)))
    profile, _ = state
    assert shown(state) == [("ENDED", GB, GB), ("ACTIVE", 2 * GB, 0)]
    assert (profile.plan_use_status, profile.esim_status) == ("STARTED", "IN_USE")
    assert (profile.data_total_bytes, profile.data_usage_bytes) == (2 * GB, 0)
    assert (profile.plan_use_start_at, profile.plan_use_end_at) == (at(DAY), at(4 * DAY))
    ended = after(state, *of(2, used(3 * GB, 2 * DAY), esim("USED_UP", 2 * DAY)))
    assert shown(ended) == [("ENDED", GB, GB), ("ENDED", 2 * GB, 2 * GB)]
    assert ended[0].plan_use_status == "ENDED"


@pytest.mark.parametrize("added", [False, True], ids=["not yet", "added here too"])
def test_it_begins_by_the_word_of_a_supplier_who_counts_queued_plans_alone(added: bool):
    """It has added a plan to the one in use, which may not be recorded here yet."""
    state = recharged(queued())
    if added:
        plan = AppliedPlan(3, "ADD", 73, "MORE", GB, seconds=DAY, applied_at=APPLIED)
        state = life.recharge(*state, plan)
    waits = after(state, msgspec.structs.replace(used(GB // 2, DAY), queued_begun=0))
    assert [status for status, _, _ in shown(waits)] == ["ACTIVE", "QUEUED"] + ["QUEUED"] * added
    begun = after(waits, msgspec.structs.replace(used(GB, 2 * DAY), queued_begun=1))
    assert [status for status, _, _ in shown(begun)] == ["ENDED", "ACTIVE"] + ["ENDED"] * added
    late = after(begun, msgspec.structs.replace(used(GB, 2 * DAY), queued_begun=0))
    assert [status for status, _, _ in shown(late)] == [status for status, _, _ in shown(begun)]
    assert shown(late)[0] == ("ENDED", GB, GB)  # what was used before the queued one began


def test_it_begins_when_time_ends_the_plan_before_it():
    state = life.by_time(*after(recharged(queued()), *of(1, esim("IN_USE", 0))), at(8 * DAY))
    assert [status for status, _, _ in shown(state)] == ["ENDED", "ACTIVE"]
    assert (state[0].plan_use_start_at, state[0].plan_use_end_at) == (at(7 * DAY), at(10 * DAY))
    assert life.by_time(*state, at(10 * DAY))[0].plan_use_status == "ENDED"


def test_time_may_end_several_at_once():
    state = after(recharged(queued(2), queued(3)), *of(1, esim("IN_USE", 0)))
    both = life.by_time(*state, at(99 * DAY))
    assert both == life.by_time(*life.by_time(*state, at(8 * DAY)), at(99 * DAY))
    assert [status for status, _, _ in shown(both)] == ["ENDED", "ENDED", "ENDED"]
    assert both[0].plan_use_end_at == at(13 * DAY)


def test_after_one_that_is_over_it_begins_when_it_is_applied():
    ended = told(used(GB, DAY), esim("USED_UP", DAY))
    state = recharged(queued(applied_at=at(2 * DAY)), state=ended)
    assert shown(state) == [("ENDED", GB, GB), ("ACTIVE", 2 * GB, 0)]
    assert state[0].plan_use_start_at == at(2 * DAY)
    [first, second] = plans.applied(state[0])
    assert (first.ends_at, second.started_at) == (at(DAY), at(2 * DAY))


@given(FIRST, SECOND, THIRD, st.data())
def test_no_plan_ends_before_it_began(
    first: list[Report], second: list[Report], third: list[Report], data: st.DataObject
):
    mixed = data.draw(st.permutations([*first, *second, *third]))
    state = after(recharged(queued(2), queued(3)), *mixed)
    for plan in plans.applied(state[0]):
        assert plan.started_at is None or plan.ends_at is None or plan.started_at <= plan.ends_at, plan


def test_what_was_never_used_takes_its_plans_with_it():
    state = life.by_time(*recharged(queued()), at(181 * DAY))
    assert (state[0].esim_status, state[0].plan_use_status) == ("UNUSED_EXPIRED", "ENDED")
    assert [status for status, _, _ in shown(state)] == ["ENDED", "ENDED"]


def test_the_word_that_ends_a_plan_does_not_end_the_next_when_it_is_repeated():
    word = esim("USED_UP", DAY)
    assert shown(after(recharged(queued()), used(GB, DAY), word, word))[1][0] == "ACTIVE"


def test_use_of_a_later_plan_tells_that_the_earlier_ones_are_over():
    state = after(recharged(queued(2), queued(3)), *of(3, used(5 * GB, 2 * DAY)))
    assert [status for status, _, _ in shown(state)] == ["ENDED", "ENDED", "ACTIVE"]
    assert state[0].plan_use_start_at == at(2 * DAY)
    late = after(state, *of(1, used(GB, DAY), esim("USED_UP", DAY)), *of(2, used(3 * GB, DAY + 60)))
    assert shown(late) == [("ENDED", GB, GB), ("ENDED", 2 * GB, 2 * GB), ("ACTIVE", 2 * GB, 2 * GB)]


def test_one_that_a_refund_names_does_not_begin_until_that_is_rejected():
    held = recharged(queued(held=True), state=told(used(GB, DAY), esim("USED_UP", DAY)))
    assert (held[0].plan_use_status, generations.following(held[0])) == ("ENDED", None)
    assert [status for status, _, _ in shown(held)] == ["ENDED", "QUEUED"]
    [first, plan] = held[0].plans
    released = msgspec.structs.replace(held[0], plans=(first, msgspec.structs.replace(plan, held=False)))
    assert shown(life.by_time(released, held[1], at(2 * DAY))) == [("ENDED", GB, GB), ("ACTIVE", 2 * GB, 0)]


@pytest.mark.parametrize("mode", ["ADD", "QUEUE"])
def test_one_that_was_refunded_is_passed_over(mode: str):
    state = recharged(queued(2, cancelled=True), queued(3, mode=mode), state=told(esim("IN_USE", 60)))
    state = after(state, *of(1, used(GB, DAY), esim("USED_UP", DAY)))
    assert [status for status, _, _ in shown(state)][1] == "CANCELLED"
    assert (state[0].plan_use_status, state[0].generation) == ("STARTED", 2)


def test_plans_added_to_a_queued_one_share_its_volume():
    state = after(recharged(queued()), *of(1, used(GB, DAY), esim("USED_UP", DAY)))
    state = recharged(queued(3, applied_at=at(2 * DAY), mode="ADD", data_bytes=GB), state=state)
    assert (state[0].data_total_bytes, state[0].plan_use_end_at) == (3 * GB, at(DAY) + timedelta(days=6))
    state = after(state, *of(3, used(int(3.5 * GB), 3 * DAY)))
    assert shown(state) == [("ENDED", GB, GB), ("ENDED", 2 * GB, 2 * GB), ("ACTIVE", GB, GB // 2)]


@pytest.mark.parametrize("begun", [0, 1], ids=["to the plan before the queued one", "to the queued one"])
def test_a_plan_is_added_where_its_supplier_added_it_whenever_that_is_told(begun: int):
    plan = queued(3, applied_at=at(2 * DAY), mode="ADD", data_bytes=GB)
    # What was told before the queued plan began and after that; the counter runs through all plans.
    before = msgspec.structs.replace(used(GB // 2, DAY), queued_begun=0)
    since = msgspec.structs.replace(used(GB if begun else 2 * GB, DAY), queued_begun=0)
    after_that = msgspec.structs.replace(used(int(2.5 * GB), 3 * DAY), queued_begun=1, plan_started_at=at(2 * DAY))
    told = [before, since, after_that]
    found = set()
    for at_that in range(4):
        state = after(recharged(queued()), *told[:at_that])
        state = life.recharge(*state, plan, begun)
        found.add(tuple(shown(after(state, *told[at_that:], *told))))
    last = ("ACTIVE", 2 * GB, int(1.5 * GB)) if begun else ("ACTIVE", 2 * GB, GB // 2)
    assert found == {(("ENDED", GB, GB), last, ("QUEUED", GB, 0) if begun else ("ENDED", GB, GB))}


def test_the_plans_of_a_void_esim_are_void():
    state = after(recharged(queued()), *of(1, used(1, DAY), esim("CANCEL", DAY)))
    assert [status for status, _, _ in shown(state)] == ["CANCELLED", "CANCELLED"]
