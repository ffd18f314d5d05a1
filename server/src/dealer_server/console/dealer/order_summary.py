"""What does an order wait for, and what went wrong with it, for its dealer? Suppliers are not named."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from dealer_server.console.dealer.timeline import History, refusal_text
from dealer_server.console.shared.concern import Concern, Link
from dealer_server.console.shared.rendering import many
from dealer_server.rules.incidents.delay import delay_text
from dealer_server.rules.incidents.incident import Level, rank
from dealer_server.rules.incidents.refused import refused_text
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.store.console.orders import Purchase
from dealer_server.store.console.suppliers import SupplierRow
from dealer_server.store.webhooks.log import Delivery

USUAL = timedelta(minutes=10)
"""An order that takes longer is said to."""


def concerns(
    history: History, suppliers: Mapping[str, SupplierRow], now: datetime, *, developer: bool
) -> list[Concern[None]]:
    """Faults first. `suppliers`: those that are called, by code. `developer`: the user may open pages of webhooks."""
    found = [
        *_of_esims(history, suppliers, now),
        *_of_refunds(history),
        *_of_deliveries(history.deliveries, developer),
    ]
    return sorted(found, key=lambda concern: rank(concern.level))


def _of_esims(history: History, suppliers: Mapping[str, SupplierRow], now: datetime) -> Iterator[Concern[None]]:
    order = history.order
    unmade = [one for one in order.profiles if not (one.made or one.refunded or one.cancelled or one.held)]
    latest = _latest(history)
    if failed := [profile.profile_id for profile in unmade if profile.failed]:
        yield Concern("fault", f"{_what(order, len(failed))} could not be delivered{_why_failed(failed, latest)}")
    if waiting := [profile.profile_id for profile in unmade if not profile.failed]:
        reasons = [_delay(latest[one], suppliers.get(latest[one].supplier)) for one in waiting if one in latest]
        why = "; ".join(dict.fromkeys(filter(None, reasons)))
        due = [at for one in waiting if one in latest and (at := latest[one].due_at) and at > now]
        late = now - identity.created_at(order.order_id) > USUAL
        text = f"{_what(order, len(waiting))} {'is' if len(waiting) == 1 else 'are'} on the way"
        about = "This takes longer than usual. The operator is aware; eSIMs that cannot be delivered are refunded."
        next_at = min(due, default=None) if why else None
        level: Level = "degraded" if late else "waiting"
        yield Concern(level, f"{text}: {why}" if why else text, about if late else "", next_at=next_at)


def _latest(history: History) -> dict[int, Purchase]:
    """The latest purchase of each eSIM that has one."""
    return {purchase.profile_id: purchase for purchase in history.purchases}


def _why_failed(profile_ids: Sequence[int], latest: Mapping[int, Purchase]) -> str:
    codes = dict.fromkeys((latest[one].reason or "").partition(":")[0] for one in profile_ids if one in latest)
    why = "; ".join(text for code in codes if (text := refused_text(code)))
    return f": {why}" if why else ""


def out_of_stock(history: History) -> bool:
    """Whether an eSIM of it failed because there was none."""
    latest = _latest(history)
    failed = (latest[one.profile_id] for one in history.order.profiles if one.failed and one.profile_id in latest)
    return any((purchase.reason or "").startswith("OUT_OF_STOCK") for purchase in failed)


def _delay(purchase: Purchase, supplier: SupplierRow | None) -> str:
    ailing = "" if supplier is None else "paused" if supplier.status == "PAUSED" else "down" * (supplier.up is False)
    return delay_text(purchase.state, purchase.reason or "", ailing)


def _what(order: Order, count: int) -> str:
    if order.recharges is not None:
        return "The recharge"
    return f"{count} of {len(order.profiles)} eSIMs" if len(order.profiles) > 1 else "The eSIM"


def _of_refunds(history: History) -> Iterator[Concern[None]]:
    for refund in history.refunds:
        amount = money.shown(refund.amount, history.order.currency)
        if refund.status == "REFUNDING":
            if refund.review:
                yield Concern("waiting", f"A refund of {amount} is in review: the operator decides")
            else:
                esims = "the eSIM" if refund.profiles == 1 else "the eSIMs"
                what = esims if history.order.recharges is None else "the recharge"
                yield Concern("waiting", f"A refund of {amount} waits for the supplier to cancel {what}")
        elif refund.status == "REJECTED":
            why = refusal_text(history.refusals.get(refund.refund_id, ()))
            yield Concern("degraded", f"A refund of {amount} was rejected{': ' if why else ''}{why}")


def _of_deliveries(deliveries: Sequence[Delivery], developer: bool) -> Iterator[Concern[None]]:
    """The webhooks that the dealer's own receiver has refused so far, or for good."""
    for delivery in deliveries:
        failed = many(delivery.attempt_count, "attempt")
        link = Link("View attempts", f"/console/webhooks/{delivery.delivery_id}") if developer else None
        if delivery.state == "RETRY":
            text = f"Your endpoint has not accepted {delivery.event_type}: {failed} failed"
            yield Concern("degraded", text, next_at=delivery.next_attempt_at, link=link)
        elif delivery.state == "FAILED":
            text = f"Your endpoint did not accept {delivery.event_type}: {failed} failed, no more follow"
            yield Concern("fault", text, link=link)


def settled_text(history: History) -> str:
    """What there is to say of an order without a concern, beside its state."""
    order = history.order
    ready = sum(profile.made and not (profile.refunded or profile.cancelled) for profile in order.profiles)
    failed = [profile.profile_id for profile in order.profiles if profile.failed]
    if len(failed) == len(order.profiles):
        why = _why_failed(failed, _latest(history)).removeprefix(": ")
        why = why or "the supplier could not deliver it"
        returned = f"{money.shown(order.refund_amount, order.currency)} returned to your wallet"
        return f"{why[:1].upper()}{why[1:]}. {returned if order.refund_amount else 'The refund is under way'}."
    if not ready:
        return "" if order.order_status == "REFUNDED" else "Refunded or cancelled"
    if order.recharges is not None:
        return "The recharge is applied."
    gone = len(order.profiles) - ready
    return f"{many(ready, 'eSIM')}, {gone} refunded or cancelled" if gone else ""
