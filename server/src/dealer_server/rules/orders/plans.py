"""Which plans does an eSIM have? The one it was sold with, and one for each recharge.

Plans share one volume and one end. Usage counts for the first until that is used up, then for the next.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dealer_server.rules.orders.model import Profile
from esim_dealer.wire.vocabulary import PlanStatus


class Plan(msgspec.Struct, frozen=True):
    """`profile`: the eSIM itself, or a recharge of it. total_bytes: None is unlimited, or not known yet. started_at,
    ends_at: those of the eSIM."""

    profile: Profile
    status: PlanStatus
    total_bytes: int | None = None
    used_bytes: int = 0
    started_at: datetime | None = None
    ends_at: datetime | None = None


def of(base: Profile, recharges: Sequence[Profile]) -> list[Plan]:
    """In the order of plan_no."""
    made = [each for each in recharges if each.plan_mode is not None]
    shares = _shares(base, made)
    plans, active = [], False
    for number, profile in enumerate((base, *recharges)):
        if number and profile.plan_mode is None:
            plans.append(Plan(profile, status(profile)))
            continue
        total, used = shares.pop(0)
        spent = bool(shares) and total is not None and used >= total
        shown = _status_of_made(base, spent=spent, active=active)
        active = active or shown == "ACTIVE"
        plans.append(Plan(profile, shown, total, used, base.plan_use_start_at, base.plan_use_end_at))
    return plans


def status(recharge: Profile) -> PlanStatus:
    """Of a recharge by itself: QUEUED once it is applied. Whether it is in use, `of` its eSIM tells."""
    if recharge.plan_mode is not None:
        return "CANCELLED" if recharge.cancelled else "QUEUED"
    if recharge.failed:
        return "FAILED"
    return "CANCELLED" if recharge.refunded or recharge.cancelled else "PENDING"


def _shares(base: Profile, made: Sequence[Profile]) -> list[tuple[int | None, int]]:
    """What each plan that is applied holds, and what of it is used. The last one has what no other holds."""
    added = [each.data_total_bytes for each in made]
    total = base.data_total_bytes
    first = None if total is None or None in added else total - sum(volume or 0 for volume in added)
    shares, left = [], base.data_usage_bytes
    for number, volume in enumerate((first, *added)):
        used = left if volume is None or number == len(added) else min(left, volume)
        shares.append((volume, used))
        left -= used
    return shares


def _status_of_made(base: Profile, *, spent: bool, active: bool) -> PlanStatus:
    """`spent`: another plan follows, and this one is used up. `active`: one before it is in use."""
    if base.iccid is None:
        return status(base)
    if base.plan_use_status == "ENDED" or spent:
        return "ENDED"
    if base.cancelled:
        return "CANCELLED"
    return "ACTIVE" if base.plan_use_status == "STARTED" and not active else "QUEUED"
