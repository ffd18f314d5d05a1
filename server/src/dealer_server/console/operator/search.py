"""One box for whatever an operator has in hand: it goes straight to the one thing that is meant."""

from dealer_server.console.operator import permissions
from dealer_server.console.operator.permissions import LOOK
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Answer, Redirect, RequestContext, Route
from dealer_server.rules.orders import identity
from dealer_server.store.console import search as console_search

LONGEST = 200


async def search(context: RequestContext) -> Answer:
    """An orderNo, a transactionId, an ICCID, a profileId, a refundNo or topupNo, a dealer's name or AppKey, and the
    RT-RequestID or X-Trace-Id of a call that was refused."""
    text = (params.text(context.query, "q") or "")[:LONGEST]
    if not text:
        return permissions.page(context, "search", text="", orders=(), profiles=(), dealers=(), calls=())
    if (queue := _queue(text)) is not None:
        return Redirect(queue)
    async with context.parts.database.connection() as connection:
        orders = await console_search.orders(connection, identity.order_id(text), text)
        profiles = await console_search.profiles(connection, identity.profile_id(text), text)
        dealers = await console_search.dealers(connection, text)
        calls = await console_search.refused_calls(connection, text) if permissions.permissions(context).codes else []
    targets = {
        *(f"/console/orders/{identity.order_no(one.order_id)}" for one in orders),
        *(f"/console/profiles/{one.profile_id}" for one in profiles),
        *(f"/console/dealers/{one.tenant_id}" for one in dealers),
        *(f"/console/dealers/{one.tenant_id}/api-log/{one.number}" for one in calls),
    }
    if len(targets) == 1:
        return Redirect(targets.pop())
    return permissions.page(
        context, "search", text=text, orders=orders, profiles=profiles, dealers=dealers, calls=calls
    )


def _queue(text: str) -> str | None:
    """The list that a refundNo or a topupNo stands in."""
    if (refund_id := identity.refund_id(text)) is not None:
        return params.address("/console/refunds", {"status": "ALL", "before": refund_id + 1})
    if (topup_id := identity.topup_id(text)) is not None:
        return params.address("/console/topups", {"status": "ALL", "before": topup_id + 1})
    return None


ROUTES: tuple[Route, ...] = (Route("GET", "/console/search", LOOK, search),)
