"""`dealer-server credentials`: AppKeys and AppSecrets."""

from datetime import timedelta
from typing import Annotated

from cyclopts import App, Parameter

from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import print_result

app = App(name="credentials", help="A dealer's AppKey and AppSecret.")


@app.command(name="view")
async def view_secret(app_key: str, *, as_json: AsJson = False, context: Context) -> None:
    """Show the AppSecret of an AppKey; the audit log records who viewed it."""
    from dealer_server.operations.tenants.credentials import view_secret

    secret = await view_secret(context.database, context.settings.master_keys, app_key, context.author)
    print_result(as_json, {"appKey": app_key, "appSecret": secret}, f"AppSecret  {secret}")


@app.command(name="reset")
async def reset_secret(
    app_key: str, *, now: Annotated[bool, Parameter(negative="")] = False, as_json: AsJson = False, context: Context
) -> None:
    """Give an AppKey a new AppSecret; the old one is accepted for another 24 hours.

    Args:
        now: Stop accepting the old AppSecret at once.
    """
    from dealer_server.operations.tenants.credentials import OVERLAP, reset_secret

    await context.data_keys()  # sealing keys of another database must not seal the new secret
    overlap = timedelta(0) if now else OVERLAP
    master_keys = context.settings.master_keys
    secret = await reset_secret(context.database, master_keys, app_key, context.author, context.clock, overlap)
    print_result(as_json, {"appKey": app_key, "appSecret": secret}, f"AppSecret  {secret}")


@app.command(name="disable")
async def disable_credential(app_key: str, *, context: Context) -> None:
    """Refuse every call of an AppKey from now on."""
    from dealer_server.operations.tenants.credentials import disable_credential

    await disable_credential(context.database, app_key, context.author)
    print(f"{app_key} is disabled")


@app.command(name="enable")
async def enable_credential(app_key: str, *, context: Context) -> None:
    """Accept the calls of a disabled AppKey again."""
    from dealer_server.operations.tenants.credentials import enable_credential

    await enable_credential(context.database, app_key, context.author)
    print(f"{app_key} is enabled")
