"""Where packages can be used: countries, regions, the world; and the lowest price in each."""

from collections import Counter

from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.store.console import regions as console_regions
from dealer_server.store.console.regions import Region

REGIONS = "/console/regions"
KINDS = ("COUNTRY", "REGION", "GLOBAL")


@page(REGIONS, OPERATORS, "operator/regions.html", MenuEntry("Regions", "world", 90))
async def regions(context: RequestContext) -> Html:
    text, kind = params.text(context.query, "q"), params.one_of(context.query, "type", KINDS)
    async with context.parts.database.connection() as connection:
        every = await console_regions.regions(connection)
    matching = [region for region in every if kind in (None, region.location_type) and _matches(region, text or "")]
    start = params.number(context.query, "before") or 0
    end = start + PAGE_SIZE
    following = end if end < len(matching) else None
    return Html(
        regions=matching[start:end],
        counts=Counter(region.location_type for region in every),
        kind=kind,
        kinds=KINDS,
        text=text or "",
        pager=params.pager(
            context, REGIONS, following, shown=len(matching[start:end]), word="place", total=len(matching)
        ),
    )


def _matches(region: Region, text: str) -> bool:
    """By its code, or a part of its name or continent."""
    return region.code == text.upper() or text.casefold() in f"{region.name}\n{region.continent}".casefold()
