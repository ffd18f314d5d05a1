"""The monthly statements of a dealer."""

from dealer_server.console.operator.dealers import load
from dealer_server.console.shared import reports
from dealer_server.console.shared.page import download, page
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Download, Html, RequestContext
from dealer_server.rules.reports.statement import KINDS

STATEMENTS = "/console/dealers/{tenant_id}/statements"
MONTH = f"{STATEMENTS}/{{month}}"


@page(STATEMENTS, OPERATORS, "reports/statements.html", listing=True)
async def list_statements(context: RequestContext) -> Html:
    dealer = await load(context)
    home = f"/console/dealers/{dealer.tenant_id}"
    currency, months = await reports.months(context, dealer.tenant_id)
    return Html(
        currency=currency,
        months=months,
        path=f"{home}/statements",
        entries_file=f"{home}/statement.csv",
        name=dealer.name,
        words=KINDS,
    )


@page(MONTH, OPERATORS, "reports/statement.html", listing=True)
async def show_statement(context: RequestContext) -> Html:
    dealer = await load(context)
    home = f"/console/dealers/{dealer.tenant_id}"
    return Html(
        statement=await reports.monthly(context, dealer.tenant_id),
        path=f"{home}/statements",
        entries=f"{home}/statement",
        entries_file=f"{home}/statement.csv",
        name=dealer.name,
        words=KINDS,
    )


@download(f"{MONTH}/pdf", OPERATORS, listing=True)
async def download_statement(context: RequestContext) -> Download:
    return await reports.monthly_pdf(context, (await load(context)).tenant_id)
