"""Who may use the console: operators' admins see everybody, a dealer's admins the dealer's own people."""

from dealer_server.console import asked, sign_in
from dealer_server.console.visit import Answer, Go, Page, Route, Visit
from dealer_server.operations import user
from dealer_server.operations.tenant import OperatorError
from dealer_server.operations.user import DEALER_ROLES, OPERATOR_ROLES, Made, Maker, TooManyTries
from dealer_server.store import console_dealers, console_user

ADMINS = ("op:admin", "dealer:admin")
USERS = "/console/users"
PAGE = 50


async def show(visit: Visit) -> Answer:
    """Also a password that was just made, once."""
    parts = visit.parts
    return await _page(visit, made=await user.take_made(parts.database, parts.data_keys, visit.session, visit.now))


async def create(visit: Visit) -> Answer:
    """The password is shown once, on the page that comes next."""
    parts, form = visit.parts, visit.form
    try:
        tenant_id = _tenant_of(visit)
        name, role = form.get("name", "").strip(), form.get("role", "")
        made = await user.create(
            *(parts.database, parts.passwords, tenant_id, name, role, visit.author), maker=_maker(visit)
        )
    except OperatorError as why:
        return await _page(visit, error=str(why))
    except TooManyTries as many:
        return await _page(visit, error=sign_in.wait(many.seconds))
    return await _shown_next(visit, made)


async def reset(visit: Visit) -> Answer:
    parts, user_id = visit.parts, asked.named(visit, "user_id")
    within, maker = visit.user.tenant_id, _maker(visit)
    try:
        made = await user.reset(parts.database, parts.passwords, user_id, within, visit.author, maker)
    except TooManyTries as many:
        return Go(USERS, sign_in.wait(many.seconds), failed=True)
    return await _shown_next(visit, made)


def _maker(visit: Visit) -> Maker:
    return Maker(visit.user.user_id, visit.now)


async def _shown_next(visit: Visit, made: Made) -> Go:
    await user.keep_made(visit.parts.database, visit.parts.data_keys, visit.session, made, visit.now)
    return Go(USERS)


async def change(visit: Visit) -> Answer:
    role, status = visit.form.get("role", ""), visit.form.get("status", "")
    user_id = asked.named(visit, "user_id")
    await user.change(visit.parts.database, user_id, visit.user.tenant_id, role, status, visit.author)
    return Go(USERS, "The user is changed.")


async def _page(visit: Visit, *, made: Made | None = None, error: str = "") -> Page:
    """Operators choose: everybody, or one dealer's people, to whom a new one then belongs too."""
    operator = visit.user.tenant_id is None
    asked_for = asked.number(visit.query, "dealer") or asked.number(visit.form, "tenant")
    chosen = asked_for if operator else visit.user.tenant_id
    async with visit.parts.database.connection() as connection:
        found = await console_user.listed(connection, chosen, asked.number(visit.query, "before"), PAGE + 1)
        dealers = await console_dealers.names(connection, chosen) if operator else []
    following = found[PAGE - 1].user_id if len(found) > PAGE else None
    fields = {
        "users": found[:PAGE],
        "pages": asked.pager(visit, USERS, following),
        "made": made,
        "error": error,
        "operator": operator,
        "chosen": str(chosen or ""),
        "dealers": [(str(tenant_id), f"{name} · {tenant_id}") for tenant_id, name in dealers],
        "operator_roles": OPERATOR_ROLES,
        "dealer_roles": DEALER_ROLES,
    }
    return Page("account/users.html", fields, 400 if error else 200)


def _tenant_of(visit: Visit) -> int | None:
    """Whose user is made: a dealer's admin makes the dealer's own, whatever the form says. Raises OperatorError."""
    if visit.user.tenant_id is not None:
        return visit.user.tenant_id
    tenant_id = asked.number(visit.form, "tenant")
    if tenant_id is None and visit.form.get("tenant"):
        raise OperatorError("choose the operator or a dealer")
    return tenant_id


ROUTES: tuple[Route, ...] = (
    Route("GET", USERS, ADMINS, show, menu="Users"),
    Route("POST", USERS, ADMINS, create),
    Route("POST", "/console/users/{user_id}/reset", ADMINS, reset),
    Route("POST", "/console/users/{user_id}", ADMINS, change),
)
