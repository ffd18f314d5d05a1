"""`dealer-server credentials`: AppKeys and AppSecrets."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import for_programs, print_json, print_result, print_table

if TYPE_CHECKING:
    from dealer_server.store.tenants.credential import Credential

app = App(name="credentials", help="A dealer's AppKeys and AppSecrets.")


@app.command(name="list")
async def list_keys(tenant_id: int, *, as_json: AsJson = False, context: Context) -> None:
    """List the AppKeys of a dealer, the oldest first."""
    from dealer_server.operations.tenants.credentials import list_keys

    keys = await list_keys(context.database, tenant_id)
    if as_json:
        for key in keys:
            print_json(_fields(key))
        return
    rows = [
        (key.app_key, key.name, key.status, ", ".join(key.scopes), ", ".join(key.ip_allow) or "any", key.signs_webhooks)
        for key in keys
    ]
    heads = ("AppKey", "name", "status", "scopes", "from", "signs webhooks")
    print_table(heads, [(*row[:-1], "yes" if row[-1] else "") for row in rows])


@app.command(name="create")
async def create_key(
    tenant_id: int,
    *,
    name: str = "",
    scope: list[str] | None = None,
    ip_allow: list[str] | None = None,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Give a dealer another AppKey; its AppSecret is shown.

    Args:
        name: What uses it.
        scope: read, order or money; repeat for several (default: all).
        ip_allow: Addresses or networks that may use it, within those of the dealer; repeat for several.
    """
    from dealer_server.operations.tenants.credentials import KeyLimits, create_key

    await context.data_keys()  # sealing keys of another database must not seal the secret
    limits = KeyLimits(name=name, scopes=scope, ip_allow=ip_allow)
    opened = context.settings
    made = await create_key(context.database, opened.master_keys, opened.environment, tenant_id, limits, context.author)
    line = f"AppKey     {made.app_key}\nAppSecret  {made.app_secret}"
    print_result(as_json, {"appKey": made.app_key, "appSecret": made.app_secret}, line)


@app.command(name="set")
async def set_limits(
    app_key: str,
    *,
    name: str | None = None,
    scope: list[str] | None = None,
    ip_allow: list[str] | None = None,
    any_ip: Annotated[bool, Parameter(negative="")] = False,
    signs_webhooks: Annotated[bool, Parameter(negative="")] = False,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Change the limits of an AppKey; options that are left out change nothing.

    Args:
        scope: read, order or money; repeat for several. It has these and no others then.
        ip_allow: Addresses or networks that may use it, within those of the dealer; repeat for several.
        any_ip: Empties its address allowlist.
        signs_webhooks: Its secret signs the dealer's webhooks from now on.
    """
    from dealer_server.operations.tenants import credentials

    limits = credentials.KeyLimits(name=name, scopes=scope, ip_allow=[] if any_ip else ip_allow)
    if limits != credentials.KeyLimits():
        await credentials.set_limits(context.database, app_key, limits, context.author)
    if signs_webhooks:
        await credentials.sign_webhooks(context.database, app_key, context.author)
    print_result(as_json, {"appKey": app_key}, f"{app_key} is changed")


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
async def disable_credential(app_key: str, *, as_json: AsJson = False, context: Context) -> None:
    """Refuse every call of an AppKey from now on."""
    from dealer_server.operations.tenants.credentials import disable_credential

    await disable_credential(context.database, app_key, context.author, context.clock)
    print_result(as_json, {"appKey": app_key, "status": "DISABLED"}, f"{app_key} is disabled")


@app.command(name="enable")
async def enable_credential(app_key: str, *, as_json: AsJson = False, context: Context) -> None:
    """Accept the calls of a disabled AppKey again."""
    from dealer_server.operations.tenants.credentials import enable_credential

    await enable_credential(context.database, app_key, context.author, context.clock)
    print_result(as_json, {"appKey": app_key, "status": "ACTIVE"}, f"{app_key} is enabled")


def _fields(key: "Credential") -> dict[str, object]:
    """With names as on the wire."""
    return for_programs(key._asdict())
