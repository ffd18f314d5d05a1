"""Which events of the RT family tell of a changed order? One per eSIM and change."""

import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from dealer_server.rules.orders.model import Order, Profile
from dealer_server.rules.rt import status
from dealer_server.rules.rt.esim import Totals, time_text

NotifyType = Literal["CHECK_HEALTH", "ORDER_STATUS", "SMDP_EVENT", "ESIM_STATUS", "DATA_USAGE", "VALIDITY_USAGE"]
TOLD: tuple[NotifyType, ...] = ("ORDER_STATUS", "SMDP_EVENT", "ESIM_STATUS", "DATA_USAGE", "VALIDITY_USAGE")
"""Those of orders and eSIMs."""
MARKS = ((90, 0.1), (80, 0.2), (50, 0.5))
"""At how many percent of use DATA_USAGE is sent, and what is left then; of several passed at once the highest."""


class Event(msgspec.Struct, frozen=True):
    """`body`: as it is sent, each time the same."""

    notify_type: NotifyType
    body: bytes


def of(before: Order, after: Order, now: datetime) -> list[Event]:
    """What a change of an order is told by. A recharge's own order tells nothing; its eSIM's does."""
    if after.recharges is not None:
        return []
    found = []
    if after.delivery_status == "DELIVERED" and before.delivery_status != "DELIVERED":
        found.append(_event("ORDER_STATUS", now, {**_order(after), "orderStatus": "GOT_RESOURCE"}))
    for old, new in zip(before.profiles, after.profiles, strict=True):
        if old != new and old.iccid is not None:  # its first codes are told by ORDER_STATUS
            found += [_event(kind, now, content) for kind, content in _of_esim(after, old, new, now)]
    return found


def health(now: datetime) -> Event:
    """What a URL must take before it is saved."""
    return _event("CHECK_HEALTH", now, {"orderNo": "1234567890", "orderStatus": "Test"})


def ends_tomorrow(order: Order, profile: Profile, totals: Totals, now: datetime) -> Event:
    """VALIDITY_USAGE: the plan in use has one day left."""
    assert totals.expires_at is not None
    content = {"durationUnit": "DAY", "totalDuration": totals.days, "remain": 1}
    return _event(
        "VALIDITY_USAGE", now, {**_names(order, profile), **content, "expiredTime": time_text(totals.expires_at)}
    )


def _of_esim(order: Order, old: Profile, new: Profile, now: datetime) -> Iterator[tuple[NotifyType, dict[str, Any]]]:
    names = _names(order, new)
    states = {"esimStatus": status.esim_status(new, "WEBHOOK"), "smdpStatus": status.smdp_status(new)}
    if states["smdpStatus"] != status.smdp_status(old):
        yield (
            "SMDP_EVENT",
            {**names, "eid": "", **states, "timestamp": time_text(now), "seqNumber": None,
             "notifyStatus": "Executed-Success"},
        )  # fmt: skip
    if states["esimStatus"] != status.esim_status(old, "WEBHOOK"):
        yield "ESIM_STATUS", {**names, **states, **_volumes(new)}
    if (left := _mark_passed(old, new)) is not None:
        volumes = _volumes(new)
        yield (
            "DATA_USAGE",
            {**names, "totalVolume": volumes["totalVolume"], "orderUsage": volumes["orderUsage"],
             "remain": volumes["remainVolume"], "remainThreshold": left, "lastUpdateTime": time_text(now)},
        )  # fmt: skip


def _mark_passed(old: Profile, new: Profile) -> float | None:
    """What is left at the highest mark that usage passed."""
    total = new.data_total_bytes
    if total is None:
        return None
    return next(
        (left for percent, left in MARKS if old.data_usage_bytes * 100 < percent * total <= new.data_usage_bytes * 100),
        None,
    )


def _volumes(profile: Profile) -> dict[str, int]:
    """Of the plan in use; nothing of an unlimited one."""
    total, used = profile.data_total_bytes, profile.data_usage_bytes
    if total is None:
        return {}
    return {"totalVolume": total, "orderUsage": used, "remainVolume": max(total - used, 0)}


def _order(order: Order) -> dict[str, Any]:
    return {"orderNo": order.order_no, "transactionId": order.transaction_id}


def _names(order: Order, profile: Profile) -> dict[str, Any]:
    return {**_order(order), "esimTranNo": str(profile.profile_id), "iccid": profile.iccid}


def _event(notify_type: NotifyType, now: datetime, content: Mapping[str, Any]) -> Event:
    body = msgspec.json.encode(
        {
            "notifyType": notify_type,
            "notifyId": _notify_id(notify_type, now, content),
            "eventGenerateTime": f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "content": content,
        }
    )
    return Event(notify_type, body)


def _notify_id(notify_type: NotifyType, now: datetime, content: Mapping[str, Any]) -> str:
    """32 hex digits that follow from what is told, and when."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{notify_type} {now.isoformat()} {msgspec.json.encode(content)!r}").hex
