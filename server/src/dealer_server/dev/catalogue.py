"""What does a catalogue for all countries look like? About 2 000 packages, the same ones each time.

The test environment sells them through the simulated supplier; production may use them as a sample to edit.
"""

import hashlib
from typing import Literal, NamedTuple

import msgspec

from dealer_server.dev import operators
from dealer_server.rules.catalogue.countries import BUNDLES, COUNTRIES, Bundle
from dealer_server.rules.catalogue.package import (
    ALWAYS_SOLD_OUT,
    GB,
    MB,
    SUPPLIED_FIELDS,
    Package,
    data_text,
    slug_of,
    sold_by_day,
    speed_of,
)
from dealer_server.rules.money import money
from dealer_server.suppliers.builtin import simulated
from esim_dealer.wire.vocabulary import DataType, LocationType

Environment = Literal["production", "test"]


class Place(NamedTuple):
    """Where a package is for, and what data costs there: percent of the usual price."""

    location_type: LocationType
    code: str
    name: str
    continent: str
    locations: tuple[str, ...]
    cost: int


class Plan(NamedTuple):
    """How much data for how long, and its usual dealer price in cents (of one day for DAILY_*)."""

    data_type: DataType
    data_bytes: int | None
    days: int
    cents: int
    fup_speed: str | None = None


_PLANS = (  # the most popular first: a place sells as many of them as its tier allows
    Plan("TOTAL", 1 * GB, 7, 105),
    Plan("TOTAL", 3 * GB, 30, 255),
    Plan("TOTAL", 5 * GB, 30, 390),
    Plan("TOTAL", 10 * GB, 30, 700),
    Plan("DAILY_REDUCED", 1 * GB, 1, 95, "384 Kbps"),
    Plan("TOTAL", 20 * GB, 30, 1220),
    Plan("TOTAL", 500 * MB, 1, 55),
    Plan("TOTAL", 2 * GB, 15, 180),
    Plan("DAILY_UNLIMITED", None, 1, 240, "1 Mbps"),
    Plan("TOTAL", 50 * GB, 30, 2500),
    Plan("TOTAL", 100 * MB, 1, 14),
    Plan("TOTAL", 1 * GB, 1, 90),
    Plan("TOTAL", 3 * GB, 15, 240),
    Plan("DAILY_CUTOFF", 2 * GB, 1, 150),
    Plan("TOTAL", 5 * GB, 15, 365),
    Plan("TOTAL", 10 * GB, 60, 780),
    Plan("TOTAL", 300 * MB, 3, 40),
    Plan("DAILY_REDUCED", 500 * MB, 1, 55, "256 Kbps"),
    Plan("TOTAL", 20 * GB, 90, 1450),
    Plan("TOTAL", 50 * GB, 180, 3300),
)
_BUNDLE_PLANS = tuple(_PLANS[number] for number in (0, 2, 4, 3, 5, 9, 1, 8, 7, 13, 15, 6, 18, 19))


class Tier(NamedTuple):
    """Countries alike in their popularity with travellers, the plans they sell, and percent of the usual price."""

    codes: str
    plans: tuple[Plan, ...]
    costs: range


_TIERS = (
    Tier(
        "FR ES IT DE GB TR US JP TH CN KR ID VN MY SG AE EG GR PT NL CH AT MX CA AU BR IN HK MA PH",
        _PLANS,
        range(60, 130),
    ),
    Tier(
        """BE IE SE NO DK FI PL CZ HU HR RO BG IS RS AL ME SI SK EE LV LT CY MT UA LU GE AM KZ UZ IL JO SA QA KW OM BH
        LK NP KH TW MO MV NZ ZA KE TZ MU TN SN CO PE CL AR CR DO PA EC UY JM GT""",
        _PLANS[:11],
        range(110, 230),
    ),
    Tier("", _PLANS[:4], range(160, 410)),
    Tier("AQ BV GS HM IO KP PN TF TK UM", (), range(1)),
)
_TIER_OF = {code: tier for tier, alike in enumerate(_TIERS) for code in alike.codes.split()}
_OTHERS = 2  # the tier of every country named in none
_FLAGSHIPS = ("EU-35", "ASIA-13", "GULF-6", "NA-3", "LATAM-18")

