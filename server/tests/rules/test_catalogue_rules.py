"""The catalogue: which packages make sense, what is generated, and what an operator's CSV says."""

import hashlib
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from typing import get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dealer_server.dev import catalogue, operators
from dealer_server.rules.catalogue import importing, package
from dealer_server.rules.catalogue.countries import BUNDLES, CONTINENTS, COUNTRIES
from dealer_server.rules.catalogue.package import FIELDS, GB, MB, Network, Operator, Package
from dealer_server.rules.money import money
from dealer_server.rules.recharges import recharge
from esim_dealer.wire.vocabulary import DataType
from support import paths

TEST = catalogue.catalogue("test")
PRODUCTION = catalogue.catalogue("production")
GUIDE = paths.DOCS / "guides/catalog-import.md"

# Countries


def test_there_are_249_countries_and_kosovo():
    assert len(COUNTRIES) == 250
    assert "XK" in COUNTRIES
    assert all(re.fullmatch("[A-Z]{2}", code) and code == country.code for code, country in COUNTRIES.items())
    assert len({country.name for country in COUNTRIES.values()}) == 250


def test_every_continent_has_its_countries():
    assert Counter(country.continent for country in COUNTRIES.values()) == {
        "Africa": 58,
        "Antarctica": 5,
        "Asia": 51,
        "Europe": 53,
        "North America": 41,
        "Oceania": 28,
        "South America": 14,
    }
    assert list(CONTINENTS) == sorted(CONTINENTS)


@pytest.mark.parametrize(
    ("code", "name", "continent"),
    [
        ("CI", "Côte d'Ivoire", "Africa"),
        ("TR", "Türkiye", "Asia"),
        ("AX", "Åland Islands", "Europe"),
        ("ST", "São Tomé and Príncipe", "Africa"),
        ("BQ", "Bonaire, Sint Eustatius and Saba", "North America"),
        ("UM", "United States Minor Outlying Islands", "Oceania"),
        ("FK", "Falkland Islands", "South America"),
        ("XK", "Kosovo", "Europe"),
        ("AQ", "Antarctica", "Antarctica"),
    ],
)
def test_countries_have_their_proper_names(code: str, name: str, continent: str):
    assert COUNTRIES[code] == (code, name, continent)


def test_the_number_in_a_bundles_code_counts_its_countries():
    for code, bundle in BUNDLES.items():
        assert code == bundle.code
        assert int(code.rpartition("-")[2]) == len(bundle.locations) == len(set(bundle.locations))
        assert set(bundle.locations) <= set(COUNTRIES)
        assert list(bundle.locations) == sorted(bundle.locations)


def test_exactly_one_bundle_is_global_and_has_126_countries():
    (one,) = (bundle for bundle in BUNDLES.values() if bundle.location_type == "GLOBAL")
    assert (len(one.locations), one.continent) == (126, "")
    assert all(bundle.continent in CONTINENTS for bundle in BUNDLES.values() if bundle is not one)


# Operators


def test_every_country_has_operators():
    for code in COUNTRIES:
        assert operators.network(code).location_code == code
        assert operators.network(code).operators


def test_travel_countries_have_operators_by_their_own_names():
    listed = [code for code in COUNTRIES if not operators.network(code).operators[0].operator_name.endswith(" Mobile")]
    assert len(listed) >= 80
    names = {operator.operator_name for code in listed for operator in operators.network(code).operators}
    assert {"Türk Telekom", "Česká T-Mobile", "Київстар", "中国移动", "Vodafone España"} <= names


def test_an_unlisted_country_has_a_mobile_network_of_its_name():
    assert operators.network("TV") == Network("TV", (Operator("Tuvalu Mobile", "4G"),))


# The package's own rules


def sample(**fields: object) -> Package:
    """A good package, one part spoiled."""
    return msgspec.structs.replace(next(p for p in PRODUCTION if p.package_code == "FR-3GB-30D"), **fields)


DAILY = {"data_type": "DAILY_REDUCED", "duration": 1, "fup_speed": "384 Kbps", "max_period_num": 30}


