"""Which places can a package be sold for? Every country, and the usual bundles of countries."""

import csv
import io
from collections.abc import Iterator
from importlib.resources import files
from typing import Literal, NamedTuple


class Country(NamedTuple):
    """A country or territory with its own ISO 3166-1 alpha-2 code; Kosovo by its user-assigned XK."""

    code: str
    name: str
    continent: str


class Bundle(NamedTuple):
    """Countries sold together. The number in the code is how many there are. `continent` is empty for GLOBAL."""

    code: str
    name: str
    location_type: Literal["REGION", "GLOBAL"]
    continent: str
    locations: tuple[str, ...]


def _rows(name: str) -> Iterator[dict[str, str]]:
    """The rows of a table that is packaged with this module."""
    text = files("dealer_server.rules.catalogue").joinpath("data", name).read_text(encoding="utf-8")
    return csv.DictReader(io.StringIO(text))


COUNTRIES = {row["code"]: Country(row["code"], row["name"], row["continent"]) for row in _rows("countries.csv")}
CONTINENTS = tuple(dict.fromkeys(country.continent for country in COUNTRIES.values()))
BUNDLES = {
    row["code"]: Bundle(
        code=row["code"],
        name=row["name"],
        location_type="REGION" if row["continent"] else "GLOBAL",
        continent=row["continent"],
        locations=tuple(row["locations"].split()),
    )
    for row in _rows("bundles.csv")
}
