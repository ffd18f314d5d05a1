"""A dealer's own calls: those refused, and a sample of the others."""

from dealer_server.console.find import dates
from dealer_server.console.shared.api_log import listing, refused, served
from dealer_server.console.shared.api_log.words import Log
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.permissions import DEALER_DEVELOPERS
from dealer_server.console.shared.request_context import Html, RequestContext

API_LOG = "/console/api-log"


@page(API_LOG, DEALER_DEVELOPERS, "api_log.html", MenuEntry("API log", "list-search", 140))
async def calls(context: RequestContext) -> Html:
    return await listing.show_log(context, _log(context), dates=dates.of(context, API_LOG))


@page(f"{API_LOG}/succeeded/{{number}}", DEALER_DEVELOPERS, "served.html")
async def served_call(context: RequestContext) -> Html:
    return await served.show_call(context, _log(context))


@page(f"{API_LOG}/{{number}}", DEALER_DEVELOPERS, "refused.html")
async def refused_call(context: RequestContext) -> Html:
    return await refused.show_call(context, _log(context))


@action(f"{API_LOG}/{{number}}/compare", DEALER_DEVELOPERS, "refused.html")
async def compare(context: RequestContext) -> Html:
    return await refused.compare(context, _log(context))


def _log(context: RequestContext) -> Log:
    return Log(context.tenant_id, API_LOG)
