"""The one order or profile of a dealer that a search text names."""

from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Redirect, RequestContext
from dealer_server.rules.orders import identity
from dealer_server.store.console import dealer


async def sought(context: RequestContext) -> Redirect | None:
    """Where the text in a list's search field leads: to the match, or to the search. None where nothing is typed."""
    if (text := params.text(context.query, "q")) is None:
        return None
    async with context.parts.database.connection() as connection:
        order_id, profile_id = await dealer.locate(connection, context.tenant_id, text)
    if profile_id is not None:
        return Redirect(f"/console/profiles/{profile_id}")
    if order_id is not None:
        return Redirect(f"/console/orders/{identity.order_no(order_id)}")
    return Redirect(params.address("/console/search", {"q": text}))
