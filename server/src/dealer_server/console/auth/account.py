"""A user's own account: password, one-time codes, and where the user is signed in."""

import segno

from dealer_server.console.auth import sign_in
from dealer_server.console.auth.notices import READERS
from dealer_server.console.shared import params
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.permissions import EVERYBODY
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Answer, Html, NotFound, Redirect, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import accounts, sessions
from dealer_server.operations.users import one_time_codes as totp_operations
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.operations.users.sessions import NotSignedIn, Visitor
from dealer_server.rules.access import totp
from dealer_server.rules.access.two_factor import required
from dealer_server.rules.notices.notice import address
from dealer_server.store.console.user import Place

ACCOUNT, TOTP, PASSWORD = "/console/account", "/console/account/totp", "/console/account/password"
ACCOUNT_TEMPLATE, PASSWORD_TEMPLATE = "account/account.html", "account/password.html"
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


@page(ACCOUNT, EVERYBODY, ACCOUNT_TEMPLATE)
async def account(context: RequestContext) -> Html:
    return await _account(context)


@page(PASSWORD, EVERYBODY, PASSWORD_TEMPLATE)
async def choose_password(context: RequestContext) -> Html:
    """The only page that opens for a user whose password was issued by somebody else."""
    return _password(context)


@action(PASSWORD, EVERYBODY, ACCOUNT_TEMPLATE)
async def change_password(context: RequestContext) -> Answer:
    parts, form = context.parts, context.form
    if form.get("new") != form.get("again"):
        return await _password_refused(context, "The two new passwords are not the same.")
    old, new, visitor = form.get("old", ""), form.get("new", ""), Visitor(context.address, "")
    try:
        await accounts.change_password(parts.database, parts.passwords, context.session, old, new, visitor, context.now)
    except NotSignedIn:
        return await _password_refused(context, "The current password is wrong.")
    except TooManyTries as many:
        return await _password_refused(context, sign_in.wait(many.seconds))
    except OperatorError as why:
        return await _password_refused(context, str(why))
    to = sign_in.HOME if context.session.must_change else ACCOUNT
    return Redirect(to, "The password is changed. You are signed out everywhere else.")


@page(TOTP, EVERYBODY, "account/totp.html")
async def one_time_codes(context: RequestContext) -> Answer:
    """The secret as a QR code. The only page that opens for a user who must have codes. Raises
    ReauthenticationRequired."""
    context.require_recent_authentication()
    try:
        secret = await totp_operations.begin(context.parts.database, context.parts.data_keys, context.session)
    except OperatorError:
        return Redirect(ACCOUNT)
    uri = totp.address(secret, ISSUER, context.user.name)
    picture = segno.make(uri, micro=False).svg_data_uri(scale=5, border=4)
    return Html(text=totp.text(secret), qr=picture, must=_codes_required(context))


@action(TOTP, EVERYBODY)
async def switch_on(context: RequestContext) -> Redirect:
    """One code shows that the app has the secret."""
    parts, code = context.parts, context.form.get("code", "")
    try:
        await totp_operations.switch_on(parts.database, parts.data_keys, context.session, code, context.now)
    except TooManyTries as many:
        return Redirect(TOTP, sign_in.wait(many.seconds), failed=True)
    except OperatorError as why:
        return Redirect(TOTP, f"{why}.".capitalize(), failed=True)
    to = sign_in.HOME if _codes_required(context) else ACCOUNT
    return Redirect(to, "Two-factor authentication is on. You are signed out everywhere else.")


@action("/console/account/totp/off", EVERYBODY)
async def switch_off(context: RequestContext) -> Redirect:
    if _codes_required(context):
        return Redirect(ACCOUNT, "Two-factor authentication is required here.", failed=True)
    context.require_recent_authentication()
    await totp_operations.switch_off(context.parts.database, context.session)
    return Redirect(ACCOUNT, "Two-factor authentication is off.")


def _codes_required(context: RequestContext) -> bool:
    return required(context.parts.settings.two_factor, context.user.tenant_id)


@action("/console/account/sessions/{session_id}/end", EVERYBODY)
async def end_session(context: RequestContext) -> Redirect:
    session_id = params.path_number(context, "session_id")
    if not await sessions.end_session(context.parts.database, context.session, session_id):
        raise NotFound
    return Redirect(ACCOUNT, "That session is ended.")


@action("/console/account/sessions/end", EVERYBODY)
async def end_other_sessions(context: RequestContext) -> Redirect:
    ended = await sessions.end_other_sessions(context.parts.database, context.session)
    return Redirect(ACCOUNT, f"{many(ended, 'other session').capitalize()} ended.")


async def _password_refused(context: RequestContext, error: str) -> Html:
    return _password(context, error) if context.session.must_change else await _account(context, error)


def _password(context: RequestContext, error: str = "") -> Html:
    return Html(400 if error else 200, template=PASSWORD_TEMPLATE, error=error, must=context.session.must_change)


async def _account(context: RequestContext, error: str = "") -> Html:
    user, places = await sessions.list_sessions(context.parts.database, context.user.user_id, context.now)
    return Html(
        400 if error else 200,
        user=user,
        error=error,
        codes_required=_codes_required(context),
        notices=context.user.full_role in READERS,
        address=address(user.mail, user.name),
        places=[(place, _browser_name(place)) for place in places],
        current=context.session.session_id,
    )


def _browser_name(place: Place) -> str:
    """Such as "Firefox on Linux", as far as its User-Agent tells."""
    browser = next((name for word, name in _BROWSERS.items() if word in place.agent), "Other client")
    system = next((name for word, name in _SYSTEMS.items() if word in place.agent), "")
    return f"{browser} on {system}" if system else browser
