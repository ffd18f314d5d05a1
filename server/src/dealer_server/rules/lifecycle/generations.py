"""Which of an eSIM's plans is in use, and which of them is a report about? (docs/decisions/0030-recharges.md)

A generation is counted by the plans that have begun. A plan that was queued begins when the one before it ends: by the
earliest word of that end, or of its own use. The supplier's counter runs through all plans: what of it belongs to
earlier ones is the most that was told of them. Both hold whatever the order in which reports come.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders import model
from dealer_server.rules.orders.model import AppliedPlan, Profile


def of(profile: Profile, report: Report) -> int:
    """The generation that a report is about. One that came by itself is about that of its time."""
    if report.queued_begun is not None:
        return _with_queued_begun(profile, report.queued_begun)
    if report.generation is not None:
        return min(report.generation, sum([not plan.cancelled for plan in profile.plans[1:]]) + 1)
    return 1 + sum([_had_begun(plan, report.at) for plan in profile.plans[1:]])


def _with_queued_begun(profile: Profile, number: int) -> int:
    """The last generation in which so many queued plans have begun. Where that are more than have begun here, the next
    ones have; what was added counts once it is applied here, whatever its supplier counts already."""
    begun = [plan for plan in profile.plans[1:] if plan.begun_at is not None]
    queued = [generation for generation, plan in enumerate(begun, 2) if plan.mode == "QUEUE"]
    if number < len(queued):
        return queued[number] - 1
    waiting = sum([plan.waits for plan in profile.plans])
    return 1 + len(begun) + min(number - len(queued), waiting)


def _had_begun(plan: AppliedPlan, at: datetime) -> bool:
    """The word that ends a plan is of the moment at which the one queued after it begins."""
    if plan.begun_at is None:
        return False
    return plan.begun_at < at if plan.mode == "QUEUE" else plan.begun_at <= at


def following(profile: Profile) -> AppliedPlan | None:
    """The plan that begins when those in use are over; none while a refund of it is pending."""
    waiting = next((plan for plan in profile.plans if plan.waits), None)
    return None if waiting is None or waiting.held else waiting


def next_plan(profile: Profile) -> AppliedPlan:
    """The plan that waits first."""
    return next(plan for plan in profile.plans if plan.waits)


def with_begun(
    profile: Profile, plan: AppliedPlan, at: datetime, ended: datetime | None = None
) -> tuple[AppliedPlan, ...]:
    """The eSIM's plans with this one begun, not before it was applied: behind all that began before it. `ended`: when
    the plan before it ended, where that is known."""
    begun = msgspec.structs.replace(plan, begun_at=_not_before(plan, at), ended_before=ended)
    if plan.mode == "QUEUE":
        used = profile.used_before + profile.data_usage_bytes
        begun = msgspec.structs.replace(begun, ended_before=_earliest(ended, begun.begun_at), used_before=used)
    others = [each for each in profile.plans[1:] if each.plan_no != plan.plan_no]
    return (
        profile.plans[0],
        *[each for each in others if each.begun_at is not None],
        begun,
        *[each for each in others if each.begun_at is None],
    )


def with_earlier(profile: Profile, plan: AppliedPlan, queued_begun: int) -> tuple[AppliedPlan, ...]:
    """The eSIM's plans with this one, which was added while fewer of the queued ones had begun: before the next one."""
    following = _queued_begun(profile)[queued_begun]
    at = profile.plans.index(following)
    added = msgspec.structs.replace(plan, begun_at=_earliest(plan.applied_at, following.begun_at))
    return (*profile.plans[:at], added, *profile.plans[at:])


def queued_begun(profile: Profile) -> int:
    """How many of the queued plans have begun."""
    return len(_queued_begun(profile))


def _queued_begun(profile: Profile) -> list[AppliedPlan]:
    return [plan for plan in profile.plans if plan.mode == "QUEUE" and plan.begun_at is not None]


def with_start(profile: Profile) -> Profile:
    """The profile with when the plans in use began."""
    head = [profile.plans[0], *_queued_begun(profile)][-1]
    return msgspec.structs.replace(profile, plan_use_start_at=head.begun_at)


