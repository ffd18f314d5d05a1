"""The console as an ASGI application: who is there, may they, the view, the page.

Every answer forbids what it does not need. Whatever goes wrong becomes a page that says what to do.
"""

import asyncio
import re
import secrets
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import structlog
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from dealer_server import audit_context
from dealer_server.clock import Clock
from dealer_server.console.auth import account, sign_in
from dealer_server.console.auth.sign_in import AuthenticatedSession
from dealer_server.console.operator import overview
from dealer_server.console.routing import Forbidden, PageNotFound, table
from dealer_server.console.shared import api_log, rendering, users
from dealer_server.console.shared.request_context import (
    Answer,
    Download,
    NotFound,
    Page,
    Parts,
    ReauthenticationRequired,
    Redirect,
    RequestContext,
    Route,
    User,
    View,
)
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import form_nonce as forms
from dealer_server.operations.users import sessions
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.operations.users.password import Busy
from dealer_server.operations.users.sessions import NotSignedIn, Visitor
from dealer_server.rules.access import access
from dealer_server.rules.refusal import Refusal

log = structlog.get_logger(__name__)
SURE_SECONDS = 300
KNOWN = "dealer.known"  # the listener's: what to call once somebody is known over this connection
# Who has not signed in sends little; files are sent to few pages.
MOST_BYTES = {sign_in.PATH: 16 * 1024, "/console/packages/": 32 * 1024 * 1024, "": 1024 * 1024}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}
OVER_TLS = {"Strict-Transport-Security": "max-age=31536000"}
NO_STORE = "no-store"
FOR_EVER = "public, max-age=31536000, immutable"

OWN_FIELDS = ("csrf", "once")
ONCE = re.compile(r"[0-9a-f]{32}").fullmatch
TWICE = "This form was sent before; it is not done a second time."


class TooLarge(Exception):
    """More was sent than a form may hold."""


class Forged(Exception):
    """A write that none of our own pages sent, or a very old one did."""


class ConsoleRequest(NamedTuple):
    """One request of somebody who is signed in."""

    request: Request
    inside: AuthenticatedSession
    user: User
    form: dict[str, str]
    files: dict[str, bytes]
    address: str

    @property
    def here(self) -> str:
        url = self.request.url
        return url.path + (f"?{url.query}" if url.query else "")

    @property
    def renewing(self) -> bool:
        """A page asks for a part of itself."""
        return "hx-request" in self.request.headers


