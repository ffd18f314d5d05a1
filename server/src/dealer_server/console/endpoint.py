"""How is a view called? For those who may open its page; for a form, once."""

import re
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from dealer_server.console.auth.forms import CsrfFailed
from dealer_server.console.responses import Responder
from dealer_server.console.shared.page import Page
from dealer_server.console.shared.request_context import Answer, Forbidden, Html, Redirect, RequestContext
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import form_nonce
from dealer_server.rules.refusal import Refusal

SENT_BEFORE = "This form was already sent. It was not processed again."
_is_nonce = re.compile(r"[0-9a-f]{32}").fullmatch


class PageRoute(Route):
    """A page is there only for the kind of user it is for; to others its path is unknown."""

    def __init__(self, page: Page, responder: Responder):
        async def endpoint(request: Request) -> Response:
            context: RequestContext = request.state.context._replace(path=request.path_params)
            if not page.opens_for(context.user):
                raise Forbidden
            answer = await (_run_once(page, request, context, responder) if writes else page.view(context))
            return await responder.respond(answer, page, context)

        writes = page.method == "POST"
        super().__init__(page.path, endpoint, methods=[page.method])
        self._kinds = page.kinds

    def matches(self, scope: Any) -> tuple[Match, Any]:
        if scope["state"]["context"].user.kind not in self._kinds:
            return Match.NONE, {}
        return super().matches(scope)


async def _run_once(page: Page, request: Request, context: RequestContext, responder: Responder) -> Answer:
    """A form acts once, however often it is sent. One that was refused or that failed may be sent again, unless its
    write may have been committed. Raises CsrfFailed, and what the view raises."""
    nonce = request.state.form.texts.get("once", "")
    if not _is_nonce(nonce):
        raise CsrfFailed
    key = context.parts.database, context.session.session_id, nonce
    if not await form_nonce.take(*key):
        return Redirect(responder.page_of_form(request), SENT_BEFORE)
    try:
        answer = await page.view(context)
    except (OperatorError, Refusal) as why:
        answer = Redirect(responder.page_of_form(request), str(why), failed=True)
    except Exception as why:
        if not (isinstance(why, DatabaseLost) and why.sent):
            with suppress(DatabaseLost, StatementTimeout):
                await form_nonce.give_back(*key)
        raise
    if _is_refused(answer):
        await form_nonce.give_back(*key)
    return answer


def _is_refused(answer: Answer) -> bool:
    return (isinstance(answer, Redirect) and answer.failed) or (isinstance(answer, Html) and answer.status >= 400)