def test_the_sample_is_good():
    assert not [*package.faults(sample()), *package.faults(sample(**DAILY))]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("package_code", {"package_code": ""}),
        ("package_code", {"package_code": "A B"}),
        ("package_code", {"package_code": "A" * 65}),
        ("package_code", {"package_code": "Ä"}),
        ("package_code", {"package_code": "A\n"}),
        ("slug", {"slug": "France"}),
        ("slug", {"slug": "a--b"}),
        ("slug", {"slug": "a" * 101}),
        ("package_name", {"package_name": ""}),
        ("package_name", {"package_name": "a\nb"}),
        ("package_name", {"package_name": " a"}),
        ("package_name", {"package_name": "a\ud800"}),
        ("description", {"description": "a\x00b"}),
        ("description", {"description": "a" * 2001}),
        ("description", {"description": "a\n"}),
        ("type", {"type": "GIFT"}),
        ("status", {"status": "on_sale"}),
        ("location_type", {"location_type": "REGION"}),
        ("location_type", {"location_type": "COUNTRY", "location_code": "EU-35"}),
        ("location_type", {"location_type": "CITY"}),
        ("location_code", {"location_code": "fr"}),
        ("location_name", {"location_name": ""}),
        ("continent", {"continent": "Eurasia"}),
        ("locations", {"locations": (), "networks": ()}),
        ("locations", {"locations": ("ES",), "networks": ()}),
        ("locations", {"locations": ("FR", "FR")}),
        ("locations", {"locations": ("ZZ",), "networks": ()}),
        ("price", {"price": 0}),
        ("price", {"price": -100}),
        ("price", {"price": 50}),
        ("price", {"price": package.PRICE_MAX + 100}),
        ("retail_price", {"retail_price": 0}),
        ("price", {"currency": "JPY", "price": 18_000, "retail_price": 20_000}),
        ("currency", {"currency": "usd"}),
        ("data_type", {"data_type": "WEEKLY"}),
        ("data_bytes", {"data_bytes": None}),
        ("data_bytes", {"data_bytes": 0}),
        ("data_bytes", {"data_bytes": 2**53}),
        ("data_bytes", {**DAILY, "data_type": "DAILY_UNLIMITED"}),
        ("fup_speed", {**DAILY, "fup_speed": None}),
        ("fup_speed", {**DAILY, "data_type": "DAILY_CUTOFF"}),
        ("fup_speed", {"fup_speed": ""}),
        ("duration", {"duration": 0}),
        ("duration", {**DAILY, "duration": 2}),
        ("duration_unit", {"duration_unit": "MONTH"}),
        ("min_period_num", {"min_period_num": 0}),
        ("min_period_num", {"min_period_num": 2, "max_period_num": 2, "data_type": "TOTAL"}),
        ("max_period_num", {"max_period_num": 2}),
        ("max_period_num", {**DAILY, "max_period_num": 366}),
        ("max_period_num", {**DAILY, "min_period_num": 31}),
        ("unused_valid_days", {"unused_valid_days": 0}),
        ("activation_type", {"activation_type": "FIRST_CALL"}),
        ("speed", {"speed": "-"}),
        ("ip_export", {"ip_export": "ZZ"}),
        ("max_quantity", {"max_quantity": 101}),
        ("max_quantity", {"max_quantity": 0}),
        ("networks", {"networks": (Network("FR", ()),)}),
        ("networks", {"networks": (Network("ES", (Operator("Movistar", "5G"),)),)}),
        ("networks", {"networks": (Network("FR", (Operator("A|B", "5G"),)),)}),
        ("networks", {"networks": (Network("FR", (Operator("A", "4G/5G"),)),)}),
        ("supported_fields", {"supported_fields": ("iccid",)}),
        ("supported_fields", {"supported_fields": ("esimStatus", "esimStatus")}),
        ("supplier", {"supplier": ""}),
        ("supplier", {"supplier": "Stock"}),
    ],
)
def test_a_spoiled_package_is_blamed_on_its_spoiled_field(field: str, fields: dict[str, object]):
    assert field in dict(package.faults(sample(**fields)))
    assert set(dict(package.faults(sample(**fields)))) <= {field, *fields}


def test_every_field_but_a_flag_has_a_rule():
    assert {rule.field for rule in package.RULES} == FIELDS - {"top_up_support"}


def test_the_largest_line_fits_into_64_bits():
    assert package.PRICE_MAX * 500 * 365 < 2**63


@pytest.mark.parametrize(
    ("text", "data_bytes"),
    [
        ("1GB", 1_073_741_824),
        ("500MB", 500 * 1_048_576),
        ("1TB", 1024 * GB),
        ("1KB", 1024),
        ("1025", 1025),
        ("1", 1),
    ],
)
def test_a_volume_is_binary_and_written_in_its_largest_whole_unit(text: str, data_bytes: int):
    assert package.parse_data(text) == data_bytes
    assert package.data_text(data_bytes) == text