_LOWEST = 9
"""Cents."""


def catalogue(environment: Environment) -> tuple[Package, ...]:
    """Every package generated for an environment; the scripted ones and the demo's only in "test"."""
    assert environment in ("production", "test")
    of_test = (*scripted(), _demo_stock()) if environment == "test" else ()
    return (*of_test, *_country_packages(), *_bundle_packages())


def _country_packages() -> list[Package]:
    return [
        package
        for code in sorted(COUNTRIES, key=_tier)
        for package in _packages(_country(code), _TIERS[_tier(code)].plans)
    ]


def _tier(code: str) -> int:
    return _TIER_OF.get(code, _OTHERS)


def _bundle_packages() -> list[Package]:
    return [package for bundle in BUNDLES.values() for package in _packages(*_bundle_terms(bundle))]


def _bundle_terms(bundle: Bundle) -> tuple[Place, tuple[Plan, ...]]:
    """The bundle with its cost, which rises with its countries, and what is sold for it."""
    plans, cost = _BUNDLE_PLANS[: 8 if bundle.code in _FLAGSHIPS else 5], 140 + 2 * len(bundle.locations)
    if bundle.location_type == "GLOBAL":
        plans = _BUNDLE_PLANS
    return Place(bundle.location_type, bundle.code, bundle.name, bundle.continent, bundle.locations, cost), plans


def _country(code: str) -> Place:
    country, costs = COUNTRIES[code], _TIERS[_tier(code)].costs
    return Place("COUNTRY", code, country.name, country.continent, (code,), _pick(code, costs))


def _packages(place: Place, plans: tuple[Plan, ...]) -> list[Package]:
    return [_package(place, plan) for plan in plans]


def _pick(key: str, choices: range) -> int:
    """One of the choices, always the same for a key."""
    return choices[int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % len(choices)]


def _package(place: Place, plan: Plan) -> Package:
    code, name = f"{place.code}-{_plan_code(plan)}", f"{place.name} {_plan_name(plan)}"
    cents = _cents(plan.cents * place.cost)
    networks = tuple(operators.network(location) for location in place.locations)
    return Package(
        package_code=code,
        slug=slug_of(name),
        package_name=name,
        description=_description(place, plan),
        type="BASE",
        status="ON_SALE",
        location_type=place.location_type,
        location_code=place.code,
        location_name=place.name,
        continent=place.continent,
        locations=place.locations,
        price=cents * money.unit("USD"),
        retail_price=_retail(cents) * money.unit("USD"),
        currency="USD",
        data_type=plan.data_type,
        data_bytes=plan.data_bytes,
        fup_speed=plan.fup_speed,
        duration=plan.days,
        duration_unit="DAY",
        min_period_num=1,
        max_period_num=30 if sold_by_day(plan.data_type) else 1,
        unused_valid_days=(90, 180, 180, 365)[_pick(place.code, range(4))],
        activation_type="FIRST_INSTALL" if _pick(code, range(5)) == 0 else "FIRST_NETWORK",
        speed=speed_of(networks),
        ip_export=_ip_export(place),
        top_up_support=False,
        max_quantity=(30, 50, 100, 100)[_pick(code, range(4))],
        networks=networks,
        supported_fields=SUPPLIED_FIELDS["simulated"],
        supplier="simulated",
    )


