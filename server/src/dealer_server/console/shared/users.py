"""Who may use the console: operators' admins see everybody, a dealer's admins the dealer's own people."""

from dealer_server.console.auth import sign_in
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Answer, Page, Redirect, RequestContext, Route
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import accounts
from dealer_server.operations.users.accounts import DEALER_ROLES, OPERATOR_ROLES, IssuedPassword, Issuer
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import user as console_user

ADMINS = ("op:admin", "dealer:admin")
USERS = "/console/users"
PAGE = 50


async def show(context: RequestContext) -> Answer:
    """Also a password that was just made, once."""
    parts = context.parts
    return await _page(
        context, made=await accounts.take_issued(parts.database, parts.data_keys, context.session, context.now)
    )


async def create(context: RequestContext) -> Answer:
    """The password is shown once, on the page that comes next."""
    parts, form = context.parts, context.form
    try:
        tenant_id = _tenant_of(context)
        name, role = form.get("name", "").strip(), form.get("role", "")
        made = await accounts.create(
            *(parts.database, parts.passwords, tenant_id, name, role, context.author), issuer=_maker(context)
        )
    except OperatorError as why:
        return await _page(context, error=str(why))
    except TooManyTries as many:
        return await _page(context, error=sign_in.wait(many.seconds))
    return await _shown_next(context, made)


async def reset(context: RequestContext) -> Answer:
    parts, user_id = context.parts, params.named(context, "user_id")
    within, maker = context.user.tenant_id, _maker(context)
    try:
        made = await accounts.reset(parts.database, parts.passwords, user_id, within, context.author, maker)
    except TooManyTries as many:
        return Redirect(USERS, sign_in.wait(many.seconds), failed=True)
    return await _shown_next(context, made)


def _maker(context: RequestContext) -> Issuer:
    return Issuer(context.user.user_id, context.now)


async def _shown_next(context: RequestContext, made: IssuedPassword) -> Redirect:
    await accounts.keep_issued(context.parts.database, context.parts.data_keys, context.session, made, context.now)
    return Redirect(USERS)


async def change(context: RequestContext) -> Answer:
    role, status = context.form.get("role", ""), context.form.get("status", "")
    user_id = params.named(context, "user_id")
    await accounts.change(context.parts.database, user_id, context.user.tenant_id, role, status, context.author)
    return Redirect(USERS, "The user is changed.")


async def _page(context: RequestContext, *, made: IssuedPassword | None = None, error: str = "") -> Page:
    """Operators choose: everybody, or one dealer's people, to whom a new one then belongs too."""
    operator = context.user.tenant_id is None
    asked_for = params.number(context.query, "dealer") or params.number(context.form, "tenant")
    chosen = asked_for if operator else context.user.tenant_id
    async with context.parts.database.connection() as connection:
        found = await console_user.listed(connection, chosen, params.number(context.query, "before"), PAGE + 1)
        dealers = await console_dealers.names(connection, chosen) if operator else []
    following = found[PAGE - 1].user_id if len(found) > PAGE else None
    fields = {
        "users": found[:PAGE],
        "pages": params.pager(context, USERS, following),
        "made": made,
        "error": error,
        "operator": operator,
        "chosen": str(chosen or ""),
        "dealers": [(str(tenant_id), f"{name} · {tenant_id}") for tenant_id, name in dealers],
        "operator_roles": OPERATOR_ROLES,
        "dealer_roles": DEALER_ROLES,
    }
    return Page("account/users.html", fields, 400 if error else 200)


def _tenant_of(context: RequestContext) -> int | None:
    """Whose user is made: a dealer's admin makes the dealer's own, whatever the form says. Raises OperatorError."""
    if context.user.tenant_id is not None:
        return context.user.tenant_id
    tenant_id = params.number(context.form, "tenant")
    if tenant_id is None and context.form.get("tenant"):
        raise OperatorError("choose the operator or a dealer")
    return tenant_id


ROUTES: tuple[Route, ...] = (
    Route("GET", USERS, ADMINS, show, menu="Users"),
    Route("POST", USERS, ADMINS, create),
    Route("POST", "/console/users/{user_id}/reset", ADMINS, reset),
    Route("POST", "/console/users/{user_id}", ADMINS, change),
)