@pytest.mark.parametrize(
    "text", ["", "GB", "1.5GB", "1,5GB", "-1GB", "1gb", "1GiB", "1.07E+09", "١GB", "1GB\n", "9" * 17]
)
def test_no_other_spelling_is_a_volume(text: str):
    with pytest.raises(ValueError, match="such as 1GB or 500MB"):
        package.parse_data(text)


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        ("", ()),
        ("FR:Orange/5G", (Network("FR", (Operator("Orange", "5G"),)),)),
        (
            "FR:Orange/5G|SFR/4G;ES:Movistar/5G",
            (
                Network("FR", (Operator("Orange", "5G"), Operator("SFR", "4G"))),
                Network("ES", (Operator("Movistar", "5G"),)),
            ),
        ),
        ("BY:life:)/4G", (Network("BY", (Operator("life:)", "4G"),)),)),
        ("XK:A/B/4G", (Network("XK", (Operator("A/B", "4G"),)),)),
    ],
)
def test_networks_have_a_compact_form(text: str, networks: tuple[Network, ...]):
    assert package.parse_networks(text) == networks
    assert package.networks_text(networks) == text


@pytest.mark.parametrize("text", ["FR", "FR:", "FR:Orange", "FR:Orange/5G;", "FR:Orange/5G|", "Orange/5G", ";"])
def test_no_other_form_names_networks(text: str):
    with pytest.raises(ValueError, match="must have the form"):
        package.parse_networks(text)


# The generated catalogue


def test_a_catalogue_has_about_two_thousand_packages():
    kinds = Counter(p.location_type for p in PRODUCTION)
    assert 1_900 <= len(PRODUCTION) <= 2_100
    assert 1_700 <= kinds["COUNTRY"] <= 1_900
    assert 180 <= kinds["REGION"] + kinds["GLOBAL"] <= 220


def test_every_generated_package_keeps_the_rules():
    assert [(p.package_code, *fault) for p in TEST for fault in package.faults(p)] == []


def test_codes_and_slugs_are_unique():
    assert len({p.package_code for p in TEST}) == len({p.slug for p in TEST}) == len(TEST)


def test_median_price_is_near_four_fifty():
    for packages in (TEST, PRODUCTION):
        assert 40_000 <= statistics.median(p.price for p in packages) <= 50_000


def test_prices_run_from_nine_cents_to_129_dollars():
    prices = [p.price for p in PRODUCTION]
    assert (min(prices), max(prices)) == (900, 1_293_600)


def test_every_price_is_payable_and_below_retail():
    assert all(p.currency == "USD" and p.price % 100 == p.retail_price % 100 == 0 for p in TEST)
    assert all(p.price < p.retail_price for p in TEST)


def test_sizes_run_from_a_tenth_to_fifty_gigabytes_and_1_to_180_days():
    sizes = {p.data_bytes for p in PRODUCTION if p.data_bytes is not None}
    assert (min(sizes), max(sizes)) == (100 * MB, 50 * GB)
    assert (min(p.duration for p in PRODUCTION), max(p.duration for p in PRODUCTION)) == (1, 180)


def test_about_a_seventh_is_sold_by_the_day_in_all_three_kinds():
    kinds = Counter(p.data_type for p in PRODUCTION)
    assert set(kinds) == {"TOTAL", "DAILY_REDUCED", "DAILY_CUTOFF", "DAILY_UNLIMITED"}
    assert 0.10 <= 1 - kinds["TOTAL"] / len(PRODUCTION) <= 0.18


def test_travel_countries_have_more_packages_than_obscure_ones():
    count = Counter(p.location_code for p in PRODUCTION)
    assert count["FR"] > count["RS"] > count["NR"] > 0
    assert count["AQ"] == 0


def test_every_bundle_is_sold():
    assert {p.location_code for p in PRODUCTION if p.location_type != "COUNTRY"} == set(BUNDLES)


def test_more_data_for_the_same_days_costs_more():
    offers = sorted(
        (p.location_code, p.duration, p.data_bytes, p.price)
        for p in PRODUCTION
        if p.data_type == "TOTAL" and p.data_bytes is not None
    )
    pairs = [(a, b) for a, b in pairwise(offers) if a[:2] == b[:2]]
    assert len(pairs) > 500
    assert [pair for pair in pairs if pair[0][3] >= pair[1][3]] == []


def test_more_days_and_more_countries_never_cost_less():
    plans = {(p.location_code, p.data_bytes, p.duration): p for p in PRODUCTION if p.data_type == "TOTAL"}
    for (place, size, days), this in plans.items():
        longer = [
            one.price for (code, other, more), one in plans.items() if (code, other) == (place, size) and more > days
        ]
        assert all(this.price <= price for price in longer), this.package_code
        wider = [
            one.price
            for (_, *plan), one in plans.items()
            if plan == [size, days] and len(this.locations) > 1 and {*this.locations} < {*one.locations}
        ]
        assert all(this.price < price for price in wider), this.package_code


