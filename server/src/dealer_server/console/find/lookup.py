"""What type-ahead fields offer, as one types."""

from dealer_server.console.shared import params
from dealer_server.console.shared.page import page
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.store.search import lookup

MOST = 12
TEMPLATE = "find/lookup.html"


@page("/console/lookup/dealers", OPERATORS, TEMPLATE)
async def dealers(context: RequestContext) -> Html:
    """By a part of the name, or by how the number begins."""
    text = (params.text(context.query, "q") or "").rpartition("· ")[2]
    async with context.parts.database.connection() as connection:
        found = await lookup.dealers(connection, text, MOST)
    return Html(options=[(dealer.label, dealer.name, str(dealer.tenant_id)) for dealer in found], text=text)


@page("/console/lookup/packages", OPERATORS, TEMPLATE)
async def packages(context: RequestContext) -> Html:
    """By a part of the code or the name."""
    text = params.text(context.query, "q") or ""
    async with context.parts.database.connection() as connection:
        found = await lookup.packages(connection, text, MOST)
    return Html(options=[(code, code, name) for code, name in found], text=text)
