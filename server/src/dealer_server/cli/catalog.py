"""`dealer-server catalog`: the packages on sale."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from dealer_server.cli.arguments import columns, read_text
from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import print_faults, print_json, print_result
from dealer_server.settings import SettingsError

if TYPE_CHECKING:
    from dealer_server.operations.catalogue.import_packages import Plan

app = App(name="catalog", help="The packages on sale.")
BelowCost = Annotated[bool, Parameter(name="--allow-below-cost", negative="", help="Also prices below the cost.")]
Column = Annotated[list[str] | None, Parameter(name="--set", negative="", help="COLUMN=TEXT; repeat for several.")]


@app.command(name="import")
async def import_catalog(
    file: Path,
    *,
    preview: Annotated[bool, Parameter(negative="")] = False,
    version: str | None = None,
    allow_below_cost: BelowCost = False,
    as_json: AsJson = False,
    context: Context,
) -> int:
    """Import packages from a CSV file: all of them, or none and a report of every fault. Columns that the file does not
    have stay as they are.

    Args:
        preview: Shows what the file would change, and changes nothing.
        version: What a preview showed; nothing is imported where the catalogue has changed since.
    """
    from dealer_server.operations.catalogue import import_packages

    text = read_text(file)
    if preview:
        async with context.database.connection() as connection:
            return _print_plan(file, await import_packages.plan_import(connection, text), as_json)
    report = await import_packages.import_csv(
        context.database, text, context.author, context.clock, version=version, allow_below_cost=allow_below_cost
    )
    if as_json:
        print_json(report)
    elif report.faults:
        print_faults(file, report.faults)
        print(f"{len(report.faults)} faults; nothing was imported")
    else:
        print(f"{report.packages} packages, {report.changed} of them new or changed")
    return 1 if report.faults else 0


@app.command(name="test-packages")
async def put_test_packages(*, as_json: AsJson = False, context: Context) -> None:
    """Put the packages TEST-… of a test environment on sale, whose orders are played (specification 11)."""
    from dealer_server.dev import catalogue
    from dealer_server.operations.catalogue.import_packages import put_packages

    if context.settings.environment != "test":
        raise SettingsError(f"DEALER_ENVIRONMENT is {context.settings.environment}; test packages are for test")
    packages = catalogue.scripted()
    changed = await put_packages(context.database, packages, context.author, context.clock)
    text = f"{len(packages)} packages, {changed} of them new or changed"
    print_result(as_json, {"packages": len(packages), "changed": changed}, text)


def _print_plan(file: Path, plan: "Plan", as_json: bool) -> int:
    losses = [loss.text for loss in plan.losses]
    if as_json:
        changes = [
            {
                "packageCode": change.package.package_code,
                "new": change.before is None,
                "fields": [dict(zip(("column", "before", "after"), field, strict=True)) for field in change.fields],
            }
            for change in plan.changes
        ]
        print_json(
            {
                "packages": plan.packages,
                "changes": changes,
                "faults": plan.faults,
                "warnings": plan.warnings,
                "belowCost": losses,
                "version": plan.version,
            }
        )
        return 1 if plan.faults else 0
    print_faults(file, plan.faults)
    print_faults(file, plan.warnings, "warning: ")
    for change in plan.changes:
        if change.before is None:
            print(f"{change.package.package_code}: new")
        for name, before, after in change.fields:
            print(f"{change.package.package_code}: {name}: {before or '–'} → {after or '–'}")
    for text in losses:
        print(f"warning: {text}", file=sys.stderr)
    if plan.faults:
        print(f"{len(plan.faults)} faults; nothing can be imported")
        return 1
    print(f"{plan.packages} packages, {len(plan.changes)} of them new or changed; version {plan.version}")
    return 0


@app.command(name="export")
async def export_catalog(file: Path | None = None, *, context: Context) -> None:
    """Write all packages as a CSV file that import reads back; without a file, to standard output."""
    from dealer_server import store
    from dealer_server.rules.catalogue import importing

    async with context.database.connection() as connection:
        text = importing.write(await store.package.some(connection, None))
    if file is None:
        sys.stdout.write(text)
    else:
        file.write_text(text, "utf-8-sig", newline="")


@app.command(name="show")
async def show_package(package_code: str, *, context: Context) -> None:
    """Show a package as JSON, by the columns of a file, with its version for `catalog set`."""
    from dealer_server.operations.errors import OperatorError
    from dealer_server.operations.versions import version_of
    from dealer_server.rules.catalogue import importing
    from dealer_server.store.console import packages

    async with context.database.connection() as connection:
        package = (await packages.by_code(connection, [package_code])).get(package_code)
    if package is None:
        raise OperatorError(f"no package {package_code}")
    print_json({**importing.texts(package), "version": version_of(importing.texts(package))})


@app.command(name="create")
async def create_package(
    package_code: str,
    *,
    cells: Column = None,
    allow_below_cost: BelowCost = False,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Make a package; columns that are not set take the defaults of an import."""
    from dealer_server.operations.catalogue import edit_package
    from dealer_server.rules.catalogue import importing

    given = columns(cells) | {"packageCode": package_code}
    made = await edit_package.create_package(
        context.database, given, context.author, context.clock, allow_below_cost=allow_below_cost
    )
    print_result(as_json, importing.texts(made), f"package {package_code} is made")


@app.command(name="set")
async def set_package(
    package_code: str,
    *,
    cells: Column = None,
    version: str | None = None,
    allow_below_cost: BelowCost = False,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Change columns of a package; type, currency and data type never change.

    Args:
        version: What `catalog show` showed; nothing is changed where one of these columns has changed since.
    """
    from dealer_server.operations.catalogue import edit_package
    from dealer_server.rules.catalogue import importing

    edited = await edit_package.edit_package(
        context.database,
        package_code,
        columns(cells),
        version,
        context.author,
        context.clock,
        allow_below_cost=allow_below_cost,
    )
    print_result(as_json, importing.texts(edited), f"package {package_code} is changed")


@app.command(name="offer")
async def offer(*package_codes: str, as_json: AsJson = False, context: Context) -> None:
    """Put packages on sale."""
    await _set_status(package_codes, context, as_json, on_sale=True)


@app.command(name="withdraw")
async def withdraw(*package_codes: str, as_json: AsJson = False, context: Context) -> None:
    """Take packages off sale; orders already placed keep what they bought."""
    await _set_status(package_codes, context, as_json, on_sale=False)


async def _set_status(package_codes: Sequence[str], context: Context, as_json: bool, *, on_sale: bool) -> None:
    from dealer_server.operations.catalogue.set_status import set_package_status

    status = "ON_SALE" if on_sale else "OFF_SALE"
    changed = await set_package_status(context.database, package_codes, status, context.author, context.clock)
    line = f"{changed} packages are {'on' if on_sale else 'off'} sale now"
    print_result(as_json, {"packages": changed, "status": status}, line)