def with_report(profile: Profile, report: Report, generation: int, started: datetime | None, *, over: bool) -> Profile:
    """The profile with what a report of this generation says of when plans began, of their volume, and of how much
    earlier ones used. `started`: when use began, by the report; `over`: it says that the plan is over."""
    if not profile.plans:
        return msgspec.structs.replace(profile, plan_use_start_at=_earliest(profile.plan_use_start_at, started))
    plans = list(profile.plans)
    heads = [at for at, plan in enumerate(plans) if at == 0 or (plan.mode == "QUEUE" and plan.begun_at)]
    numbers = [model.generation(plans[: at + 1]) for at in heads]
    told_of = max([number for number in numbers if number <= generation])
    for at, number in zip(heads, numbers, strict=True):
        plan = plans[at]
        if number == told_of:
            volume = _told_volume(plan, report, plans[at + 1 : at + 1 + generation - number])
            plan = msgspec.structs.replace(plan, data_bytes=volume)
        if at == 0:
            begun_at = _earliest(plan.begun_at, started if number == told_of else None)
            plans[at] = msgspec.structs.replace(plan, begun_at=begun_at)
        elif number <= generation:
            began = _earliest(report.at, report.plan_started_at if number == told_of else None) or report.at
            plans[at] = _with_beginning(plan, _not_before(plan, began))
        else:
            used = max(plan.used_before, report.data_usage_bytes or 0)
            plan = msgspec.structs.replace(plan, used_before=used)
            plans[at] = _with_beginning(plan, report.at) if over and generation == number - 1 else plan
    if over:
        plans = [_after_the_end(plan, report) if number == generation + 1 else plan
                 for number, plan in _numbered(plans)]  # fmt: skip
    counter = profile.used_before + profile.data_usage_bytes
    moved = msgspec.structs.replace(profile, plans=tuple(plans))
    used = max(counter - moved.used_before, 0)
    return with_start(msgspec.structs.replace(moved, data_usage_bytes=used))


def _numbered(plans: Sequence[AppliedPlan]) -> Iterator[tuple[int, AppliedPlan]]:
    """Each plan with its generation; one that waits with that of the last one that has begun."""
    for at, plan in enumerate(plans):
        yield model.generation(plans[: at + 1]), plan


def _after_the_end(plan: AppliedPlan, report: Report) -> AppliedPlan:
    """A plan that was added, where the plans before it are said to be over."""
    if plan.mode != "ADD" or plan.begun_at is None:
        return plan
    return msgspec.structs.replace(plan, ended_before=_earliest(plan.ended_before, report.at))


def _with_beginning(plan: AppliedPlan, ended: datetime) -> AppliedPlan:
    """A queued plan where the one before it is said to have ended then."""
    return msgspec.structs.replace(
        plan,
        begun_at=_earliest(plan.begun_at, _not_before(plan, ended)),
        ended_before=_earliest(plan.ended_before, ended),
    )


def _told_volume(head: AppliedPlan, report: Report, added: Sequence[AppliedPlan]) -> int | None:
    """The volume of a plan to which others were added, by a report on all of them; unlimited (None) stays so."""
    if head.data_bytes is None or report.data_total_bytes is None:
        return head.data_bytes
    return max(head.data_bytes, report.data_total_bytes - sum([plan.data_bytes or 0 for plan in added]))


def added_since(profile: Profile, generation: int) -> int | None:
    """The volume that recharges have added to a plan since this generation, in bytes; None where another has begun."""
    later = [plan for plan in profile.plans[1:] if plan.begun_at is not None][generation - 1 :]
    return None if any(plan.mode == "QUEUE" for plan in later) else sum([plan.data_bytes or 0 for plan in later])


def _not_before(plan: AppliedPlan, at: datetime) -> datetime:
    return at if plan.applied_at is None else max(at, plan.applied_at)


def _earliest(left: datetime | None, right: datetime | None) -> datetime | None:
    return min([at for at in (left, right) if at is not None], default=None)
