"""Which hints does a change give? (specification 6.3)

Hints are the difference between the last delivered snapshot of an order, if there is one, and the snapshot to be sent.
"""

from collections.abc import Iterator
from typing import get_args

import msgspec
from msgspec import UNSET

from esim_dealer.wire.snapshot import OrderItem, Profile, Snapshot
from esim_dealer.wire.vocabulary import ChangeHint

_IN_ORDER: tuple[ChangeHint, ...] = get_args(ChangeHint)
_NO_PROFILE = Profile(profile_id="", lifecycle_status="PENDING", plan_use_status="NOT_STARTED")


def change_hints(before: Snapshot | None, after: Snapshot) -> tuple[ChangeHint, ...]:
    """The hints of a DELIVERY_UPDATED event in the order of specification 6.3; () if the snapshots are equal.

    ORDER_SNAPSHOT_SYNC if they differ only in fields that no hint names, such as payStatus.
    """
    if before is not None and comparable(before) == comparable(_in_fields_of(before, after)):
        return ()
    hints = set(_order_hints(before, after))
    items = {item.item_no: item for item in before.items} if before else {}
    for item in after.items:
        hints.update(_item_hints(items.get(item.item_no), item))
    return tuple(hint for hint in _IN_ORDER if hint in hints) or ("ORDER_SNAPSHOT_SYNC",)


def comparable(snapshot: Snapshot) -> Snapshot:
    """A snapshot without the fields that do not count as a change.

    changeHints and eventType describe the event. orderType, amount and createTime never change, and a later updateTime
    alone is no change (specification 6.3); older snapshots lack these four.
    """
    return msgspec.structs.replace(
        snapshot,
        change_hints=UNSET,
        event_type=UNSET,
        order_type=UNSET,
        amount=UNSET,
        create_time=UNSET,
        update_time=UNSET,
    )


def _in_fields_of(before: Snapshot, after: Snapshot) -> Snapshot:
    """`after` without installPageUrl where `before` is older than that field: it alone is no change."""
    if not any(
        known.qr_code_url and not known.install_page_url for item in before.items for known in item.profiles or ()
    ):
        return after
    replace = msgspec.structs.replace
    items = [
        replace(item, profiles=tuple([replace(each, install_page_url=UNSET) for each in item.profiles]))
        if item.profiles
        else item
        for item in after.items
    ]
    return replace(after, items=tuple(items))


def _order_hints(before: Snapshot | None, after: Snapshot) -> Iterator[ChangeHint]:
    if before is None or before.delivery_status != after.delivery_status:
        yield "DELIVERY_STATUS_CHANGED"
    if before is None or before.order_status != after.order_status:
        yield "ORDER_STATUS_CHANGED"
    if (after.refund_amount or 0) > ((before.refund_amount or 0) if before else 0):
        yield "REFUND_AMOUNT_UPDATED"


def _item_hints(before: OrderItem | None, after: OrderItem) -> Iterator[ChangeHint]:
    if before is None or before.item_status != after.item_status:
        yield "ITEM_STATUS_CHANGED"
    known = {profile.profile_id: profile for profile in before.profiles or ()} if before else {}
    for profile in after.profiles or ():
        yield from _profile_hints(known.get(profile.profile_id), profile)


def _profile_hints(known: Profile | None, after: Profile) -> Iterator[ChangeHint]:
    before = known or _NO_PROFILE
    for hint, field in _APPEARS:
        if getattr(after, field) and not getattr(before, field):
            yield hint
    for hint, field in _CHANGES:
        if getattr(after, field) != getattr(before, field):
            yield hint
    if known is None:
        yield "PROFILE_LIFECYCLE_CHANGED"
    if after.plan_use_status != before.plan_use_status:
        if after.plan_use_status == "STARTED":
            yield "PLAN_USE_STARTED"
        elif after.plan_use_status == "ENDED":
            yield "PLAN_USE_ENDED"
    recharged = before.remain_data_bytes is not UNSET and after.remain_data_bytes != before.remain_data_bytes
    if (after.data_usage_bytes or 0) != (before.data_usage_bytes or 0) or recharged:
        yield "USAGE_UPDATED"


_APPEARS: tuple[tuple[ChangeHint, str], ...] = (
    ("ICCID_READY", "iccid"),
    ("QR_CODE_READY", "qr_code_url"),
    ("ACTIVATION_CODE_READY", "activation_code"),
    ("PROFILE_CANCELLED", "cancelled"),
)
_CHANGES: tuple[tuple[ChangeHint, str], ...] = (
    ("PROFILE_LIFECYCLE_CHANGED", "lifecycle_status"),
    ("ESIM_STATUS_CHANGED", "esim_status"),
    ("SMDP_STATUS_CHANGED", "smdp_status"),
)
