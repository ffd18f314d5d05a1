"""What is checked of every request before a view sees it, and what does every response carry?"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dealer_server import audit_context
from dealer_server.clock import Clock
from dealer_server.console.auth import account, forms, kept_forms, sign_in
from dealer_server.console.auth.forms import CsrfFailed
from dealer_server.console.auth.sign_in import AuthenticatedSession, SignIn
from dealer_server.console.shared.forms import tokens
from dealer_server.console.shared.request_context import (
    NotFound,
    Parts,
    ReauthenticationRequired,
    RequestContext,
    User,
)
from dealer_server.operations.notices import confirm
from dealer_server.operations.users import invitations, password_reset, sessions
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.operations.users.sessions import NotSignedIn, Visitor
from dealer_server.rules.access import access
from dealer_server.settings import Settings

RECENT_SECONDS = 300
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
# Those who are not signed in send little; few pages take files.
MAX_BYTES = {
    sign_in.PATH: 32 * 1024,
    invitations.PATH: 16 * 1024,
    confirm.PATH: 1024,
    password_reset.PATH.rstrip("/"): 16 * 1024,
    "/console/packages/": 32 * 1024 * 1024,
    "": 1024 * 1024,
}


class TooLarge(Exception):
    """The body is larger than a form of this path may be."""


class SecurityHeaders:
    """Every response forbids what it does not need, and is not stored unless it says so."""

    def __init__(self, app: ASGIApp, settings: Settings):
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if sign_in.is_over_tls(self._settings, Request(scope)):
                    headers.update(OVER_TLS)
                headers.setdefault("Cache-Control", NO_STORE)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class BodyLimit:
    """A body of more bytes than `MAX_BYTES` allows ends in TooLarge as it is read."""

    def __init__(self, app: ASGIApp, limits: Mapping[str, int] = MAX_BYTES):
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = next(limit for path, limit in self._limits.items() if scope["path"].startswith(path))

        async def receive_bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLarge
            return message

        await self._app(scope, receive_bounded, send)


class SameOrigin:
    """Refuses other methods, and forms that a page of another site sent; so the sign-in form is protected too."""

    def __init__(self, app: ASGIApp, base_url: str):
        self._app = app
        self._host = urlsplit(base_url).netloc

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if request.method not in ("GET", "HEAD", "POST") or (request.method == "POST" and self._is_foreign(request)):
            raise CsrfFailed
        if "\0" in request.url.path:
            raise NotFound
        await self._app(scope, receive, send)

    def _is_foreign(self, request: Request) -> bool:
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return True
        origin = request.headers.get("origin")
        return origin is not None and origin.partition("://")[2] not in (request.headers.get("host", ""), self._host)


class Visitors:
    """Finds out where a request comes from, for the audit log and for the limits of sign-in attempts."""

    def __init__(self, app: ASGIApp, settings: Settings):
        self._app = app
        self._proxies = settings.proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        peer = request.client.host if request.client else ""
        address = access.client_address(peer, request.headers.getlist("x-forwarded-for"), self._proxies)
        request.state.visitor = Visitor(address, request.headers.get("user-agent", ""))
        audit_context.source.set(address)
        await self._app(scope, receive, send)


class Sessions:
    """Redirects requests without a session to the sign-in. A session that waits for its one-time code opens that page
    alone. A user whose password was issued by somebody else opens the page that changes it alone; one who must have
    one-time codes and has none opens the page that sets them up alone."""

    def __init__(self, app: ASGIApp, parts: Parts, clock: Clock, pages: SignIn):
        self._app = app
        self._parts = parts
        self._clock = clock
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        authenticated = await sign_in.authenticate(self._parts, request, self._clock())
        path = request.url.path
        if authenticated is None or not (authenticated.session.complete or path == sign_in.CODE):
            response = await self._signed_out(request)
        elif authenticated.must_change and path not in (account.PASSWORD, sign_in.OUT):
            response = sign_in.redirect_first(request, account.PASSWORD)
        elif self._must_set_up_codes(authenticated) and path not in (account.PASSWORD, account.TOTP, sign_in.OUT):
            response = sign_in.redirect_first(request, account.TOTP)
        else:
            if authenticated.session.complete and (mark_authenticated := scope.get(access.AUTHENTICATED)):
                mark_authenticated()
            request.state.session = authenticated
            response = self._app
        await response(scope, receive, send)

    def _must_set_up_codes(self, authenticated: AuthenticatedSession) -> bool:
        return authenticated.must_set_up_codes(self._parts.settings.two_factor)

    async def _signed_out(self, request: Request) -> Response:
        """A form that was filled in meanwhile is not lost."""
        sent = request.method == "POST" and request.url.path != sign_in.OUT and "hx-request" not in request.headers
        if not sent:
            return sign_in.to_sign_in(request)
        try:
            form = await forms.read(request)
        except HTTPException:
            return sign_in.to_sign_in(request)
        return await self._pages.interrupted(request, form)


class Csrf:
    """Reads the form; one without the session's token is refused, but what this user has entered in it before a new
    sign-in is shown again. From here on there is a RequestContext."""

    def __init__(self, app: ASGIApp, parts: Parts, clock: Clock):
        self._app = app
        self._parts = parts
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        session: AuthenticatedSession = request.state.session
        form = request.state.form = await forms.read(request)
        if session.session.complete:
            if request.method == "POST" and not session.sent(form):
                response = await self._kept(request, session, form)
                await response(scope, receive, send)
                return
            request.state.context = self._context(request, session, form)
        await self._app(scope, receive, send)

    async def _kept(self, request: Request, session: AuthenticatedSession, form: forms.Form) -> Response:
        """Back to the page of a form that this user had opened before the last sign-in. Raises CsrfFailed."""
        parts, now = self._parts, self._clock()
        kept = kept_forms.of_request(parts.data_keys, request, form, now)
        if kept is None or kept.user_id != session.session.user_id:
            raise CsrfFailed
        await kept_forms.keep(parts.database, parts.data_keys, kept, now)
        return RedirectResponse(kept.page, 303)

    def _context(self, request: Request, authenticated: AuthenticatedSession, form: forms.Form) -> RequestContext:
        now, session, url = self._clock(), authenticated.session, request.url
        return RequestContext(
            user=User(session.user_id, session.name, session.role, session.tenant_id),
            parts=self._parts,
            now=now,
            url=url.path + (f"?{url.query}" if url.query else ""),
            path={},
            query={name: text.replace("\0", "") for name, text in request.query_params.items()},
            form=form.filled_in,
            files=form.files,
            csrf=tokens.masked(authenticated.csrf),
            who=kept_forms.who(self._parts.data_keys, session.user_id),
            recently_authenticated=(now - session.sure_at).total_seconds() < RECENT_SECONDS,
            partial="hx-request" in request.headers,
            address=request.state.visitor.address,
            session=session,
        )


class Reauthentication:
    """Takes the password that was asked for again."""

    def __init__(self, app: ASGIApp, parts: Parts, clock: Clock):
        self._app = app
        self._parts = parts
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        texts = request.state.form.texts
        if "sure_password" not in texts or not request.state.session.session.complete:
            await self._app(scope, receive, send)
            return
        await self._check(request, texts["sure_password"])
        context: RequestContext = request.state.context
        if texts.get("sure_for") == "GET":
            response = RedirectResponse(context.url, 303)
        else:
            request.state.context = context._replace(recently_authenticated=True)
            response = self._app
        await response(scope, receive, send)

    async def _check(self, request: Request, password: str) -> None:
        """Raises ReauthenticationRequired where it is not right."""
        session, visitor = request.state.session.session, request.state.visitor
        parts = self._parts
        try:
            await sessions.reauthenticate(parts.database, parts.passwords, session, password, visitor, self._clock())
        except NotSignedIn:
            raise ReauthenticationRequired("The password is wrong.") from None
        except TooManyTries as many:
            raise ReauthenticationRequired(sign_in.wait(many.seconds)) from None
