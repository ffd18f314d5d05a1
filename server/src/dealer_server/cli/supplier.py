"""`dealer-server supplier`: the suppliers that eSIMs are bought from, and the routes of packages to them."""

import re
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from dealer_server.cli.arguments import read_file
from dealer_server.cli.command import AsJson, CommandContext, Context
from dealer_server.cli.output import print_json, print_result
from dealer_server.settings import SettingsError

if TYPE_CHECKING:
    from dealer_server.rules.catalogue.margin import Change, Margin
    from dealer_server.store.suppliers.purchase import Hop

app = App(name="supplier", help="Suppliers, and the routes of packages to them.")
FileOrInput = Annotated[Path, Parameter(allow_leading_hyphen=True)]
_HOP = "SUPPLIER=SKU or SUPPLIER=SKU@COST"


@app.command(name="set")
async def set_supplier(
    code: str,
    file: FileOrInput,
    *,
    kind: str,
    keep: Annotated[bool, Parameter(negative="")] = False,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Add a supplier, or replace the settings of one.

    Args:
        code: The name that packages and routes use, such as es2:acme.
        file: The settings as a JSON document; - reads standard input.
        kind: es2plus, rt_upstream or chain.
        keep: Settings that the document leaves out stay as they are.
    """
    from dealer_server.operations.suppliers.configure import put_supplier
    from dealer_server.operations.suppliers.describe import show_suppliers

    document, keys = read_file(file), await context.data_keys()
    database, base_url = context.database, context.settings.base_url
    await put_supplier(database, keys, code, kind, document, base_url, context.author, keep=keep)
    [shown] = await show_suppliers(database, keys, code)
    line = f"{code} is set; its messages come to {shown.events}"
    print_result(as_json, {"code": code, "kind": kind, "events": shown.events}, line)


@app.command(name="pause")
async def pause_supplier(code: str, *, as_json: AsJson = False, context: Context) -> None:
    """Stop buying from a supplier, and stop asking it about earlier purchases, until it is resumed."""
    await _set_status(context, code, "PAUSED", as_json)


@app.command(name="resume")
async def resume_supplier(code: str, *, as_json: AsJson = False, context: Context) -> None:
    """Buy from a paused supplier again."""
    await _set_status(context, code, "ACTIVE", as_json)


async def _set_status(context: CommandContext, code: str, status: str, as_json: bool) -> None:
    from dealer_server.operations.suppliers.configure import set_supplier_status

    await set_supplier_status(context.database, code, status, context.author)
    print_result(as_json, {"code": code, "status": status}, f"{code} is {status}")


@app.command(name="remove")
async def remove_supplier(code: str, *, as_json: AsJson = False, context: Context) -> None:
    """Delete a supplier from which nothing was ever bought and to which no package is routed."""
    from dealer_server.operations.suppliers.configure import remove_supplier

    await remove_supplier(context.database, await context.data_keys(), code, context.author)
    print_result(as_json, {"code": code}, f"{code} is removed")


@app.command(name="route")
async def set_route(
    package_code: str,
    hops: list[str],
    *,
    currency: str = "USD",
    margin_floor: str | None = None,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Set the suppliers of a package, in order of preference.

    Args:
        hops: SUPPLIER=SKU, or SUPPLIER=SKU@COST with the unit cost in major units. The next supplier is asked where
            one is out of stock or refuses, but never while it is unknown whether one has bought.
        currency: The currency of the costs.
        margin_floor: Percent of the price that a purchase must leave, such as 12.5; a supplier that would leave less is
            skipped. platform: what DEALER_MARGIN_FLOOR_BASIS_POINTS says. Without it the floor stays as it is.
    """
    from dealer_server.operations.suppliers.configure import KEPT, set_route

    route = [_hop(text, currency) for text in hops]
    floor = KEPT if margin_floor is None else _floor(margin_floor)
    await set_route(context.database, package_code, route, context.author, context.clock, floor=floor)
    suppliers = [hop.supplier for hop in route]
    fields = {"packageCode": package_code, "suppliers": suppliers}
    print_result(as_json, fields, f"{package_code} is made by {', then '.join(suppliers)}")


@app.command(name="import")
async def import_offers(
    code: str,
    *,
    markup: str = "20",
    minimum: str = "0",
    prefix: str = "",
    yes: Annotated[bool, Parameter(negative="")] = False,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Sell the packages of a reseller: shows the changes, and asks before writing them.

    Args:
        markup: Percent on top of the reseller's price; prices are rounded up.
        minimum: The least margin of a package, in major units.
        prefix: Begins the codes of new packages.
        yes: Do not ask.
    """
    from dealer_server.operations.suppliers.import_catalogue import compare_catalogue, import_catalogue

    margin = _margin(markup, minimum, prefix)
    changes = await compare_catalogue(context.database, await context.data_keys(), code, margin)
    if as_json:
        print_json([_change_fields(change) for change in changes])
    else:
        _print_changes(changes)
    if changes and (yes or (not as_json and _confirmed(len(changes)))):
        await import_catalogue(context.database, code, changes, context.author, context.clock)
        print(f"{sum(change.offer is not None for change in changes)} packages are written", file=sys.stderr)


@app.command(name="iccids")
async def load_iccids(code: str, sku: str, file: FileOrInput, *, as_json: AsJson = False, context: Context) -> None:
    """Load ICCIDs that an SM-DP+ has reserved for this service, one a line: all or none.

    Args:
        sku: The profile type they belong to.
        file: The list; - reads standard input.
    """
    from dealer_server.operations.suppliers.configure import load_iccids

    lines = read_file(file).decode(errors="replace").splitlines()
    added = await load_iccids(context.database, code, sku, lines, context.author)
    fields = {"code": code, "sku": sku, "added": added}
    print_result(as_json, fields, f"{added} ICCIDs are new at {code} for {sku}")


@app.command(name="list")
async def list_suppliers(*, as_json: AsJson = False, context: Context) -> None:
    """List the suppliers with their purchases."""
    suppliers = await _shown(context)
    if as_json:
        print_json(suppliers)
    elif suppliers:
        for fields in suppliers:
            _print_fields(fields)
    else:
        print("no supplier is set up; simulated and stock are built in")


@app.command(name="show")
async def show_supplier(code: str, *, as_json: AsJson = False, context: Context) -> None:
    """Show a supplier: settings without secrets, purchases by state, margin, free ICCIDs, and purchases that wait for
    an operator.

    Events: the path of its messages at the address that DEALER_SUPPLIER_EVENTS opens. Cost and sold are of all that was
    bought here; what was refunded since is not taken off, as it is by `reports show`.
    """
    [fields] = await _shown(context, code)
    if as_json:
        print_json(fields)
    else:
        _print_fields(fields)


async def _shown(context: CommandContext, code: str | None = None) -> list[dict[str, Any]]:
    from dealer_server.operations.suppliers.describe import show_suppliers

    return msgspec.to_builtins(await show_suppliers(context.database, await context.data_keys(), code))


@app.command(name="check")
async def check_supplier(code: str, *, as_json: AsJson = False, context: Context) -> int:
    """Ask a supplier for its health; the exit status is 1 where it cannot be reached."""
    from dealer_server.operations.suppliers.check import advice, check_health

    health = await check_health(context.database, await context.data_keys(), code)
    fields = {name: value for name, value in msgspec.to_builtins(health).items() if value is not None}
    if health.balance is not None:
        fields["balance"] = f"{health.balance / 10_000:.4f}"
    if words := advice(health):
        fields["advice"] = words
    if as_json:
        print_json(fields)
    else:
        _print_fields(fields)
    return 0 if health.up else 1


@app.command(name="resolve")
async def resolve_purchase(
    unit_key: str,
    *,
    bought: Annotated[bool, Parameter(negative="")] = False,
    applied: Annotated[bool, Parameter(negative="")] = False,
    not_bought: Annotated[bool, Parameter(negative="")] = False,
    iccid: str | None = None,
    activation_code: str | None = None,
    ref: str | None = None,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Decide a purchase that waits for an operator.

    Args:
        unit_key: As `supplier show` lists it.
        bought: It was bought; --iccid and --activation-code are what the supplier gave.
        applied: It recharges an eSIM, and was applied.
        ref: The supplier's own id of the eSIM (esimTranNo, profileId); needed for an ICCID that it sold before.
        not_bought: It was certainly not bought or applied: the next supplier is asked, or the dealer is refunded.
    """
    from dealer_server.operations.suppliers.resolve import resolve_applied, resolve_bought, resolve_not_bought

    if bought + applied + not_bought != 1:
        raise SettingsError("exactly one of --bought, --applied and --not-bought is needed")
    database, keys, author, clock = context.database, await context.data_keys(), context.author, context.clock
    if not_bought:
        await resolve_not_bought(database, keys, unit_key, author, clock)
    elif applied:
        await resolve_applied(database, keys, unit_key, author, clock)
    elif iccid and activation_code:
        await resolve_bought(database, keys, unit_key, iccid, activation_code, author, clock, ref=ref)
    else:
        raise SettingsError("--bought needs --iccid and --activation-code")
    outcome = "bought" if bought else "applied" if applied else "not bought"
    print_result(as_json, {"unitKey": unit_key, "outcome": outcome}, f"{unit_key} is resolved: {outcome}")


def _hop(text: str, currency: str) -> "Hop":
    from dealer_server.rules.money import money
    from dealer_server.store.suppliers.purchase import Hop

    supplier, _, rest = text.partition("=")
    sku, _, cost = rest.partition("@")
    if not supplier or not sku:
        raise SettingsError(f"{text!r}: {_HOP} is expected")
    if currency not in money.EXPONENTS:
        raise SettingsError(f"{currency!r} is no ISO 4217 currency")
    if not cost:
        return Hop(supplier=supplier, sku=sku, cost=None, cost_currency=None)
    try:
        return Hop(supplier=supplier, sku=sku, cost=money.parse(cost, currency), cost_currency=currency)
    except ValueError as error:
        raise SettingsError(f"{text!r}: the cost {error}") from None


def _floor(text: str) -> int | None:
    from dealer_server.rules.catalogue.margin import read_percent

    try:
        return None if text == "platform" else read_percent(text)
    except ValueError as error:
        raise SettingsError(f"--margin-floor {text!r}: {error}, or platform") from None


def _margin(markup: str, minimum: str, prefix: str) -> "Margin":
    from dealer_server.rules.catalogue.margin import Margin
    from dealer_server.rules.money import money

    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,2})?", markup):
        raise SettingsError(f"--markup {markup!r}: percent such as 25 or 12.5 is expected")
    try:
        return Margin(int(Decimal(markup) * 100), money.parse(minimum, "USD"), prefix)
    except ValueError as error:
        raise SettingsError(f"--minimum {minimum!r}: {error}") from None


