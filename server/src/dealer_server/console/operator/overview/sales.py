"""What was left of the sales of some days, which dealers and packages made them, and how fast eSIMs came?"""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from statistics import median
from typing import NamedTuple

from dealer_server.console.operator.overview.figures import Chart, Figure, span
from dealer_server.console.operator.timeline import duration_text
from dealer_server.console.shared import reports
from dealer_server.console.shared.params import address
from dealer_server.console.shared.rendering import many
from dealer_server.db.connection import Connection
from dealer_server.rules.money import money
from dealer_server.rules.period import Period
from dealer_server.rules.reports import period as days
from dealer_server.rules.reports import sums as rules
from dealer_server.rules.reports.sums import Sums
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import overview as console_overview
from dealer_server.store.console.orders import OrderFilter
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter, Row

TOP = 5
SAMPLE = 200
POINTS = 12
"""Of the small line of how long deliveries took."""
FEW = 3
"""Days, of which fewer make no line."""


class Top(NamedTuple):
    """`names`: of dealers, by number."""

    dealers: Sequence[Row]
    packages: Sequence[Row]
    names: dict[int, str]


class Sold(NamedTuple):
    """What was sold on the days of a period, day by day, in the currency with the most, and on as many before.
    `others`: what was sold in other currencies. `open`: the last day is not over yet."""

    days: days.Period
    currency: str
    now: Sequence[Sums]
    before: Sequence[Sums]
    others: Mapping[str, Sums]
    open: bool

    @property
    def href(self) -> str:
        return address("/console/reports", {"from": self.days.first, "to": self.days.last})

    @property
    def changes(self) -> Mapping[str, str]:
        """Of the days that are over, by property of Sums."""
        return reports.changes(*((self.now[:-1], self.before[1:]) if self.open else (self.now, self.before)))


def reported(of: Period) -> days.Period:
    """The days of a period, as reports have them: those that it has a part of."""
    return days.Period(of.start.date(), (of.end - timedelta(seconds=1)).date())


async def top(connection: Connection, of: Period) -> Top:
    """Those with the highest revenue."""
    wanted = Filter(reported(of))
    dealers = await report.grouped(connection, wanted, ("dealer",), TOP)
    packages = await report.grouped(connection, wanted, ("package",), TOP)
    names, _ = await report.names(connection, [row.keys["dealer"] for row in dealers], [])
    return Top(dealers, packages, names)


async def sold(connection: Connection, of: Period, today: date) -> Sold:
    wanted = reported(of)
    every = await report.by_day(connection, Filter(days.Period(wanted.before.first, wanted.last)))
    totals = rules.totals(one for one in every if one.day >= wanted.first)
    currency = next(iter(totals), "USD")
    return Sold(
        wanted,
        currency,
        rules.series(every, currency, wanted.days),
        rules.series(every, currency, wanted.before.days),
        {code: sums for code, sums in totals.items() if code != currency},
        wanted.last == today,
    )


def turnover_chart(found: Sold) -> Chart:
    """Day by day, as reports have it."""
    now, before = (reports.amounts(some, "revenue", found.currency) for some in (found.now, found.before))
    was = [*before[: len(before) - found.open], *[None] * found.open] if any(before) else []
    title, every = f"Revenue per day, {found.currency}", [days.start_of(day) for day in found.days.days]
    return Chart("turnover-chart", title, _revenue(found), every, now, was, found.currency, found.open, True)


def _revenue(found: Sold) -> Figure:
    others = [money.shown(sums.revenue, code) for code, sums in found.others.items()]
    return Figure(
        title="Revenue",
        value=money.text(rules.total(found.now).revenue, found.currency),
        currency=found.currency,
        href=found.href,
        change=found.changes["revenue"],
        note=f"and {', '.join(others)}" if others else "",
    )


def margin(found: Sold) -> Figure:
    """Revenue less refunds and known costs, of whole days."""
    total = rules.total(found.now)
    return Figure(
        title="Margin",
        value=money.text(total.margin, found.currency),
        currency=found.currency,
        href=found.href,
        change=found.changes["margin"],
        note=_share(total),
        numbers=reports.amounts(found.now, "margin", found.currency) if total.sold and len(found.now) >= FEW else [],
        label="margin per day",
        open=found.open,
    )


def _share(total: Sums) -> str:
    if not total.sold:
        return ""
    return f"{total.margin_percent} of net revenue" if total.complete else "Not all costs are known"


async def delivery_times(connection: Connection, of: Period) -> Figure:
    """Seconds from payment to the first eSIM of the latest delivered orders of a period."""
    wanted = OrderFilter(status="DELIVERED", start=of.start, end=of.end)
    found = await console_orders.list_orders(connection, wanted, None, SAMPLE)
    took = await console_overview.delivery_seconds(connection, [(row.tenant_id, row.order_id) for row in found.rows])
    if not took:
        return Figure("Payment to eSIM", "–", "", note="No order was delivered")
    ranked, size = sorted(took), -(-len(took) // POINTS)
    return Figure(
        title="Payment to eSIM",
        value=duration_text(ranked[len(ranked) // 2]),
        href=address("/console/orders", {"status": "DELIVERED", **span(of)}),
        note=f"median, 95 % within {duration_text(ranked[len(ranked) * 95 // 100])}",
        numbers=[median(took[at : at + size]) for at in range(0, len(took), size)] if len(took) > POINTS else [],
        label=f"median seconds to the first eSIM of the latest {many(len(took), 'order')}, the oldest first",
    )
