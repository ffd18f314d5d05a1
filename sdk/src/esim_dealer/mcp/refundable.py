"""What of an order can be refunded, as far as its snapshot tells? (specification 4.3)

A recharge or refund that is under way does not stand in the snapshot: the service has the last word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

from esim_dealer.order import money
from esim_dealer.wire.snapshot import AddedPlan, OrderItem, Profile, Snapshot

VOID = "CANCELLED or REFUNDED"


@dataclass(frozen=True, slots=True)
class Target:
    """One eSIM, or the recharge of one, that a refund means. `reason`: why it cannot be refunded; None where it can."""

    profile_id: str
    iccid: str | None
    reason: str | None

    def __str__(self) -> str:
        return f"{self.profile_id} {self.reason}"


@dataclass(frozen=True, slots=True)
class Refundable:
    """What a refund means, and at most how much it gives back."""

    targets: Sequence[Target]
    at_most: Decimal

    @property
    def refused(self) -> list[Target]:
        return [target for target in self.targets if target.reason]


def refundable(order: Snapshot, item_no: str | None, esims: Sequence[str] | None) -> Refundable:
    """Raises ValueError where the service would refuse: of named eSIMs each must be refundable, else one is enough."""
    items = [item for item in order.items if item_no in (None, item.item_no)]
    if not items:
        raise ValueError(f"order {order.order_no} has no line {item_no}")
    left = money(order.amount) - Decimal(order.refund_amount or 0)
    if left <= 0:
        raise ValueError(f"order {order.order_no} is refunded already")
    targets = [target for item in items for target in _targets(item)]
    if esims:
        targets = [_named(targets, esim, item_no) for esim in esims]
    refused = [target for target in targets if target.reason]
    if refused and (esims or len(refused) == len(targets)):
        raise ValueError(f"this cannot be refunded: {', '.join(map(str, refused))}")
    return Refundable(targets, min(left, _price(order, len(targets) - len(refused)) or left))


def _price(order: Snapshot, profiles: int) -> Decimal | None:
    """What so many profiles of it cost; None of several lines, whose prices the snapshot does not have."""
    if len(order.items) != 1:
        return None
    [item], paid = order.items, money(order.amount)
    return (paid / item.quantity * profiles).quantize(paid, ROUND_UP)


def _targets(item: OrderItem) -> list[Target]:
    if item.top_up:
        return [Target(item.top_up.profile_id, item.top_up.iccid or None, _reason_of_recharge(item.top_up))]
    return [Target(each.profile_id, each.iccid or None, _reason(each)) for each in item.profiles or ()]


def _named(targets: Sequence[Target], esim: str, item_no: str | None) -> Target:
    """Suppliers reuse ICCIDs: the eSIM that can be refunded is meant."""
    found = [target for target in targets if esim in (target.profile_id, target.iccid)]
    if not found:
        raise ValueError(f"line {item_no} has no eSIM {esim}")
    return min(found, key=lambda target: target.reason is not None)


def _reason(profile: Profile) -> str | None:
    if profile.cancelled:
        return VOID
    if any(plan.type == "TOPUP" and plan.status != "CANCELLED" for plan in profile.plans or ()):
        return "TOPPED_UP"
    if profile.data_usage_bytes or profile.plan_use_status != "NOT_STARTED":
        return "USED"
    if profile.lifecycle_status in ("ACTIVATING", "ACTIVATED"):
        return "ACTIVATED"
    return "INSTALLED" if (profile.smdp_status or "RELEASED") != "RELEASED" else None


def _reason_of_recharge(plan: AddedPlan) -> str | None:
    if plan.status in ("FAILED", "CANCELLED"):
        return VOID
    return "APPLIED" if plan.status in ("ACTIVE", "ENDED") else None
