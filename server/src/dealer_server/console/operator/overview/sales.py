"""What was left of the sales of some days, which dealers and packages made them, and how fast eSIMs came?"""

from collections.abc import Sequence
from datetime import date, timedelta
from statistics import median
from typing import NamedTuple

from dealer_server.console.operator.overview.figures import Figure, span
from dealer_server.console.operator.timeline import duration_text
from dealer_server.console.shared import reports
from dealer_server.console.shared.params import address
from dealer_server.console.shared.rendering import many
from dealer_server.db.connection import Connection
from dealer_server.rules.money import money
from dealer_server.rules.period import Period, change_text
from dealer_server.rules.reports import period as days
from dealer_server.rules.reports import sums as rules
from dealer_server.rules.reports.sums import Sums
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import overview as console_overview
from dealer_server.store.console.orders import OrderFilter
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter, Row

WEEK = timedelta(days=6)
TOP = 5
SAMPLE = 200
POINTS = 12
"""Of the small line of how long deliveries took."""


class Top(NamedTuple):
    """`text`: of which days. `names`: of dealers, by number."""

    text: str
    dealers: Sequence[Row]
    packages: Sequence[Row]
    names: dict[int, str]


def reported(of: Period) -> days.Period:
    """The days of a period, as reports have them; the last 7 of the last 24 hours, which are no whole days."""
    last = (of.end - timedelta(seconds=1)).date()
    return days.Period(last - WEEK, last) if of.name == "24h" else days.Period(of.start.date(), last)


def _days_text(of: days.Period) -> str:
    return many(len(of.days), "day")


async def top(connection: Connection, of: Period) -> Top:
    """Those with the highest revenue."""
    wanted = Filter(reported(of))
    dealers = await report.grouped(connection, wanted, ("dealer",), TOP)
    packages = await report.grouped(connection, wanted, ("package",), TOP)
    names, _ = await report.names(connection, [row.keys["dealer"] for row in dealers], [])
    return Top(_days_text(wanted.period), dealers, packages, names)


async def profit(connection: Connection, of: Period, currency: str, today: date) -> Figure:
    """Revenue less refunds and known costs, in one currency; its change is that of the days that are over."""
    wanted = reported(of)
    both = days.Period(wanted.before.first, wanted.last)
    every = rules.series(await report.by_day(connection, Filter(both)), currency, both.days)
    before, now = every[: -len(wanted.days)], every[-len(wanted.days) :]
    is_open = wanted.last == today
    over, compared = (now[:-1], before[1:]) if is_open else (now, before)
    total, was = rules.total(now), rules.total(compared).margin
    return Figure(
        title=f"Profit, {_days_text(wanted)}",
        value=money.text(total.margin, currency),
        currency=currency,
        href=address("/console/reports", {"from": wanted.first, "to": wanted.last}),
        change=change_text(rules.total(over).margin, was) if was > 0 else "",
        note=_share(total),
        numbers=reports.amounts(now, "margin", currency) if any(one.sold for one in now) else [],
        label="profit per day",
        open=is_open,
    )


def _share(total: Sums) -> str:
    if not total.sold:
        return ""
    return f"{total.margin_percent} of revenue" if total.complete else "Not all costs are known"


async def delivery_times(connection: Connection, of: Period) -> Figure:
    """Seconds from payment to the first eSIM of the latest delivered orders of a period."""
    wanted = OrderFilter(status="DELIVERED", start=of.start, end=of.end)
    found = await console_orders.list_orders(connection, wanted, None, SAMPLE)
    took = await console_overview.delivery_seconds(connection, [(row.tenant_id, row.order_id) for row in found.rows])
    if not took:
        return Figure("Time to first eSIM", "–", "", note="No order was delivered")
    ranked, size = sorted(took), -(-len(took) // POINTS)
    of_orders = f"{'the latest ' if len(took) >= SAMPLE else ''}{many(len(took), 'order')}"
    return Figure(
        title="Time to first eSIM",
        value=duration_text(ranked[len(ranked) // 2]),
        href=address("/console/orders", {"status": "DELIVERED", **span(of)}),
        note=f"p95 {duration_text(ranked[len(ranked) * 95 // 100])}, {of_orders}",
        numbers=[median(took[at : at + size]) for at in range(0, len(took), size)] if len(took) > POINTS else [],
        label="median seconds to the first eSIM, from the oldest of these orders on",
    )
