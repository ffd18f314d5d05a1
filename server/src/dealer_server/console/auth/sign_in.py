"""How does a user sign in and out? Name and password, then a one-time code where it is on; then a cookie.

Only the browser knows the cookie's token. The CSRF token of forms is derived from it.
"""

import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from dealer_server.clock import Clock
from dealer_server.console.auth import forms, kept_forms
from dealer_server.console.auth.forms import Form
from dealer_server.console.auth.places import CODE, HOME, OUT, PATH, REACHABLE, local
from dealer_server.console.shared import rendering
from dealer_server.console.shared.forms import tokens
from dealer_server.console.shared.request_context import NotFound, Parts
from dealer_server.operations.users import device_token, sessions, sign_in
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.operations.users.password import Busy
from dealer_server.operations.users.sessions import NotSignedIn, Visitor
from dealer_server.operations.users.sign_in import SignInResult
from dealer_server.rules.access import access
from dealer_server.rules.access.two_factor import TwoFactor, required
from dealer_server.settings import Settings
from dealer_server.store.console.user import Session

COOKIE = "dealer_console"
DEVICE = "dealer_device_"  # and the userId: says that this user has signed in with this browser before
DEVICES = 20
CROWDED = "Too many people sign in right now. Try again."
INTERRUPTED = "Your session has ended and nothing was sent. Sign in: what you entered is kept."
WRONG = "The name or the password is wrong."
WRONG_CODE = "The code is wrong or was used before. Enter the newest one."


class AuthenticatedSession(NamedTuple):
    """The session of a browser, with its token."""

    token: str
    session: Session

    @property
    def csrf(self) -> str:
        """The token that every form carries; derived from the session's, and useless without it."""
        return hmac.digest(self.token.encode(), b"csrf", "sha256").hex()

    @property
    def must_change(self) -> bool:
        """Whether the password was issued by somebody else."""
        return self.session.complete and self.session.must_change

    def must_set_up_codes(self, setting: TwoFactor) -> bool:
        """Whether the platform asks for one-time codes that the user does not have."""
        return self.session.complete and not self.session.totp_on and required(setting, self.session.tenant_id)

    def sent(self, form: Form) -> bool:
        """Whether a page of this session sent the form."""
        return hmac.compare_digest(tokens.unmasked(form.texts.get("csrf", "")).encode(), self.csrf.encode())


async def authenticate(parts: Parts, request: Request, now: datetime) -> AuthenticatedSession | None:
    token = request.cookies.get(COOKIE, "")
    if not 20 <= len(token) <= 100:
        return None
    session = await sessions.find(parts.database, token, now, by_hand="hx-request" not in request.headers)
    return AuthenticatedSession(token, session) if session else None


