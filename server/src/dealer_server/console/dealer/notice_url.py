"""Where does a dealer receive notices, and does it work?"""

from dealer_server.console.dealer.webhooks import WEBHOOKS
from dealer_server.console.shared import params
from dealer_server.console.shared.calls import blaming
from dealer_server.console.shared.page import action
from dealer_server.console.shared.permissions import DEALER_DEVELOPERS
from dealer_server.console.shared.request_context import Redirect, RequestContext
from dealer_server.notices import url as notice_url
from dealer_server.operations.notices import settings
from dealer_server.rules.refusal import CallbackUrlRefused


@action(f"{WEBHOOKS}/notice-url", DEALER_DEVELOPERS)
async def set_url(context: RequestContext) -> Redirect:
    """Sets the notice URL, or removes it where it is empty."""
    parts, url = context.parts, params.text(context.form, "notice_url") or ""
    with blaming("notice_url", CallbackUrlRefused):
        await settings.set_url(parts.database, parts.callbacks, context.tenant_id, url, context.now, context.author)
    return Redirect(WEBHOOKS, "Notices are posted to this URL from now on." if url else "Notices are no longer posted.")


@action(f"{WEBHOOKS}/notice-test", DEALER_DEVELOPERS)
async def test(context: RequestContext) -> Redirect:
    """Sends a notice of the type TEST and says what was answered."""
    parts = context.parts
    tested = await notice_url.send_test(
        parts.database, parts.master_keys, parts.outbound, context.tenant_id, context.now
    )
    answer = tested.answer
    said = f"Your endpoint answered {answer.status}" if answer.status else "There was no answer"
    why = f": {answer.error}" if answer.error else ""
    failed = answer.error is not None
    taken = "was not taken" if failed else "was taken"
    return Redirect(
        WEBHOOKS,
        f"The test notice {taken}. {said} after {tested.duration_ms} ms{why}.",
        failed=failed,
    )
