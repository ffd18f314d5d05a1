"""`dealer-server reports`: what was sold, refunded and paid for; monthly statements; adding everything up anew."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import for_programs, print_json, print_table
from dealer_server.settings import SettingsError

if TYPE_CHECKING:
    from dealer_server.operations.reports.statement import Statement
    from dealer_server.rules.reports.period import Month
    from dealer_server.store.reports.report import Row

AsCsv = Annotated[bool, Parameter(name="--csv", negative="", help="Print CSV.")]
_COLUMNS = ("sold", "revenue", "refunded", "refunds", "costed", "cost", "margin")
_MOST = 1_000_000

app = App(name="reports", help="Reports and monthly statements. Days are days of UTC.")


@app.command(name="show")
async def show_report(
    *,
    first: Annotated[str | None, Parameter(name="--from")] = None,
    last: Annotated[str | None, Parameter(name="--to")] = None,
    by: str = "day",
    tenant: int | None = None,
    package: str | None = None,
    supplier: str | None = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    context: Context,
) -> None:
    """Show what was sold, refunded and paid for; without days, in the last 30.

    Args:
        first: The first day, such as 2026-11-01.
        last: The last day; a report covers 366 days at most.
        by: What to group by: day, dealer, package or supplier, or two of them: dealer,package.
        tenant: Only of this dealer.
        package: Only of this package code.
        supplier: Only of this supplier.
    """
    from dealer_server.rules.reports import period as periods
    from dealer_server.store.reports import report

    try:
        period = periods.between(first or "", last or "", periods.day_of(context.clock()))
    except ValueError as why:
        raise SettingsError(f"--{why}") from None
    keys = _keys(by, tuple(report.KEYS))
    wanted = report.Filter(period, tenant, package, supplier)
    async with context.database.connection() as connection:
        rows = await report.grouped(connection, wanted, keys, _MOST)
        left = await report.freshness(connection, tenant)
    _print([_fields(row) for row in rows], as_json, as_csv, "nothing was sold or refunded in these days")
    if left.behind:
        print(f"{left.behind} ledger entries are not in these sums yet", file=sys.stderr)


@app.command(name="statement")
async def show_statement(
    tenant_id: int,
    month: str,
    *,
    pdf: Path | None = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    context: Context,
) -> None:
    """Show the statement of a dealer's wallet for a month, such as 2026-10.

    Args:
        pdf: The file to write it to as PDF.
    """
    from dealer_server.operations.reports.statement import statement
    from dealer_server.store.tenants import tenant

    wanted = _month(month)
    async with context.database.connection() as connection:
        if not await tenant.listed(connection, tenant_id):
            raise SettingsError(f"there is no tenant {tenant_id}")
    found = await statement(context.database, tenant_id, wanted, context.clock())
    if pdf is not None:
        from dealer_server.operations.reports.pdf.document import pdf as document

        pdf.write_bytes(document(found, context.settings.platform_name))
    if as_json:
        print_json(_statement(found))
    elif pdf is None:
        _print(_lines(found), False, as_csv, "")
    else:
        print(f"{pdf} is written")


@app.command(name="rebuild")
async def rebuild_sums(*, as_json: AsJson = False, context: Context) -> None:
    """Add everything up anew. It may be interrupted: the next one goes on where it was."""
    from dealer_server.operations.reports.fold import rebuild

    def progress(left: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{left:,} ledger entries to go ", end="", file=sys.stderr, flush=True)

    dealers = await rebuild(context.database, context.clock, progress)
    if as_json:
        print_json({"dealers": dealers})
    else:
        print(f"the sums of {dealers} dealers are added up anew")


def _keys(by: str, known: Sequence[str]) -> list[str]:
    """Raises SettingsError."""
    keys = [key.strip() for key in by.split(",")]
    if not 1 <= len(keys) <= 2 or len(set(keys)) < len(keys) or not set(keys) <= set(known):
        raise SettingsError(f"--by {by!r}: one or two of {', '.join(known)}, such as dealer,package")
    return keys


def _month(text: str) -> "Month":
    from dealer_server.rules.reports import period as periods

    try:
        return periods.parse_month(text)
    except ValueError as why:
        raise SettingsError(f"MONTH {text!r} {why}") from None


def _fields(row: "Row") -> dict[str, Any]:
    from dealer_server.rules.money import money

    names = {"dealer": "tenantId", "package": "packageCode"}
    keys = {names.get(key, key): str(value) for key, value in row.keys.items()}
    sums = {name: getattr(row.sums, name) for name in _COLUMNS}
    figures = {
        name: value if name in ("sold", "refunded", "costed") else money.text(value, row.currency)
        for name, value in sums.items()
    }
    return keys | {"currency": row.currency} | figures


def _lines(found: "Statement") -> list[dict[str, Any]]:
    from dealer_server.rules.money import money
    from dealer_server.rules.reports.statement import KINDS

    def line(what: str, entries: int | str, amount: int) -> dict[str, Any]:
        text = money.text(amount, found.currency)
        return {"movement": what, "entries": entries, "amount": text, "currency": found.currency}

    account = found.account
    moved = [line(KINDS[one.kind], one.entries, one.amount) for one in account.movements]
    opening, closing = line("Opening balance", "", account.opening), line("Closing balance", "", account.closing)
    return [opening, *moved, closing]


def _statement(found: "Statement") -> dict[str, Any]:
    from dealer_server.rules.money import money

    def text(amount: int) -> str:
        return money.text(amount, found.currency)

    account = found.account
    return {
        "tenantId": str(found.tenant_id),
        "dealer": found.dealer,
        "month": str(found.month),
        "complete": found.complete,
        "currency": found.currency,
        "opening": text(account.opening),
        "movements": [
            {"kind": one.kind, "entries": one.entries, "amount": text(one.amount)} for one in account.movements
        ],
        "closing": text(account.closing),
        "packages": [
            for_programs(one._asdict()) | {"revenue": text(one.revenue), "refunds": text(one.refunds)}
            for one in found.packages
        ],
    }


def _print(rows: Sequence[dict[str, Any]], as_json: bool, as_csv: bool, nothing: str) -> None:
    if as_json:
        for row in rows:
            print_json(row)
    elif as_csv:
        out = csv.writer(sys.stdout, lineterminator="\n")
        out.writerows([list(rows[0]), *(list(row.values()) for row in rows)] if rows else [])
    elif rows:
        print_table(list(rows[0]), ([str(value) for value in row.values()] for row in rows))
    else:
        print(nothing)
