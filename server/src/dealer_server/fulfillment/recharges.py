"""Adds the plans that suppliers applied to the eSIMs that were recharged, in the transaction that records it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.session import Session
from dealer_server.rules.delivery import delivery
from dealer_server.rules.delivery.delivery import AddedPlan
from dealer_server.rules.lifecycle import lifecycle as rules
from dealer_server.rules.lifecycle.lifecycle import Lifecycle
from dealer_server.rules.orders import plans
from dealer_server.rules.orders.model import AppliedPlan, Order, Profile
from dealer_server.store.orders.fulfillment import Claimed
from dealer_server.store.orders.save import LIFECYCLE, save
from dealer_server.store.profiles import lifecycle
from dealer_server.store.profiles.lifecycle import FollowedProfile, Written
from dealer_server.suppliers.contract import Caps

OrderKey = tuple[int, int]


class Recharged(NamedTuple):
    """A recharge that was applied: its order as it is now, and the plan that it adds."""

    order: Order
    added: AddedPlan

    @property
    def profile_id(self) -> int:
        """That of the eSIM."""
        assert self.order.recharges is not None
        return self.order.recharges


def recharges_void(orders: Mapping[OrderKey, Order], line: Claimed) -> bool:
    """Whether the eSIM that a line recharges is void by now."""
    assert line.recharged_order is not None and line.recharges is not None
    _, profile = orders[line.recharged_order].find_profile(line.recharges)
    return profile.cancelled


async def apply(
    session: Session, recharged: Sequence[Recharged], orders: Mapping[OrderKey, Order], caps: Caps, now: datetime
) -> dict[OrderKey, Order]:
    """The orders of the eSIMs as they are then, written. `orders`: as they are stored, locked."""
    if not recharged:
        return {}
    stored = await lifecycle.lock(session, [(one.order.tenant_id, one.profile_id) for one in recharged])
    after = {key: _esim(orders, followed) for key, followed in stored.items()}
    for one in recharged:
        profile, life = after[one.profile_id]
        after[one.profile_id] = rules.recharge(profile, life, _plan(one, caps, now), one.added.queued_begun)
    await lifecycle.record(session, [_written(stored[key], life, now) for key, (_, life) in after.items()], now)
    changed = {key: profile for key, (profile, _) in after.items()}
    of_esims = {followed.order for followed in stored.values()}
    changes = [(orders[key], delivery.with_profiles(orders[key], changed, now)) for key in sorted(of_esims)]
    await save(session, changes, LIFECYCLE)
    return {(order.tenant_id, order.order_id): order for _, order in changes}


def _esim(orders: Mapping[OrderKey, Order], followed: FollowedProfile) -> tuple[Profile, Lifecycle]:
    item, profile = orders[followed.order].find_profile(followed.profile_id)
    return plans.with_first(profile, followed.order_id, item.package_code), followed.life


def _plan(recharged: Recharged, caps: Caps, now: datetime) -> AppliedPlan:
    order, added = recharged.order, recharged.added
    speed = caps.lifecycle.plan_speed if caps.lifecycle else 1.0
    return AppliedPlan(
        plan_no=order.profiles[0].plan_no,
        mode=added.mode,
        order_id=order.order_id,
        package_code=order.items[0].package_code,
        data_bytes=added.data_bytes,
        seconds=None if added.seconds is None else max(round(added.seconds / speed), 1),
        ends_at=added.ends_at,
        applied_at=now,
    )


def _written(stored: FollowedProfile, life: Lifecycle, now: datetime) -> Written:
    """Its supplier is asked now, where it can be."""
    return Written(
        key=stored.key,
        life=life,
        due_at=now,
        claim=stored.claim,
        claims=stored.claims,
        reported=False,
        asked=True,
    )
