"""Which plans does an eSIM have, and how does each stand? The one it was sold with, and those that recharges added.

Plans that were added (ADD) share one volume and one end: usage counts for the first until that is used up, then for the
next. A plan that was queued (QUEUE) begins with a volume and a time of its own.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dealer_server.rules.orders.model import AppliedPlan, Order, Profile
from esim_dealer.wire.vocabulary import PlanMode, PlanStatus


class Plan(msgspec.Struct, frozen=True):
    """mode: None of the plan that the eSIM was sold with, and of one that is not applied. total_bytes: None is
    unlimited. started_at, ends_at: where it is or was in use."""

    plan_no: int
    mode: PlanMode | None
    order_id: int
    package_code: str
    status: PlanStatus
    total_bytes: int | None = None
    used_bytes: int = 0
    started_at: datetime | None = None
    ends_at: datetime | None = None


def with_first(profile: Profile, order_id: int, package_code: str) -> Profile:
    """An eSIM of this order with the plan that it was sold with in its `plans`."""
    if profile.plans:
        return profile
    return msgspec.structs.replace(
        profile,
        plans=(
            AppliedPlan(1, None, order_id, package_code, profile.data_total_bytes, begun_at=profile.plan_use_start_at),
        ),
    )


def applied(profile: Profile) -> list[Plan]:
    """The plans of an eSIM that has its first one in `plans`, in the order of their payment."""
    plans = profile.plans
    begun = [plan for at, plan in enumerate(plans) if at == 0 or plan.begun_at is not None]
    heads = [at for at, plan in enumerate(begun) if plan.mode != "ADD"]
    found = [_waiting(plan, profile) for plan in plans[1:] if plan.begun_at is None]
    for head, until in zip(heads, [*heads[1:], None], strict=True):
        shared = begun[head:until]
        found += _in_use(shared, profile) if until is None else _over(shared, begun[until])
    return sorted(found, key=lambda plan: plan.plan_no)


def pending(order: Order) -> Plan:
    """The plan that this recharge adds, which its supplier has not applied."""
    [item] = order.items
    [recharge] = item.profiles
    return Plan(recharge.plan_no, None, order.order_id, item.package_code, status(recharge))


def added(order: Order) -> PlanStatus:
    """The status of the plan that this recharge adds."""
    [recharge] = order.profiles
    if recharge.plan_mode is None or recharge.cancelled or order.esim is None:
        return status(recharge)
    [plan] = [plan for plan in applied(order.esim) if plan.order_id == order.order_id]
    return plan.status


def status(recharge: Profile) -> PlanStatus:
    """Of a recharge by itself: QUEUED once it is applied. Whether it is in use, its eSIM's plans tell."""
    if recharge.plan_mode is not None:
        return "CANCELLED" if recharge.cancelled else "QUEUED"
    if recharge.failed:
        return "FAILED"
    return "CANCELLED" if recharge.refunded or recharge.cancelled else "PENDING"


def _waiting(plan: AppliedPlan, profile: Profile) -> Plan:
    over = profile.queue_over and plan.mode == "QUEUE"
    shown = "CANCELLED" if plan.cancelled or profile.cancelled else "ENDED" if over else "QUEUED"
    return _plan(plan, shown, plan.data_bytes)


def _over(shared: Sequence[AppliedPlan], following: AppliedPlan) -> list[Plan]:
    """Plans that shared one volume until the following one began."""
    used = following.used_before - shared[0].used_before
    started, ended = shared[0].begun_at, following.ended_before or following.begun_at
    return [
        _plan(plan, "ENDED", total, share, _since(plan, started), ended)
        for plan, (total, share) in zip(shared, _shares([plan.data_bytes for plan in shared], used), strict=True)
    ]


def _in_use(shared: Sequence[AppliedPlan], profile: Profile) -> list[Plan]:
    """The plans that share the volume shown."""
    shares = _shares([plan.data_bytes for plan in shared], profile.data_usage_bytes)
    found, active = [], False
    for at, (plan, (volume, used)) in enumerate(zip(shared, shares, strict=True)):
        spent = at + 1 < len(shared) and volume is not None and used >= volume
        shown = _status_of_used(profile, spent=spent, active=active)
        active = active or shown == "ACTIVE"
        begun, over = shown in ("ACTIVE", "ENDED"), profile.plan_use_status == "ENDED"
        started = _since(plan, profile.plan_use_start_at) if begun else None
        ends = profile.plan_use_end_at if begun and (over or not spent) else None  # of one that is spent it is unknown
        found.append(_plan(plan, shown, volume, used, started, ends))
    return found


def _since(plan: AppliedPlan, started: datetime | None) -> datetime | None:
    """When a plan of those that share a volume began: with the first, or when it was added to that."""
    if started is None or plan.mode != "ADD" or plan.applied_at is None:
        return started
    return max(started, plan.applied_at)


def _shares(volumes: Sequence[int | None], used: int) -> list[tuple[int | None, int]]:
    """What each plan holds, and what of it is used. What is used beyond all is the last one's."""
    shares, left = [], used
    for number, volume in enumerate(volumes, 1):
        share = left if volume is None or number == len(volumes) else min(left, volume)
        shares.append((volume, share))
        left -= share
    return shares


def _status_of_used(profile: Profile, *, spent: bool, active: bool) -> PlanStatus:
    """`spent`: another plan follows, and this one is used up. `active`: one before it is in use."""
    if profile.iccid is None:
        return status(profile)
    if profile.plan_use_status == "ENDED" or spent:
        return "ENDED"
    if profile.cancelled:
        return "CANCELLED"
    return "ACTIVE" if profile.plan_use_status == "STARTED" and not active else "QUEUED"


def _plan(
    plan: AppliedPlan,
    shown: PlanStatus,
    total: int | None,
    used: int = 0,
    started: datetime | None = None,
    ends: datetime | None = None,
) -> Plan:
    if started is not None and ends is not None:
        ends = max(started, ends)  # another instance may have told of the end before the answer that it was applied
    return Plan(plan.plan_no, plan.mode, plan.order_id, plan.package_code, shown, total, used, started, ends)
