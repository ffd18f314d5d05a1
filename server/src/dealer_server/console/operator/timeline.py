"""Everything that happened to an order, as one timeline."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.console.operator import codes
from dealer_server.console.shared import words
from dealer_server.console.shared.timeline import (
    FAILED,
    Event,
    changes_text,
    failure_events,
    failure_title,
    in_order,
    profile_events,
    recharge_events,
    runs,
    some_text,
)
from dealer_server.rules.incidents.refused import refused
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.store.console.orders import (
    Movement,
    ProfileTimes,
    Purchase,
    RefundRefusal,
    SupplierCall,
    Suspension,
    VoidRequest,
)
from dealer_server.store.console.recharges import RechargeTimes
from dealer_server.store.orders.note import Note
from dealer_server.store.refunds.refund import Refund
from dealer_server.store.webhooks.log import Attempt, Delivery
from dealer_server.suppliers.builtin import simulated

NO_REASON = "The supplier gave no reason"
BODY_CHARACTERS = 20_000
"""Of a body on the timeline; the page of the delivery shows all of it."""


class History(NamedTuple):
    """All that is stored about an order. `failed_at`: of eSIMs that failed."""

    order: Order
    movements: Sequence[Movement]
    purchases: Sequence[Purchase]
    calls: Sequence[SupplierCall]
    lives: Sequence[ProfileTimes]
    failed_at: Mapping[int, datetime]
    recharges: Sequence[RechargeTimes]
    voids: Sequence[VoidRequest]
    suspensions: Sequence[Suspension]
    refunds: Sequence[Refund]
    deliveries: Sequence[Delivery]
    attempts: Mapping[int, Sequence[Attempt]]
    bodies: Mapping[int, bytes]
    refusals: Mapping[int, Sequence[RefundRefusal]] = {}
    notes: Sequence[Note] = ()

    @property
    def in_review(self) -> set[int]:
        """The eSIMs about whose refund an operator decides."""
        lines = (line for refund in self.refunds for line in refund.lines)
        return {line.profile_id for line in lines if line.way == "REVIEW" and line.status == "PENDING"}

    def purchase(self, profile: Profile) -> Purchase | None:
        """The one that made the eSIM, while none has the latest; None of what is not bought over the network."""
        own = [one for one in self.purchases if one.profile_id == profile.profile_id]
        made = [one for one in own if one.state == "DONE"]
        return next(reversed(made or ([] if profile.made else own)), None)

    def makers(self, item: Item) -> Sequence[str]:
        """Who made its eSIMs, or was asked last; as store.console.orders.maker says it."""
        bought = [one.supplier for profile in item.profiles if (one := self.purchase(profile))]
        return [*dict.fromkeys(bought or [item.supplier])]


def events(history: History) -> list[Event]:
    """The oldest first. What happened again and again is one event."""
    # Events of the same moment keep this order.
    unsorted = (
        *recharge_events(history.recharges, history.order.order_id, bought=bool(history.purchases)),
        *_failures(history),
        *_refunds(history),
        *_money(history),
        *_calls(history),
        *_purchases(history),
        *profile_events(history.order, history.lives),
        *_voids(history.voids),
        *_suspensions(history.suspensions),
        *_deliveries(history),
        *(Event(note.created_at, "pencil", f"Note by {note.author}", "", note.note) for note in history.notes),
    )
    return in_order(unsorted)


def _money(history: History) -> Iterator[Event]:
    currency, automatic = history.order.currency, {refund.refund_id for refund in history.refunds if _automatic(refund)}
    for entry in history.movements:
        amount = money.shown(abs(entry.amount), currency)
        after = [("balance after", money.shown(entry.balance_after, currency))]
        if entry.entry_type == "ORDER_PAY":
            title = f"Order placed, {amount} debited"
            yield Event(entry.created_at, "shopping-cart", title, facts=after, step="PAID")
        else:
            number = identity.refund_no(entry.reference)
            anchor = number if entry.reference in automatic else ""
            yield Event(
                entry.created_at, "cash", f"{amount} credited", facts=[("refund", number), *after], anchor=anchor
            )


def _failures(history: History) -> Iterator[Event]:
    """Of eSIMs without a purchase."""
    bought = {purchase.profile_id for purchase in history.purchases}
    unbought = {profile_id: at for profile_id, at in history.failed_at.items() if profile_id not in bought}
    items = history.order.items
    answers = {item.line: answer_of(item.supplier, item.package_code) or NO_REASON for item in items}
    yield from failure_events(history.order, unbought, answers)


def answer_of(supplier: str, package_code: str) -> str:
    """Why a supplier whose answers are not kept refused."""
    refused = simulated.refusal(package_code) if supplier == simulated.CODE else None
    return f"{refused.code}: {refused.message}" if refused else ""


def _purchases(history: History) -> Iterator[Event]:
    """How purchases ended or why they are parked; their calls are events of their own but for the one that was
    rejected. The last purchase of an eSIM that failed is the failure of its item."""
    rejected = _rejected(history)
    lines = {profile.profile_id: item.line for item in history.order.items for profile in item.profiles}
    last = {purchase.profile_id: purchase.position for purchase in history.purchases}
    for purchase in history.purchases:
        facts = [("unit", purchase.unit_key), ("eSIM", _esim(history, purchase.profile_id))]
        state, reason = purchase.state, purchase.reason or ""
        if purchase.finished_at is not None and state != "DONE":
            symbol, title, detail = "truck-delivery", f"Purchase at {purchase.supplier} ended", ""
            call, why = rejected.get((purchase.profile_id, purchase.position)), refused(reason).words
            if call is not None:
                symbol, state = FAILED, ""
                title = f"{purchase.supplier} failed: {_without_subject(why) or 'no reason'}"
                facts = [facts[1], ("took", _took(call))]
                detail, reason = (reason, "") if why else ("", reason)
            if purchase.profile_id in history.failed_at and last[purchase.profile_id] == purchase.position:
                symbol, state = FAILED, ""
                title = failure_title(history.order, lines[purchase.profile_id], purchase.supplier)
                if call is not None and why:
                    title = f"{title}: {_without_subject(why)}"
            yield Event(purchase.finished_at, symbol, title, state, reason, facts, detail=detail)
        elif state == "PARKED":
            title = f"Outcome at {purchase.supplier} unknown"
            yield Event(purchase.created_at, "alert-triangle", title, state, reason, facts)


_CALL_TITLES = {"ALLOCATE": "was asked for an eSIM", "PROBE": "was asked for the outcome"}
_QUERY_TITLE = "was asked whether it is ready"  # what an order there brought
_RECHARGE_TITLES = _CALL_TITLES | {"ALLOCATE": "was asked for the recharge"}
_WENT_WELL = {("ALLOCATE", "PENDING"): "accepted the order", ("ALLOCATE", "DONE"): "made {it}",
              ("QUERY", "PENDING"): "is still making {it}", ("QUERY", "DONE"): "made {it}"}  # fmt: skip
"""By the call, or its step, and its outcome."""


def _calls(history: History) -> Iterator[Event]:
    recharges = history.order.recharges is not None
    titles, made = (_RECHARGE_TITLES, "the recharge") if recharges else (_CALL_TITLES, "the eSIM")
    told = {*_rejected(history).values()}
    for call in history.calls:
        if call in told:
            continue
        facts = [("eSIM", _esim(history, call.profile_id))]
        if call.answered_at is not None:
            facts.append(("took", _took(call)))
        asked = not (call.outcome or "").startswith("SKIPPED")
        words = _QUERY_TITLE if call.step == "QUERY" else titles.get(call.kind, call.kind)
        title = f"{call.supplier} {words if asked else 'was not asked'}"
        state = (call.outcome or "answered") if call.answered_at else "NO_ANSWER"
        state = state.partition(" ")[0]  # its code stands in the message
        step = "CALL" if state in ("DONE", "PENDING") else ""
        if well := _WENT_WELL.get((call.step or call.kind, state)):
            title, state = f"{call.supplier} {well.format(it=made)}", ""
        yield Event(call.sent_at, "link", title, state, call.message or "", facts, step=step)


def _rejected(history: History) -> Mapping[tuple[int, int], SupplierCall]:
    """The call with which a purchase ended that was rejected: one event tells of both."""
    ended = {(one.profile_id, one.position) for one in history.purchases if one.finished_at and one.state == "REJECTED"}
    last = {(call.profile_id, call.position): call for call in sorted(history.calls, key=lambda call: call.sent_at)}
    return {
        key: call
        for key, call in last.items()
        if key in ended and call.answered_at and (call.outcome or "").startswith("REJECTED")
    }


def _without_subject(why: str) -> str:
    """Of why a supplier refused, after its name."""
    return why.partition(";")[0].removeprefix("the supplier ")


def _took(call: SupplierCall) -> str:
    return "" if call.answered_at is None else duration_text((call.answered_at - call.sent_at).total_seconds())


def _esim(history: History, profile_id: int) -> str:
    """The eSIM that is meant: a recharge has a profileId that nobody else knows."""
    return str(history.order.recharges or profile_id)


def _voids(voids: Sequence[VoidRequest]) -> Iterator[Event]:
    for void in voids:
        title = f"{void.supplier} was asked to cancel eSIM {void.profile_id}"
        yield Event(void.created_at, "ban", title, void.outcome or "PENDING")


def _suspensions(suspensions: Sequence[Suspension]) -> Iterator[Event]:
    for act in suspensions:
        symbol, asked = ("player-pause", "suspend") if act.suspended else ("player-play", "unsuspend")
        title = f"{act.supplier} was asked to {asked} eSIM {act.profile_id}"
        yield Event(act.created_at, symbol, title, act.outcome or "PENDING")


def _refunds(history: History) -> Iterator[Event]:
    for refund in history.refunds:
        if _automatic(refund):
            continue
        number, amount = identity.refund_no(refund.refund_id), money.shown(refund.amount, history.order.currency)
        esims = [_esim(history, line.profile_id) for line in refund.lines]
        facts = [("refund", number), ("eSIMs" if esims[1:] else "eSIM", some_text(esims))]
        state = "" if refund.settled_at else "REVIEW" if refund.waits_for_review else refund.status
        title = f"Refund of {amount} requested by {asked_by(refund.author, 'the dealer')}"
        anchor = "" if refund.waits_for_review else number  # else of the card in which it is decided
        yield Event(refund.created_at, "receipt-refund", title, state, refund.remark or "", facts, anchor=anchor)
        if refund.settled_at is not None and refund.status == "REJECTED":
            why = "; ".join(refusal.reason for refusal in history.refusals.get(refund.refund_id, ()))
            yield Event(refund.settled_at, "receipt-refund", f"Refund {number} rejected", refund.status, why)


def _automatic(refund: Refund) -> bool:
    """Of what failed, credited by itself: its credit says it all."""
    return refund.author == "system" and refund.status == "REFUNDED"


def asked_by(author: str, dealer: str) -> str:
    """Who asked for a refund: its dealer, an operator by name, or the service because the delivery failed."""
    return {"dealer": dealer, "system": "the service"}.get(author, author.removeprefix("console:"))


def _deliveries(history: History) -> Iterator[Event]:
    for delivery in history.deliveries:
        body = history.bodies.get(delivery.delivery_id, b"")
        facts = [("delivery", str(delivery.delivery_id)), ("order version", str(delivery.order_version))]
        if delivery.trigger != "AUTO":
            facts.append(("trigger", words.text(delivery.trigger)))
        yield Event(
            at=delivery.created_at,
            symbol="webhook",
            title=f"Webhook {delivery.event_type}",
            state=delivery.state,
            text=changes_text(delivery.event_type, delivery.hints),
            facts=facts,
            attempts=runs(codes.without_codes(history.attempts.get(delivery.delivery_id, ()), body)),
            delivery_id=delivery.delivery_id,
            body=codes.indented(body, BODY_CHARACTERS),
        )


def duration_text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
