"""The search box of operators. A text that names one thing leads straight to its page."""

from dealer_server.console.shared import params
from dealer_server.console.shared.page import page
from dealer_server.console.shared.permissions import OPERATORS, permissions
from dealer_server.console.shared.request_context import Answer, Html, Redirect, RequestContext
from dealer_server.rules.orders import identity
from dealer_server.store.console import search as console_search

MAX_LENGTH = 200


@page("/console/search", OPERATORS, "operator/search.html")
async def search(context: RequestContext) -> Answer:
    """An orderNo, a transactionId, an ICCID, a profileId, a refundNo or topupNo, a dealer's name or AppKey, and the
    RT-RequestID or X-Trace-Id of a call that was refused."""
    text = (params.text(context.query, "q") or "")[:MAX_LENGTH]
    if not text:
        return Html(text="", orders=(), profiles=(), dealers=(), calls=())
    if (queue := _queue(text)) is not None:
        return Redirect(queue)
    may_see_calls = permissions(context.user).codes
    async with context.parts.database.connection() as connection:
        orders = await console_search.orders(connection, identity.order_id(text), text)
        profiles = await console_search.profiles(connection, identity.profile_id(text), text)
        dealers = await console_search.dealers(connection, text)
        calls = await console_search.refused_calls(connection, text) if may_see_calls else []
    targets = {
        *(f"/console/orders/{identity.order_no(order.order_id)}" for order in orders),
        *(f"/console/profiles/{profile.profile_id}" for profile in profiles),
        *(f"/console/dealers/{dealer.tenant_id}" for dealer in dealers),
        *(f"/console/dealers/{call.tenant_id}/api-log/{call.number}" for call in calls),
    }
    if len(targets) == 1:
        return Redirect(targets.pop())
    return Html(text=text, orders=orders, profiles=profiles, dealers=dealers, calls=calls)


def _queue(text: str) -> str | None:
    """The list that holds a refundNo or a topupNo."""
    if (refund_id := identity.refund_id(text)) is not None:
        return params.address("/console/refunds", {"status": "ALL", "before": refund_id + 1})
    if (topup_id := identity.topup_id(text)) is not None:
        return params.address("/console/topups", {"status": "ALL", "before": topup_id + 1})
    return None
