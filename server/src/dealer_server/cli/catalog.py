"""`dealer-server catalog`: the packages on sale."""

from pathlib import Path

from cyclopts import App

from dealer_server.cli.arguments import read_text
from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import print_faults, print_json

app = App(name="catalog", help="The packages on sale.")


@app.command(name="import")
async def import_catalog(file: Path, *, as_json: AsJson = False, context: Context) -> int:
    """Import packages from a CSV file: all of them, or none and a report of every fault."""
    from dealer_server.operations.catalogue import import_packages

    report = await import_packages.import_csv(context.database, read_text(file), context.author, context.clock)
    if as_json:
        print_json(report)
    elif report.faults:
        print_faults(file, report.faults)
        print(f"{len(report.faults)} faults; nothing was imported")
    else:
        print(f"{report.packages} packages, {report.changed} of them new or changed")
    return 1 if report.faults else 0
