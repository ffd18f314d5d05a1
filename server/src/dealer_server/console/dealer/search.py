"""The one order or profile of a dealer that a search text names."""

from dealer_server.console.shared.request_context import Redirect, RequestContext
from dealer_server.rules.orders import identity
from dealer_server.store.console import dealer


async def redirect_to_match(context: RequestContext, text: str) -> Redirect | None:
    """None where there is none."""
    async with context.parts.database.connection() as connection:
        order_id, profile_id = await dealer.locate(connection, context.tenant_id, text)
    if profile_id is not None:
        return Redirect(f"/console/profiles/{profile_id}")
    return None if order_id is None else Redirect(f"/console/orders/{identity.order_no(order_id)}")