def _print_fields(fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        shown = ", ".join(f"{key} {of}" for key, of in value.items()) if isinstance(value, dict) else value
        shown = ", ".join(shown) if isinstance(shown, list) else shown
        print(f"{name:<14}{'-' if shown is None or shown == '' else shown}")


def _change_fields(change: "Change") -> dict[str, Any]:
    """A change for programs: prices and costs in major units."""
    return {
        "kind": change.kind,
        "sku": change.sku,
        "packageCode": change.offer.package.package_code if change.offer else None,
        "oldPrice": _amount(change.old_price),
        "newPrice": _amount(change.new_price),
        "oldCost": _amount(change.old_cost),
        "newCost": _amount(change.new_cost),
        "why": change.why,
    }


def _print_changes(changes: "Sequence[Change]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{len(changes)} changes")
    for column in ("change", "their sku", "our package", "cost", "price", "why left out"):
        table.add_column(column, justify="right" if column in ("cost", "price") else "left")
    for change in changes:
        package_code = change.offer.package.package_code if change.offer else ""
        cost, price = _step(change.old_cost, change.new_cost), _step(change.old_price, change.new_price)
        table.add_row(change.kind, change.sku, package_code, cost, price, "; ".join(change.why))
    Console().print(table if changes else "nothing changes")


def _amount(value: int | None) -> str | None:
    return None if value is None else f"{value / 10_000:.4f}"


def _step(old: int | None, new: int | None) -> str:
    """An amount, and what it changes to."""
    before, after = _amount(old), _amount(new)
    if before is None or after is None or before == after:
        return after or before or ""
    return f"{before} → {after}"


def _confirmed(count: int) -> bool:
    return input(f"Write these {count} changes? [y/N] ").strip().lower() in ("y", "yes")
