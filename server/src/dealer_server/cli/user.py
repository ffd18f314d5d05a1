"""`dealer-server user`: who may use the console."""

from typing import TYPE_CHECKING

from cyclopts import App

from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import print_json, print_table

if TYPE_CHECKING:
    from dealer_server.operations.users.accounts import IssuedPassword

app = App(name="user", help="Who may use the console.")


@app.command(name="create")
async def create_user(
    name: str, *, role: str = "admin", tenant: int | None = None, as_json: AsJson = False, context: Context
) -> None:
    """Create a user of the console; the password is shown only once and must be changed at the first sign-in.

    Args:
        name: The name to sign in with, such as an e-mail address.
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


@app.command(name="list")
async def list_users(*, as_json: AsJson = False, context: Context) -> None:
    """List the users of the console."""
    from dealer_server.operations.users import accounts

    users = await accounts.list_users(context.database)
    if as_json:
        for account in users:
            print_json(account._asdict())
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


def _show(issued: "IssuedPassword", as_json: bool) -> None:
    if as_json:
        print_json({"name": issued.name, "role": issued.role, "password": issued.password, "mustChange": True})
    else:
        print(f"name      {issued.name}\nrole      {issued.role}\npassword  {issued.password}   shown only once")
        print("It must be changed at the first sign-in.")
