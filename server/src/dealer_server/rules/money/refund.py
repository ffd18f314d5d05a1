"""What may be refunded, and for how much? (specification 4.3, decisions 4 /esim/refund)

A call names a scope: the whole order, lines, or profiles. `resolve` finds it in the order, `plan` decides which
profiles are refunded and how; `hold`, `credit`, `release` and `void` put the outcome onto the order. All-or-nothing for
profiles that are named; whole lines and orders give what can be given.
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
"""How a profile is voided: by us alone, by a supplier who has to be asked, after an operator's approval."""
Reason = Literal["REFUNDED", "CANCELLED", "PENDING_REFUND", "ACTIVATED", "INSTALLED", "USED"]


class Scope(msgspec.Struct, frozen=True):
    """What a call names, in our own ids: None for the whole order, else per line None (all of it) or profileIds."""

    lines: Mapping[int, frozenset[int] | None] | None

    @property
    def meaning(self) -> bytes:
        """16 bytes that two calls share when they name the same scope, however they spell it."""
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
    """A refund that can be had: its profiles, in their order."""

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
    for index, named in enumerate(items):
        item = _line(order, named.item_no, index)
        profiles = (
            frozenset(
                [_profile(item, one, f"items[{index}].profiles[{at}]") for at, one in enumerate(named.profiles or ())]
            )
            or None
        )
        before = lines.get(item.line, frozenset())
        lines[item.line] = None if profiles is None or before is None else before | profiles
    return Scope(lines)


def _line(order: Order, item_no: str, index: int) -> Item:
    found = identity.order_and_line(item_no)
    if found is None or found[0] != order.order_id or found[1] >= len(order.items):
        raise refusal.ItemNotInOrder(f"items[{index}].itemNo names no item of order {order.order_no}")
    return order.items[found[1]]


def _profile(item: Item, named: RefundProfile, where: str) -> int:
    if named.profile_id is None and named.iccid is None:
        raise refusal.ParameterMissing(f"{where}.profileId is required; accepted: profileId or iccid, or both")
    wanted = None if named.profile_id is None else identity.profile_id(named.profile_id)
    found = [
        profile
        for profile in item.profiles
        if (named.profile_id is None or profile.profile_id == wanted) and named.iccid in (None, profile.iccid)
    ]
    if not found:
        raise refusal.ProfileNotInItem(f"{where} names no profile of its item")
    # Suppliers sell ICCIDs again: the live profile is meant, else the newest.
    return max(found, key=lambda one: (not one.cancelled and one.plan_use_status != "ENDED", one.profile_id)).profile_id


def plan(
    order: Order, scope: Scope, way: Callable[[Item, Profile], Way], voiding: Collection[int] = frozenset()
) -> Plan:
    """Who is refunded, for how much and how. Raises 200004, 200003.

    A profile held by a pending refund is in nobody else's; a named one that cannot be refunded spoils the whole.
    `voiding` are profiles whose cancellation waits for a supplier. `way` counts for profiles with codes only, save that
    a review always does.
    """
    targets = [(item, profile) for item in order.items for profile in _in_scope(item, scope)]
    faults: dict[int, Reason] = {
        profile.profile_id: reason for _, profile in targets if (reason := refuse(profile, voiding)) is not None
    }
    if "PENDING_REFUND" in faults.values():
        raise refusal.RefundInProgress(data=_reasons(faults, {"PENDING_REFUND"}))
    named = _named(scope)
    if len(faults) == len(targets) or any(profile_id in named for profile_id in faults):
        raise refusal.NothingRefundable(data=_reasons(faults))
    return Plan(
        tuple(
            Part(item.line, profile.profile_id, profile.iccid, item.price * item.period_num, _way(item, profile, way))
            for item, profile in targets
            if profile.profile_id not in faults
        )
    )


def _way(item: Item, profile: Profile, way: Callable[[Item, Profile], Way]) -> Way:
    """What was never allocated needs no supplier."""
    found = way(item, profile)
    return "AT_ONCE" if found == "SUPPLIER" and profile.iccid is None else found


def refuse(profile: Profile, voiding: Collection[int] = frozenset()) -> Reason | None:
    """Why this profile cannot be refunded, or None."""
    if profile.refunded:
        return "REFUNDED"
    if profile.cancelled or profile.profile_id in voiding:
        return "CANCELLED"
    if profile.held:
        return "PENDING_REFUND"
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


def _reasons(faults: Mapping[int, Reason], only: Collection[Reason] | None = None) -> dict[str, object]:
    return {
        "profiles": [
            {"profileId": profile_id, "reason": reason}
            for profile_id, reason in faults.items()
            if only is None or reason in only
        ]
    }


# What becomes of the order


def hold(order: Order, profile_ids: Collection[int], now: datetime) -> Order:
    """The order while these profiles' refund is pending: they are nobody else's, and nothing else changes."""
    return _changed(order, profile_ids, now, lambda profile: msgspec.structs.replace(profile, held=True))


def release(order: Order, profile_ids: Collection[int], now: datetime) -> Order:
    """The order after the refund of these profiles was rejected."""
    return _changed(order, profile_ids, now, lambda profile: msgspec.structs.replace(profile, held=False))


def void(order: Order, profile_ids: Collection[int], now: datetime) -> Order:
    """The order with these profiles cancelled, without credit; those that were keep what they are."""
    return _changed(order, profile_ids, now, _voided)


def credit(order: Order, parts: Sequence[Part], now: datetime) -> Order:
    """The order with these profiles void and their money given back."""
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
