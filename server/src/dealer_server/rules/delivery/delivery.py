"""When is an order delivered, and when is it complete? (specification 3)

`allocate` applies suppliers' answers to an order. `settle` derives every status from the profiles, so that repeated
reports, in any order, give the same result.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dealer_server.rules.orders.model import Item, Order, Profile
from esim_dealer.wire.vocabulary import DeliveryStatus, ItemStatus, OrderStatus, PlanMode


class Codes(msgspec.Struct, frozen=True):
    """What a supplier allocated for one profile."""

    iccid: str
    activation_code: str
    qr_token: str
    esim_status: str | None = "GOT_RESOURCE"
    smdp_status: str | None = "RELEASED"
    data_total_bytes: int | None = None


class AddedPlan(msgspec.Struct, frozen=True):
    """The plan that a supplier applied to an eSIM, for one recharge. data_bytes: None is unlimited. seconds: how long
    it lasts. ends_at: when the eSIM ends then, where its supplier said so. queued_begun: how many queued plans had
    begun there by then, where it said so."""

    mode: PlanMode
    data_bytes: int | None
    seconds: int | None
    ends_at: datetime | None = None
    queued_begun: int | None = None


class Failed(msgspec.Struct, frozen=True):
    """The supplier will never allocate this profile."""


Result = Codes | AddedPlan | Failed
"""What a supplier's answer gives a profile."""


def allocate(order: Order, answers: Mapping[int, Result], taken: frozenset[int], now: datetime) -> Order:
    """The order after suppliers answered for some of its profiles, by profile_id. `taken`: lines in fulfillment.

    A profile that is no longer PENDING, or that a refund holds, does not change: a late or repeated answer is ignored.
    """
    items = tuple(
        msgspec.structs.replace(
            item,
            item_status="PENDING" if item.item_status == "PAID" and item.line in taken else item.item_status,
            profiles=tuple(_answered(profile, answers.get(profile.profile_id)) for profile in item.profiles),
        )
        for item in order.items
    )
    return settle(order, items, now)


def retry(order: Order, profile_ids: frozenset[int], now: datetime) -> Order:
    """The order with those of these profiles that failed PENDING again; `order` itself if none failed."""
    items = tuple(
        msgspec.structs.replace(
            item,
            profiles=tuple(
                msgspec.structs.replace(profile, failed=False)
                if profile.failed and profile.profile_id in profile_ids
                else profile
                for profile in item.profiles
            ),
        )
        for item in order.items
    )
    return settle(order, items, now)


def with_profiles(order: Order, changed: Mapping[int, Profile], now: datetime) -> Order:
    """The order with these of its profiles, by profileId, and its statuses derived from them."""
    items = tuple(
        msgspec.structs.replace(
            item, profiles=tuple(changed.get(profile.profile_id, profile) for profile in item.profiles)
        )
        for item in order.items
    )
    return settle(order, items, now)


def settle(before: Order, items: tuple[Item, ...], now: datetime) -> Order:
    """The order with these items and every status derived from them; `before` itself if nothing changed."""
    items = tuple(_settled(item) for item in items)
    live = [profile for item in items for profile in item.profiles if profile.live]
    delivery_status = _delivery_status(before.delivery_status, live)
    after = msgspec.structs.replace(
        before,
        items=items,
        delivery_status=delivery_status,
        order_status=_order_status(before.order_status, items, live, delivery_status),
    )
    if after == before:
        return before
    return msgspec.structs.replace(after, version=before.version + 1, updated_at=now)


def _answered(profile: Profile, answer: Result | None) -> Profile:
    if answer is None or profile.lifecycle_status != "PENDING" or profile.failed or profile.held:
        return profile
    if isinstance(answer, Failed):
        return msgspec.structs.replace(profile, failed=True)
    if isinstance(answer, AddedPlan):
        return msgspec.structs.replace(
            profile, lifecycle_status="DELIVERED", plan_mode=answer.mode, data_total_bytes=answer.data_bytes
        )
    return msgspec.structs.replace(
        profile,
        lifecycle_status="DELIVERED",
        iccid=answer.iccid,
        activation_code=answer.activation_code,
        qr_token=answer.qr_token,
        esim_status=answer.esim_status,
        smdp_status=answer.smdp_status,
        data_total_bytes=answer.data_total_bytes,
    )


def _settled(item: Item) -> Item:
    status = _item_status(item)
    return item if status == item.item_status else msgspec.structs.replace(item, item_status=status)


def _item_status(item: Item) -> ItemStatus:
    if all(profile.refunded for profile in item.profiles):
        return "REFUNDED"
    live = [profile for profile in item.profiles if profile.live]
    if not live:
        return item.item_status
    if all(profile.failed for profile in live):
        return "FAILED"
    if any(not profile.made for profile in live):
        begun = item.item_status != "PAID" or any(profile.made or profile.failed for profile in live)
        return "PENDING" if begun else "PAID"
    in_use = [profile for profile in live if not profile.cancelled]
    if in_use and all(profile.lifecycle_status == "ACTIVATED" for profile in in_use):
        return "ACTIVATED"
    if item.item_status in ("ACTIVATING", "ACTIVATED"):  # statuses never move back when a used profile is cancelled
        return item.item_status
    used = any(profile.lifecycle_status in ("ACTIVATING", "ACTIVATED") for profile in in_use)
    return "ACTIVATING" if used else "DELIVERED"


def _delivery_status(before: DeliveryStatus, live: list[Profile]) -> DeliveryStatus:
    if not live:
        return before
    ready = sum(profile.made for profile in live)
    if ready == len(live):
        return "DELIVERED"
    if ready:
        return "PARTIAL"
    return "FAILED" if all(profile.failed for profile in live) else "PENDING"


def _order_status(
    before: OrderStatus, items: tuple[Item, ...], live: list[Profile], delivery: DeliveryStatus
) -> OrderStatus:
    if before == "REFUNDED" or all(profile.refunded for item in items for profile in item.profiles):
        return "REFUNDED"
    if any(profile.held for item in items for profile in item.profiles):
        return "REFUNDING"
    if not live or delivery == "DELIVERED":
        return "COMPLETED"
    begun = before != "PAID" or any(item.item_status != "PAID" for item in items)
    return "FULFILLING" if begun else "PAID"
