"""Adds what suppliers applied to the eSIMs that were recharged, in the transaction that records it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from dealer_server.db.session import Session
from dealer_server.rules.delivery import delivery
from dealer_server.rules.delivery.delivery import Recharged
from dealer_server.rules.lifecycle import lifecycle as rules
from dealer_server.rules.lifecycle.lifecycle import Lifecycle, Recharge
from dealer_server.rules.orders.model import Order, Profile
from dealer_server.store.orders.fulfillment import Claimed
from dealer_server.store.orders.save import LIFECYCLE, save
from dealer_server.store.profiles import lifecycle
from dealer_server.store.profiles.lifecycle import FollowedProfile, Written
from dealer_server.suppliers.contract import Caps

OrderKey = tuple[int, int]


class Applied(NamedTuple):
    """What was added to the eSIM `profile_id`."""

    tenant_id: int
    profile_id: int
    added: Recharged


def recharges_void(orders: Mapping[OrderKey, Order], line: Claimed) -> bool:
    """Whether the eSIM that a line recharges is void by now."""
    assert line.recharged_order is not None and line.recharges is not None
    _, profile = orders[line.recharged_order].find_profile(line.recharges)
    return profile.cancelled


async def apply(
    session: Session, applied: Sequence[Applied], orders: Mapping[OrderKey, Order], caps: Caps, now: datetime
) -> dict[OrderKey, Order]:
    """The orders of the eSIMs as they are then, written. `orders`: as they are stored, locked."""
    if not applied:
        return {}
    stored = await lifecycle.lock(session, [(one.tenant_id, one.profile_id) for one in applied])
    lives = {profile_id: followed.life for profile_id, followed in stored.items()}
    after = {followed.order: orders[followed.order] for followed in stored.values()}
    for one in applied:
        followed = stored[one.profile_id]
        profile, lives[one.profile_id] = _recharged(one, after[followed.order], lives[one.profile_id], caps, now)
        after[followed.order] = _with(after[followed.order], profile, now)
    await lifecycle.record(session, [_written(followed, lives[key], now) for key, followed in stored.items()], now)
    changes = [(orders[key], order) for key, order in after.items() if order is not orders[key]]
    await save(session, changes, LIFECYCLE)
    return {(order.tenant_id, order.order_id): order for _, order in changes}


def _recharged(applied: Applied, order: Order, life: Lifecycle, caps: Caps, now: datetime) -> tuple[Profile, Lifecycle]:
    added = applied.added
    speed = caps.lifecycle.plan_speed if caps.lifecycle else 1.0
    seconds = None if added.seconds is None else max(round(added.seconds / speed), 1)
    _, profile = order.find_profile(applied.profile_id)
    return rules.recharge(profile, life, Recharge(added.data_bytes, seconds, added.ends_at), now)


def _with(order: Order, changed: Profile, now: datetime) -> Order:
    """The order with this profile. Its version grows once, however many of its profiles are recharged."""
    items = tuple(
        msgspec.structs.replace(
            item,
            profiles=tuple(changed if one.profile_id == changed.profile_id else one for one in item.profiles),
        )
        for item in order.items
    )
    return delivery.settle(order, items, now)


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
