"""What is wrong and what waits for a decision, worst first; then how sales go in a period."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from dealer_server.console.find import orders as find_orders
from dealer_server.console.operator.incidents import findings
from dealer_server.console.operator.overview import figures as sales
from dealer_server.console.operator.overview.hours import counted
from dealer_server.console.operator.suppliers.listing import call_counts, words_of
from dealer_server.console.operator.timeline import duration_text
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.period import RANGES, Period, Range, period
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import overview as console_overview
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.orders import OrderFilter
from dealer_server.store.console.suppliers import OpenPurchases, SupplierRow

OVERVIEW = "/console"
RANGE_TEXTS = {"24h": "24 h", "7d": "7 days", "30d": "30 days", "custom": "Custom"}
SAMPLE = 200
LATEST = 8
_ILL = ("DOWN", "DEGRADED")


class DeliveryTimes(NamedTuple):
    """Seconds from payment to the first eSIM of the latest delivered orders of a period: median and 95th percentile."""

    median: float
    p95: float
    orders: int


@page(OVERVIEW, OPERATORS, "operator/overview.html", MenuEntry("Overview", "layout-dashboard", 10))
async def overview(context: RequestContext) -> Html:
    of = chosen_period(context)
    hours = await counted(context.parts.database, of, context.now)
    async with context.parts.database.connection() as connection:
        incidents = await findings.incidents(connection, context)
        latest = await console_orders.list_orders(connection, OrderFilter(), None, LATEST)
        in_review = await find_orders.in_review(connection, latest.rows)
        times = await _delivery_times(connection, of)
        open_purchases = await console_suppliers.open_purchases(connection)
        suppliers = await console_suppliers.list_suppliers(connection)
        health = words_of(suppliers, await call_counts(connection, suppliers, context.now))
    return Html(
        incidents=incidents,
        period=of,
        last_day=f"{of.end - timedelta(seconds=1):%Y-%m-%d}",
        ranges=[(name, RANGE_TEXTS[name], params.address(OVERVIEW, {"range": name})) for name in RANGES[:-1]],
        compared=sales.compared_text(of) if hours.previous is not None and not hours.missing else "",
        compared_hours=sales.compares_hours(of),
        counting=hours.missing,
        figures=sales.figures(hours, of),
        charts=sales.charts(hours, of),
        health=health,
        degraded=[code for code, word in health.items() if word == "DEGRADED"],
        delivery_times=times,
        delivered=params.address("/console/orders", {"status": "DELIVERED", **sales.span(of)}),
        sample=SAMPLE,
        duration_text=duration_text,
        latest=latest.rows,
        in_review=in_review,
        suppliers=suppliers,
        queues=_queues(suppliers, open_purchases, health),
    )


def chosen_period(context: RequestContext) -> Period:
    """Of the query; the last 24 hours without one."""
    chosen: Range | None = params.one_of(context.query, "range", RANGES)
    first, last = params.day(context.query, "from"), params.day(context.query, "to")
    return period("24h" if chosen is None else chosen, first, last, context.now)


def _queues(
    suppliers: Sequence[SupplierRow], open_purchases: Sequence[OpenPurchases], health: Mapping[str, str]
) -> list[tuple[SupplierRow, list[tuple[str, str, int]]]]:
    """Suppliers that work on something, or do not work as they should."""
    found = [(row, _under_way([one for one in open_purchases if one.supplier == row.code])) for row in suppliers]
    return [(row, parts) for row, parts in found if parts or row.status == "PAUSED" or health.get(row.code) in _ILL]


def _under_way(parts: list[OpenPurchases]) -> list[tuple[str, str, int]]:
    """State, word and number of purchases without a final answer; UNKNOWN ones are asked about again, and become
    unconfirmed where that does not help."""
    return [(part.state, console_suppliers.STATE_WORDS.get(part.state, part.state), part.total) for part in parts]


async def _delivery_times(connection: Connection, of: Period) -> DeliveryTimes | None:
    wanted = OrderFilter(status="DELIVERED", start=of.start, end=of.end)
    found = await console_orders.list_orders(connection, wanted, None, SAMPLE)
    keys = [(row.tenant_id, row.order_id) for row in found.rows]
    seconds = await console_overview.delivery_seconds(connection, keys)
    if not seconds:
        return None
    return DeliveryTimes(median=seconds[len(seconds) // 2], p95=seconds[len(seconds) * 95 // 100], orders=len(seconds))
