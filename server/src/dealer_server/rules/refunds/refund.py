"""What may be refunded, and for how much? (specification 4.3)

A call names a scope: the whole order, lines, or profiles. `resolve` finds it in the order, `plan` decides which
profiles are refunded and how; `hold`, `credit`, `release` and `void` give the order as it is then. A profile that is
named must be refundable, else nothing is refunded; of whole lines and orders, what is refundable is refunded.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from dealer_server.rules import refusal
from dealer_server.rules.delivery import delivery
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Item, Order, Profile
from esim_dealer.wire.calls import RefundItem, RefundProfile

Way = Literal["AT_ONCE", "SUPPLIER", "REVIEW"]
"""How a profile is voided: at once, by its supplier, or after an operator's approval."""
Reason = Literal["REFUNDED", "CANCELLED", "PENDING_REFUND", "ACTIVATED", "INSTALLED", "USED", "APPLIED", "TOPPED_UP"]
REASON_TEXTS: Mapping[Reason, str] = {
    "REFUNDED": "it was given back already",
    "CANCELLED": "it was voided, or a revocation of it waits for its supplier",
    "PENDING_REFUND": "it is being given back",
    "ACTIVATED": "it is activated",
    "INSTALLED": "it was downloaded",
    "USED": "data was used, or its plan has begun or ended",
    "TOPPED_UP": "it was recharged, or a recharge of it is pending",
    "APPLIED": "it is a recharge that its supplier was asked for, or whose plan has begun",
}
"""Why a profile is not refunded: each text says it of the eSIM."""
NOTHING: Mapping[int, Reason] = {}


class Scope(msgspec.Struct, frozen=True):
    """What a call names. `lines` is None for the whole order; else by line number the profileIds, None for all."""

    lines: Mapping[int, frozenset[int] | None] | None

    @property
    def digest(self) -> bytes:
        """16 bytes that two calls share when they name the same scope, whatever their spelling."""
        if self.lines is None:
            return hashlib.sha256(b"order").digest()[:16]
        parts = sorted((line, sorted(named) if named is not None else []) for line, named in self.lines.items())
        return hashlib.sha256(msgspec.json.encode(parts)).digest()[:16]


class Part(msgspec.Struct, frozen=True):
    """One profile of a refund. `amount` is the unit price paid x periodNum, in ten-thousandths."""

    line: int
    profile_id: int
    iccid: str | None
    amount: int
    way: Way


class Plan(msgspec.Struct, frozen=True):
    """A refund that is possible: its profiles, in the order of the lines."""

    parts: tuple[Part, ...]

    @property
    def amount(self) -> int:
        return sum([part.amount for part in self.parts])

    @property
    def at_once(self) -> bool:
        """Whether it is credited in the transaction that accepts it."""
        return all(part.way == "AT_ONCE" for part in self.parts)


def resolve(order: Order, items: Sequence[RefundItem] | None) -> Scope:
    """The scope a call names. Raises 310274, 310403, 000105, 000106."""
    if items is None:
        return Scope(None)
    if not items:
        raise refusal.ParameterEmpty("items is empty; leave it out to refund the whole order")
    lines: dict[int, frozenset[int] | None] = {}
    for index, refund_item in enumerate(items):
        item = _item(order, refund_item.item_no, index)
        named = [
            _profile_id(order, item, refund_profile, f"items[{index}].profiles[{at}]")
            for at, refund_profile in enumerate(refund_item.profiles or ())
        ]
        before = lines.get(item.line, frozenset())
        lines[item.line] = None if not named or before is None else before.union(named)
    return Scope(lines)


def _item(order: Order, item_no: str, index: int) -> Item:
    named = identity.order_and_line(item_no)
    if named is None or named[0] != order.order_id or named[1] >= len(order.items):
        raise refusal.ItemNotInOrder(f"items[{index}].itemNo names no item of order {order.order_no}")
    return order.items[named[1]]


def _profile_id(order: Order, item: Item, named: RefundProfile, where: str) -> int:
    if named.profile_id is None and named.iccid is None:
        raise refusal.ParameterMissing(f"{where}.profileId is required; accepted: profileId or iccid, or both")
    profile_id = None if named.profile_id is None else identity.profile_id(named.profile_id)
    matching = [
        profile
        for profile in item.profiles
        if named.profile_id is None or order.named(profile)[0] == profile_id
        if named.iccid is None or order.named(profile)[1] == named.iccid
    ]
    if not matching:
        raise refusal.ProfileNotInItem(f"{where} names no profile of its item")
    # Suppliers reuse ICCIDs (docs/decisions/0015-reused-iccids.md): the profile in use is meant, else the newest.
    return max(
        matching, key=lambda profile: (not profile.cancelled and profile.plan_use_status != "ENDED", profile.profile_id)
    ).profile_id


