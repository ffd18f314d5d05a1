"""Where what is sold can be used: countries, regions, the world; and what it costs there at least."""

from collections import Counter

from dealer_server.console import asked
from dealer_server.console.operator import own
from dealer_server.console.operator.own import LOOK, PAGE
from dealer_server.console.visit import Page, Route, Visit
from dealer_server.store import console_regions
from dealer_server.store.console_regions import Region

KINDS = ("COUNTRY", "REGION", "GLOBAL")


async def regions(visit: Visit) -> Page:
    text, kind = asked.text(visit.query, "q"), asked.one_of(visit.query, "type", KINDS)
    async with visit.parts.database.connection() as connection:
        found = await console_regions.regions(connection)
    matching = [one for one in found if kind in (None, one.location_type) and _named(one, text or "")]
    start = asked.number(visit.query, "before") or 0
    end = start + PAGE
    return own.page(
        visit,
        "regions",
        regions=matching[start:end],
        counts=Counter(one.location_type for one in found),
        kind=kind,
        kinds=KINDS,
        text=text or "",
        pager=asked.pager(visit, "/console/regions", end if end < len(matching) else None, f"{len(matching)} places"),
    )


def _named(one: Region, text: str) -> bool:
    """Whether its code is this, or its name or continent holds it."""
    return one.code == text.upper() or text.casefold() in f"{one.name}\n{one.continent}".casefold()


ROUTES: tuple[Route, ...] = (Route("GET", "/console/regions", LOOK, regions, "Regions"),)
