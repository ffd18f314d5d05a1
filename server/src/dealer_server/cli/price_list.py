"""`dealer-server price-list`: what dealers pay, set once for all who have a list."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from dealer_server.cli.arguments import prices, read_text
from dealer_server.cli.catalog import BelowCost
from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import print_faults, print_json, print_result, print_table

if TYPE_CHECKING:
    from dealer_server.rules.price_lists.list_file import Line
    from dealer_server.rules.price_lists.price_list import PriceListTerms

app = App(name="price-list", help="Price lists of dealers.")
Markup = Annotated[str, Parameter(help="Percent, such as 12.5.")]
Basis = Annotated[str, Parameter(help="What the markup is added to: PRICE, the package's own, or COST.")]


@app.command(name="create")
async def create_list(
    name: str, *, markup: Markup = "0", basis: Basis = "PRICE", as_json: AsJson = False, context: Context
) -> None:
    """Make a price list."""
    from dealer_server.operations.price_lists import change

    form = change.ListForm(name, basis, markup)
    number = await change.create_list(context.database, form, context.author, context.clock)
    print_result(as_json, {"priceListId": number, "name": name}, f"price list {number} is {name}")


@app.command(name="list")
async def list_lists(*, as_json: AsJson = False, context: Context) -> None:
    """List the price lists."""
    from dealer_server import store
    from dealer_server.rules.money import percent

    async with context.database.connection() as connection:
        lists = await store.price_list.listed(connection)
    if as_json:
        for one in lists:
            print_json(
                {
                    "priceListId": one.price_list_id,
                    "name": one.name,
                    "basis": one.basis,
                    "markup": percent.number(one.markup_basis_points),
                    "exceptions": one.exceptions,
                    "dealers": one.dealers,
                }
            )
    else:
        rows = [
            (
                *(str(one.price_list_id), one.name, f"{percent.number(one.markup_basis_points)} %", one.basis),
                *(str(one.exceptions), str(one.dealers)),
            )
            for one in lists
        ]
        print_table(("list", "name", "markup", "on", "exceptions", "dealers"), rows)


@app.command(name="show")
async def show_list(name: str, *, as_json: AsJson = False, context: Context) -> None:
    """Show a price list: each package with its cost, its price and the margin, and the dealers."""
    from dealer_server import store
    from dealer_server.operations.price_lists import change, show
    from dealer_server.rules.money import percent

    async with context.database.connection() as connection:
        terms = await show.list_named(connection, name)
        costs, packages = await store.price_list.costs(connection), await store.package.some(connection, None)
        lines, dealers = (
            show.lines(packages, costs, terms),
            await store.price_list.dealers(connection, terms.price_list_id, 1000),
        )
    if as_json:
        print_json(
            {
                "priceListId": terms.price_list_id,
                "name": terms.name,
                "basis": terms.basis,
                "markup": percent.number(terms.markup_basis_points),
                "version": change.list_version(terms),
                "packages": [_fields(line) for line in lines],
                "dealers": [{"tenantId": str(dealer.tenant_id), "name": dealer.name} for dealer in dealers],
            }
        )
        return
    print_table(
        ("package", "own price", "cost", "price", "margin", ""),
        [(*_texts(line).values(), "exception" if line.excepted else "") for line in lines],
    )
    print(f"{terms.name}: {percent.number(terms.markup_basis_points)} % on {terms.basis}; {len(dealers)} dealers")


def _fields(line: "Line") -> dict[str, str | bool]:
    return {**_texts(line), "exception": line.excepted, "currency": line.package.currency}


def _texts(line: "Line") -> dict[str, str]:
    """What a table shows as well."""
    from dealer_server.operations.catalogue.below_cost import cost_text
    from dealer_server.rules.money import money, percent
    from dealer_server.rules.price_lists.list_file import OFF

    currency = line.package.currency
    return {
        "packageCode": line.package.package_code,
        "packagePrice": money.text(line.package.price, currency),
        "cost": "" if line.cost is None else cost_text(line.cost),
        "price": OFF if line.price is None else money.text(line.price, currency),
        "margin": "" if line.margin is None else percent.number(line.margin),
    }


@app.command(name="set")
async def set_list(
    name: str,
    *,
    rename: str | None = None,
    markup: str | None = None,
    basis: str | None = None,
    price: list[str] | None = None,
    version: str | None = None,
    allow_below_cost: BelowCost = False,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Change a price list; options that are left out change nothing.

    Args:
        rename: Its new name.
        markup: Percent, such as 12.5.
        basis: What the markup is added to: PRICE, the package's own, or COST.
        price: PACKAGE=PRICE, PACKAGE=off, or PACKAGE=list to follow the markup again; repeat for several.
        version: What `price-list show --json` showed; nothing is changed where name, basis or markup have changed.
    """
    from dealer_server.operations.price_lists import change
    from dealer_server.rules.money import percent

    terms = await _named(name, context)
    if price:
        await change.set_exceptions(
            context.database,
            terms.price_list_id,
            prices(price),
            context.author,
            context.clock,
            allow_below_cost=allow_below_cost,
        )
    if rename is not None or markup is not None or basis is not None:
        own = percent.number(terms.markup_basis_points)
        form = change.ListForm(rename or terms.name, basis or terms.basis, own if markup is None else markup)
        await change.set_list(
            context.database,
            terms.price_list_id,
            form,
            version,
            context.author,
            context.clock,
            allow_below_cost=allow_below_cost,
        )
    fields = {"priceListId": terms.price_list_id, "name": rename or terms.name}
    print_result(as_json, fields, f"price list {terms.price_list_id} is changed")


