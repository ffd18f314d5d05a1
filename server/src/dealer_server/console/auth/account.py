"""One's own account: password, one-time codes, where one is signed in."""

import segno

from dealer_server.console.auth import sign_in
from dealer_server.console.dealer.permissions import EVERYONE
from dealer_server.console.operator.permissions import LOOK
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import (
    Answer,
    NotFound,
    Page,
    ReauthenticationRequired,
    Redirect,
    RequestContext,
    Route,
)
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import accounts, one_time_codes, sessions
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.operations.users.sessions import NotSignedIn, Visitor
from dealer_server.rules.access import totp
from dealer_server.store.console.user import Place

EVERYBODY = LOOK + EVERYONE
ACCOUNT, TOTP, PASSWORD = "/console/account", "/console/account/totp", "/console/account/password"
FIRST = "/console"
ISSUER = "eSIM Dealer"
_BROWSERS = {"Edg/": "Edge", "OPR/": "Opera", "Firefox/": "Firefox", "Chrome/": "Chrome", "Safari/": "Safari"}
_SYSTEMS = {
    "Android": "Android",
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Windows": "Windows",
    "Mac OS X": "macOS",
    "Linux": "Linux",
}


async def show(context: RequestContext) -> Answer:
    return await _page(context)


async def choose_password(context: RequestContext) -> Answer:
    """A page of its own, and the only one that opens until somebody has a password that nobody else knows."""
    return _password_page(context)


async def change_password(context: RequestContext) -> Answer:
    parts, form = context.parts, context.form
    if form.get("new") != form.get("again"):
        return await _not_changed(context, "The two new passwords are not the same.")
    visitor = Visitor(context.address, "")
    try:
        old, new = form.get("old", ""), form.get("new", "")
        await accounts.change_password(parts.database, parts.passwords, context.session, old, new, visitor, context.now)
    except NotSignedIn:
        return await _not_changed(context, "The password you have now is another one.")
    except TooManyTries as many:
        return await _not_changed(context, sign_in.wait(many.seconds))
    except OperatorError as why:
        return await _not_changed(context, str(why))
    to = FIRST if context.session.must_change else ACCOUNT
    return Redirect(to, "The password is changed. You are signed out everywhere else.")


async def totp_page(context: RequestContext) -> Answer:
    """The secret as a QR code; asked for by somebody who is sure."""
    if not context.sure:
        raise ReauthenticationRequired
    try:
        secret = await one_time_codes.begin(context.parts.database, context.parts.data_keys, context.session)
    except OperatorError:
        return Redirect(ACCOUNT)
    return _totp_page(context, secret)


async def switch_on(context: RequestContext) -> Answer:
    """One code shows that the app has the secret."""
    parts = context.parts
    try:
        await one_time_codes.switch_on(
            parts.database, parts.data_keys, context.session, context.form.get("code", ""), context.now
        )
    except TooManyTries as many:
        return Redirect(TOTP, sign_in.wait(many.seconds), failed=True)
    except OperatorError as why:
        return Redirect(TOTP, f"{why}.".capitalize(), failed=True)
    return Redirect(ACCOUNT, "From now on signing in needs a one-time code. You are signed out everywhere else.")


async def switch_off(context: RequestContext) -> Answer:
    if not context.sure:
        raise ReauthenticationRequired
    await one_time_codes.switch_off(context.parts.database, context.session)
    return Redirect(ACCOUNT, "Signing in needs no one-time code any more.")


async def end_session(context: RequestContext) -> Answer:
    if not await sessions.end_session(context.parts.database, context.session, params.named(context, "session_id")):
        raise NotFound
    return Redirect(ACCOUNT, "That session is ended.")


async def _not_changed(context: RequestContext, error: str) -> Page:
    return _password_page(context, error) if context.session.must_change else await _page(context, error)


def _password_page(context: RequestContext, error: str = "") -> Page:
    return Page("account/password.html", {"error": error, "must": context.session.must_change}, 400 if error else 200)


async def _page(context: RequestContext, error: str = "") -> Page:
    account, places = await sessions.list_sessions(context.parts.database, context.user.user_id, context.now)
    fields = {
        "account": account,
        "error": error,
        "places": [(place, _device(place)) for place in places],
        "current": context.session.session_id,
    }
    return Page("account/account.html", fields, 400 if error else 200)


def _totp_page(context: RequestContext, secret: bytes) -> Page:
    fields = {
        "text": totp.text(secret),
        "qr": segno.make(totp.address(secret, ISSUER, context.user.name), micro=False).svg_data_uri(scale=5, border=4),
    }
    return Page("account/totp.html", fields)


def _device(place: Place) -> str:
    """A browser by name, as far as it can be told."""
    browser = next((name for word, name in _BROWSERS.items() if word in place.agent), "A program")
    system = next((name for word, name in _SYSTEMS.items() if word in place.agent), "")
    return f"{browser} on {system}" if system else browser


ROUTES: tuple[Route, ...] = (
    Route("GET", ACCOUNT, EVERYBODY, show),
    Route("GET", PASSWORD, EVERYBODY, choose_password),
    Route("POST", PASSWORD, EVERYBODY, change_password),
    Route("GET", TOTP, EVERYBODY, totp_page),
    Route("POST", TOTP, EVERYBODY, switch_on),
    Route("POST", "/console/account/totp/off", EVERYBODY, switch_off),
    Route("POST", "/console/account/sessions/{session_id}/end", EVERYBODY, end_session),
)
