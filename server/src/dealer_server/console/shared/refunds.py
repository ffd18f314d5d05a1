"""A refund that a dealer or an operator asks for on the page of an order, or of an eSIM."""

from dealer_server.audit_context import Actor
from dealer_server.console.shared import params
from dealer_server.console.shared.calls import call
from dealer_server.console.shared.request_context import Redirect, RequestContext
from esim_dealer.wire import calls


async def refund_by_form(context: RequestContext, tenant_id: int, order_no: str) -> Redirect:
    """Refunds what can be refunded of the order, of the item or of the one profile that the form names, as /esim/refund
    does; the form's reason is its remark. Raises Refusal."""
    item_no, profile_id = params.text(context.form, "item_no"), params.text(context.form, "profile_id")
    items: list[dict[str, object]] | None = None if item_no is None else [{"itemNo": item_no}]
    if items and profile_id:
        items[0]["profiles"] = [{"profileId": profile_id}]
    reason = params.text(context.form, "reason")
    request = call(calls.RefundOrder, orderNo=order_no, items=items, remark=reason)
    result = await context.parts.refunds.refund(tenant_id, request, Actor.current(context.author, reason))
    amount = f"{result.refund_amount} {result.currency}"
    flash = f"{amount} is refunded" if result.status == "REFUNDED" else f"The refund of {amount} is in progress"
    return Redirect(f"/console/orders/{order_no}", flash)
