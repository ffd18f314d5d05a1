"""Who may use the console: an operator's admin sees everybody, a dealer's admin the users of that dealer."""

from collections.abc import Mapping

from dealer_server.console.auth import sign_in
from dealer_server.console.find import choice
from dealer_server.console.find.tabs import Tab, Tabs
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import ADMINS, DEALER_DEVELOPERS, DEALER_FINANCE, DEALERS
from dealer_server.console.shared.request_context import Html, Redirect, RequestContext
from dealer_server.operations.errors import OperatorError, renamed
from dealer_server.operations.users import accounts, invitations
from dealer_server.operations.users.accounts import DEALER_ROLES, OPERATOR_ROLES, IssuedLink, IssuedPassword, Issuer
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.operations.users.invitations import Invited
from dealer_server.store.console import user as console_user

USERS = "/console/users"
TEMPLATE = "account/users.html"
COLUMNS = ("name", "role", "-seen")
KINDS = ("operators", "dealers")
ROLE_TABLE = tuple(
    (what, [role.removeprefix("dealer:") for role in roles])
    for what, roles in (
        ("See orders, eSIMs, catalogue, wallet, reports", DEALERS),
        ("Buy, recharge, refund, suspend, cancel", DEALER_FINANCE),
        ("Request top-ups, set the low balance notice", DEALER_FINANCE),
        ("See codes and QR codes, send install pages and SMS", DEALER_DEVELOPERS),
        ("AppKeys, webhooks, API log, install page", DEALER_DEVELOPERS),
        ("Invite users, change roles", ("dealer:admin",)),
    )
)
"""What users of a dealer may do, for people; the declarations of the pages decide."""

ROLE_TEXTS: Mapping[str, str] = {
    "op:admin": "full access",
    "op:finance": "money, refunds, top-ups",
    "op:support": "codes, resending, cancelling",
    "op:readonly": "looks, changes nothing",
    "dealer:admin": "full access to its dealer",
    "dealer:developer": "integration, moves no money",
    "dealer:finance": "buying, wallet, no secrets",
}
"""The same in short."""


@page(USERS, ADMINS, TEMPLATE, MenuEntry("Users", "users", 150))
async def users(context: RequestContext) -> Html:
    """Also shows a link or a password that was just issued, once. An operator may choose one dealer, to which a new
    user then belongs too."""
    parts = context.parts
    issued = await accounts.take_issued(parts.database, parts.data_keys, context.session, context.now)
    is_operator = context.user.tenant_id is None
    before, order = params.number(context.query, "before"), params.order(context, USERS, COLUMNS)
    kind = params.one_of(context.query, "kind", KINDS) if is_operator else None
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, context.query.get("dealer"))
        tenant_id = dealer.tenant_id if is_operator else context.user.tenant_id
        rows = await console_user.listed(
            connection,
            tenant_id,
            before,
            PAGE_SIZE + 1,
            order.key,
            descending=order.descending,
            kind=kind,
            text=params.text(context.query, "q"),
        )
        counts = await console_user.count_kinds(connection) if is_operator else {}
    following = rows[PAGE_SIZE - 1].user_id if len(rows) > PAGE_SIZE else None
    return Html(
        users=rows[:PAGE_SIZE],
        pages=params.pager(context, USERS, following, shown=min(len(rows), PAGE_SIZE), word="user"),
        order=order,
        invited=await invitations.list_waiting(context.parts.database, tenant_id),
        now=context.now,
        issued=issued if isinstance(issued, IssuedPassword) else None,
        link=issued if isinstance(issued, IssuedLink) else None,
        operator=is_operator,
        tabs=_tabs(kind, counts),
        kind=kind,
        dealer=dealer,
        operator_roles=OPERATOR_ROLES,
        dealer_roles=DEALER_ROLES,
        role_table=ROLE_TABLE,
        role_texts=ROLE_TEXTS,
    )


