"""A refund that a dealer or an operator asks for on the page of an order."""

from collections.abc import Mapping, Sequence

from dealer_server.audit_context import Actor
from dealer_server.console.shared import params
from dealer_server.console.shared.calls import call
from dealer_server.console.shared.request_context import Redirect, RequestContext
from esim_dealer.wire import calls


async def refund_by_form(
    context: RequestContext, tenant_id: int, order_no: str, items: Sequence[Mapping[str, object]] | None = None
) -> Redirect:
    """Refunds what can be refunded, as /esim/refund does; the form's reason is its remark. `items`: None for the whole
    order. Raises Refusal."""
    reason = params.text(context.form, "reason")
    request = call(calls.RefundOrder, orderNo=order_no, items=items, remark=reason)
    result = await context.parts.refunds.refund(tenant_id, request, Actor.current(context.author, reason))
    amount = f"{result.refund_amount} {result.currency}"
    flash = f"{amount} is refunded" if result.status == "REFUNDED" else f"The refund of {amount} is in progress"
    return Redirect(f"/console/orders/{order_no}", flash)
