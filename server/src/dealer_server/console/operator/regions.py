"""Where packages can be used: countries, regions, the world; and the lowest price in each."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, NamedTuple

from dealer_server.console.find import tabs
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.reports import recent, sums
from dealer_server.rules.reports.period import day_of
from dealer_server.rules.reports.sums import DaySums
from dealer_server.store.console import regions as console_regions
from dealer_server.store.console.regions import Region
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter

REGIONS = "/console/regions"
TABS: Mapping[str, str] = {"COUNTRY": "Countries", "REGION": "Regions", "GLOBAL": "Global"}
KINDS = tuple(TABS)
PACKAGES = 20_000


class Row(NamedTuple):
    """`sold` and `revenue`: of its packages in 30 days, in the currency in which they sold most."""

    region: Region
    sold: int
    currency: str
    revenue: int


COLUMNS: Mapping[str, Callable[[Row], Any]] = {
    "name": lambda row: (row.region.name.casefold(), row.region.code),
    "-packages": lambda row: row.region.packages,
    "-sold": lambda row: row.sold,
    "-revenue": lambda row: row.revenue,
}
"""What is equal stands by name."""


@page(REGIONS, OPERATORS, "operator/regions.html", MenuEntry("Regions", "world", 90))
async def regions(context: RequestContext) -> Html:
    today = day_of(context.now)
    text, kind = params.text(context.query, "q"), params.one_of(context.query, "type", KINDS)
    async with context.parts.database.connection() as connection:
        every = await console_regions.regions(connection)
        sold = await _sold(connection, context, today)
    found = [Row(region, *sold.get(region.code, (0, "", 0))) for region in every if _matches(region, text or "")]
    order = params.order(context, REGIONS, tuple(COLUMNS), "-revenue")
    matching = [
        row
        for row in order.sorted(found, {name.removeprefix("-"): by for name, by in COLUMNS.items()})
        if kind in (None, row.region.location_type)
    ]
    counts = Counter(TABS[row.region.location_type] for row in found)
    start = params.number(context.query, "before") or 0
    end = start + PAGE_SIZE
    following = end if end < len(matching) else None
    return Html(
        regions=matching[start:end],
        tabs=await tabs.of(
            context,
            REGIONS,
            [(name, {"type": word}) for word, name in TABS.items()],
            {name: counts[name] for name in TABS.values()} | {"All": len(found)},
        ),
        order=order,
        kind=kind,
        text=text or "",
        pager=params.pager(
            context, REGIONS, following, shown=len(matching[start:end]), word="place", total=len(matching)
        ),
    )


async def _sold(connection: Connection, context: RequestContext, today: date) -> Mapping[str, tuple[int, str, int]]:
    """How many were sold for each place, the currency and the revenue, by its code."""
    known = context.parts.catalogue()
    rows = await report.grouped(connection, Filter(recent.shown(today)), ("package",), PACKAGES)
    by_place: dict[str, list[DaySums]] = {}
    for row in rows:
        if (package := known.package(row.keys["package"])) is not None:
            by_place.setdefault(package.location_code, []).append(DaySums(today, row.currency, row.sums))
    totals = {code: next(iter(sums.totals(days).items())) for code, days in by_place.items()}
    return {code: (total.sold, currency, total.revenue) for code, (currency, total) in totals.items()}


def _matches(region: Region, text: str) -> bool:
    """By its code, or a part of its name or continent."""
    return region.code == text.upper() or text.casefold() in f"{region.name}\n{region.continent}".casefold()