@pytest.mark.parametrize(
    ("code", "data_type", "data_bytes", "duration", "days"),
    [
        ("FR-3GB-30D", "TOTAL", 3 * GB, 30, (1, 1)),
        ("EU-35-10GB-30D", "TOTAL", 10 * GB, 30, (1, 1)),
        ("JP-1GB-DAY-R", "DAILY_REDUCED", 1 * GB, 1, (1, 30)),
        ("JP-2GB-DAY-C", "DAILY_CUTOFF", 2 * GB, 1, (1, 30)),
        ("JP-UNL-DAY", "DAILY_UNLIMITED", None, 1, (1, 30)),
    ],
)
def test_codes_are_tidy(code: str, data_type: str, data_bytes: int | None, duration: int, days: tuple[int, int]):
    (p,) = (p for p in PRODUCTION if p.package_code == code)
    assert (p.data_type, p.data_bytes, p.duration) == (data_type, data_bytes, duration)
    assert (p.min_period_num, p.max_period_num) == days


def test_every_location_of_a_package_has_a_network():
    assert all([network.location_code for network in p.networks] == list(p.locations) for p in TEST)


def test_production_differs_from_test_by_the_scripted_and_the_demo_packages_only():
    assert TEST[-len(PRODUCTION) :] == PRODUCTION
    assert {p.package_code for p in TEST[: -len(PRODUCTION)]} == {
        *("TEST-OK", "TEST-DELAY", "TEST-PARTIAL", "TEST-FAIL", "TEST-STOCKOUT"),
        *("TEST-ASYNC", "TEST-REVIEW", "TEST-REJECT", "TEST-LIFECYCLE", "DEMO-STOCK"),
        *[f"TEST-TOPUP-{what}" for what in ("OK", "DELAY", "FAIL", "QUEUE", "ASYNC")],
    }
    assert {p.supplier for p in PRODUCTION} == {"simulated"}


def test_scripted_packages_are_as_decided():
    scripted = [p for p in TEST if p.package_code.startswith("TEST-") and p.type == "BASE"]
    assert len(scripted) == 9
    assert {
        (p.type, p.status, p.data_type, p.data_bytes, p.duration, p.price, p.currency, p.max_quantity) for p in scripted
    } == {("BASE", "ON_SALE", "TOTAL", GB, 7, 18_000, "USD", 100)}
    assert [p.package_code for p in scripted if p.supplier != "simulated"] == ["TEST-STOCKOUT"]


def test_scripted_recharges_fit_the_scripted_packages_that_are_delivered_by_the_simulated_supplier():
    recharges = [p for p in TEST if p.type == "TOPUP"]
    assert [(p.data_bytes, p.duration, p.price, p.supplier) for p in recharges] == [(GB, 7, 12_000, "simulated")] * 5
    for base in TEST:
        expected = base.package_code.startswith("TEST-") and base.supplier == "simulated" and base.type == "BASE"
        assert [recharge.fits(one, base) for one in recharges] == [expected] * 5, base.package_code


def test_the_demo_package_is_sold_from_stock():
    (demo,) = (p for p in TEST if p.package_code == "DEMO-STOCK")
    assert (demo.supplier, demo.supported_fields) == ("stock", ())
    assert (demo.data_type, demo.data_bytes, demo.duration, demo.price) == ("TOTAL", GB, 7, 25_000)


def test_the_catalogue_is_the_same_in_every_process():
    program = (
        "import hashlib\n"
        "from dealer_server.dev import catalogue\n"
        "from dealer_server.rules.catalogue import importing\n"
        "print(hashlib.sha256(importing.write(catalogue.catalogue('test')).encode()).hexdigest())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": "7"}, capture_output=True, check=True
    )
    assert other.stdout.decode().strip() == hashlib.sha256(importing.write(TEST).encode()).hexdigest()


# CSV: what a good file says

HEADER = "packageCode,packageName,locationCode,price,currency,dataType,dataBytes,duration"
FRANCE = "FR-3GB-30D,France 3 GB 30 days,FR,2.40,USD,TOTAL,3GB,30"


def the(text: str) -> Package:
    """The only package of a faultless file."""
    result = importing.read(text)
    assert result.faults == ()
    (one,) = result.packages
    return one


def test_eight_columns_are_enough():
    assert the(f"{HEADER}\n{FRANCE}\n") == Package(
        package_code="FR-3GB-30D",
        slug="fr-3gb-30d",
        package_name="France 3 GB 30 days",
        description="",
        type="BASE",
        status="ON_SALE",
        location_type="COUNTRY",
        location_code="FR",
        location_name="France",
        continent="Europe",
        locations=("FR",),
        price=24_000,
        retail_price=24_000,
        currency="USD",
        data_type="TOTAL",
        data_bytes=3 * GB,
        fup_speed=None,
        duration=30,
        duration_unit="DAY",
        min_period_num=1,
        max_period_num=1,
        unused_valid_days=180,
        activation_type="FIRST_NETWORK",
        speed="",
        ip_export="",
        top_up_support=False,
        max_quantity=100,
        networks=(),
        supported_fields=(),
        supplier="stock",
    )


