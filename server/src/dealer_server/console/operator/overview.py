"""How do sales go, and what waits for an operator? The last 24 hours."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from dealer_server.console.operator import queues
from dealer_server.console.operator.timeline import duration_text
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.errors import StatementTimeout
from dealer_server.rules.access import latency_histogram
from dealer_server.rules.money import money
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import overview as console_overview
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.orders import OrderFilter
from dealer_server.store.console.overview import HOUR, Hour

HOURS = 24
HOURS_AT_ONCE = 8
SAMPLE = 200
LATEST = 8
CLOSED_AFTER = timedelta(minutes=5)
RENEWED = timedelta(seconds=10)
CACHED_FROM = 1_000
"""Orders and attempts: the current hour is counted again for each page, unless it has more than this."""
COUNTED_AT_ONCE = 50_000
"""Orders and attempts: a page stops counting hours after this many; the next page counts the others."""
_cache: dict[tuple[str, datetime], tuple[Hour, datetime]] = {}
"""What this process has counted, and when, by database and hour. Hours that are over do not change."""


class DeliveryTimes(NamedTuple):
    """Seconds from payment to the first profile of the latest delivered orders: median and 95th percentile."""

    median: float
    p95: float
    orders: int


class Latency(NamedTuple):
    """Calls, and the seconds within which 95 % of them were answered: over all, and hour by hour."""

    calls: int
    p95: float | None
    by_hour: Sequence[float]


@page("/console", OPERATORS, "operator/overview.html", MenuEntry("Overview", "layout-dashboard", 10))
async def overview(context: RequestContext) -> Html:
    every = await counted(context.parts.database, context.now)
    async with context.parts.database.connection() as connection:
        latest = await console_orders.list_orders(connection, OrderFilter(), None, LATEST)
        times = await _delivery_times(connection)
        open_purchases = await console_suppliers.open_purchases(connection)
        suppliers = await console_suppliers.list_suppliers(connection)
    hours = [hour for hour in every if hour is not None]
    return Html(
        counting=len(hours) < len(every),
        **_orders(hours),
        **_webhooks(hours),
        reads=_latency([hour.reads for hour in hours]),
        writes=_latency([hour.writes for hour in hours]),
        failed=sum(hour.failed for hour in hours),
        delivery_times=times,
        duration_text=duration_text,
        latest=latest.rows,
        suppliers=[(row, [some for some in open_purchases if some.supplier == row.code]) for row in suppliers],
        waiting=[
            ("Top-ups", "/console/topups", await queues.pending_topups(context)),
            ("Refunds in review", "/console/refunds", await queues.refunds_in_review(context)),
            ("Purchases with unknown outcome", "/console/suppliers", await queues.parked_purchases(context)),
        ],
    )


def _orders(hours: Sequence[Hour]) -> dict[str, Any]:
    """How many orders, and what they came to, by currency; the chart shows the currency with the most."""
    totals: Counter[str] = Counter()
    for hour in hours:
        totals.update(hour.turnover)
    turnovers = totals.most_common()
    currency = turnovers[0][0] if turnovers else "USD"
    return {
        "times": [hour.start for hour in hours],
        "order_counts": [hour.orders for hour in hours],
        "order_total": sum(hour.orders for hour in hours),
        "turnover": [float(money.text(hour.turnover.get(currency, 0), currency)) for hour in hours],
        "turnovers": turnovers,
        "currency": currency,
    }


def _webhooks(hours: Sequence[Hour]) -> dict[str, Any]:
    attempts, answered = sum(hour.attempts for hour in hours), sum(hour.answered for hour in hours)
    return {
        "attempts": attempts,
        "success": 100 * answered / attempts if attempts else None,
        "successes": [100 * hour.answered / hour.attempts if hour.attempts else 100 for hour in hours],
    }


async def counted(database: Database, now: datetime) -> list[Hour | None]:
    """The last hours, the current one included; None for those that are still to be counted."""
    dsn = database.dsn
    current = now.replace(minute=0, second=0, microsecond=0)
    for old in [key for key in _cache if key[1] < current - 2 * HOURS * HOUR]:
        del _cache[old]
    starts = [current - back * HOUR for back in range(HOURS)]
    known = {start: hour for start in starts if (hour := _cached(dsn, start, now)) is not None}
    unknown = [start for start in starts if start not in known]
    work, size = 0, 1
    while unknown and work < COUNTED_AT_ONCE:
        adjoining, unknown = _adjoining(unknown, size)
        try:
            async with database.connection() as connection:
                hours = await console_overview.hours(connection, adjoining[-1], len(adjoining))
        except StatementTimeout:  # the page shows what was counted
            break
        known |= {hour.start: hour for hour in hours}
        _cache.update({(dsn, hour.start): (hour, now) for hour in hours})
        work += sum(hour.orders + hour.attempts for hour in hours)
        size = min(2 * size, HOURS_AT_ONCE)
    return [known.get(start) for start in reversed(starts)]


def _adjoining(starts: Sequence[datetime], most: int) -> tuple[Sequence[datetime], Sequence[datetime]]:
    """The first hours that follow each other backwards, and the others."""
    together = 1
    while together < min(most, len(starts)) and starts[together - 1] - starts[together] == HOUR:
        together += 1
    return starts[:together], starts[together:]


def _cached(dsn: str, start: datetime, now: datetime) -> Hour | None:
    hour, at = _cache.get((dsn, start), (None, now))
    if hour is None or at > start + HOUR + CLOSED_AFTER:
        return hour
    return hour if now - at < RENEWED and hour.orders + hour.attempts > CACHED_FROM else None


def _latency(hours: Sequence[Sequence[int]]) -> Latency:
    whole = [sum(counts) for counts in zip(*hours, strict=True)]
    return Latency(
        calls=sum(whole),
        p95=latency_histogram.percentile(whole, 95),
        by_hour=[latency_histogram.percentile(hour, 95) or 0.0 for hour in hours],
    )


async def _delivery_times(connection: Connection) -> DeliveryTimes | None:
    found = await console_orders.list_orders(connection, OrderFilter(status="DELIVERED"), None, SAMPLE)
    keys = [(row.tenant_id, row.order_id) for row in found.rows]
    seconds = await console_overview.delivery_seconds(connection, keys)
    if not seconds:
        return None
    return DeliveryTimes(median=seconds[len(seconds) // 2], p95=seconds[len(seconds) * 95 // 100], orders=len(seconds))
