"""`dealer-server user`: who may use the console."""

import sys
from typing import TYPE_CHECKING

import msgspec
from cyclopts import App

from dealer_server import settings
from dealer_server.cli import AsJson, author, opened_database, run

if TYPE_CHECKING:
    from dealer_server.operations.users.accounts import IssuedPassword

app = App(name="user", help="Who may use the console.")


@app.command(name="create")
def user_create(name: str, *, role: str = "admin", tenant: int | None = None, as_json: AsJson = False) -> None:
    """Let somebody use the console; the password is shown this once, and must be changed at the first sign-in.

    Args:
        name: What they sign in with, such as an e-mail address.
        role: Of the operator: admin, finance, support, readonly. Of a dealer: admin, developer, finance.
        tenant: The dealer they belong to; without one they are the operator's.
    """

    async def create() -> None:
        from dealer_server.operations.users import accounts
        from dealer_server.operations.users.password import Passwords

        async with opened_database(settings.read()) as database:
            _show(await accounts.create(database, Passwords(), tenant, name, role, author()), as_json)

    run(create())


@app.command(name="reset")
def user_reset(name: str, *, as_json: AsJson = False) -> None:
    """Give somebody a new password, shown this once and to be changed at the next sign-in; one-time codes are off, and
    all sessions end."""

    async def reset() -> None:
        from dealer_server.operations.users import accounts
        from dealer_server.operations.users.password import Passwords

        async with opened_database(settings.read()) as database:
            user_id = await accounts.id_of(database, name)
            _show(await accounts.reset(database, Passwords(), user_id, None, author()), as_json)

    run(reset())


@app.command(name="list")
def user_list(*, as_json: AsJson = False) -> None:
    """List who may use the console."""

    async def show() -> None:
        from rich.console import Console
        from rich.table import Table

        from dealer_server.operations.users import accounts

        async with opened_database(settings.read()) as database:
            users = await accounts.list_users(database)
        if as_json:
            for one in users:
                print(msgspec.json.encode(one._asdict()).decode())
            return
        table = Table("name", "belongs to", "role", "status", "one-time codes", "signed in", box=None)
        for one in users:
            belongs = "operator" if one.tenant_id is None else f"{one.tenant_id} {one.tenant_name}"
            seen = one.signed_in_at.strftime("%Y-%m-%d %H:%M UTC") if one.signed_in_at else "never"
            table.add_row(one.name, belongs, one.role, one.status, "on" if one.totp_on else "off", seen)
        Console(width=None if sys.stdout.isatty() else 200).print(table)

    run(show())


def _show(made: "IssuedPassword", as_json: bool) -> None:
    if as_json:
        said = {"name": made.name, "role": made.role, "password": made.password, "mustChange": True}
        print(msgspec.json.encode(said).decode())
    else:
        print(f"name      {made.name}\nrole      {made.role}\npassword  {made.password}   shown this once")
        print("It must be changed at the first sign-in.")
