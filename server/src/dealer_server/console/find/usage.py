"""Asking the supplier how much of an eSIM is used, by its dealer or by an operator."""

from dealer_server.console.find.profiles import PROFILES
from dealer_server.console.shared.calls import call
from dealer_server.console.shared.request_context import Redirect, RequestContext
from dealer_server.operations.profiles.query_usage import query_usage
from esim_dealer.wire import calls


async def refresh_usage(context: RequestContext, tenant_id: int, profile_id: str) -> Redirect:
    """As /esim/profile/usage does; the page of the eSIM renews itself when the supplier answers."""
    request = call(calls.ProfileUsage, profileId=profile_id, refresh=True)
    result = await query_usage(context.parts.database, lambda: context.now, _no_wake, tenant_id, request)
    flash = "The usage is as of now" if result.real_time else "The supplier is asked for the usage"
    return Redirect(f"{PROFILES}/{profile_id}", flash)


def _no_wake() -> None:
    """The worker finds the request when it looks next."""
