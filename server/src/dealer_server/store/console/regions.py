"""Which places does the catalogue cover? Counted over what is on sale for whoever has no prices of its own."""

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


class _Sold(NamedTuple):
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
    sold = await _sold(connection)
    covering: Counter[str] = Counter()
    for one in sold:
        covering.update({place: one.packages for place in one.locations if place != one.code})
    by_code = {code: _region(list(group), covering[code]) for code, group in groupby(sold, lambda one: one.code)}
    parts = [_part(code, count) for code, count in covering.items() if code not in by_code and code in COUNTRIES]
    return sorted([*by_code.values(), *parts], key=lambda one: (one.name.casefold(), one.code))


def _region(sold: Sequence[_Sold], covering: int) -> Region:
    first = sold[0]
    currencies = sorted({one.currency for one in sold})
    return Region(
        *(first.code, first.name, first.location_type, first.continent),
        packages=sum(one.packages for one in sold),
        cheapest=[(it, min(one.cheapest for one in sold if one.currency == it)) for it in currencies],
        covering=covering,
    )


def _part(code: str, covering: int) -> Region:
    """A country that nothing is sold for alone."""
    return Region(code, COUNTRIES[code].name, "COUNTRY", COUNTRIES[code].continent, 0, (), covering)


async def _sold(connection: Connection) -> list[_Sold]:
    """By place. Each document is taken apart once: the long ones are compressed."""
    rows = await connection.fetch(
        "SELECT location_code, min(location_name), min(location_type), min(continent), currency, locations,"
        " count(*)::int, min(price) FROM package, jsonb_to_record(document) AS p(location_code text,"
        "  location_name text, location_type text, continent text, currency text, locations text[], price bigint,"
        "  status text)"
        " WHERE status = 'ON_SALE' GROUP BY location_code, currency, locations ORDER BY location_code, currency"
    )
    return [_Sold(*row) for row in rows]
