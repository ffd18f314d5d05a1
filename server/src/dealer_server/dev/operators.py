"""Which networks can be used in a country? The public mobile operators of the countries that people travel to."""

import csv
import io
from functools import cache
from importlib.resources import files

from dealer_server.rules.catalogue.countries import COUNTRIES
from dealer_server.rules.catalogue.package import Network, Operator


@cache
def network(location_code: str) -> Network:
    """The operators of a country; a made-up "<Country> Mobile" where none is listed."""
    operators = _operators().get(location_code)
    return Network(location_code, operators or (Operator(f"{COUNTRIES[location_code].name} Mobile", "4G"),))


@cache
def _operators() -> dict[str, tuple[Operator, ...]]:
    text = files("dealer_server.dev").joinpath("data/operators.csv").read_text(encoding="utf-8")
    by_country: dict[str, tuple[Operator, ...]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        operators = by_country.get(row["country"], ())
        by_country[row["country"]] = (*operators, Operator(row["operator"], row["network_type"]))
    return by_country
