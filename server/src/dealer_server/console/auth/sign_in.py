"""How does somebody get in, and out? Name and password, then a one-time code where it is on; a cookie from there on.

The cookie's token is known to the browser alone. What a form carries against forgery is made of it.
"""

import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dealer_server.console.shared import rendering
from dealer_server.console.shared.request_context import Parts
from dealer_server.operations.users import device_token, sessions, sign_in
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.operations.users.password import Busy
from dealer_server.operations.users.sessions import NotSignedIn, Visitor
from dealer_server.operations.users.sign_in import SignInResult
from dealer_server.rules.access import access
from dealer_server.settings import Settings
from dealer_server.store.console.user import Session

COOKIE = "dealer_console"
DEVICE = "dealer_device_"  # and the userId: says that this user has signed in with this browser before
DEVICES = 20
PATH, CODE, OUT, HOME = "/console/sign-in", "/console/sign-in/code", "/console/sign-out", "/console"
WRONG = "That name and password do not go together."
WRONG_CODE = "That code is not right, or was used before. Take the newest one."


class AuthenticatedSession(NamedTuple):
    """A browser with a session that lasts."""

    token: str
    session: Session

    @property
    def csrf(self) -> str:
        """What every form carries: made of the token, and of no use without it."""
        return hmac.digest(self.token.encode(), b"csrf", "sha256").hex()

    def wrote(self, form: Mapping[str, str]) -> bool:
        """Whether a form is one of ours."""
        return hmac.compare_digest(form.get("csrf", "").encode(), self.csrf.encode())


async def authenticate(parts: Parts, request: Request, now: datetime) -> AuthenticatedSession | None:
    token = request.cookies.get(COOKIE, "")
    if not 20 <= len(token) <= 100:
        return None
    found = await sessions.find(parts.database, token, now, by_hand="hx-request" not in request.headers)
    return AuthenticatedSession(token, found) if found else None


async def page(parts: Parts, request: Request, form: Mapping[str, str], visitor: Visitor, now: datetime) -> Response:
    """GET shows the form, POST signs in. Only a path of the console is gone to afterwards."""
    after = local(form.get("next") or request.query_params.get("next", ""))
    if request.method != "POST":
        return _form(parts, after)
    name, password = form.get("name", "").strip(), form.get("password", "")
    devices = [value for cookie, value in request.cookies.items() if cookie.startswith(DEVICE)]
    visitor = visitor._replace(devices=tuple(devices[:DEVICES]))
    try:
        entered = await sign_in.with_password(
            parts.database, parts.passwords, name, password, visitor, now, parts.data_keys
        )
    except NotSignedIn:
        return _form(parts, after, name=name, error=WRONG, status=403)
    except TooManyTries as many:
        return _form(parts, after, name=name, error=wait(many.seconds), status=429, seconds=many.seconds)
    except Busy:
        return _form(
            parts, after, name=name, error="Too many people sign in right now. Try again.", status=503, seconds=1
        )
    await _end_before(parts, request)
    to = after if entered.complete else f"{CODE}?next={quote(after)}"
    return _entered(parts, request, entered, to)


async def code_page(
    parts: Parts,
    request: Request,
    inside: AuthenticatedSession,
    form: Mapping[str, str],
    visitor: Visitor,
    now: datetime,
) -> Response:
    """The second step; `inside` is a session that is not complete."""
    after = local(form.get("next") or request.query_params.get("next", ""))
    if request.method != "POST":
        return _code_form(parts, inside, after)
    if not inside.wrote(form):
        return _code_form(parts, inside, after, error="The page was too old. Try again.", status=403)
    try:
        code = form.get("code", "")
        entered = await sign_in.with_code(
            parts.database, parts.data_keys, inside.session, inside.token, code, visitor, now
        )
    except NotSignedIn:
        return _code_form(parts, inside, after, error=WRONG_CODE, status=403)
    except TooManyTries as many:
        return _code_form(parts, inside, after, error=wait(many.seconds), status=429)
    return _entered(parts, request, entered, after)


async def leave(parts: Parts, request: Request, inside: AuthenticatedSession) -> Response:
    await sessions.sign_out(parts.database, inside.token)
    answer = RedirectResponse(PATH, 303)
    answer.delete_cookie(COOKIE, path="/console", secure=_secure(parts, request), httponly=True, samesite="lax")
    return answer


def to_sign_in(request: Request) -> Response:
    after = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    shown = request.method in ("GET", "HEAD") and after not in (HOME, OUT)
    return led(request, PATH, f"?next={quote(after)}" if shown else "")


def led(request: Request, path: str, query: str = "") -> Response:
    """To a page that has to come first. For a page that renews itself the browser is sent, not the part of the page."""
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"HX-Redirect": path})
    return RedirectResponse(path + query, 303)


def local(path: str) -> str:
    """A path of the console, or its first page: nobody is led elsewhere."""
    inside = path == HOME or path.startswith((f"{HOME}/", f"{HOME}?"))
    clean = path.isprintable() and "\\" not in path and not path.startswith(PATH)
    return path if inside and clean and not urlsplit(path).netloc else HOME


def by_tls(settings: Settings, request: Request) -> bool:
    """Whether the browser's connection is encrypted; a trusted proxy that says nothing serves what is public."""
    peer, public = request.client.host if request.client else "", urlsplit(settings.base_url).scheme
    said = request.headers.getlist("x-forwarded-proto") or [public]
    return access.came_by_tls(request.scope["scheme"], peer, said, settings.proxies)


def _secure(parts: Parts, request: Request) -> bool:
    """Cookies go over TLS alone, except where a developer tries things on the own machine, without it."""
    there = urlsplit(parts.settings.base_url)
    trial = parts.settings.environment == "test" and there.scheme == "http"
    loopback = there.hostname in ("127.0.0.1", "localhost", "::1")
    return by_tls(parts.settings, request) or not (trial and loopback)


def wait(seconds: int) -> str:
    minutes = -(-seconds // 60)
    return f"Too many tries. The next one is looked at in {minutes} minute{'s' if minutes > 1 else ''}."


async def _end_before(parts: Parts, request: Request) -> None:
    """Whatever session the browser had, or was given, ends."""
    if before := request.cookies.get(COOKIE):
        await sessions.sign_out(parts.database, before)


def _entered(parts: Parts, request: Request, entered: SignInResult, to: str) -> Response:
    answer = RedirectResponse(to, 303)
    answer.set_cookie(
        COOKIE, entered.token, path="/console", secure=_secure(parts, request), httponly=True, samesite="lax"
    )
    if entered.device:
        answer.set_cookie(
            f"{DEVICE}{entered.user_id}",
            entered.device,
            max_age=round(device_token.LIFETIME.total_seconds()),
            path=PATH,
            secure=_secure(parts, request),
            httponly=True,
            samesite="lax",
        )
    return answer


def _form(
    parts: Parts, after: str, *, name: str = "", error: str = "", status: int = 200, seconds: int = 0
) -> Response:
    fields = {"environment": parts.settings.environment, "name": name, "error": error, "next": after}
    headers = {"Retry-After": str(seconds)} if seconds else {}
    return HTMLResponse(rendering.render("sign_in.html", fields), status, headers)


def _code_form(
    parts: Parts, inside: AuthenticatedSession, after: str, *, error: str = "", status: int = 200
) -> Response:
    fields = {"environment": parts.settings.environment, "csrf": inside.csrf, "error": error, "next": after}
    return HTMLResponse(rendering.render("code.html", fields), status)