@app.command(name="assign")
async def assign(name: str, tenant_id: int, *, as_json: AsJson = False, context: Context) -> None:
    """Give a dealer a price list, instead of the one or the markup that it has."""
    from dealer_server.operations.tenants.assign_price_list import assign

    terms = await _named(name, context)
    await assign(context.database, tenant_id, terms.price_list_id, context.author, context.clock)
    fields = {"tenantId": str(tenant_id), "priceListId": terms.price_list_id, "name": terms.name}
    print_result(as_json, fields, f"tenant {tenant_id} has the price list {terms.name}")


@app.command(name="unassign")
async def unassign(tenant_id: int, *, as_json: AsJson = False, context: Context) -> None:
    """Take the price list away from a dealer: packages cost their own price then."""
    from dealer_server.operations.tenants.assign_price_list import assign

    await assign(context.database, tenant_id, None, context.author, context.clock)
    fields = {"tenantId": str(tenant_id), "priceListId": None}
    print_result(as_json, fields, f"tenant {tenant_id} has no price list")


@app.command(name="remove")
async def remove_list(name: str, *, as_json: AsJson = False, context: Context) -> None:
    """Remove a price list that no dealer has."""
    from dealer_server.operations.price_lists import change

    terms = await _named(name, context)
    await change.remove_list(context.database, terms.price_list_id, context.author)
    fields = {"priceListId": terms.price_list_id, "name": terms.name}
    print_result(as_json, fields, f"price list {terms.name} is removed")


@app.command(name="export")
async def export_list(name: str, file: Path | None = None, *, context: Context) -> None:
    """Write a price list as a CSV file that import reads back; without a file, to standard output."""
    from dealer_server.operations.price_lists import show

    async with context.database.connection() as connection:
        text = await show.export(connection, await show.list_named(connection, name))
    if file is None:
        sys.stdout.write(text)
    else:
        file.write_text(text, "utf-8-sig", newline="")


@app.command(name="import")
async def import_list(
    name: str,
    file: Path,
    *,
    preview: Annotated[bool, Parameter(negative="")] = False,
    version: str | None = None,
    allow_below_cost: BelowCost = False,
    as_json: AsJson = False,
    context: Context,
) -> int:
    """Take the exceptions of a price list from a CSV file: all of them, or none and a report of every fault. Packages
    that the file does not name stay as they are.

    Args:
        preview: Shows what the file would change, and changes nothing.
        version: What a preview showed; nothing is imported where a price has changed since.
    """
    from dealer_server.operations.price_lists.import_list import import_list, plan_list

    terms, text = await _named(name, context), read_text(file)
    if preview:
        async with context.database.connection() as connection:
            plan = await plan_list(connection, terms, text)
    else:
        plan = await import_list(
            context.database,
            terms.price_list_id,
            text,
            context.author,
            context.clock,
            version=version,
            allow_below_cost=allow_below_cost,
        )
    changes = [{"before": _fields(was), "after": _fields(now)} for was, now in plan.changes]
    losses = [loss.text for loss in plan.losses]
    if as_json:
        told = {"packages": plan.packages, "changes": changes, "faults": plan.faults, "belowCost": losses}
        print_json({**told, "version": plan.version})
        return 1 if plan.faults else 0
    print_faults(file, plan.faults)
    if plan.faults:
        print(f"{len(plan.faults)} faults; nothing was imported")
        return 1
    for one in changes:
        print(f"{one['after']['packageCode']}: {one['before']['price']} → {one['after']['price']}")
    for loss in losses:
        print(f"warning: {loss}", file=sys.stderr)
    done = f"would change; version {plan.version}" if preview else "changed"
    print(f"{plan.packages} packages, {len(changes)} {done}")
    return 0


async def _named(name: str, context: Context) -> "PriceListTerms":
    from dealer_server.operations.price_lists import show

    async with context.database.connection() as connection:
        return await show.list_named(connection, name)
