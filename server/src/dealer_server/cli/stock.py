"""`dealer-server stock`: activation codes that are sold from stock."""

from pathlib import Path

from cyclopts import App

from dealer_server.cli.arguments import read_text
from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import print_faults, print_json

app = App(name="stock", help="Activation codes sold from stock.")


@app.command(name="load")
async def load_codes(package: str, file: Path, *, as_json: AsJson = False, context: Context) -> int:
    """Load activation codes of a stock package from a CSV file: all of them, or none and a report of every fault."""
    from dealer_server.operations.catalogue import load_stock

    keys = await context.data_keys()
    report = await load_stock.load_stock(context.database, keys, package, read_text(file), context.author)
    if as_json:
        print_json(report)
        return 1 if report.faults else 0
    print_faults(file, report.faults)
    print_faults(file, report.warnings, "warning: ")
    if report.faults:
        print(f"{len(report.faults)} faults; nothing was loaded")
        return 1
    print(f"{report.loaded} profiles loaded; {report.free} free now")
    return 0
