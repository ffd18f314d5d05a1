"""A refund that a dealer or an operator asks for on the page of an order, or of an eSIM."""

from collections import Counter

from dealer_server.audit_context import Actor
from dealer_server.console.shared import params
from dealer_server.console.shared.calls import call
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Redirect, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.refunds.refund import REASON_TEXTS
from dealer_server.rules.refusal import NothingRefundable
from esim_dealer.wire import calls


async def refund_by_form(context: RequestContext, tenant_id: int, order_no: str) -> Redirect:
    """Refunds what can be refunded of the order, of the item or of the one profile that the form names, as /esim/refund
    does; the form's reason is its remark. Raises Refusal, OperatorError."""
    item_no, profile_id = params.text(context.form, "item_no"), params.text(context.form, "profile_id")
    items: list[dict[str, object]] | None = None if item_no is None else [{"itemNo": item_no}]
    if items and profile_id:
        items[0]["profiles"] = [{"profileId": profile_id}]
    reason = params.text(context.form, "reason")
    request = call(calls.RefundOrder, {"remark": "reason"}, orderNo=order_no, items=items, remark=reason)
    try:
        result = await context.parts.refunds.refund(tenant_id, request, Actor.current(context.author, reason))
    except NothingRefundable as why:
        raise OperatorError(f"Nothing was refunded. {_why_not(why)}.") from None
    amount = f"{result.refund_amount} {result.currency}"
    flash = f"{amount} is refunded" if result.status == "REFUNDED" else f"{amount} is being refunded"
    return Redirect(f"/console/orders/{order_no}", flash)


def _why_not(why: NothingRefundable) -> str:
    """1 eSIM: it was downloaded; 2 eSIMs: …"""
    counts = Counter(profile["reason"] for profile in why.data["profiles"])
    return "; ".join(f"{many(count, 'eSIM')}: {REASON_TEXTS[reason]}" for reason, count in counts.items())
