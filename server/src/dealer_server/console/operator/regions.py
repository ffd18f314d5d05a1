"""Where what is sold can be used: countries, regions, the world; and what it costs there at least."""

from collections import Counter

from dealer_server.console.operator import permissions
from dealer_server.console.operator.permissions import LOOK, PAGE
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Page, RequestContext, Route
from dealer_server.store.console import regions as console_regions
from dealer_server.store.console.regions import Region

KINDS = ("COUNTRY", "REGION", "GLOBAL")


async def regions(context: RequestContext) -> Page:
    text, kind = params.text(context.query, "q"), params.one_of(context.query, "type", KINDS)
    async with context.parts.database.connection() as connection:
        found = await console_regions.regions(connection)
    matching = [one for one in found if kind in (None, one.location_type) and _named(one, text or "")]
    start = params.number(context.query, "before") or 0
    end = start + PAGE
    return permissions.page(
        context,
        "regions",
        regions=matching[start:end],
        counts=Counter(one.location_type for one in found),
        kind=kind,
        kinds=KINDS,
        text=text or "",
        pager=params.pager(
            context, "/console/regions", end if end < len(matching) else None, f"{len(matching)} places"
        ),
    )


def _named(one: Region, text: str) -> bool:
    """Whether its code is this, or its name or continent holds it."""
    return one.code == text.upper() or text.casefold() in f"{one.name}\n{one.continent}".casefold()


ROUTES: tuple[Route, ...] = (Route("GET", "/console/regions", LOOK, regions, "Regions"),)