def test_a_bundles_code_brings_its_countries():
    p = the(f"{HEADER}\nE,Europe,EU-35,9,USD,TOTAL,1GB,7")
    assert (p.location_type, p.location_name, p.continent) == ("REGION", "Europe", "Europe")
    assert p.locations == BUNDLES["EU-35"].locations
    assert the(f"{HEADER}\nG,World,GL-126,9,USD,TOTAL,1GB,7").location_type == "GLOBAL"


def test_a_region_of_ones_own_names_its_countries():
    p = the(f"{HEADER},locationName,locations\nA,Adriatic,ADRIATIC,4,USD,TOTAL,1GB,7,Adriatic,HR; IT")
    assert (p.location_type, p.locations, p.continent) == ("REGION", ("HR", "IT"), "")


def test_a_daily_package_is_ordered_for_1_to_30_days():
    p = the(f"{HEADER}\nJ,Japan,JP,240,JPY,DAILY_UNLIMITED,,1")
    assert (p.min_period_num, p.max_period_num, p.data_bytes, p.price) == (1, 30, None, 2_400_000)


def test_the_most_days_are_never_fewer_than_the_fewest():
    p = the(f"{HEADER},minPeriodNum\nJ,Japan,JP,240,JPY,DAILY_UNLIMITED,,1,60")
    assert (p.min_period_num, p.max_period_num) == (60, 60)


def test_speed_comes_from_the_networks():
    p = the(f"{HEADER},networks\n{FRANCE},FR:Orange/5G|SFR/4G")
    assert (p.speed, len(p.networks[0].operators)) == ("4G/5G", 2)


def test_supported_fields_come_from_the_supplier():
    assert the(f"{HEADER},supplier\n{FRANCE},simulated").supported_fields == package.OPTIONAL_PROFILE_FIELDS


def test_a_dash_says_none_where_an_empty_cell_takes_a_default():
    p = the(f"{HEADER},supplier,supportedFields,continent,networks,speed\n{FRANCE},simulated,-,-,FR:Orange/5G,-")
    assert (p.supported_fields, p.continent, p.speed) == ((), "", "")


@pytest.mark.parametrize(
    "text",
    [
        f"\ufeff{HEADER}\n{FRANCE}",
        f"{HEADER}\r\n{FRANCE}\r\n",
        f"{HEADER}\r{FRANCE}\r",
        f"\n{HEADER}\n\n,,,,,,,\n{FRANCE}\n\n",
        f"{HEADER}\n{FRANCE}".replace(",", " , "),
        "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in (HEADER, FRANCE)),
        f"{HEADER},durationUnit\n{FRANCE},",
    ],
    ids=["byte order mark", "CRLF", "CR", "empty lines", "blanks", "quoted", "empty cell"],
)
def test_one_package_has_many_spellings(text: str):
    assert the(text) == the(f"{HEADER}\n{FRANCE}\n")


def test_columns_stand_in_any_order():
    lines = (HEADER, FRANCE)
    assert the("\n".join(",".join(reversed(line.split(","))) for line in lines)) == the("\n".join(lines))


def test_a_quoted_cell_holds_commas_quotes_and_line_breaks():
    p = the(f'{HEADER},description\n{FRANCE},"3 GB, ""fast""\r\n30 days\rat once"')
    assert p.description == '3 GB, "fast"\n30 days\nat once'


# CSV: what a bad file says


def faults(text: str) -> list[tuple[int, str, str]]:
    return [(fault.line, fault.column, fault.message) for fault in importing.read(text).faults]


@pytest.mark.parametrize("text", ["", "\ufeff", "\n\n", "  \r\n", ",,,"])
def test_an_empty_file_is_a_fault(text: str):
    assert faults(text) == [(1, "", "the file is empty")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FRANCE, "the first line must be the header: packageCode,packageName,"),
        (HEADER.replace(",", ";"), "cells are separated by semicolons; save the file with commas"),
        (HEADER.replace(",", "\t"), "cells are separated by tabs; save the file with commas"),
        (HEADER + "," * 5_000, "the header has 5008 columns; there are 32"),
        ("\x00\x01PK\x03", "the first line must be the header"),
        ('"packageCode', "cannot be read as CSV: a quotation mark is never closed"),
    ],
)
def test_a_missing_header_is_the_only_fault(text: str, message: str):
    ((line, column, told),) = faults(f"{text}\n1\n2\n")
    assert (line, column) == (1, "")
    assert told.startswith(message)


