"""`dealer-server supplier`: who makes the eSIMs, and how they are."""

import re
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from dealer_server import settings
from dealer_server.cli import AsJson, author, opened_data_keys, opened_database, run
from dealer_server.settings import SettingsError

if TYPE_CHECKING:
    from dealer_server.rules.catalogue.margin import Change, Margin

app = App(name="supplier", help="Suppliers that are called, and the routes of packages to them.")
_FORM = "SUPPLIER=SKU or SUPPLIER=SKU@COST"
FileOrInput = Annotated[Path, Parameter(allow_leading_hyphen=True)]


@app.command(name="set")
def supplier_set(code: str, file: FileOrInput, *, kind: str) -> None:
    """Add a supplier, or give one new settings.

    Args:
        code: What packages and routes call it, such as es2:acme.
        file: Its settings as a JSON document; - reads standard input.
        kind: es2plus, rt_upstream or chain.
    """
    text = _read(file)

    async def put() -> None:
        from dealer_server.operations.suppliers.configure import put_supplier
        from dealer_server.operations.suppliers.describe import show_suppliers

        opened = settings.read()
        async with opened_database(opened) as database:
            keys = await opened_data_keys(database, opened)
            await put_supplier(database, keys, code, kind, text, opened.base_url, author())
            [shown] = await show_suppliers(database, keys, code)
        print(f"{code} is set; its messages come to {shown.events}")

    run(put())


@app.command(name="pause")
def supplier_pause(code: str) -> None:
    """Buy nothing new from a supplier, and ask it nothing, until it is resumed."""
    _status(code, "PAUSED")


@app.command(name="resume")
def supplier_resume(code: str) -> None:
    """Buy from a paused supplier again."""
    _status(code, "ACTIVE")


@app.command(name="route")
def supplier_route(package_code: str, hops: list[str], *, currency: str = "USD") -> None:
    """Say who makes a package's eSIMs, in order of preference.

    Args:
        hops: SUPPLIER=SKU, or SUPPLIER=SKU@COST with the unit cost in major units. The next is asked where one is
            out of stock or refuses; never while it is unknown whether one has bought.
        currency: The currency of the costs.
    """
    parsed = [_hop(text, currency) for text in hops]

    async def put() -> None:
        from dealer_server.operations.suppliers.configure import set_route
        from dealer_server.store.suppliers.purchase import Hop

        async with opened_database(settings.read()) as database:
            await set_route(database, package_code, [Hop(*hop) for hop in parsed], author(), database.clock.now)
        print(f"{package_code} is made by {', then '.join(hop[0] for hop in parsed)}")

    run(put())


@app.command(name="import")
def supplier_import(
    code: str,
    *,
    markup: str = "20",
    minimum: str = "0",
    prefix: str = "",
    yes: Annotated[bool, Parameter(negative="")] = False,
    as_json: AsJson = False,
) -> None:
    """Sell what a reseller sells: shows what would change, then asks.

    Args:
        markup: Percent on top of its price; prices are rounded up.
        minimum: The least to earn on one, in major units.
        prefix: Begins the codes of new packages.
        yes: Do not ask.
    """

    async def compare() -> None:
        from dealer_server.operations.suppliers.import_catalogue import compare_catalogue, import_catalogue

        rule = _margin(markup, minimum, prefix)
        opened = settings.read()
        async with opened_database(opened) as database:
            changes = await compare_catalogue(database, await opened_data_keys(database, opened), code, rule)
            if as_json:
                print(msgspec.json.encode([_change(change) for change in changes]).decode())
            else:
                _table(changes)
            if changes and (yes or (not as_json and _agreed(len(changes)))):
                await import_catalogue(database, code, changes, author(), database.clock.now)
                print(f"{sum(change.offer is not None for change in changes)} packages are written", file=sys.stderr)

    run(compare())


@app.command(name="iccids")
def supplier_iccids(code: str, sku: str, file: FileOrInput) -> None:
    """Load ICCIDs that an SM-DP+ has put aside for us, one a line: all or none.

    Args:
        sku: The profile type they belong to.
        file: The list; - reads standard input.
    """
    lines = _read(file).decode(errors="replace").splitlines()

    async def load() -> None:
        from dealer_server.operations.suppliers.configure import load_iccids

        async with opened_database(settings.read()) as database:
            new = await load_iccids(database, code, sku, lines, author())
        print(f"{new} ICCIDs are new at {code} for {sku}")

    run(load())


@app.command(name="list")
def supplier_list(*, as_json: AsJson = False) -> None:
    """Show every supplier with its purchases."""
    _show(None, as_json)


@app.command(name="show")
def supplier_show(code: str, *, as_json: AsJson = False) -> None:
    """Show a supplier: settings without secrets, purchases by state, margin, ICCIDs left, and what waits for you."""
    _show(code, as_json)


@app.command(name="check")
def supplier_check(code: str, *, as_json: AsJson = False) -> None:
    """Ask a supplier how it is; the exit status is 1 where it cannot be reached."""

    async def check() -> bool:
        from dealer_server.operations.suppliers.describe import check_health

        opened = settings.read()
        async with opened_database(opened) as database:
            health = await check_health(database, await opened_data_keys(database, opened), code)
        fields = {name: value for name, value in msgspec.to_builtins(health).items() if value is not None}
        if health.balance is not None:
            fields["balance"] = f"{health.balance / 10_000:.4f}"
        _print(fields, as_json)
        return health.up

    if not run(check()):
        sys.exit(1)


