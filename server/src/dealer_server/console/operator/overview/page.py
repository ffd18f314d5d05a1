"""What is wrong and what waits for a decision, worst first; then how sales go in a period."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from dealer_server.console.find import orders as find_orders
from dealer_server.console.operator.incidents import findings
from dealer_server.console.operator.overview import figures, sales
from dealer_server.console.operator.overview.hours import counted
from dealer_server.console.operator.suppliers.listing import words_of
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.period import Period, Range, period
from dealer_server.rules.reports.period import day_of
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.orders import OrderFilter, OrderRow
from dealer_server.store.console.suppliers import OpenPurchases, SupplierRow

OVERVIEW = "/console"
RANGES: Mapping[Range, str] = {"today": "Today", "7d": "7 days", "30d": "30 days", "custom": "Custom"}
LATEST = 5
FAILED = 100
UNSETTLED = {"FULFILLING": LATEST, "FAILED": FAILED}
"""Orders that wait, then those that failed: how many of each are looked for."""
LOOKED_AT = 2_000
"""Orders, the newest, that are searched for these."""


@page(OVERVIEW, OPERATORS, "operator/overview.html", MenuEntry("Overview", "layout-dashboard", 10))
async def overview(context: RequestContext) -> Html:
    of, fault = chosen_period(context)
    hours = await counted(context.parts.database, of, context.now)
    async with context.parts.database.connection() as connection:
        suppliers = await console_suppliers.list_suppliers(connection)
        counts = await findings.call_counts(connection, suppliers, context.now)
        incidents = await findings.incidents(connection, context, suppliers, counts)
        latest = await console_orders.list_orders(connection, OrderFilter(), None, LATEST)
        unsettled, refunded = await _unsettled(connection, of)
        in_review = await find_orders.in_review(connection, [*latest.rows, *unsettled])
        times = await sales.delivery_times(connection, of)
        sold = await sales.sold(connection, of, day_of(context.now))
        top = await sales.top(connection, of)
        open_purchases = await console_suppliers.open_purchases(connection)
        health = words_of(suppliers, counts)
    by_hours, compared = figures.by_hours(of), hours.previous is not None and not hours.missing
    compared = compared or (not by_hours and any(one.sold for one in sold.before))
    return Html(
        incidents=incidents,
        period=of,
        fault=fault,
        last_day=f"{of.end - timedelta(seconds=1):%Y-%m-%d}",
        ranges=[
            (name, text, params.address(OVERVIEW, {"range": name})) for name, text in RANGES.items() if name != "custom"
        ],
        compared=compared,
        compared_hours=figures.compares_hours(of),
        counting=hours.missing,
        counted=of.hours - hours.missing,
        by_hours=by_hours,
        margin=sales.margin(sold),
        tiles=[*figures.figures(hours, of), times],
        charts=[
            figures.orders_chart(hours, of),
            figures.turnover_chart(hours, of) if by_hours else sales.turnover_chart(sold),
        ],
        top=top,
        top_report=params.address("/console/reports", {"from": sold.days.first, "to": sold.days.last, "by": "dealer"}),
        health=health,
        counts=counts,
        healthy=sum(row.status != "PAUSED" and health[row.code] == "UP" for row in suppliers),
        latest=latest.rows,
        unsettled=unsettled,
        failed_refunded=refunded,
        failed_list=params.address("/console/orders", {"status": "FAILED", **figures.span(of)}),
        most_failed=FAILED,
        in_review=in_review,
        suppliers=suppliers,
        queues=_queues(suppliers, open_purchases),
    )


async def _unsettled(connection: Connection, of: Period) -> tuple[list[OrderRow], int]:
    """Of a period, those that wait first, then those that failed and are not refunded, each the newest first; and how
    many of the FAILED newest that failed are refunded: nothing is to be done about these."""
    waiting, failed = [
        (await console_orders.list_orders(connection, wanted, None, most, LOOKED_AT)).rows
        for status, most in UNSETTLED.items()
        for wanted in [OrderFilter(status=status, start=of.start, end=of.end)]
    ]
    open_rows = [row for row in failed if row.order_status != "REFUNDED"]
    rows = {row.order_id: row for row in [*waiting, *open_rows]}
    return list(rows.values())[:LATEST], len(failed) - len(open_rows)


def chosen_period(context: RequestContext) -> tuple[Period, str]:
    """Of the query, and what is wrong with its days; 7 days without a query, and where something is wrong."""
    chosen: Range | None = params.one_of(context.query, "range", tuple(RANGES))
    if chosen != "custom":
        return period(chosen or "7d", None, None, context.now), ""
    first, last = params.day(context.query, "from"), params.day(context.query, "to")
    fault = next(iter(params.faults(context.query).values()), "")
    return period("7d" if fault else chosen, first, last, context.now), fault


def _queues(
    suppliers: Sequence[SupplierRow], open_purchases: Sequence[OpenPurchases]
) -> list[tuple[SupplierRow, list[tuple[str, str, int]]]]:
    """Suppliers that work on something."""
    found = [(row, _under_way([one for one in open_purchases if one.supplier == row.code])) for row in suppliers]
    return [(row, parts) for row, parts in found if parts]


def _under_way(parts: list[OpenPurchases]) -> list[tuple[str, str, int]]:
    """State, word and number of purchases without a final answer; UNKNOWN ones are asked about again, and become
    unconfirmed where that does not help."""
    return [(part.state, console_suppliers.STATE_WORDS.get(part.state, part.state), part.total) for part in parts]
