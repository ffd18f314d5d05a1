"""What was sold, refunded and paid for: by day, dealer, package and supplier."""

from dealer_server.console.find import choice, dates
from dealer_server.console.find.choice import Choice
from dealer_server.console.shared import params, reports
from dealer_server.console.shared.page import MenuEntry, download, page
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.reports import Group, Question
from dealer_server.console.shared.request_context import Download, Html, RequestContext
from dealer_server.store.reports import report

REPORTS = "/console/reports"
KEYS = ("day", "dealer", "package", "place", "supplier")
COLUMNS = {
    "sold": "sold", "revenue": "revenue", "refunded": "refunded", "refunds": "refunds", "costed": "purchasesWithCost",
    "cost": "cost", "margin": "margin", "margin_percent": "marginPercent",
}  # fmt: skip


@page(REPORTS, OPERATORS, "reports/report.html", MenuEntry("Reports", "chart-line", 61), listing=True)
async def show_report(context: RequestContext) -> Html:
    asked, dealer = await _asked(context)
    found = await reports.load(context, asked)
    async with context.parts.database.connection() as connection:
        suppliers = await report.suppliers(connection)
    return Html(
        400 if asked.problem else 200,
        report=found,
        dates=dates.of_report(context, REPORTS, asked),
        keys=[(name, reports.WORDS[name]) for name in KEYS],
        by=reports.grouping(KEYS, "By"),
        then=[("", "Then by: nothing"), *reports.grouping(KEYS, "Then by")],
        dealer=dealer,
        suppliers=suppliers,
        own=False,
        path=REPORTS,
        **reports.chart(found, "Revenue", context, REPORTS),
        export=reports.address(f"{REPORTS}.csv", context, asked),
        orders_of=lambda group: _orders(asked, group),
        packages_of=lambda group: _packages(context, asked, group),
        value=reports.value_text,
    )


@download(f"{REPORTS}.csv", OPERATORS, listing=True)
async def export(context: RequestContext) -> Download:
    asked, _ = await _asked(context)
    return await reports.export(context, asked, COLUMNS)


async def _asked(context: RequestContext) -> tuple[Question, Choice]:
    """With the dealer, whom an operator names by number or name."""
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, context.query.get("dealer"))
    asked = reports.question(context, KEYS)
    return asked._replace(wanted=asked.wanted._replace(tenant_id=dealer.tenant_id)), dealer


def _packages(context: RequestContext, asked: Question, group: Group) -> str:
    """The report of the packages of a row of a supplier: lists of orders name none."""
    day = group.keys.get("day")
    days = {"range": "", "from": day.isoformat(), "to": day.isoformat()} if day else {}
    dealer = {"dealer": str(group.keys["dealer"])} if "dealer" in group.keys else {}
    package = {"package": str(group.keys["package"])} if "package" in group.keys else {}
    more = {"supplier": str(group.keys["supplier"])} | days | dealer | package
    return reports.address(REPORTS, context, asked, by="package", then="", **more)


def _orders(asked: Question, group: Group) -> str:
    """The list of the orders that a row is the sum of, as far as that list filters; it knows no places, of which there
    are packages."""
    keys, wanted = group.keys, asked.wanted
    if keys.get("place"):
        return params.address("/console/packages", {"region": keys["place"]})
    days = {"from": keys["day"].isoformat(), "to": keys["day"].isoformat()} if "day" in keys else None
    dealer, package = keys.get("dealer", wanted.tenant_id), keys.get("package", wanted.package_code)
    query = {"dealer": dealer, "package": package, **(days or reports.days_query(wanted.period))}
    return params.address("/console/orders", query)