@app.command(name="resolve")
def supplier_resolve(
    unit_key: str,
    *,
    bought: Annotated[bool, Parameter(negative="")] = False,
    not_bought: Annotated[bool, Parameter(negative="")] = False,
    iccid: str | None = None,
    activation_code: str | None = None,
    ref: str | None = None,
) -> None:
    """Say what became of a purchase that waits for an operator.

    Args:
        unit_key: As `supplier show` lists it.
        bought: It was bought; --iccid and --activation-code are what the supplier gave.
        ref: What the supplier calls the eSIM (esimTranNo, profileId); needed for an ICCID that it sold before.
        not_bought: Surely it was not: the next supplier is asked, or the dealer gets the money back.
    """
    if bought == not_bought:
        raise SettingsError("exactly one of --bought and --not-bought is needed")
    if bought and not (iccid and activation_code):
        raise SettingsError("--bought needs --iccid and --activation-code")

    async def resolve() -> None:
        from dealer_server.operations.suppliers.resolve import resolve_bought, resolve_not_bought

        opened = settings.read()
        async with opened_database(opened) as database:
            keys = await opened_data_keys(database, opened)
            if bought:
                await resolve_bought(
                    database, keys, unit_key, iccid or "", activation_code or "", author(), database.clock.now, ref=ref
                )
            else:
                await resolve_not_bought(database, keys, unit_key, author(), database.clock.now)
        print(f"{unit_key} goes on: {'bought' if bought else 'not bought'}")

    run(resolve())


def _status(code: str, status: str) -> None:
    async def put() -> None:
        from dealer_server.operations.suppliers.configure import set_supplier_status

        async with opened_database(settings.read()) as database:
            await set_supplier_status(database, code, status, author())
        print(f"{code} is {status}")

    run(put())


def _show(code: str | None, as_json: bool) -> None:
    async def show() -> list[dict[str, Any]]:
        from dealer_server.operations.suppliers.describe import show_suppliers

        opened = settings.read()
        async with opened_database(opened) as database:
            return msgspec.to_builtins(await show_suppliers(database, await opened_data_keys(database, opened), code))

    found = run(show())
    if as_json:
        print(msgspec.json.encode(found if code is None else found[0]).decode())
        return
    if not found:
        print("no supplier is set up; simulated and stock are in the house")
    for one in found:
        _print(one, False)


def _print(fields: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(fields).decode())
        return
    for name, value in fields.items():
        shown = ", ".join(f"{key} {of}" for key, of in value.items()) if isinstance(value, dict) else value
        print(f"{name:<14}{', '.join(shown) if isinstance(shown, list) else shown}")


def _hop(text: str, currency: str) -> tuple[str, str, int | None, str | None]:
    from dealer_server.rules.money import money

    supplier, _, rest = text.partition("=")
    sku, _, cost = rest.partition("@")
    if not supplier or not sku:
        raise SettingsError(f"{text!r}: {_FORM} is expected")
    if currency not in money.EXPONENTS:
        raise SettingsError(f"{currency!r} is no ISO 4217 currency")
    try:
        return (supplier, sku, money.parse(cost, currency), currency) if cost else (supplier, sku, None, None)
    except ValueError as error:
        raise SettingsError(f"{text!r}: the cost {error}") from None


def _margin(markup: str, minimum: str, prefix: str) -> "Margin":
    from dealer_server.rules.catalogue.margin import Margin
    from dealer_server.rules.money import money

    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,2})?", markup):
        raise SettingsError(f"--markup {markup!r}: percent such as 25 or 12.5 is expected")
    try:
        return Margin(int(Decimal(markup) * 100), money.parse(minimum, "USD"), prefix)
    except ValueError as error:
        raise SettingsError(f"--minimum {minimum!r}: {error}") from None


def _change(change: "Change") -> dict[str, Any]:
    """A change for programs: prices and costs in major units."""
    amounts = {"oldPrice": change.old_price, "newPrice": change.new_price, "oldCost": change.old_cost,
               "newCost": change.new_cost}  # fmt: skip
    return {
        "kind": change.kind,
        "sku": change.sku,
        "packageCode": change.offer.package.package_code if change.offer else None,
        **{name: None if amount is None else f"{amount / 10_000:.4f}" for name, amount in amounts.items()},
        "why": change.why,
    }


def _table(changes: "Sequence[Change]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{len(changes)} changes")
    for column in ("what", "theirs", "ours", "cost", "price", "why left out"):
        table.add_column(column, justify="right" if column in ("cost", "price") else "left")
    for change in changes:
        one = _change(change)
        table.add_row(
            change.kind,
            change.sku,
            one["packageCode"] or "",
            _from_to(one["oldCost"], one["newCost"]),
            _from_to(one["oldPrice"], one["newPrice"]),
            "; ".join(change.why),
        )
    Console().print(table if changes else "nothing changes")


def _from_to(old: str | None, new: str | None) -> str:
    if old is None or new is None or old == new:
        return new or old or ""
    return f"{old} → {new}"


def _agreed(count: int) -> bool:
    return input(f"Write these {count} changes? [y/N] ").strip().lower() in ("y", "yes")


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None
