"""How does a view's answer become an HTTP response? With the menu, and the flash message of the write before it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from dealer_server.console import routing
from dealer_server.console.auth import kept_forms, sign_in
from dealer_server.console.auth.kept_forms import Kept
from dealer_server.console.routing import HOME
from dealer_server.console.shared import rendering
from dealer_server.console.shared.forms import fill
from dealer_server.console.shared.forms.labels import labelled
from dealer_server.console.shared.page import Page
from dealer_server.console.shared.permissions import permissions
from dealer_server.console.shared.request_context import (
    Answer,
    Download,
    Embedded,
    Html,
    Parts,
    Redirect,
    RequestContext,
)
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.operations.users import sessions
from dealer_server.store.console import dealer
from dealer_server.store.console.dealer import Balance

EMBEDDED = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
}
"""Of HTML that others have written."""


class Responder:
    def __init__(self, parts: Parts, pages: Sequence[Page]):
        self._parts = parts
        self._pages = pages

    async def respond(self, answer: Answer, page: Page, context: RequestContext) -> Response:
        match answer:
            case Html():
                return await self.html(answer.template or page.template, answer.fields, context, answer.status)
            case Redirect():
                if answer.flash:
                    await sessions.set_flash(
                        self._parts.database, context.session.session_id, answer.flash, answer.failed
                    )
                return RedirectResponse(answer.to, 303)
            case Download():
                headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(answer.name)}"}
                return StreamingResponse(answer.chunks, media_type=answer.media_type, headers=headers)
            case Embedded():
                return HTMLResponse(answer.html, headers=EMBEDDED)

    async def html(
        self, template: str, fields: Mapping[str, Any], context: RequestContext, status: int = 200
    ) -> Response:
        flash, failed = await self._take_flash(context)
        kept = await self._kept(context)
        refused = fill.Refused(kept.refused, kept.faults) if kept and (kept.refused or kept.exact) else None
        if kept is not None and refused is None:
            flash, failed = "" if kept.changed else kept_forms.SHOWN_AGAIN, True
        layout = {
            "context": context,
            "may": permissions(context.user),
            "here": context.url,
            "environment": self._parts.settings.environment,
            "menu": [] if context.partial else await routing.menu(self._pages, context),
            "balance": await self._balance(context),
            "flash": flash,
            "failed": failed,
            "conflict": [],
        }
        page = rendering.render(template, {**layout, **fields})
        if kept is not None and kept.changed:
            layout["conflict"] = labelled(page, kept.action, kept.changed)
            page = rendering.render(template, {**layout, **fields})
        if kept is not None:
            page = fill.fill(page, kept.action, kept.fields, kept.version, refused) or page
        return HTMLResponse(page, status)

    async def _balance(self, context: RequestContext) -> Balance | None:
        """Of a dealer's wallet: every page of its users shows it."""
        if context.user.tenant_id is None:
            return None
        with suppress(DatabaseLost, StatementTimeout):  # also the page that tells of it has a frame
            async with self._parts.database.connection() as connection:
                return await dealer.balance(connection, context.user.tenant_id)
        return None

    async def _kept(self, context: RequestContext) -> Kept | None:
        """The form that was on this page and was not sent."""
        if not context.session.kept or context.partial or context.form:
            return None
        parts = context.parts
        return await kept_forms.take(parts.database, parts.data_keys, context.user.user_id, context.url, context.now)

    async def _take_flash(self, context: RequestContext) -> tuple[str, bool]:
        """The message of the write before this page; it is shown once."""
        session = context.session
        if not session.said or context.partial:
            return "", False
        await sessions.set_flash(self._parts.database, session.session_id, "", False)
        return session.said, session.said_failed

    def page_of_form(self, request: Request) -> str:
        """The page a form was on. Where that was the answer to another form, or is unknown, the page above it."""
        context: RequestContext = request.state.context
        if before := request.state.form.texts.get("sure_back"):
            return sign_in.local(before)
        try:
            referer = urlsplit(request.headers.get("referer", ""))
        except ValueError:
            return HOME
        found = path = sign_in.local(referer.path or request.url.path)
        while found != HOME and not routing.is_page(self._pages, found, context.user):
            found = found.rpartition("/")[0]
        return sign_in.local(f"{path}?{referer.query}") if found == path and referer.query else found