class ConsoleApp:
    def __init__(self, parts: Parts, clock: Clock):
        self._parts = parts
        self._clock = clock
        self.table = table(account, users, api_log)

    async def warm(self) -> None:
        """Makes ready what the first visitor would wait for."""
        await asyncio.to_thread(rendering.warm)
        with suppress(DatabaseLost):
            await overview.counted(self._parts.database, self._clock())

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        limit = next(most for path, most in MOST_BYTES.items() if scope["path"].startswith(path))
        request = Request(scope, _bounded(receive, limit))
        try:
            answer = await self._guarded(request)
        except ClientDisconnect:
            return
        finally:
            await request.close()
        encrypted = sign_in.by_tls(self._parts.settings, request)
        for name, value in {**HEADERS, **(OVER_TLS if encrypted else {})}.items():
            answer.headers[name] = value
        answer.headers.setdefault("Cache-Control", NO_STORE)
        await answer(scope, receive, send)

    async def _guarded(self, request: Request) -> Response:
        """Whatever happens, a page."""
        trace = secrets.token_hex(16)
        try:
            return await self._answer(request)
        except NotFound:
            return self._plain(request, 404, trace)
        except Forged:
            return self._plain(request, 403, trace, "forged")
        except (TooLarge, HTTPException):
            return self._plain(request, 413, trace)
        except StatementTimeout:
            log.warning("console_too_slow", path=request.url.path)
            return self._plain(request, 503, trace, "slow")
        except (DatabaseLost, Busy):
            return self._plain(request, 503, trace)
        except ClientDisconnect:
            raise
        except Exception:
            log.exception("console_unexpected", trace_id=trace, method=request.method, path=request.url.path)
            return self._plain(request, 500, trace)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        if path.startswith(rendering.STATIC):
            return _asset(request, path.removeprefix(rendering.STATIC))
        writes = request.method == "POST"
        if request.method not in ("GET", "HEAD", "POST") or (writes and self._foreign(request)):
            raise Forged
        if path == "/":
            return RedirectResponse(sign_in.HOME, 303)
        if "\0" in path:
            raise NotFound
        now, parts = self._clock(), self._parts
        visitor = self._visitor(request)
        audit_context.source.set(visitor.address)
        if path == sign_in.PATH:
            return await sign_in.page(parts, request, (await _form(request))[0] if writes else {}, visitor, now)
        inside = await sign_in.authenticate(parts, request, now)
        if inside is None:
            return sign_in.to_sign_in(request)
        form, files = await _form(request) if writes else ({}, {})
        if path == sign_in.CODE and not inside.session.complete:
            return await sign_in.code_page(parts, request, inside, form, visitor, now)
        if not inside.session.complete:
            return sign_in.to_sign_in(request)
        if known := request.scope.get(KNOWN):
            known()
        if writes and not inside.wrote(form):
            raise Forged
        if path == sign_in.OUT and writes:
            return await sign_in.leave(parts, request, inside)
        session = inside.session
        if session.must_change and path != account.PASSWORD:
            return sign_in.led(request, account.PASSWORD)
        person = User(session.user_id, session.name, session.role, session.tenant_id)
        return await self._opened(ConsoleRequest(request, inside, person, form, files, visitor.address), visitor)

    async def _opened(self, asked: ConsoleRequest, visitor: Visitor) -> Response:
        """The page of a path, for whom it is; perhaps after the password once more."""
        path, method = asked.request.url.path, asked.request.method.replace("HEAD", "GET")
        context = self._visit(asked, {})
        try:
            if "sure_password" in asked.form:
                wrong = await self._made_sure(asked, visitor)
                if wrong is not None:
                    return await self._ask_sure(asked, context, wrong)
                if asked.form.get("sure_for") == "GET":
                    return RedirectResponse(asked.here, 303)
                context = self._visit(asked, {})._replace(sure=True)
            route, names = self.table.find(method, path, asked.user)
            return await self._run(route, asked, context._replace(path=names))
        except ReauthenticationRequired:
            return await self._ask_sure(asked, context)
        except Forbidden:
            return await self._error(asked, context, 403)
        except (PageNotFound, NotFound):
            return await self._error(asked, context, 404)

    async def _run(self, route: Route, asked: ConsoleRequest, context: RequestContext) -> Response:
        answer = await (self._once(route.view, asked, context) if route.method == "POST" else route.view(context))
        return await self._response(answer, asked, context)

    async def _once(self, view: View, asked: ConsoleRequest, context: RequestContext) -> Answer:
        """A write is made once, however often its form is sent; what was refused or failed may be sent again, unless it
        may have been done. Raises Forged, and what the view raises."""
        sent = self._parts.database, context.session.session_id, asked.form.get("once", "")
        if not ONCE(sent[-1]):
            raise Forged
        if not await forms.take(*sent):
            return Redirect(self._back(asked), TWICE)
        try:
            answer = await view(context)
        except (OperatorError, Refusal) as why:
            answer = Redirect(self._back(asked), str(why), failed=True)
        except Exception as why:
            if not (isinstance(why, DatabaseLost) and why.sent):
                with suppress(DatabaseLost, StatementTimeout):
                    await forms.give_back(*sent)
            raise
        if _refused(answer):
            await forms.give_back(*sent)
        return answer

    async def _response(self, answer: Answer, asked: ConsoleRequest, context: RequestContext) -> Response:
        if isinstance(answer, Redirect):
            if answer.said:
                session_id = asked.inside.session.session_id
                await sessions.set_flash(self._parts.database, session_id, answer.said, answer.failed)
            return RedirectResponse(answer.to, 303)
        if isinstance(answer, Download):
            disposition = f"attachment; filename*=UTF-8''{quote(answer.name)}"
            return StreamingResponse(
                answer.chunks, media_type=answer.media_type, headers={"Content-Disposition": disposition}
            )
        return await self._page(answer, asked, context)

    async def _page(self, page: Page, asked: ConsoleRequest, context: RequestContext) -> Response:
        said, failed = await self._said(asked)
        menu = [] if asked.renewing else await self.table.menu(context, asked.request.url.path)
        around = {
            "context": context,
            "here": asked.here,
            "environment": self._parts.settings.environment,
            "menu": menu,
            "said": said,
            "failed": failed,
        }
        return HTMLResponse(rendering.render(page.template, {**around, **page.fields}), page.status)

    async def _said(self, asked: ConsoleRequest) -> tuple[str, bool]:
        """What the write before this page had to say; once."""
        session = asked.inside.session
        if not session.said or asked.renewing:
            return "", False
        await sessions.set_flash(self._parts.database, session.session_id, "", False)
        return session.said, session.said_failed

    async def _error(self, asked: ConsoleRequest, context: RequestContext, status: int) -> Response:
        if asked.renewing:
            return Response(status_code=status, headers={"HX-Reswap": "none"})
        return await self._page(Page("error.html", {"status": status, "trace": "", "why": ""}, status), asked, context)

    async def _made_sure(self, asked: ConsoleRequest, visitor: Visitor) -> str | None:
        """Takes the password that was asked for again; what was wrong, or None."""
        given = asked.form.pop("sure_password")
        here, parts = asked.inside.session, self._parts
        try:
            await sessions.reauthenticate(parts.database, parts.passwords, here, given, visitor, self._clock())
        except NotSignedIn:
            return "That password is not right."
        except TooManyTries as many:
            return sign_in.wait(many.seconds)
        return None

    async def _ask_sure(self, asked: ConsoleRequest, context: RequestContext, error: str = "") -> Response:
        """A page that asks for the password and sends again what was to be done. Files are to be chosen again."""
        if asked.renewing:
            return Response(status_code=401, headers={"HX-Redirect": asked.here})
        kept = _filled(asked.form)
        sure_for = asked.form.get("sure_for", asked.request.method.replace("HEAD", "GET"))
        fields = {"kept": kept, "sure_for": sure_for, "sure_back": self._back(asked), "error": error}
        return await self._page(Page("sure.html", fields), asked, context)

    def _visit(self, asked: ConsoleRequest, names: Mapping[str, str]) -> RequestContext:
        now, session = self._clock(), asked.inside.session
        return RequestContext(
            user=asked.user,
            parts=self._parts,
            now=now,
            path=names,
            query=dict(asked.request.query_params),
            form=_filled(asked.form),
            files=asked.files,
            csrf=asked.inside.csrf,
            sure=(now - session.sure_at).total_seconds() < SURE_SECONDS,
            address=asked.address,
            session=session,
        )

    def _plain(self, request: Request, status: int, trace: str, why: str = "") -> Response:
        """An error page that needs neither session nor database."""
        if "hx-request" in request.headers:
            return Response(status_code=status, headers={"HX-Reswap": "none"})
        fields = {"status": status, "trace": trace if status == 500 else "", "why": why, "context": None}
        fields["environment"] = self._parts.settings.environment
        return HTMLResponse(rendering.render("error.html", fields), status)

    def _visitor(self, request: Request) -> Visitor:
        peer = request.client.host if request.client else ""
        forwarded = request.headers.getlist("x-forwarded-for")
        address = access.client_address(peer, forwarded, self._parts.settings.proxies)
        return Visitor(address, request.headers.get("user-agent", ""))

    def _foreign(self, request: Request) -> bool:
        """Whether a browser says that a page of somebody else sent this form; it protects the sign-in form too."""
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return True
        origin = request.headers.get("origin")
        ours = {request.headers.get("host", ""), urlsplit(self._parts.settings.base_url).netloc}
        return origin is not None and origin.partition("://")[2] not in ours

    def _back(self, asked: ConsoleRequest) -> str:
        """The page a form was on. Where that was the answer to another form, or is not said, the one above it."""
        if before := asked.form.get("sure_back"):
            return sign_in.local(before)
        try:
            sent_by = urlsplit(asked.request.headers.get("referer", ""))
        except ValueError:
            return sign_in.HOME
        page = path = sign_in.local(sent_by.path or asked.request.url.path)
        while page != sign_in.HOME and not self.table.is_page(page, asked.user):
            page = page.rpartition("/")[0]
        return sign_in.local(f"{path}?{sent_by.query}") if page == path and sent_by.query else page


