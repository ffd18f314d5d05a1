"""What a dealer bought, recharged and got back, by day and package; and its monthly statements."""

from dealer_server.console.dealer import resale
from dealer_server.console.find import dates
from dealer_server.console.shared import params, reports
from dealer_server.console.shared.page import MenuEntry, download, page
from dealer_server.console.shared.permissions import DEALERS
from dealer_server.console.shared.reports import Group, Question, Report
from dealer_server.console.shared.request_context import Download, Html, RequestContext
from dealer_server.rules.period import change_text
from dealer_server.rules.reports.statement import KINDS
from dealer_server.store.reports import report

REPORTS = "/console/reports"
WALLET, STATEMENTS = "/console/wallet", "/console/wallet/statements"
MONTH = f"{STATEMENTS}/{{month}}"
KEYS = ("package", "day")
COLUMNS = {"sold": "bought", "revenue": "spent", "refunded": "refunded", "refunds": "refunds", "net": "net"}


@page(REPORTS, DEALERS, "reports/report.html", MenuEntry("Reports", "chart-line", 65), listing=True)
async def show_report(context: RequestContext) -> Html:
    asked = reports.question(context, KEYS, context.tenant_id)
    found = await reports.load(context, asked)
    return Html(
        400 if asked.problem else 200,
        report=found,
        dates=dates.of_report(context, REPORTS, asked),
        keys=[(name, reports.WORDS[name]) for name in KEYS],
        by=reports.grouping(KEYS, "By"),
        then=[("", "Then by: nothing"), *reports.grouping(KEYS, "Then by")],
        own=True,
        resale=resale.worth(context.parts.catalogue(), found.groups),
        profit_change=await _profit_change(context, found),
        path=REPORTS,
        **reports.chart(found, "Spent", context, REPORTS),
        export=reports.address(f"{REPORTS}.csv", context, asked),
        orders_of=lambda group: _orders(asked, group),
        value=reports.value_text,
    )


async def _profit_change(context: RequestContext, found: Report) -> str:
    """By how much it is more or less than in as many days before, of the days that are over; "" where that is not
    known."""
    over = reports.whole_days(found.question, context.now)
    if found.question.by != ["package"] or found.more or over is None:
        return ""
    both = list[int | None]()
    async with context.parts.database.connection() as connection:
        for period in (over, over.before):
            wanted = found.question.wanted._replace(period=period)
            rows = await report.grouped(connection, wanted, ["package"], reports.SHOWN)
            if len(rows) == reports.SHOWN:  # there may be more
                return ""
            both.append(resale.profit(context.parts.catalogue(), rows, found.currency))
    now, before = both
    return change_text(now, before) if now is not None and before and before > 0 else ""


@download(f"{REPORTS}.csv", DEALERS, listing=True)
async def export(context: RequestContext) -> Download:
    return await reports.export(context, reports.question(context, KEYS, context.tenant_id), COLUMNS)


@page(STATEMENTS, DEALERS, "reports/statements.html", listing=True)
async def list_statements(context: RequestContext) -> Html:
    currency, months = await reports.months(context, context.tenant_id)
    return Html(
        currency=currency, months=months, path=STATEMENTS, name="", words=KINDS, entries_file=f"{WALLET}/statement.csv"
    )


@page(MONTH, DEALERS, "reports/statement.html", listing=True)
async def show_statement(context: RequestContext) -> Html:
    return Html(
        statement=await reports.monthly(context, context.tenant_id),
        path=STATEMENTS,
        entries=WALLET,
        entries_file=f"{WALLET}/statement.csv",
        name="",
        words=KINDS,
    )


@download(f"{MONTH}/pdf", DEALERS, listing=True)
async def download_statement(context: RequestContext) -> Download:
    return await reports.monthly_pdf(context, context.tenant_id)


def _orders(asked: Question, group: Group) -> str:
    """The list of the orders of a row's days and package."""
    keys = group.keys
    days = {"from": keys["day"].isoformat(), "to": keys["day"].isoformat()} if "day" in keys else None
    package = {"package": keys["package"]} if "package" in keys else {}
    return params.address("/console/orders", {**package, **(days or reports.days_query(asked.wanted.period))})