def test_each_missing_required_column_is_named():
    assert faults("packageCode,slug\nA,a\n") == [
        (1, name, "this required column is missing")
        for name in ("packageName", "locationCode", "price", "currency", "dataType", "duration")
    ]


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("dataVolume", "dataVolume", "no such column"),
        ("Price", "Price", "no such column; did you mean price?"),
        ("retailprice", "retailprice", "no such column; did you mean retailPrice?"),
        ("updateTime", "updateTime", "no such column"),
        ("price", "price", "column 9 repeats column 4"),
        ("", "", "column 9 has no name"),
    ],
)
def test_an_unknown_column_is_a_fault_of_the_header(name: str, column: str, message: str):
    assert faults(f"{HEADER},{name}\n{FRANCE},2.40\n") == [(1, column, message)]


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("packageCode", "", "must be given"),
        ("packageCode", "A B", "must be 1 to 64 letters, digits or any of . _ : @ -, not 'A B'"),
        ("packageName", "a\x00b", "must be 1 to 200 characters in one line, not 'a\\x00b'"),
        ("slug", "A", "must be small letters and digits joined by single dashes, at most 100 characters, not 'A'"),
        ("type", "GIFT", "must be BASE or TOPUP, not 'GIFT'"),
        ("status", "SOLD", "must be ON_SALE or OFF_SALE, not 'SOLD'"),
        ("locationType", "REGION", "must be COUNTRY when locationCode is a country's, and only then, not 'REGION'"),
        (
            "locationCode",
            "fr",
            "must be 2 to 32 capital letters, digits or dashes, such as FR or EU-35, not 'fr'",
        ),
        ("locations", "ES", "must be locationCode alone when locationType is COUNTRY, not 'ES'"),
        ("price", "1,80", "must be a decimal such as 1.80, at most 12 digits and 2 decimals (USD), not '1,80'"),
        ("price", "1.805", "must be a decimal such as 1.80, at most 12 digits and 2 decimals (USD), not '1.805'"),
        ("price", "0", "must be more than 0 and at most 1000000000, not '0'"),
        ("price", "1000000000.01", "must be more than 0 and at most 1000000000, not '1000000000.01'"),
        ("retailPrice", "-1", "must be a decimal such as 1.80, at most 12 digits and 2 decimals (USD), not '-1'"),
        ("currency", "US$", "must be an ISO 4217 currency code such as USD, not 'US$'"),
        (
            "dataType",
            "total",
            "must be TOTAL, DAILY_REDUCED, DAILY_CUTOFF or DAILY_UNLIMITED, not 'total'",
        ),
        ("dataType", "", "must be given"),
        ("dataBytes", "", "must be given, save for DAILY_UNLIMITED, where it must be empty"),
        (
            "dataBytes",
            "1.5GB",
            "must be a whole number of KB, MB, GB or TB such as 1GB or 500MB, or of bytes without a unit, not '1.5GB'",
        ),
        ("duration", "30 days", "must be a whole number, not '30 days'"),
        ("duration", "٣", "must be a whole number, not '٣'"),
        ("duration", "9999", "must be 1 to 3650, not '9999'"),
        ("maxPeriodNum", "2", "must be 1 for TOTAL, not '2'"),
        ("topUpSupport", "yes", "must be true or false, not 'yes'"),
        ("maxQuantity", "101", "must be 1 to 100, not '101'"),
        ("networks", "Orange", "must have the form FR:Orange/5G|SFR/4G;ES:Movistar/5G, not 'Orange'"),
        ("networks", "ES:Movistar/5G", "must be in countries among locations, each once, not 'ES:Movistar/5G'"),
        ("supplier", "acme", "must be one of simulated, stock, not 'acme'"),
    ],
)
def test_a_faulty_cell_is_named_with_what_is_accepted(column: str, cell: str, message: str):
    cells = dict(zip(HEADER.split(","), FRANCE.split(","), strict=True)) | {column: f'"{cell}"'}
    assert faults(f"{','.join(cells)}\n{','.join(cells.values())}\n") == [(2, column, message)]


def test_the_suppliers_set_up_are_the_ones_accepted():
    text = f"{HEADER},supplier\n{FRANCE},es2:acme"
    assert importing.read(text, ["es2:acme"]).faults == ()
    assert importing.read(f"{HEADER}\n{FRANCE}", ["es2:acme"]).faults == (
        importing.Fault(2, "supplier", "must be one of es2:acme"),
    )


def test_an_unknown_place_asks_for_its_name_and_countries():
    told = "must be given: ZZ is the code of neither a country nor a usual bundle"
    assert faults(f"{HEADER}\nA,A,ZZ,1,USD,TOTAL,1GB,7") == [(2, "locationName", told), (2, "locations", told)]


