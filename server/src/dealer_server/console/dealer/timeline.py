"""Everything that happened to a dealer's order, or to one of its eSIMs, as one timeline. Suppliers are not named."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

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
)
from dealer_server.db.connection import Connection
from dealer_server.rules.incidents.refused import refused_text
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.store.console import dealer as console_dealer
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import recharges as console_recharges
from dealer_server.store.console.dealer import RefundRow
from dealer_server.store.console.orders import Movement, ProfileTimes, Purchase, SupplierCall
from dealer_server.store.console.recharges import RechargeTimes
from dealer_server.store.notices import buyer_mails
from dealer_server.store.notices.buyer_mails import BuyerMail
from dealer_server.store.webhooks import log
from dealer_server.store.webhooks.log import Attempt, Delivery

EVENTS = 200
DELIVERIES, REFUNDS = 50, 20


class History(NamedTuple):
    """What is stored about an order, or about one eSIM of it, and may be told to its dealer. `failed_at`: of eSIMs that
    failed."""

    order: Order
    movements: Sequence[Movement]
    purchases: Sequence[Purchase]
    calls: Sequence[SupplierCall]
    lives: Sequence[ProfileTimes]
    failed_at: Mapping[int, datetime]
    recharges: Sequence[RechargeTimes]
    refunds: Sequence[RefundRow]
    refusals: Mapping[int, Sequence[tuple[str, str]]]
    deliveries: Sequence[Delivery]
    attempts: Mapping[int, Sequence[Attempt]]
    mails: Sequence[BuyerMail]


async def load(connection: Connection, order: Order) -> History:
    tenant_id, order_id = order.tenant_id, order.order_id
    span = range(order.items[0].first_profile_id, order.items[-1].first_profile_id + order.items[-1].quantity)
    deliveries = await console_dealer.deliveries_of(connection, tenant_id, order_id, DELIVERIES)
    return (await _of_esims(connection, order, span))._replace(
        movements=await console_orders.movements(connection, tenant_id, order_id),
        refunds=await console_dealer.refunds(connection, tenant_id, order_id, REFUNDS),
        deliveries=deliveries,
        mails=await buyer_mails.of_order(connection, tenant_id, order_id, EVENTS),
        attempts=await log.attempts(connection, tenant_id, [delivery.delivery_id for delivery in deliveries]),
    )


async def load_esim(connection: Connection, order: Order, profile_id: int) -> History:
    """Without what is of the order as a whole, payments and webhooks."""
    return (await _of_esims(connection, order, range(profile_id, profile_id + 1)))._replace(
        refunds=await console_dealer.refunds(connection, order.tenant_id, order.order_id, REFUNDS, profile_id),
        mails=await buyer_mails.of_profile(connection, order.tenant_id, profile_id, EVENTS),
    )


async def _of_esims(connection: Connection, order: Order, span: range) -> History:
    """What happened to these eSIMs of the order, without refunds."""
    tenant_id = order.tenant_id
    return History(
        order=order,
        movements=(),
        purchases=await console_orders.purchases(connection, tenant_id, span, EVENTS),
        calls=await console_orders.calls(connection, tenant_id, span, EVENTS),
        lives=await console_orders.lives(connection, order, span, EVENTS),
        failed_at=await console_orders.failed_at(connection, order, span),
        recharges=await console_recharges.of_profiles(connection, tenant_id, span, EVENTS),
        refunds=(),
        refusals=await _refusals(connection, order),
        deliveries=(),
        attempts={},
        mails=(),
    )


async def _refusals(connection: Connection, order: Order) -> Mapping[int, Sequence[tuple[str, str]]]:
    found = await console_orders.refusals(connection, order.tenant_id, order.order_id)
    return {refund_id: [(one.way, one.reason) for one in refusals] for refund_id, refusals in found.items()}


def events(history: History, *, kept: bool = False) -> list[Event]:
    """The oldest first. What happened again and again is one event. `kept`: mails are kept here, not sent."""
    return in_order(
        (
            *recharge_events(history.recharges, history.order.order_id, bought=bool(history.purchases)),
            *_failures(history),
            *_refunds(history),
            *_money(history),
            *_calls(history),
            *profile_events(history.order, history.lives, _tries(history), suppliers=False),
            *_deliveries(history),
            *_mails(history, kept=kept),
        ),
    )


def _mails(history: History, *, kept: bool) -> Iterator[Event]:
    for mail in history.mails:
        to, state = f" to {mail.mail}" if mail.mail else "", "" if mail.state in ("DELIVERED", "READY") else mail.state
        text = f"Install page {'to be ' if mail.state == 'READY' else ''}mailed{to}"
        if kept and mail.state == "DELIVERED":
            text = f"Mail{to} not sent (test)"
        yield Event(mail.created_at, "mail", text, state)


def _money(history: History) -> Iterator[Event]:
    currency = history.order.currency
    for entry in history.movements:
        amount = money.shown(abs(entry.amount), currency)
        facts = [("balance after", money.shown(entry.balance_after, currency))]
        if entry.entry_type == "ORDER_PAY":
            yield Event(entry.created_at, "shopping-cart", f"Order placed, {amount} debited", facts=facts, step="PAID")
        else:
            facts = [("refund", identity.refund_no(entry.reference)), *facts]
            yield Event(entry.created_at, "cash", f"{amount} credited", facts=facts)


def _calls(history: History) -> Iterator[Event]:
    """Those that did not end with an eSIM: why it takes so long."""
    what = "the eSIM" if history.order.recharges is None else "the recharge"
    delivered, tried = {life.profile_id for life in history.lives if life.delivered_at}, set[int]()
    for call in history.calls:
        state, _, code = (call.outcome or "").partition(" ")
        if call.answered_at is None or state in ("UNKNOWN", "PARKED"):
            yield Event(
                call.sent_at, "clock", f"The supplier has not confirmed {what}", text="The supplier is asked again."
            )
        elif state == "PENDING" and call.profile_id not in delivered:
            yield Event(call.sent_at, "clock", f"The supplier is making {what}", step="CALL")
        elif (why := refused_text(code)) and call.profile_id not in history.failed_at:  # else its failure says so
            title = f"Tried again: {why}" if call.profile_id in tried else f"First try: {why}, trying again"
            tried.add(call.profile_id)
            yield Event(call.sent_at, "clock", title)


def _tries(history: History) -> dict[int, int]:
    """At which try each eSIM was delivered, of those that were refused before."""
    refused = Counter(call.profile_id for call in history.calls if refused_text((call.outcome or "").partition(" ")[2]))
    return {profile_id: count + 1 for profile_id, count in refused.items()}


def _failures(history: History) -> Iterator[Event]:
    lines = {profile.profile_id: item.line for item in history.order.items for profile in item.profiles}
    last = {purchase.profile_id: purchase for purchase in history.purchases}
    unbought = {profile_id: at for profile_id, at in history.failed_at.items() if profile_id not in last}
    yield from failure_events(history.order, unbought, suppliers=False)
    for purchase in last.values():
        if purchase.profile_id in history.failed_at and purchase.finished_at is not None:
            code = (purchase.reason or "").partition(":")[0]
            title = failure_title(history.order, lines[purchase.profile_id], "")
            why = refused_text(code)
            facts = [("code", code)] if why else ()
            yield Event(purchase.finished_at, FAILED, title, text=f"{why[:1].upper()}{why[1:]}", facts=facts)


def refusal_text(refusals: Iterable[tuple[str, str]]) -> str:
    """Why a refund was rejected: the words of the operator; a supplier's own are not told. `refusals`: who, and why."""
    reasons = [reason if way == "REVIEW" else "the supplier does not take the eSIM back" for way, reason in refusals]
    return "; ".join(dict.fromkeys(reasons))


