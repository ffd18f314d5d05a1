"""Which places does the catalogue cover? Counted over the packages on sale at the default dealer price."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.catalogue.countries import COUNTRIES


class Region(NamedTuple):
    """A place that packages on sale are sold for, or a country that is a part of one. `cheapest`: (currency, price) of
    those sold for it, one per currency; `covering`: how many are sold for a wider place that holds it."""

    code: str
    name: str
    location_type: str
    continent: str
    packages: int
    cheapest: Sequence[tuple[str, int]]
    covering: int


class _PlacePackages(NamedTuple):
    """Packages of one place, in one currency, for the same countries."""

    code: str
    name: str
    location_type: str
    continent: str
    currency: str
    locations: Sequence[str]
    packages: int
    cheapest: int


async def regions(connection: Connection) -> list[Region]:
    """By name."""
    places = await _place_packages(connection)
    covering: Counter[str] = Counter()
    for place in places:
        covering.update({country: place.packages for country in place.locations if country != place.code})
    by_code = {code: _region(list(group), covering[code]) for code, group in groupby(places, lambda row: row.code)}
    parts = [_part(code, count) for code, count in covering.items() if code not in by_code and code in COUNTRIES]
    return sorted([*by_code.values(), *parts], key=lambda region: (region.name.casefold(), region.code))


def _region(rows: Sequence[_PlacePackages], covering: int) -> Region:
    cheapest: dict[str, int] = {}
    for row in rows:
        cheapest[row.currency] = min(row.cheapest, cheapest.get(row.currency, row.cheapest))
    return Region(
        code=rows[0].code,
        name=rows[0].name,
        location_type=rows[0].location_type,
        continent=rows[0].continent,
        packages=sum(row.packages for row in rows),
        cheapest=sorted(cheapest.items()),
        covering=covering,
    )


def _part(code: str, covering: int) -> Region:
    """A country that no package is sold for alone."""
    return Region(code, COUNTRIES[code].name, "COUNTRY", COUNTRIES[code].continent, 0, (), covering)


async def _place_packages(connection: Connection) -> list[_PlacePackages]:
    """By place. Each document is taken apart once: the long ones are compressed."""
    rows = await connection.fetch(
        "SELECT location_code AS code, min(location_name) AS name, min(location_type) AS location_type,"
        " min(continent) AS continent, currency, locations, count(*)::int AS packages, min(price) AS cheapest"
        " FROM package, jsonb_to_record(document) AS p(location_code text, location_name text, location_type text,"
        "  continent text, currency text, locations text[], price bigint, status text)"
        " WHERE status = 'ON_SALE' GROUP BY location_code, currency, locations ORDER BY location_code, currency"
    )
    return [_PlacePackages(**row) for row in rows]
