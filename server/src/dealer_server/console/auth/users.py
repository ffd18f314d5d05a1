"""Who may use the console: an operator's admin sees everybody, a dealer's admin the users of that dealer."""

from dealer_server.console.auth import sign_in
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import ADMINS
from dealer_server.console.shared.request_context import Answer, Html, Redirect, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import accounts
from dealer_server.operations.users.accounts import DEALER_ROLES, OPERATOR_ROLES, IssuedPassword, Issuer
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import user as console_user

USERS = "/console/users"
TEMPLATE = "account/users.html"


@page(USERS, ADMINS, TEMPLATE, MenuEntry("Users", "users", 150))
async def users(context: RequestContext) -> Html:
    """Also shows a password that was just issued, once."""
    parts = context.parts
    issued = await accounts.take_issued(parts.database, parts.data_keys, context.session, context.now)
    return await _users(context, issued=issued)


@action(USERS, ADMINS, TEMPLATE)
async def create(context: RequestContext) -> Answer:
    """The password is shown once, on the page that comes next."""
    parts, form = context.parts, context.form
    try:
        tenant_id = _tenant_of_new_user(context)
        name, role = form.get("name", "").strip(), form.get("role", "")
        issued = await accounts.create(
            *(parts.database, parts.passwords, tenant_id, name, role, context.author), issuer=_issuer(context)
        )
    except OperatorError as why:
        return await _users(context, error=str(why))
    except TooManyTries as many:
        return await _users(context, error=sign_in.wait(many.seconds))
    return await _show_issued(context, issued)


@action("/console/users/{user_id}/reset", ADMINS)
async def reset(context: RequestContext) -> Redirect:
    parts, user_id = context.parts, params.path_number(context, "user_id")
    try:
        issued = await accounts.reset(
            *(parts.database, parts.passwords, user_id, context.user.tenant_id, context.author), _issuer(context)
        )
    except TooManyTries as many:
        return Redirect(USERS, sign_in.wait(many.seconds), failed=True)
    return await _show_issued(context, issued)


@action("/console/users/{user_id}", ADMINS)
async def change(context: RequestContext) -> Redirect:
    role, status = context.form.get("role", ""), context.form.get("status", "")
    user_id = params.path_number(context, "user_id")
    await accounts.change(context.parts.database, user_id, context.user.tenant_id, role, status, context.author)
    return Redirect(USERS, "The user is changed.")


def _issuer(context: RequestContext) -> Issuer:
    return Issuer(context.user.user_id, context.now)


async def _show_issued(context: RequestContext, issued: IssuedPassword) -> Redirect:
    parts = context.parts
    await accounts.keep_issued(parts.database, parts.data_keys, context.session, issued, context.now)
    return Redirect(USERS)


async def _users(context: RequestContext, *, issued: IssuedPassword | None = None, error: str = "") -> Html:
    """An operator may choose one dealer, to which a new user then belongs too."""
    is_operator = context.user.tenant_id is None
    requested = params.number(context.query, "dealer") or params.number(context.form, "tenant")
    tenant_id = requested if is_operator else context.user.tenant_id
    before = params.number(context.query, "before")
    async with context.parts.database.connection() as connection:
        rows = await console_user.listed(connection, tenant_id, before, PAGE_SIZE + 1)
        dealers = await console_dealers.names(connection, tenant_id) if is_operator else []
    following = rows[PAGE_SIZE - 1].user_id if len(rows) > PAGE_SIZE else None
    return Html(
        400 if error else 200,
        users=rows[:PAGE_SIZE],
        pages=params.pager(context, USERS, following),
        issued=issued,
        error=error,
        operator=is_operator,
        tenant_id=str(tenant_id or ""),
        dealers=[(str(dealer_id), f"{name} · {dealer_id}") for dealer_id, name in dealers],
        operator_roles=OPERATOR_ROLES,
        dealer_roles=DEALER_ROLES,
    )


def _tenant_of_new_user(context: RequestContext) -> int | None:
    """A dealer's admin creates users of that dealer, whatever the form says. Raises OperatorError."""
    if context.user.tenant_id is not None:
        return context.user.tenant_id
    tenant_id = params.number(context.form, "tenant")
    if tenant_id is None and context.form.get("tenant"):
        raise OperatorError("choose the operator or a dealer")
    return tenant_id