def _refunds(history: History) -> Iterator[Event]:
    for refund in history.refunds:
        number, amount = identity.refund_no(refund.refund_id), money.shown(refund.amount, history.order.currency)
        if refund.automatic and refund.status == "REFUNDED":  # its credit says it all
            continue
        facts = [("refund", number)]
        if len(history.order.profiles) > 1:
            facts.append(("eSIMs", str(refund.profiles)))
        title = f"Refund of {amount} requested"
        yield Event(refund.created_at, "receipt-refund", title, text=refund.remark or "", facts=facts, anchor=number)
        if refund.settled_at is not None and refund.status == "REJECTED":
            why = refusal_text(history.refusals.get(refund.refund_id, ()))
            yield Event(refund.settled_at, "receipt-refund", f"Refund {number} rejected", "REJECTED", why)


def _deliveries(history: History) -> Iterator[Event]:
    for delivery in history.deliveries:
        attempts = history.attempts.get(delivery.delivery_id, ())
        yield Event(
            at=delivery.created_at,
            symbol="webhook",
            title=f"Webhook {delivery.event_type}",
            state=delivery.state,
            text=changes_text(delivery.event_type, delivery.hints),
            facts=[] if attempts else [("attempts", str(delivery.attempt_count))],
            attempts=runs([attempt._replace(answer_head=None) for attempt in attempts]),
            delivery_id=delivery.delivery_id,
        )