def test_all_faults_of_the_whole_file_are_reported_in_order():
    text = (
        f"{HEADER},maxQuantity\n"
        "A,A,FR,x,USD,TOTAL,1GB,y,0\n"
        "A,,FR,1,USD,TOTAL,1GB,7,1\n"
        "B,B\n"
        "C,C,FR,1,USD,TOTAL,1GB,7,1\n"
        "D,D,FR,1,USD,DAILY_CUTOFF,,1,1,\n"
    )
    result = importing.read(text)
    assert [(fault.line, fault.column) for fault in result.faults] == [
        (2, "price"),
        (2, "duration"),
        (2, "maxQuantity"),
        (3, "packageCode"),
        (3, "packageName"),
        (4, ""),
        (6, ""),
    ]
    assert [p.package_code for p in result.packages] == ["C"]


def test_a_line_is_where_its_record_begins():
    text = f'{HEADER},description\n{FRANCE},"one\ntwo\r\nthree"\nA,A,FR,0,USD,TOTAL,1GB,7,\n'
    assert [fault[:2] for fault in faults(text)] == [(5, "price")]


@pytest.mark.parametrize(("cells", "count"), [(FRANCE + ",", 9), (FRANCE.rpartition(",")[0], 7)])
def test_a_ragged_line_is_a_fault_of_its_own(cells: str, count: int):
    assert faults(f"{HEADER}\n{cells}\n") == [(2, "", f"this line has {count} cells, the header has 8")]


def test_a_repeated_package_code_names_the_first_line():
    result = importing.read(f"{HEADER}\n{FRANCE}\n{FRANCE.replace('2.40', '2.50')}\n\n{FRANCE}\n")
    assert [(fault.line, fault.column, fault.message) for fault in result.faults] == [
        (3, "packageCode", "FR-3GB-30D is already that of line 2"),
        (5, "packageCode", "FR-3GB-30D is already that of line 2"),
    ]
    assert [p.price for p in result.packages] == [24_000]


def test_a_repeated_slug_names_the_first_line():
    assert faults(f"{HEADER}\n{FRANCE}\n{FRANCE.replace('FR-3', 'fr.3')}\n") == [
        (3, "slug", "fr-3gb-30d is already that of line 2")
    ]


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        ('"never closed', "a quotation mark is never closed"),
        ('"a"b', "',' expected after '\"'"),
        (f'"{"x" * 140_000}"', "a cell is longer than 131072 characters"),
    ],
)
def test_what_is_no_csv_ends_the_reading(spoiled: str, message: str):
    result = importing.read(f"{HEADER}\n{FRANCE}\n{spoiled}\n{FRANCE}\n")
    assert result.faults == (
        importing.Fault(3, "", f"cannot be read as CSV: {message}; nothing after this line was read"),
    )
    assert len(result.packages) == 1


def test_a_long_cell_is_told_in_short():
    ((_, _, message),) = faults(f"{HEADER}\n{FRANCE.replace('2.40', '9' * 500)}")
    assert len(message) < 200


# CSV: there and back

LINE = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=30).map(str.strip).filter(bool)
BLOCK = st.lists(LINE, max_size=3).map("\n".join)
OPERATORS = st.builds(
    Operator, LINE.filter(lambda name: not {"|", ";"} & set(name)), st.sampled_from(["2G", "5G", "LTE+"])
)


