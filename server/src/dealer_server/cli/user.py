"""`dealer-server user`: who may use the console."""

from typing import TYPE_CHECKING

from cyclopts import App

from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import for_programs, print_json, print_result, print_table

if TYPE_CHECKING:
    from dealer_server.operations.users.accounts import IssuedPassword
    from dealer_server.operations.users.invitations import Invited

app = App(name="user", help="Who may use the console.")


@app.command(name="create")
async def create_user(
    name: str, *, role: str = "admin", tenant: int | None = None, as_json: AsJson = False, context: Context
) -> None:
    """Create a user of the console; the password is shown only once and must be changed at the first sign-in.

    Args:
        name: The name to sign in with, such as an email address.
        role: For the operator: admin, finance, support, readonly. For a dealer: admin, developer, finance.
        tenant: The dealer the user belongs to (default: the operator).
    """
    from dealer_server.operations.users import accounts
    from dealer_server.operations.users.password import Passwords

    _show(await accounts.create(context.database, Passwords(), tenant, name, role, context.author), as_json)


@app.command(name="reset")
async def reset_user(name: str, *, as_json: AsJson = False, context: Context) -> None:
    """Give a user a new password, which is shown only once and must be changed at the next sign-in; turns one-time
    codes off and ends all sessions."""
    from dealer_server.operations.users import accounts
    from dealer_server.operations.users.password import Passwords

    user_id = await accounts.id_of(context.database, name)
    _show(await accounts.reset(context.database, Passwords(), user_id, None, context.author), as_json)


@app.command(name="invite")
async def invite_user(
    address: str, *, role: str = "admin", tenant: int | None = None, as_json: AsJson = False, context: Context
) -> None:
    """Invite somebody by a link that works once, for 72 hours; it is mailed where mails are sent, and shown.

    Args:
        address: The mail address, which is the name to sign in with.
        role: For the operator: admin, finance, support, readonly. For a dealer: admin, developer, finance.
        tenant: The dealer the user will belong to (default: the operator).
    """
    from dealer_server.operations.users import invitations

    now = context.clock()
    await _sent(
        context, await invitations.invite(context.database, tenant, address, role, context.author, now), as_json
    )


@app.command(name="invitations")
async def list_invitations(*, tenant: int | None = None, as_json: AsJson = False, context: Context) -> None:
    """List the invitations that are neither used nor withdrawn.

    Args:
        tenant: Of this dealer alone.
    """
    from dealer_server.operations.users import invitations

    waiting, now = await invitations.list_waiting(context.database, tenant), context.clock()
    if as_json:
        for one in waiting:
            fields = {"invitation_id": one.invitation_id, "tenant_id": one.tenant_id, "address": one.address}
            more = {"role": one.role, "state": invitations.state(one, now), "expires_at": one.expires_at}
            print_json(for_programs(fields | more))
        return
    rows = [
        (
            str(one.invitation_id),
            one.address,
            "operator" if one.tenant_id is None else f"{one.tenant_id} {one.tenant_name}",
            one.role,
            invitations.state(one, now),
            one.expires_at.strftime("%Y-%m-%d %H:%M UTC"),
        )
        for one in waiting
    ]
    print_table(("invitation", "address", "belongs to", "role", "state", "valid until"), rows)


@app.command(name="resend")
async def resend_invitation(invitation_id: int, *, as_json: AsJson = False, context: Context) -> None:
    """Make another link for another 72 hours; the one before works no more."""
    from dealer_server.operations.users import invitations

    now = context.clock()
    await _sent(context, await invitations.resend(context.database, invitation_id, None, context.author, now), as_json)


@app.command(name="withdraw")
async def withdraw_invitation(invitation_id: int, *, as_json: AsJson = False, context: Context) -> None:
    """End an invitation; its link works no more."""
    from dealer_server.operations.users import invitations

    address = await invitations.withdraw(context.database, invitation_id, None, context.author, context.clock())
    fields = {"invitationId": invitation_id, "address": address}
    print_result(as_json, fields, f"the invitation of {address} is withdrawn")


@app.command(name="list")
async def list_users(*, as_json: AsJson = False, context: Context) -> None:
    """List the users of the console."""
    from dealer_server.operations.users import accounts

    users = await accounts.list_users(context.database)
    if as_json:
        for account in users:
            print_json(for_programs(account._asdict()))
        return
    rows = [
        (
            account.name,
            "operator" if account.tenant_id is None else f"{account.tenant_id} {account.tenant_name}",
            account.role,
            account.status,
            "on" if account.totp_on else "off",
            account.signed_in_at.strftime("%Y-%m-%d %H:%M UTC") if account.signed_in_at else "never",
        )
        for account in users
    ]
    print_table(("name", "belongs to", "role", "status", "one-time codes", "signed in"), rows)


async def _sent(context: Context, invited: "Invited", as_json: bool) -> None:
    """Mails a link where mails are sent, and prints it."""
    from dealer_server.notices.invitation import InvitationMailer

    mailer = InvitationMailer.open(context.settings, context.database, context.clock)
    mail, link = await mailer.send(invited), mailer.link(invited)
    fields = {"invitation_id": invited.invitation_id, "address": invited.address, "role": invited.role}
    more = {"link": link, "expires_at": invited.expires_at, "mail": mail}
    text = f"link       {link}\nvalid      until {invited.expires_at:%Y-%m-%d %H:%M} UTC, once\n{mail}".rstrip()
    print_result(as_json, for_programs(fields | more), text)


def _show(issued: "IssuedPassword", as_json: bool) -> None:
    if as_json:
        print_json({"name": issued.name, "role": issued.role, "password": issued.password, "mustChange": True})
    else:
        print(f"name      {issued.name}\nrole      {issued.role}\npassword  {issued.password}   shown only once")
        print("It must be changed at the first sign-in.")