class SignIn:
    """The pages of those who are not signed in, and the way out."""

    def __init__(self, parts: Parts, clock: Clock):
        self._parts = parts
        self._clock = clock

    def routes(self) -> list[Route]:
        """For everybody."""
        return [
            Route(PATH, self.show),
            Route(PATH, self.submit, methods=["POST"]),
            Route(REACHABLE, self.reachable),
        ]

    def session_routes(self) -> list[Route]:
        """For those who have a session, complete or not."""
        return [
            Route(CODE, self.show_code),
            Route(CODE, self.submit_code, methods=["POST"]),
            Route(OUT, self.sign_out, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        return self._form(_next(request))

    async def reachable(self, _: Request) -> Response:
        """For a page that asks before it sends a form."""
        return Response(status_code=204)

    async def submit(self, request: Request) -> Response:
        """Name and password. Only a path of the console is gone to afterwards."""
        form = (await forms.read(request)).texts
        after, name = _next(request, form), form.get("name", "").strip()
        devices = [value for cookie, value in request.cookies.items() if cookie.startswith(DEVICE)]
        visitor: Visitor = request.state.visitor._replace(devices=tuple(devices[:DEVICES]))
        parts, password, kept = self._parts, form.get("password", ""), form.get("kept", "")
        try:
            result = await sign_in.with_password(
                parts.database, parts.passwords, name, password, visitor, self._clock(), parts.data_keys
            )
        except NotSignedIn:
            return self._form(after, 403, name=name, error=WRONG, kept=kept)
        except TooManyTries as many:
            return self._form(after, 429, name=name, error=wait(many.seconds), retry_seconds=many.seconds, kept=kept)
        except Busy:
            return self._form(after, 503, name=name, error=CROWDED, retry_seconds=1, kept=kept)
        after = await self._keep(kept, result.user_id) or after
        if before := request.cookies.get(COOKIE):  # whatever session the browser had, or was given, ends
            await sessions.sign_out(parts.database, before)
        return signed_in(parts.settings, request, result, after if result.complete else f"{CODE}?next={quote(after)}")

    async def interrupted(self, request: Request, form: Form) -> Response:
        """To the sign-in. What was entered in a form of ours is kept until its user has signed in."""
        kept = kept_forms.of_request(self._parts.data_keys, request, form, self._clock())
        if kept is None:
            return to_sign_in(request)
        return self._form(kept.page, 401, error=INTERRUPTED, kept=kept_forms.sealed(self._parts.data_keys, kept))

    async def _keep(self, sealed: str, user_id: int) -> str | None:
        """The page of the form that was kept, where this user had opened it."""
        parts, now = self._parts, self._clock()
        kept = kept_forms.opened(parts.data_keys, sealed, now) if sealed else None
        if kept is None or kept.user_id != user_id:
            return None
        await kept_forms.keep(parts.database, parts.data_keys, kept, now)
        return kept.page

    async def show_code(self, request: Request) -> Response:
        return self._code_form(_incomplete(request), _next(request))

    async def submit_code(self, request: Request) -> Response:
        """The second step."""
        waiting, form, parts = _incomplete(request), request.state.form, self._parts
        after, code = _next(request, form.texts), form.texts.get("code", "")
        if not waiting.sent(form):
            return self._code_form(waiting, after, 403, error="The page was out of date. Try again.")
        try:
            result = await sign_in.with_code(
                parts.database,
                parts.data_keys,
                waiting.session,
                waiting.token,
                code,
                request.state.visitor,
                self._clock(),
            )
        except NotSignedIn:
            return self._code_form(waiting, after, 403, error=WRONG_CODE)
        except TooManyTries as many:
            return self._code_form(waiting, after, 429, error=wait(many.seconds))
        return signed_in(parts.settings, request, result, after)

    async def sign_out(self, request: Request) -> Response:
        await sessions.sign_out(self._parts.database, request.state.session.token)
        response = RedirectResponse(PATH, 303)
        secure = is_secure(self._parts.settings, request)
        response.delete_cookie(COOKIE, path=HOME, secure=secure, httponly=True, samesite="lax")
        return response

    def _form(
        self, after: str, status: int = 200, *, name: str = "", error: str = "", retry_seconds: int = 0, kept: str = ""
    ) -> Response:
        environment = self._parts.settings.environment
        fields = {"environment": environment, "name": name, "error": error, "next": after, "kept": kept}
        headers = {"Retry-After": str(retry_seconds)} if retry_seconds else {}
        return HTMLResponse(rendering.render("sign_in.html", fields), status, headers)

    def _code_form(self, waiting: AuthenticatedSession, after: str, status: int = 200, *, error: str = "") -> Response:
        environment = self._parts.settings.environment
        fields = {"environment": environment, "csrf": tokens.masked(waiting.csrf), "error": error, "next": after}
        return HTMLResponse(rendering.render("code.html", fields), status)


def signed_in(settings: Settings, request: Request, result: SignInResult, to: str) -> Response:
    """Gives the browser its session, and leads on."""
    response, secure = RedirectResponse(to, 303), is_secure(settings, request)
    response.set_cookie(COOKIE, result.token, path=HOME, secure=secure, httponly=True, samesite="lax")
    if result.device:
        response.set_cookie(
            f"{DEVICE}{result.user_id}",
            result.device,
            max_age=round(device_token.LIFETIME.total_seconds()),
            path=PATH,
            secure=secure,
            httponly=True,
            samesite="lax",
        )
    return response


def _next(request: Request, form: Mapping[str, str] | None = None) -> str:
    """Where to go after the sign-in."""
    return local((form or {}).get("next") or request.query_params.get("next", ""))


def _incomplete(request: Request) -> AuthenticatedSession:
    """Raises NotFound for a session that waits for no code."""
    if request.state.session.session.complete:
        raise NotFound
    return request.state.session


def to_sign_in(request: Request) -> Response:
    after = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    shown = request.method in ("GET", "HEAD") and after not in (HOME, OUT)
    return redirect_first(request, PATH, f"?next={quote(after)}" if shown else "")


def redirect_first(request: Request, path: str, query: str = "") -> Response:
    """To a page that has to come first. Where a page renews a part of itself, the whole browser is sent there."""
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"HX-Redirect": path})
    return RedirectResponse(path + query, 303)


def is_over_tls(settings: Settings, request: Request) -> bool:
    """Whether the browser's connection is encrypted. A trusted proxy that does not say so serves the public address."""
    peer, public_scheme = request.client.host if request.client else "", urlsplit(settings.base_url).scheme
    schemes = request.headers.getlist("x-forwarded-proto") or [public_scheme]
    return access.came_by_tls(request.scope["scheme"], peer, schemes, settings.proxies)


def is_secure(settings: Settings, request: Request) -> bool:
    """Cookies go over TLS alone, except on the loopback address of a test environment without TLS."""
    url = urlsplit(settings.base_url)
    plain_test = settings.environment == "test" and url.scheme == "http"
    loopback = url.hostname in ("127.0.0.1", "localhost", "::1")
    return is_over_tls(settings, request) or not (plain_test and loopback)


def wait(seconds: int) -> str:
    minutes = -(-seconds // 60)
    return f"Too many attempts. Try again in {minutes} minute{'s' if minutes > 1 else ''}."