def _tabs(kind: str | None, counts: Mapping[str, int]) -> Tabs:
    """`counts`: how many users there are of each kind."""
    kinds = [
        Tab(one.capitalize(), params.address(USERS, {"kind": one}), one == kind, listed=f"{counts.get(one, 0):,}")
        for one in KINDS
    ]
    return Tabs(USERS, [Tab("All", USERS, kind is None, listed=f"{sum(counts.values()):,}"), *kinds], "")


@action(USERS, ADMINS)
async def invite(context: RequestContext) -> Redirect:
    """The link is shown once, on the page that comes next, and mailed where mails are sent."""
    parts, form = context.parts, context.form
    tenant_id = await _tenant_of_new_user(context)
    address, role = form.get("name", "").strip(), form.get("role", "")
    try:
        with renamed(address="name"):
            invited = await invitations.invite(
                parts.database, tenant_id, address, role, context.author, context.now, _issuer(context)
            )
    except TooManyTries as many:
        raise OperatorError(sign_in.wait(many.seconds)) from None
    return await send_link(context, invited, USERS)


@action("/console/users/invitations/{invitation_id}/resend", ADMINS)
async def resend(context: RequestContext) -> Redirect:
    invitation_id = params.path_number(context, "invitation_id")
    try:
        invited = await invitations.resend(
            context.parts.database,
            invitation_id,
            context.user.tenant_id,
            context.author,
            context.now,
            _issuer(context),
        )
    except TooManyTries as many:
        return Redirect(USERS, sign_in.wait(many.seconds), failed=True)
    return await send_link(context, invited, USERS)


@action("/console/users/invitations/{invitation_id}/withdraw", ADMINS)
async def withdraw(context: RequestContext) -> Redirect:
    invitation_id = params.path_number(context, "invitation_id")
    address = await invitations.withdraw(
        context.parts.database, invitation_id, context.user.tenant_id, context.author, context.now
    )
    return Redirect(USERS, f"The invitation of {address} is withdrawn. Its link does not work any more.")


async def send_link(context: RequestContext, invited: Invited, to: str) -> Redirect:
    """Mails a link where mails are sent, and keeps it to be shown once on the page `to`."""
    parts = context.parts
    mail = await parts.invitations.send(invited)
    link = IssuedLink(invited.address, invited.role, parts.invitations.link(invited), invited.expires_at, mail)
    await accounts.keep_issued(parts.database, parts.data_keys, context.session, link, context.now)
    return Redirect(to)


@action("/console/users/{user_id}/reset", ADMINS)
async def reset(context: RequestContext) -> Redirect:
    parts, user_id = context.parts, params.path_number(context, "user_id")
    try:
        issued = await accounts.reset(
            parts.database, parts.passwords, user_id, context.user.tenant_id, context.author, _issuer(context)
        )
    except TooManyTries as many:
        return Redirect(USERS, sign_in.wait(many.seconds), failed=True)
    return await _show_issued(context, issued)


@action("/console/users/{user_id}", ADMINS)
async def change(context: RequestContext) -> Redirect:
    role, status = context.form.get("role", ""), context.form.get("status", "")
    user_id = params.path_number(context, "user_id")
    if user_id == context.user.user_id:  # it would end the session, perhaps for good
        raise OperatorError("your own role and status are changed by another admin")
    await accounts.change(context.parts.database, user_id, context.user.tenant_id, role, status, context.author)
    return Redirect(USERS, "The user is changed.")


def _issuer(context: RequestContext) -> Issuer:
    return Issuer(context.user.user_id, context.now)


async def _show_issued(context: RequestContext, issued: IssuedPassword) -> Redirect:
    parts = context.parts
    await accounts.keep_issued(parts.database, parts.data_keys, context.session, issued, context.now)
    return Redirect(USERS)


async def _tenant_of_new_user(context: RequestContext) -> int | None:
    """A dealer's admin invites users of that dealer, whatever the form says. Raises OperatorError."""
    if context.user.tenant_id is not None:
        return context.user.tenant_id
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, context.form.get("tenant"))
    with renamed(dealer="tenant"):
        return dealer.required if dealer.text else None
