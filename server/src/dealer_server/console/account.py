"""One's own account: password, one-time codes, where one is signed in."""

import segno

from dealer_server.console import asked, sign_in
from dealer_server.console.dealer.own import EVERYONE
from dealer_server.console.operator.own import LOOK
from dealer_server.console.visit import Answer, Go, MustBeSure, NotHere, Page, Route, Visit
from dealer_server.operations import user
from dealer_server.operations.tenant import OperatorError
from dealer_server.operations.user import NotSignedIn, TooManyTries, Visitor
from dealer_server.rules import totp
from dealer_server.store.console_user import Place

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


async def show(visit: Visit) -> Answer:
    return await _page(visit)


async def choose_password(visit: Visit) -> Answer:
    """A page of its own, and the only one that opens until somebody has a password that nobody else knows."""
    return _password_page(visit)


async def change_password(visit: Visit) -> Answer:
    parts, form = visit.parts, visit.form
    if form.get("new") != form.get("again"):
        return await _not_changed(visit, "The two new passwords are not the same.")
    visitor = Visitor(visit.address, "")
    try:
        old, new = form.get("old", ""), form.get("new", "")
        await user.change_password(parts.database, parts.passwords, visit.session, old, new, visitor, visit.now)
    except NotSignedIn:
        return await _not_changed(visit, "The password you have now is another one.")
    except TooManyTries as many:
        return await _not_changed(visit, sign_in.wait(many.seconds))
    except OperatorError as why:
        return await _not_changed(visit, str(why))
    to = FIRST if visit.session.must_change else ACCOUNT
    return Go(to, "The password is changed. You are signed out everywhere else.")


async def totp_page(visit: Visit) -> Answer:
    """The secret as a QR code; asked for by somebody who is sure."""
    if not visit.sure:
        raise MustBeSure
    try:
        secret = await user.begin_totp(visit.parts.database, visit.parts.data_keys, visit.session)
    except OperatorError:
        return Go(ACCOUNT)
    return _totp_page(visit, secret)


async def switch_on(visit: Visit) -> Answer:
    """One code shows that the app has the secret."""
    parts = visit.parts
    try:
        await user.switch_totp_on(parts.database, parts.data_keys, visit.session, visit.form.get("code", ""), visit.now)
    except TooManyTries as many:
        return Go(TOTP, sign_in.wait(many.seconds), failed=True)
    except OperatorError as why:
        return Go(TOTP, f"{why}.".capitalize(), failed=True)
    return Go(ACCOUNT, "From now on signing in needs a one-time code. You are signed out everywhere else.")


async def switch_off(visit: Visit) -> Answer:
    if not visit.sure:
        raise MustBeSure
    await user.switch_totp_off(visit.parts.database, visit.session)
    return Go(ACCOUNT, "Signing in needs no one-time code any more.")


async def end_session(visit: Visit) -> Answer:
    if not await user.end_session(visit.parts.database, visit.session, asked.named(visit, "session_id")):
        raise NotHere
    return Go(ACCOUNT, "That session is ended.")


async def _not_changed(visit: Visit, error: str) -> Page:
    return _password_page(visit, error) if visit.session.must_change else await _page(visit, error)


def _password_page(visit: Visit, error: str = "") -> Page:
    return Page("account/password.html", {"error": error, "must": visit.session.must_change}, 400 if error else 200)


async def _page(visit: Visit, error: str = "") -> Page:
    account, places = await user.places(visit.parts.database, visit.user.user_id, visit.now)
    fields = {
        "account": account,
        "error": error,
        "places": [(place, _device(place)) for place in places],
        "current": visit.session.session_id,
    }
    return Page("account/account.html", fields, 400 if error else 200)


def _totp_page(visit: Visit, secret: bytes) -> Page:
    fields = {
        "text": totp.text(secret),
        "qr": segno.make(totp.address(secret, ISSUER, visit.user.name), micro=False).svg_data_uri(scale=5, border=4),
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
