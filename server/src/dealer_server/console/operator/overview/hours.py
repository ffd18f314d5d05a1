"""Orders, webhooks and calls of the hours of a period.

Hours that are over come from the table in which a worker counts each of them once. Those of the last day that it has
not counted yet are counted here, and kept by this process.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.database import Database
from dealer_server.db.errors import StatementTimeout
from dealer_server.rules.access import latency_histogram
from dealer_server.rules.period import Period, period
from dealer_server.store.console import overview as console_overview
from dealer_server.store.console.overview import HOUR, Hour

HOURS = 24
"""Only so many of the latest hours are counted for a page."""
HOURS_AT_ONCE = 8
CLOSED_AFTER = timedelta(minutes=5)
RENEWED = timedelta(seconds=10)
CACHED_FROM = 1_000
"""Orders and attempts: the current hour is counted again for each page, unless it has more than this."""
COUNTED_AT_ONCE = 50_000
"""Orders and attempts: a page stops counting hours after this many; the next page counts the others."""
_cache: dict[tuple[str, datetime], tuple[Hour, datetime]] = {}
"""What this process has counted, and when, by database and hour. Hours that are over do not change."""
_NO_CALLS = (0,) * latency_histogram.BUCKETS


class Counted(NamedTuple):
    """`hours`: of the period, oldest first; those that are still to be counted have nothing in them. `missing`: how
    many these are. `previous`: the hours it is compared with; None while some of them are to be counted, or where the
    first dealer came later."""

    hours: Sequence[Hour]
    missing: int
    previous: Sequence[Hour] | None


async def warm(database: Database, now: datetime) -> None:
    """Counts what the first page would wait for."""
    await counted(database, period("7d", None, None, now), now)


async def counted(database: Database, of: Period, now: datetime) -> Counted:
    async with database.connection() as connection:
        first_at = await console_overview.first_dealer_at(connection)
        known = {hour.start: hour for hour in await console_overview.stored(connection, of.start, of.end)}
        before = {hour.start: hour for hour in await console_overview.stored(connection, *of.previous, calls=False)}
    begun = now if first_at is None else min(first_at, now)
    starts = [of.start + at * HOUR for at in range(of.hours)]
    known |= {start: _empty(start) for start in starts if start not in known and start + HOUR <= begun}
    known |= await _latest(database, starts, known, now)
    hours = [known.get(start) or _empty(start) for start in starts]
    return Counted(hours, sum(start not in known for start in starts), _previous(of, before, begun))


def _previous(of: Period, known: Mapping[datetime, Hour], begun: datetime) -> Sequence[Hour] | None:
    start, end = of.previous
    starts = [start + at * HOUR for at in range((end - start) // HOUR)]
    if begun >= end:
        return None
    hours = [known.get(at) or (_empty(at) if at + HOUR <= begun else None) for at in starts]
    complete = [hour for hour in hours if hour is not None]
    return complete if len(complete) == len(hours) else None


def _empty(start: datetime) -> Hour:
    return Hour(start, 0, {}, 0, 0, _NO_CALLS, _NO_CALLS, 0)


async def _latest(
    database: Database, starts: Iterable[datetime], stored: Mapping[datetime, Hour], now: datetime
) -> dict[datetime, Hour]:
    """Those of the last day that are not stored, as far as they were counted before or can be counted now."""
    dsn = database.dsn
    current = now.replace(minute=0, second=0, microsecond=0)
    for old in [key for key in _cache if key[1] < current - 2 * HOURS * HOUR]:
        del _cache[old]
    wanted = sorted((at for at in starts if at not in stored and at > current - HOURS * HOUR), reverse=True)
    known = {start: hour for start in wanted if (hour := _cached(dsn, start, now)) is not None}
    unknown: Sequence[datetime] = [start for start in wanted if start not in known]
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
    return known


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