async def _form(request: Request) -> tuple[dict[str, str], dict[str, bytes]]:
    """The texts of a form, without what no database can hold, and its files by the fields' names. Raises TooLarge,
    HTTPException."""
    request.scope.setdefault("app", None)  # so that a spoiled form is an HTTPException
    given = await request.form(max_files=5, max_fields=500)
    texts = {name: value.replace("\0", "") for name, value in given.items() if isinstance(value, str)}
    files = {name: await value.read() for name, value in given.items() if isinstance(value, UploadFile)}
    return texts, files


def _filled(form: Mapping[str, str]) -> dict[str, str]:
    """What somebody filled in; the rest is ours."""
    return {name: text for name, text in form.items() if name not in OWN_FIELDS and not name.startswith("sure_")}


def _refused(answer: Answer) -> bool:
    """Whether a write says that it was not made."""
    return (isinstance(answer, Redirect) and answer.failed) or (isinstance(answer, Page) and answer.status >= 400)


def _bounded(receive: Any, limit: int) -> Any:
    """A body of more bytes ends in TooLarge."""
    left = limit

    async def receiving() -> Any:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise TooLarge
        return message

    return receiving


def _asset(request: Request, path: str) -> Response:
    """Raises NotHere."""
    asset = rendering.assets().get(path)
    if asset is None:
        raise NotFound
    named = request.query_params.get("v") == rendering.version() or path.endswith(
        ".woff2"
    )  # style sheets name no version
    kept = FOR_EVER if named else "no-cache"
    headers = {"Cache-Control": kept, "Vary": "Accept-Encoding"}
    if asset.text and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            rendering.zipped(path), media_type=asset.media_type, headers={**headers, "Content-Encoding": "gzip"}
        )
    return Response(asset.body, media_type=asset.media_type, headers=headers)
