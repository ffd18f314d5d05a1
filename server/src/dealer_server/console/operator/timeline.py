"""What happened to an order, told in one line of time."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from dealer_server.console.operator import codes
from dealer_server.console.shared.rendering import grouped
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.store.console.orders import Bought, Called, Lived, Movement, VoidAsked
from dealer_server.store.refunds.refund import Refund
from dealer_server.store.webhooks.log import Attempt, Delivery

BODY_SHOWN = 20_000
"""Characters: of an order of hundreds of profiles, the page of the delivery has the rest."""


class Event(NamedTuple):
    """One thing that happened. `facts`: names and values. `delivery_id`: its page; `body`: what was sent, indented."""

    at: datetime
    symbol: str
    title: str
    state: str = ""
    text: str = ""
    facts: Sequence[tuple[str, str]] = ()
    attempts: Sequence[Attempt] = ()
    delivery_id: int | None = None
    body: str = ""


class Known(NamedTuple):
    """All that is stored about an order."""

    order: Order
    movements: Sequence[Movement]
    purchases: Sequence[Bought]
    calls: Sequence[Called]
    lives: Sequence[Lived]
    voids: Sequence[VoidAsked]
    refunds: Sequence[Refund]
    deliveries: Sequence[Delivery]
    attempts: Mapping[int, Sequence[Attempt]]
    bodies: Mapping[int, bytes]


def tell(known: Known) -> list[Event]:
    """The first first."""
    # What happened at the same moment stands in this order.
    told = (*_refunds(known), *_money(known), *_calls(known), *_purchases(known), *_lives(known.lives),
            *_voids(known.voids), *_deliveries(known))  # fmt: skip
    return sorted(told, key=lambda event: event.at)


def _money(known: Known) -> Iterator[Event]:
    currency = known.order.currency
    for one in known.movements:
        amount = _written(abs(one.amount), currency)
        after = [("balance after", _written(one.balance_after, currency))]
        if one.entry_type == "ORDER_PAY":
            facts = [("transactionId", known.order.transaction_id), *after]
            yield Event(one.created_at, "shopping-cart", f"Order placed, {amount} debited", "PAID", "", facts)
        else:
            facts = [("refund", identity.refund_no(one.reference)), *after]
            yield Event(one.created_at, "cash", f"{amount} credited", "REFUND", "", facts)


def _written(amount: int, currency: str) -> str:
    return f"{grouped(money.text(amount, currency))} {currency}"


def _purchases(known: Known) -> Iterator[Event]:
    """How each purchase that has ended did: its calls stand by themselves."""
    for one in known.purchases:
        if one.finished_at is not None and one.state != "DONE":
            facts = [("unit", one.unit_key), ("profile", str(one.profile_id))]
            yield Event(
                one.finished_at,
                "truck-delivery",
                f"Purchase at {one.supplier} ended",
                one.state,
                one.reason or "",
                facts,
            )
        elif one.state == "PARKED":
            facts = [("unit", one.unit_key), ("profile", str(one.profile_id))]
            yield Event(one.created_at, "alert-triangle", f"Nobody knows what {one.supplier} did", one.state,
                        one.reason or "", facts)  # fmt: skip


_ASKED = {"ALLOCATE": "was asked for a profile", "PROBE": "was asked what became of it"}


def _calls(known: Known) -> Iterator[Event]:
    for one in known.calls:
        facts = [("profile", str(one.profile_id)), ("call", f"{one.position}.{one.number} {one.step}".strip())]
        if one.answered_at is not None:
            facts.append(("took", spoken((one.answered_at - one.sent_at).total_seconds())))
        title = f"{one.supplier} {_ASKED.get(one.kind, one.kind)}"
        state = (one.outcome or "answered") if one.answered_at else "NO_ANSWER"
        yield Event(one.sent_at, "link", title, state, one.message or "", facts)


def _lives(lives: Sequence[Lived]) -> Iterator[Event]:
    """What profiles went through; many within a second are one event."""
    told = sorted(
        (at.replace(microsecond=0), symbol, title, at, one.profile_id)
        for one in lives
        for at, symbol, title in (
            (one.delivered_at, "qrcode", f"delivered by {one.supplier}"),
            (one.smdp_at, "download", f"SM-DP+ says {one.smdp_status or 'nothing'}"),
            (one.esim_at, "device-mobile", f"eSIM is {one.esim_status or 'unknown'}"),
            (one.started_at, "player-play", "plan started"),
            (one.ended_at, "flag", "plan ended"),
        )
        if at is not None
    )
    for (_, symbol, title), group in groupby(told, key=lambda one: one[:3]):
        together = list(group)
        ids = [str(one[4]) for one in together]
        who = f"Profile {ids[0]}" if len(ids) == 1 else f"{len(ids)} profiles"
        yield Event(together[0][3], symbol, f"{who}: {title}", facts=[("profiles", _some(ids))] if ids[1:] else ())


def _voids(voids: Sequence[VoidAsked]) -> Iterator[Event]:
    for one in voids:
        yield Event(one.created_at, "ban", f"{one.supplier} was asked to void profile {one.profile_id}",
                    one.outcome or "PENDING")  # fmt: skip


def _refunds(known: Known) -> Iterator[Event]:
    currency = known.order.currency
    for one in known.refunds:
        number, asked = identity.refund_no(one.refund_id), _written(one.amount, currency)
        waiting = sum(line.way == "REVIEW" and line.status == "PENDING" for line in one.lines)
        facts = [("refund", number), ("profiles", _some([str(line.profile_id) for line in one.lines]))]
        text = f"{waiting} of {len(one.lines)} profiles wait for an operator" if waiting else ""
        state = one.status if one.settled_at is None else ""
        yield Event(one.created_at, "receipt-refund", f"Refund of {asked} asked for", state, text, facts)
        if one.settled_at is not None and one.status == "REJECTED":
            yield Event(one.settled_at, "receipt-refund", f"Refund {number} came to nothing", one.status)


def _deliveries(known: Known) -> Iterator[Event]:
    for one in known.deliveries:
        body = known.bodies.get(one.delivery_id, b"")
        facts = [("delivery", str(one.delivery_id)), ("order version", str(one.order_version))]
        if one.trigger != "AUTO":
            facts.append(("trigger", one.trigger))
        yield Event(
            *(one.created_at, "webhook", f"Webhook {one.event_type}", one.state, ", ".join(one.hints or ()), facts),
            *(codes.answered(known.attempts.get(one.delivery_id, ()), body), one.delivery_id),
            codes.indented(body, BODY_SHOWN),
        )


def _some(ids: Sequence[str], most: int = 5) -> str:
    return ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else "")


def spoken(seconds: float) -> str:
    """So long, as people say it."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