@st.composite
def packages(draw: st.DrawFn) -> Package:
    """Any package that keeps the rules."""
    data_type = draw(st.sampled_from(get_args(DataType)))
    daily = data_type != "TOTAL"
    days = sorted(draw(st.tuples(st.integers(1, 365), st.integers(1, 365)))) if daily else (1, 1)
    country = draw(st.sampled_from([*COUNTRIES, ""]))
    places = st.lists(st.sampled_from(list(COUNTRIES)), min_size=1, max_size=5, unique=True)
    locations = (country,) if country else tuple(draw(places))
    networks = draw(st.lists(st.sampled_from(locations), unique=True))
    currency = draw(st.sampled_from(sorted(money.EXPONENTS)))
    units = st.integers(1, package.PRICE_MAX // money.unit(currency))
    speeds = {"TOTAL": st.none() | LINE, "DAILY_REDUCED": LINE, "DAILY_CUTOFF": st.none()}
    fields = st.lists(st.sampled_from(package.OPTIONAL_PROFILE_FIELDS), unique=True)
    return Package(
        package_code=draw(st.from_regex(r"\A[A-Za-z0-9._:@-]{1,64}\Z")),
        slug=draw(st.from_regex(r"\A[a-z0-9]{1,9}(-[a-z0-9]{1,9}){0,3}\Z")),
        package_name=draw(LINE),
        description=draw(BLOCK),
        type="BASE",
        status=draw(st.sampled_from(["ON_SALE", "OFF_SALE"])),
        location_type="COUNTRY" if country else draw(st.sampled_from(["REGION", "GLOBAL"])),
        location_code=country or draw(st.sampled_from([*BUNDLES, "OUR-OWN"])),
        location_name=draw(LINE),
        continent=draw(st.sampled_from(["", *CONTINENTS])),
        locations=locations,
        price=draw(units) * money.unit(currency),
        retail_price=draw(units) * money.unit(currency),
        currency=currency,
        data_type=data_type,
        data_bytes=None if data_type == "DAILY_UNLIMITED" else draw(st.integers(1, 2**53 - 1)),
        fup_speed=draw(speeds.get(data_type, st.none() | LINE)),
        duration=1 if daily else draw(st.integers(1, 3650)),
        duration_unit="DAY",
        min_period_num=days[0],
        max_period_num=days[1],
        unused_valid_days=draw(st.integers(1, 3650)),
        activation_type=draw(st.sampled_from(["FIRST_INSTALL", "FIRST_NETWORK"])),
        speed=draw(st.sampled_from(["", "3G/4G/5G", "LTE-A"])),
        ip_export=draw(st.sampled_from(["", *COUNTRIES])),
        top_up_support=draw(st.booleans()),
        max_quantity=draw(st.integers(1, 100)),
        networks=tuple(Network(code, tuple(draw(st.lists(OPERATORS, min_size=1, max_size=3)))) for code in networks),
        supported_fields=tuple(draw(fields)),
        supplier=draw(st.sampled_from(["simulated", "stock"])),
    )


UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@UNHURRIED
@given(st.lists(packages(), max_size=3, unique_by=(lambda p: p.package_code, lambda p: p.slug)).map(tuple))
def test_a_written_amount_reads_back_the_same(written: tuple[Package, ...]):
    assert [fault for p in written for fault in package.faults(p)] == []
    assert importing.read(importing.write(written)) == importing.Import(written, ())


def test_the_whole_catalogue_goes_there_and_back():
    assert importing.read("\ufeff" + importing.write(TEST)) == importing.Import(TEST, ())


def test_an_export_of_nothing_holds_the_header_and_reads_as_nothing():
    assert importing.write([]) == ",".join(importing.NAMES) + "\r\n"
    assert importing.read(importing.write([])) == importing.Import((), ())


@UNHURRIED
@given(st.text(st.characters() | st.sampled_from(',;"\r\n\x00-/|:')))
def test_no_text_breaks_the_reading(text: str):
    for start in ("", f"{HEADER},networks,locations,speed\n", f"{HEADER}\n{FRANCE}\n{FRANCE[:20]}"):
        result = importing.read(start + text)
        assert all(fault.line >= 1 and fault.message for fault in result.faults)
        assert [fault for p in result.packages for fault in package.faults(p)] == []


@UNHURRIED
@given(st.dictionaries(st.sampled_from(importing.NAMES), st.text(st.characters(exclude_characters='"')), min_size=1))
def test_no_cells_break_the_reading(spoiled: dict[str, str]):
    cells = dict(zip(HEADER.split(","), FRANCE.split(","), strict=True)) | spoiled
    text = f"{','.join(cells)}\n" + ",".join(f'"{cell}"' for cell in cells.values())
    result = importing.read(text)
    assert len(result.packages) == (0 if result.faults else 1)
    assert {fault.column for fault in result.faults} <= set(importing.NAMES)
    assert [fault for p in result.packages for fault in package.faults(p)] == []


def test_there_is_a_column_for_every_field():
    assert {column.field for column in importing.COLUMNS} == FIELDS
    assert len(importing.COLUMNS) == len(FIELDS)
    camel = [re.sub("_([a-z])", lambda match: match[1].upper(), column.field) for column in importing.COLUMNS]
    assert list(importing.NAMES) == camel


# The guide


def test_every_example_of_the_guide_is_a_faultless_file():
    examples = re.findall(r"```csv\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert [len(importing.read(example).packages) for example in examples] == [2, 3]
    assert [importing.read(example).faults for example in examples] == [(), ()]


def test_the_guide_describes_each_column_in_order():
    described = re.findall(r"^\| ([a-zA-Z]+) \| .* \| (.*) \|$", GUIDE.read_text("utf-8"), re.MULTILINE)
    rows = [(name, empty) for name, empty in described if name not in ("column", "line")]
    assert tuple(name for name, _ in rows) == importing.NAMES
    assert {name for name, empty in rows if empty == "required"} == {c.name for c in importing.COLUMNS if c.required}


def test_the_guide_lists_the_usual_bundles():
    listed = re.findall(r"^\| ([A-Z0-9-]+-\d+) \| (.*) \|$", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert listed == [(bundle.code, bundle.name) for bundle in BUNDLES.values()]