def _cents(price: int) -> int:
    """A price in hundredths of a cent, rounded half-up to the cent, and at least the lowest."""
    return max((price + 50) // 100, _LOWEST)


def _retail(cents: int) -> int:
    """About half more, ending in 9 as in a shop."""
    return cents * 3 // 2 // 10 * 10 + 9


def _ip_export(place: Place) -> str:
    """A country's traffic leaves at home or through a hub of its part of the world."""
    hub = {"Asia": "SG", "Oceania": "SG", "North America": "US", "South America": "US"}.get(place.continent, "NL")
    at_home = place.location_type == "COUNTRY" and _tier(place.code) < _OTHERS and _pick(place.code, range(2))
    return place.code if at_home else hub


def _plan_code(plan: Plan) -> str:
    if plan.data_bytes is None:
        return "UNL-DAY"
    ending = {"TOTAL": f"{plan.days}D", "DAILY_REDUCED": "DAY-R", "DAILY_CUTOFF": "DAY-C"}[plan.data_type]
    return f"{data_text(plan.data_bytes)}-{ending}"


def _plan_name(plan: Plan) -> str:
    if plan.data_bytes is None:
        return "unlimited a day"
    ending = {"TOTAL": _days(plan.days), "DAILY_REDUCED": "a day, reduced", "DAILY_CUTOFF": "a day, cut off"}
    return f"{data_text(plan.data_bytes, ' ')} {ending[plan.data_type]}"


def _days(days: int) -> str:
    return "1 day" if days == 1 else f"{days} days"


def _description(place: Place, plan: Plan) -> str:
    """What its name does not say."""
    where = place.name if len(place.locations) == 1 else f"{len(place.locations)} countries ({place.name})"
    volume = data_text(plan.data_bytes, " ") if plan.data_bytes else ""
    return {
        "TOTAL": "",
        "DAILY_REDUCED": f"{volume} a day in {where}, then {plan.fup_speed} until the next day.",
        "DAILY_CUTOFF": f"{volume} a day in {where}, then no data until the next day.",
        "DAILY_UNLIMITED": f"Unlimited data in {where}, at {plan.fup_speed} once fair use is exceeded.",
    }[plan.data_type]


_SCRIPTS = {
    "TEST-OK": "delivered at once",
    "TEST-DELAY": "delivered after 5 s",
    "TEST-PARTIAL": "the first half at once, the rest after 10 s",
    "TEST-FAIL": "fails for good: FAILED, then the automatic refund",
    ALWAYS_SOLD_OUT: "200011 at order time",
    "TEST-ASYNC": "cancel and refund are asynchronous, done after 3 s",
    "TEST-REVIEW": "a refund waits for an operator",
    "TEST-REJECT": "a refund is accepted as REFUNDING, then rejected after 3 s",
    "TEST-LIFECYCLE": "after delivery: download, install, enable, start, use to 100 %, end, within 10 s",
}
"""What happens to an order of each scripted package (specification 11)."""


def scripted() -> list[Package]:
    """The packages of the test environment that are played (specification 11)."""
    return [*_scripted(), *_recharges()]


def _scripted() -> list[Package]:
    """TEST-STOCKOUT is sold from a stock that is never loaded."""
    return [
        _sample(code, f"Test: {script}.", 180, "stock" if code == ALWAYS_SOLD_OUT else "simulated")
        for code, script in _SCRIPTS.items()
    ]


_RECHARGES = {
    "TEST-TOPUP-OK": "applied at once",
    "TEST-TOPUP-DELAY": "applied after 5 s",
    "TEST-TOPUP-FAIL": "fails for good: FAILED, then the automatic refund",
    "TEST-TOPUP-QUEUE": "begins when the plan before it ends",
    "TEST-TOPUP-ASYNC": "begins when the plan before it ends; its refund is asynchronous, done after 3 s",
}
"""What happens to a recharge with each scripted package."""


def _recharges() -> list[Package]:
    return [
        msgspec.structs.replace(
            _sample(code, f"Test: {script}.", 120, "simulated"),
            type="TOPUP",
            package_name=f"{code} adds 1 GB and 7 days",
            top_up_support=False,
            top_up_mode="QUEUE" if code in simulated.QUEUED else "ADD",
            max_quantity=1,
        )
        for code, script in _RECHARGES.items()
    ]


def _demo_stock() -> Package:
    return _sample("DEMO-STOCK", "Delivered from the stock file an operator loaded.", 250, "stock")


def _sample(code: str, description: str, cents: int, supplier: str) -> Package:
    """1 GB for 7 days in the United States, with this code, description and price."""
    united_states = Place("COUNTRY", "US", "United States", "North America", ("US",), 100)
    return msgspec.structs.replace(
        _package(united_states, _PLANS[0]),
        package_code=code,
        slug=slug_of(code),
        package_name=f"{code} 1 GB 7 days",
        description=description,
        price=cents * money.unit("USD"),
        retail_price=_retail(cents) * money.unit("USD"),
        unused_valid_days=180,
        activation_type="FIRST_NETWORK",
        max_quantity=100,
        top_up_support=supplier == "simulated",
        supported_fields=SUPPLIED_FIELDS[supplier],
        supplier=supplier,
    )
