"""What of an order can be refunded, as far as its snapshot tells? (specification 4.3)

A recharge or refund that is under way does not stand in the snapshot: the service has the last word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

from esim_dealer.order import money
from esim_dealer.wire.snapshot import AddedPlan, OrderItem, Profile, Snapshot

VOID = "CANCELLED or REFUNDED"
MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class Target:
    """One eSIM, or the recharge of one, that a refund means. `reason`: why it cannot be refunded; None where it can."""

    item_no: str
    profile_id: str
    iccid: str | None
    reason: str | None

    def __str__(self) -> str:
        return f"{self.profile_id} {self.reason}"


@dataclass(frozen=True, slots=True)
class Refundable:
    """What a refund means, and at most how much it gives back. `items`: as Dealer.refund takes them. They name each
    eSIM where another one cannot be refunded now but could be a moment later: it would be given back uncounted."""

    targets: Sequence[Target]
    at_most: Decimal
    items: Mapping[str, Sequence[str] | None] | None

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
    if esims is not None:
        targets = list(dict.fromkeys(_named(targets, esim, item_no) for esim in esims))
        if not targets:
            raise ValueError("esims is empty: leave it out for the whole line")
    refused = [target for target in targets if target.reason]
    if refused and (esims or len(refused) == len(targets)):
        raise ValueError(f"this cannot be refunded: {', '.join(map(str, refused))}")
    at_most = min(left, _price(order, len(targets) - len(refused)) or left)
    named = bool(esims) or any(target.reason != VOID for target in refused)
    return Refundable(targets, at_most, _scope(items, targets, item_no, named=named))


def _scope(
    items: Sequence[OrderItem], targets: Sequence[Target], item_no: str | None, *, named: bool
) -> Mapping[str, Sequence[str] | None] | None:
    """Raises ValueError where more eSIMs of a line are to be named than a refund takes."""
    if not named:
        return {item_no: None} if item_no else None
    scope = dict[str, Sequence[str] | None]()
    for item in items:
        of_line = [target for target in targets if target.item_no == item.item_no]
        free = [target.profile_id for target in of_line if target.reason is None]
        if len(free) > MOST_NAMED:
            raise ValueError(f"line {item.item_no} has {len(free)} eSIMs to refund: name {MOST_NAMED} at most in esims")
        if free or not of_line:  # without eSIMs yet: all of the line
            scope[item.item_no] = free or None
    return scope


def _price(order: Snapshot, profiles: int) -> Decimal | None:
    """What so many profiles of it cost; None of several lines, whose prices the snapshot does not have."""
    if len(order.items) != 1:
        return None
    [item], paid = order.items, money(order.amount)
    return (paid / item.quantity * profiles).quantize(paid, ROUND_UP)


def _targets(item: OrderItem) -> list[Target]:
    if item.top_up:
        return [
            Target(item.item_no, item.top_up.profile_id, item.top_up.iccid or None, _reason_of_recharge(item.top_up))
        ]
    return [Target(item.item_no, each.profile_id, each.iccid or None, _reason(each)) for each in item.profiles or ()]


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
