"""How is business, and does anything need a hand? The last 24 hours at a glance."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.console.operator import permissions, queues
from dealer_server.console.operator.permissions import LOOK
from dealer_server.console.operator.timeline import spoken
from dealer_server.console.shared.request_context import Page, RequestContext, Route
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.errors import StatementTimeout
from dealer_server.rules.access import latency_histogram
from dealer_server.rules.money import money
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import overview as console_overview
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.orders import Wanted
from dealer_server.store.console.overview import HOUR, Hour

HOURS = 24
HOURS_AT_ONCE = 8
SAMPLE = 200
LATEST = 8
CLOSED_AFTER = timedelta(minutes=5)
RENEWED = timedelta(seconds=10)
COUNTED_EACH_TIME = 1_000
"""Orders and attempts: an hour that runs and has more is counted again in a while, not for each page."""
COUNTED_AT_ONCE = 50_000
"""Orders and attempts: where there are more, a page counts some hours, and the page that follows the others."""
_counted: dict[tuple[str, datetime], tuple[Hour, datetime]] = {}
"""What this process has counted, and when, by database and hour. Hours that are over do not change."""


class Took(NamedTuple):
    """Seconds from payment to the first profile, of the latest orders that were delivered."""

    half: float
    most: float
    orders: int


class Pace(NamedTuple):
    """Calls, and the seconds within which 95 % of them were answered: over all, and hour by hour."""

    calls: int
    most: float | None
    by_hour: Sequence[float]


async def overview(context: RequestContext) -> Page:
    every = await counted(context.parts.database, context.now)
    async with context.parts.database.connection() as connection:
        latest = await console_orders.page(connection, Wanted(), None, LATEST)
        took = await _took(connection)
        unfinished = await console_suppliers.unfinished(connection)
        suppliers = await console_suppliers.listed(connection)
    hours = [one for one in every if one is not None]
    totals = _turnover(hours)
    currency = totals[0][0] if totals else "USD"
    attempts, answered = sum(one.attempts for one in hours), sum(one.answered for one in hours)
    return permissions.page(
        context,
        "overview",
        counting=len(hours) < len(every),
        times=[one.start for one in hours],
        order_counts=[one.orders for one in hours],
        order_total=sum(one.orders for one in hours),
        turnover=[float(money.text(one.turnover.get(currency, 0), currency)) for one in hours],
        turnovers=totals,
        currency=currency,
        attempts=attempts,
        success=None if not attempts else 100 * answered / attempts,
        successes=[100 * one.answered / one.attempts if one.attempts else 100 for one in hours],
        reads=_pace([one.reads for one in hours]),
        writes=_pace([one.writes for one in hours]),
        failed=sum(one.failed for one in hours),
        took=took,
        spoken=spoken,
        latest=latest.rows,
        suppliers=[(one, [open for open in unfinished if open.supplier == one.code]) for one in suppliers],
        waiting=[
            ("Top-ups", "/console/topups", await queues.pending(context)),
            ("Refunds in review", "/console/refunds", await queues.in_review(context)),
            ("Purchases nobody knows about", "/console/suppliers", await queues.parked(context)),
        ],
    )


async def counted(database: Database, now: datetime) -> list[Hour | None]:
    """The last hours, the one that runs included; None for those that are still to be counted."""
    dsn = database.dsn
    current = now.replace(minute=0, second=0, microsecond=0)
    for old in [key for key in _counted if key[1] < current - 2 * HOURS * HOUR]:
        del _counted[old]
    starts = [current - back * HOUR for back in range(HOURS)]
    known = {start: hour for start in starts if (hour := _known(dsn, start, now)) is not None}
    unknown = [start for start in starts if start not in known]
    work, most = 0, 1
    while unknown and work < COUNTED_AT_ONCE:
        some, unknown = _adjoining(unknown, most)
        try:
            async with database.connection() as connection:
                found = await console_overview.hours(connection, some[-1], len(some))
        except StatementTimeout:  # the page shows what was counted
            break
        known |= {one.start: one for one in found}
        _counted.update({(dsn, one.start): (one, now) for one in found})
        work += sum(one.orders + one.attempts for one in found)
        most = min(2 * most, HOURS_AT_ONCE)
    return [known.get(start) for start in reversed(starts)]


def _adjoining(starts: Sequence[datetime], most: int) -> tuple[Sequence[datetime], Sequence[datetime]]:
    """The first hours that follow each other backwards, and the others."""
    together = 1
    while together < min(most, len(starts)) and starts[together - 1] - starts[together] == HOUR:
        together += 1
    return starts[:together], starts[together:]


def _known(dsn: str, start: datetime, now: datetime) -> Hour | None:
    hour, at = _counted.get((dsn, start), (None, now))
    if hour is None or at > start + HOUR + CLOSED_AFTER:
        return hour
    return hour if now - at < RENEWED and hour.orders + hour.attempts > COUNTED_EACH_TIME else None


def _turnover(hours: Sequence[Hour]) -> list[tuple[str, int]]:
    """By currency, the one with the most first."""
    totals: Counter[str] = Counter()
    for one in hours:
        totals.update(one.turnover)
    return totals.most_common()


def _pace(hours: Sequence[Sequence[int]]) -> Pace:
    whole = [sum(counts) for counts in zip(*hours, strict=True)]
    return Pace(
        sum(whole),
        latency_histogram.percentile(whole, 95),
        [latency_histogram.percentile(one, 95) or 0.0 for one in hours],
    )


async def _took(connection: Connection) -> Took | None:
    found = await console_orders.page(connection, Wanted(status="DELIVERED"), None, SAMPLE)
    keys = [(one.tenant_id, one.order_id) for one in found.rows]
    seconds = await console_overview.delivery_seconds(connection, keys)
    if not seconds:
        return None
    return Took(seconds[len(seconds) // 2], seconds[len(seconds) * 95 // 100], len(seconds))


ROUTES: tuple[Route, ...] = (Route("GET", "/console", LOOK, overview, "Overview"),)
