"""Any dealer's refused calls, for operators who may see activation codes: the bodies of calls may hold them."""

from dealer_server.console.find import dates
from dealer_server.console.operator import dealers
from dealer_server.console.shared.api_log import listing, refused, served
from dealer_server.console.shared.api_log.words import Log
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.permissions import CODE_VIEWERS
from dealer_server.console.shared.request_context import Html, RequestContext

API_LOG = "/console/dealers/{tenant_id}/api-log"


@page(API_LOG, CODE_VIEWERS, "api_log.html")
async def calls(context: RequestContext) -> Html:
    log = await _log(context)
    return await listing.show_log(context, log, dates=dates.of(context, log.path))


@page(f"{API_LOG}/succeeded/{{number}}", CODE_VIEWERS, "served.html")
async def served_call(context: RequestContext) -> Html:
    return await served.show_call(context, await _log(context))


@page(f"{API_LOG}/{{number}}", CODE_VIEWERS, "refused.html")
async def refused_call(context: RequestContext) -> Html:
    return await refused.show_call(context, await _log(context))


@action(f"{API_LOG}/{{number}}/compare", CODE_VIEWERS, "refused.html")
async def compare(context: RequestContext) -> Html:
    return await refused.compare(context, await _log(context))


async def _log(context: RequestContext) -> Log:
    """Raises NotFound."""
    dealer = await dealers.load(context)
    return Log(dealer.tenant_id, f"/console/dealers/{dealer.tenant_id}/api-log", dealer.name)
