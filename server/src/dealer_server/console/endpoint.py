"""How is a view called? For those who may open its page; for a form, once."""

import math
import re
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from dealer_server.console.auth import kept_forms
from dealer_server.console.auth.forms import CsrfFailed
from dealer_server.console.auth.sign_in import HOME, is_secure
from dealer_server.console.responses import Responder
from dealer_server.console.shared.page import Page
from dealer_server.console.shared.request_context import Answer, Forbidden, Html, Redirect, RequestContext
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import form_nonce
from dealer_server.operations.versions import ChangedMeanwhile
from dealer_server.rules.refusal import Refusal

WROTE = "wrote_lately"
SENT_BEFORE = "This form was already sent. It was not processed again."
_is_nonce = re.compile(r"[0-9a-f]{32}").fullmatch


class PageRoute(Route):
    """A page is there only for the kind of user it is for; to others its path is unknown."""

    def __init__(self, page: Page, responder: Responder):
        async def endpoint(request: Request) -> Response:
            context: RequestContext = request.state.context._replace(path=request.path_params)
            if not page.opens_for(context.user):
                raise Forbidden
            if not writes:
                return await responder.respond(await _look(page, request, context), page, context)
            response = await responder.respond(await _run_once(page, request, context, responder), page, context)
            _note_write(request, response, context)
            return response

        writes = page.method == "POST"
        super().__init__(page.path, endpoint, methods=[page.method])
        self._kinds = page.kinds

    def matches(self, scope: Any) -> tuple[Match, Any]:
        if scope["state"]["context"].user.kind not in self._kinds:
            return Match.NONE, {}
        return super().matches(scope)


async def _look(page: Page, request: Request, context: RequestContext) -> Answer:
    """A page that lists is read from a replica, if there is one. Whoever wrote something lately sees it there."""
    if not page.listing:
        return await page.view(context)
    parts = context.parts
    return await parts.reads.run(
        lambda database: page.view(context._replace(parts=parts._replace(database=database))),
        exact=WROTE in request.cookies,
    )


def _note_write(request: Request, response: Response, context: RequestContext) -> None:
    """For `_look`, in whichever process; as long as a replica may be behind."""
    settings = context.parts.settings
    if settings.read_database_url:
        seconds, secure = math.ceil(settings.read_lag_seconds) + 1, is_secure(settings, request)
        response.set_cookie(WROTE, "1", max_age=seconds, path=HOME, secure=secure, httponly=True, samesite="lax")


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
        answer = await _refuse(request, context, responder.page_of_form(request), why)
    except Exception as why:
        if not (isinstance(why, DatabaseLost) and why.sent):
            with suppress(DatabaseLost, StatementTimeout):
                await form_nonce.give_back(*key)
        raise
    if isinstance(answer, Redirect) and answer.filled:
        answer = await _refuse(request, context, answer.to, OperatorError(answer.flash), exact=True)
    if _is_refused(answer):
        await form_nonce.give_back(*key)
    return answer


async def _refuse(
    request: Request, context: RequestContext, page: str, why: OperatorError | Refusal, *, exact: bool = False
) -> Redirect:
    """To the page of the form, which shows it again with what was entered and says why. `exact`: as in Kept."""
    named = context.user.user_id, request.url.path, page, request.state.form
    if isinstance(why, ChangedMeanwhile):
        kept = kept_forms.of_conflict(*named, why, context.now)
    else:
        kept = kept_forms.of_refusal(*named, why, context.now, exact=exact)
    if kept is None:
        return Redirect(page, str(why), failed=True)
    await kept_forms.keep(context.parts.database, context.parts.data_keys, kept, context.now)
    return Redirect(page, failed=True)


def _is_refused(answer: Answer) -> bool:
    return (isinstance(answer, Redirect) and answer.failed) or (isinstance(answer, Html) and answer.status >= 400)