def plan(
    order: Order, scope: Scope, way: Callable[[Item, Profile], Way], blocked: Mapping[int, Reason] = NOTHING
) -> Plan:
    """Which profiles are refunded, for how much and how. Raises 200004, 200003.

    A profile of a pending refund cannot be in another one. `blocked`: profiles that something other than the order
    keeps from being refunded: their cancellation waits for a supplier (CANCELLED), they were recharged (TOPPED_UP), or
    they are recharges that their supplier may be applying, or whose plan has begun (APPLIED).
    `way`: how a profile with codes is voided; one without codes needs no supplier.
    """
    targets = [(item, profile) for item in order.items for profile in _in_scope(item, scope)]
    faults: dict[int, Reason] = {
        profile.profile_id: reason for _, profile in targets if (reason := refuse(profile, blocked)) is not None
    }
    if "PENDING_REFUND" in faults.values():
        raise refusal.RefundInProgress(data=_reasons(order, faults, {"PENDING_REFUND"}))
    named = _named(scope)
    if len(faults) == len(targets) or any(profile_id in named for profile_id in faults):
        raise refusal.NothingRefundable(data=_reasons(order, faults))
    return Plan(
        tuple(
            Part(
                line=item.line,
                profile_id=profile.profile_id,
                iccid=profile.iccid,
                amount=item.price * item.period_num,
                way=_way(item, profile, way),
            )
            for item, profile in targets
            if profile.profile_id not in faults
        )
    )


def _way(item: Item, profile: Profile, way: Callable[[Item, Profile], Way]) -> Way:
    """No supplier has to void a profile that was never allocated."""
    planned = way(item, profile)
    return "AT_ONCE" if planned == "SUPPLIER" and not profile.made else planned


def refuse(profile: Profile, blocked: Mapping[int, Reason] = NOTHING) -> Reason | None:
    """Why this profile cannot be refunded, or None."""
    reason = blocked.get(profile.profile_id)
    if profile.refunded:
        return "REFUNDED"
    if profile.cancelled or reason == "CANCELLED":
        return "CANCELLED"
    if profile.held:
        return "PENDING_REFUND"
    if profile.plan_mode == "ADD":
        return "APPLIED"
    if reason is not None:
        return reason
    if profile.data_usage_bytes or profile.plan_use_status != "NOT_STARTED":
        return "USED"
    if profile.lifecycle_status in ("ACTIVATING", "ACTIVATED"):
        return "ACTIVATED"
    if profile.smdp_status not in (None, "RELEASED"):
        return "INSTALLED"
    return None


def _in_scope(item: Item, scope: Scope) -> Iterable[Profile]:
    if scope.lines is None:
        return item.profiles
    if item.line not in scope.lines:
        return ()
    named = scope.lines[item.line]
    return [profile for profile in item.profiles if named is None or profile.profile_id in named]


def _named(scope: Scope) -> set[int]:
    return {profile_id for named in (scope.lines or {}).values() if named is not None for profile_id in named}


def _reasons(order: Order, faults: Mapping[int, Reason], only: Collection[Reason] | None = None) -> dict[str, object]:
    return {
        "profiles": [
            {"profileId": order.named(profile)[0], "reason": reason}
            for profile in order.profiles
            if (reason := faults.get(profile.profile_id)) is not None and (only is None or reason in only)
        ]
    }


# The order afterwards


def hold(order: Order, profile_ids: Collection[int], now: datetime) -> Order:
    """The order while a refund of these profiles is pending. Only `held` changes."""
    return _changed(order, profile_ids, now, lambda profile: msgspec.structs.replace(profile, held=True))


def release(order: Order, profile_ids: Collection[int], now: datetime) -> Order:
    """The order after the refund of these profiles was rejected."""
    return _changed(order, profile_ids, now, lambda profile: msgspec.structs.replace(profile, held=False))


def void(order: Order, profile_ids: Collection[int], now: datetime) -> Order:
    """The order with these profiles cancelled, without a credit."""
    return _changed(order, profile_ids, now, _voided)


def credit(order: Order, parts: Sequence[Part], now: datetime) -> Order:
    """The order with these profiles cancelled and refunded."""
    amounts = {part.profile_id: part.amount for part in parts}
    refund_amount = order.refund_amount + sum(amounts.values())
    assert refund_amount <= order.amount, "a refund exceeds what was paid"
    paid = msgspec.structs.replace(
        order, refund_amount=refund_amount, pay_status="REFUNDED" if refund_amount == order.amount else "PAID"
    )
    return _changed(
        paid, amounts, now, lambda profile: msgspec.structs.replace(_voided(profile), refunded=True, held=False)
    )


def _voided(profile: Profile) -> Profile:
    return msgspec.structs.replace(profile, cancelled=True, lifecycle_status="CANCELLED")


def _changed(order: Order, profile_ids: Collection[int], now: datetime, change: Callable[[Profile], Profile]) -> Order:
    items = tuple(
        msgspec.structs.replace(
            item,
            profiles=tuple(
                change(profile) if profile.profile_id in profile_ids else profile for profile in item.profiles
            ),
        )
        for item in order.items
    )
    return delivery.settle(order, items, now)


def text(amount: int, order: Order) -> str:
    return money.text(amount, order.currency)
