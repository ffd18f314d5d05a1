"""What does an order wait for, what went wrong with it, and what can an operator do about it?"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.console.operator.failures import LineActs
from dealer_server.console.operator.timeline import History
from dealer_server.console.shared.concern import Concern, Link
from dealer_server.console.shared.rendering import many
from dealer_server.rules.incidents.incident import rank
from dealer_server.rules.incidents.refused import ONLY_REFUSED, Refused, refused
from dealer_server.rules.money import money
from dealer_server.rules.orders.model import Item, Profile
from dealer_server.store.console.orders import Purchase
from dealer_server.store.console.suppliers import SupplierRow
from dealer_server.store.suppliers.purchase import Hop

_WAITING = {
    "PLANNED": "Waiting for {supplier}",
    "SENT": "{supplier} was asked and has not answered yet",
    "PENDING": "{supplier} is making {it}",
    "UNKNOWN": "{supplier} did not say whether it made {it}; it is asked again",
    "PARKED": "It is unknown whether {supplier} made {it}, and asking again did not help",
    "REJECTED": "{supplier} refused {it}",
    "DROPPED": "The purchase at {supplier} was given up",
}
_SURE = ("PLANNED", "REJECTED", "DROPPED", "")
"""States in which nothing may have been bought: another supplier can be asked."""


class ResendActs(NamedTuple):
    """A webhook that can be sent again."""

    tenant_id: int
    delivery_id: int


Acts = LineActs | ResendActs


def concerns(
    history: History, suppliers: Mapping[str, SupplierRow], routes: Mapping[str, Sequence[Hop]]
) -> list[Concern[Acts]]:
    """Faults first; what failed for good stands above them (failures.py). `suppliers`: those that are called, by code.
    `routes`: of the packages of the order."""
    latest = {purchase.profile_id: purchase for purchase in history.purchases}
    found = [
        *[concern for item in history.order.items for concern in _of_line(item, latest, suppliers, routes)],
        *_of_refunds(history),
        *_of_deliveries(history),
    ]
    return sorted(found, key=lambda concern: rank(concern.level))


class _Cause(NamedTuple):
    """Profiles of a line with the same cause are one concern."""

    supplier: str
    state: str
    reason: str


def _of_line(
    item: Item,
    latest: Mapping[int, Purchase],
    suppliers: Mapping[str, SupplierRow],
    routes: Mapping[str, Sequence[Hop]],
) -> Iterator[Concern[Acts]]:
    by_cause: dict[_Cause, list[Profile]] = defaultdict(list)
    for profile in item.profiles:
        if not (profile.made or profile.failed or profile.refunded or profile.cancelled or profile.held):
            purchase = latest.get(profile.profile_id)
            if purchase is None:
                cause = _Cause(item.supplier, "", "")
            else:
                cause = _Cause(purchase.supplier, purchase.state, purchase.reason or "")
            by_cause[cause].append(profile)
    for cause, profiles in by_cause.items():
        due = [at for profile in profiles if profile.profile_id in latest and (at := latest[profile.profile_id].due_at)]
        yield _concern(item, cause, profiles, min(due, default=None), suppliers.get(cause.supplier), routes)


def _concern(
    item: Item,
    cause: _Cause,
    profiles: Sequence[Profile],
    next_at: datetime | None,
    supplier: SupplierRow | None,
    routes: Mapping[str, Sequence[Hop]],
) -> Concern[Acts]:
    recharge = profiles[0].recharges is not None
    it = "the recharge" if recharge else "the eSIM" if len(profiles) == 1 else "the eSIMs"
    ailing, since = _ailing(supplier)
    text = _WAITING.get(cause.state, "Waiting for {supplier}").format(supplier=cause.supplier, it=it)
    answer = refused(cause.reason if cause.state in _WAITING else "")
    why = answer.words or answer.raw
    if why and (cause.state != "REJECTED" or why != ONLY_REFUSED):
        text += f": {why}"
    what = (
        "the recharge" if recharge else f"{len(profiles)} of {item.quantity} eSIMs" if item.quantity > 1 else "1 eSIM"
    )
    parked = cause.state == "PARKED"
    others = [hop.supplier for hop in routes.get(item.package_code, ()) if hop.supplier != cause.supplier]
    movable = not recharge and cause.state in _SURE
    paused = supplier is not None and supplier.status == "PAUSED"
    link = Link("Settle", "/console/suppliers#unknown") if parked else None
    if paused and not parked:
        link = Link("View supplier", f"/console/suppliers/{cause.supplier}")
    return Concern(
        level="fault" if parked or ailing else "waiting",
        text=text,
        about=f"Item {item.line + 1}, {item.package_code}: {what}{_first(answer)}",
        ailing=ailing,
        since=since,
        next_at=None if parked else next_at,
        acts=LineActs(item.line + 1, cause.state in _SURE and not paused, others if movable else ()),
        link=link,
    )


def _first(answer: Refused) -> str:
    """What to do first about a refusal, and what the supplier said."""
    return f". {answer.first} Supplier's response: {answer.raw}" if answer.words else ""


def _ailing(supplier: SupplierRow | None) -> tuple[str, datetime | None]:
    """What is wrong with a supplier, and since when."""
    if supplier is None:
        return "", None
    if supplier.status == "PAUSED":
        reason = f" ({supplier.paused_reason})" if supplier.paused_reason else ""
        return f"paused{reason}", supplier.updated_at
    return ("down", supplier.since) if supplier.up is False else ("", None)


def _of_refunds(history: History) -> Iterator[Concern[Acts]]:
    """Those that an operator decides have a card of their own (decisions.py)."""
    for refund in history.refunds:
        if refund.status == "REFUNDING" and not refund.waits_for_review:
            amount = money.shown(refund.amount, history.order.currency)
            what = "the recharge" if history.order.recharges is not None else "the eSIM"
            yield Concern("waiting", f"A refund of {amount} waits for the supplier to cancel {what}")


def _of_deliveries(history: History) -> Iterator[Concern[Acts]]:
    """The webhooks that the dealer's receiver has refused so far, or for good."""
    for delivery in history.deliveries:
        if delivery.state not in ("RETRY", "FAILED"):
            continue
        failed = many(delivery.attempt_count, "attempt")
        link = Link("View attempts", f"/console/deliveries/{delivery.tenant_id}/{delivery.delivery_id}")
        again = ResendActs(delivery.tenant_id, delivery.delivery_id)
        if delivery.state == "RETRY":
            text = f"The dealer's endpoint has not accepted {delivery.event_type}: {failed} failed"
            yield Concern("degraded", text, next_at=delivery.next_attempt_at, link=link, acts=again)
        else:
            text = f"The dealer's endpoint did not accept {delivery.event_type}: {failed} failed, no more follow"
            yield Concern("fault", text, link=link, acts=again)


def settled_text(history: History) -> str:
    """What there is to say of an order without a concern, beside its state."""
    order = history.order
    made = [profile for profile in order.profiles if profile.made and not profile.refunded]
    if order.order_status == "REFUNDED":
        return ""
    if not made:
        return "Refunded or cancelled"
    what = ""
    if len(made) < len(order.profiles):
        what = f"{len(order.profiles) - len(made)} of {many(len(order.profiles), 'eSIM')} refunded or cancelled. "
    return f"{what}{_told(history)}"


def _told(history: History) -> str:
    states = {delivery.state for delivery in history.deliveries}
    if not states & {"WAITING", "READY", "IN_FLIGHT"}:
        return "No callback URL" if states == {"SKIPPED"} else "Webhooks up to date"
    return "Webhooks being sent"
