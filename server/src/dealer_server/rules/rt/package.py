"""What is a package in the RT family's packageList, and a place in its locationList?"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from dealer_server.rules import refusal
from dealer_server.rules.catalogue import package as catalogue
from dealer_server.rules.catalogue.countries import BUNDLES, COUNTRIES
from dealer_server.rules.catalogue.package import Package, sold_by_day
from dealer_server.rules.orders.priced_lines import Offer
from esim_dealer.wire.vocabulary import ActivationType, DataType

DATA_TYPES: Mapping[DataType, int] = {
    "TOTAL": 1,
    "DAILY_REDUCED": 2,
    "DAILY_CUTOFF": 3,
    "DAILY_UNLIMITED": 4,
}
ACTIVATION_TYPES: Mapping[ActivationType, int] = {"FIRST_INSTALL": 1, "FIRST_NETWORK": 2}
SMS_STATUS: Mapping[bool, int] = {False: 0, True: 2}
"""2: an SMS can be sent by call, and in no other way."""
FIXED, DAILY = "1", "2"
"""The filter dataType of package/list."""
REGIONS, GLOBALS = "!RG", "!GL"
"""The filter locationCode of package/list: all regions, all that is global."""


class Operator(msgspec.Struct, frozen=True, rename="camel"):
    operator_name: str
    network_type: str


class Networks(msgspec.Struct, frozen=True, rename="camel"):
    """The networks of one country."""

    location_name: str
    location_code: str
    operator_list: tuple[Operator, ...]
    location_logo: str = ""


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of packageList. Money is in ten-thousandths, `volume` in bytes: of one day for a daily one, 0 for an
    unlimited one."""

    package_code: str
    slug: str
    name: str
    price: int
    retail_price: int
    currency_code: str
    volume: int
    sms_status: int
    data_type: int
    unused_valid_time: int
    duration: int
    duration_unit: str
    location: str
    location_code: str
    description: str
    active_type: int
    favorite: bool
    speed: str
    ip_export: str
    support_top_up_type: int
    fup_policy: str
    location_network_list: tuple[Networks, ...]


class Filter(msgspec.Struct, frozen=True):
    """A package/list call. fits: only what recharges eSIMs of this package."""

    type: str | None = None
    location_code: str | None = None
    package_code: str | None = None
    slug: str | None = None
    data_type: str | None = None
    fits: str | None = None

    def __post_init__(self) -> None:
        """Raises 000108."""
        if self.type not in (None, "BASE", "TOPUP"):
            raise refusal.ParameterInvalid(f"type is {self.type!r}; accepted: BASE, TOPUP")
        if self.data_type not in (None, FIXED, DAILY):
            raise refusal.ParameterInvalid(f"dataType is {self.data_type!r}; accepted: 1 (fixed), 2 (daily)")


class Place(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of locationList; type: 1 a country, 2 a region. Both names of its list are read."""

    code: str
    name: str
    type: int
    sub_location_list: tuple["Place", ...] | None = None
    sub_location: tuple["Place", ...] | None = None


def volume_of(package: Package) -> int:
    return package.data_bytes or 0


def entry(offer: Offer, sends_sms: bool) -> Entry:
    """A package that this dealer may buy."""
    package = offer.package
    assert offer.price is not None, "what is not on sale is not listed"
    return Entry(
        package_code=package.package_code,
        slug=package.slug,
        name=package.package_name,
        price=offer.price,
        retail_price=package.retail_price,
        currency_code=package.currency,
        volume=volume_of(package),
        sms_status=SMS_STATUS[sends_sms],
        data_type=DATA_TYPES[package.data_type],
        unused_valid_time=package.unused_valid_days,
        duration=package.duration,
        duration_unit=package.duration_unit,
        location=",".join(package.locations),
        location_code=package.location_code,
        description=package.description,
        active_type=ACTIVATION_TYPES[package.activation_type],
        favorite=False,
        speed=package.speed,
        ip_export=package.ip_export,
        support_top_up_type=package.support_top_up_type,
        fup_policy=package.fup_speed or "",
        location_network_list=tuple([_networks(each.location_code, each.operators) for each in package.networks]),
    )


def matches(package: Package, wanted: Filter) -> bool:
    """Whether a package passes the filter; `fits` is looked at elsewhere. Without a type, BASE packages are meant."""
    return (
        package.type == (wanted.type or ("TOPUP" if wanted.fits else "BASE"))
        and wanted.package_code in (None, package.package_code, package.slug)
        and wanted.slug in (None, package.slug)
        and (wanted.data_type is None or sold_by_day(package.data_type) == (wanted.data_type == DAILY))
        and _covers(package, wanted.location_code)
    )


def places(on_sale: Iterable[Package]) -> list[Place]:
    """Where these packages work: countries and regions, by their codes."""
    names: dict[str, Package] = {}
    for package in on_sale:
        names.setdefault(package.location_code, package)
    return [_place(package) for _, package in sorted(names.items())]


def by_code_or_slug(packages: Iterable[Package]) -> Callable[[str], Package | None]:
    """Finds a package by what clients order by: its code, else its slug."""
    by_slug: dict[str, Package] = {}
    by_code: dict[str, Package] = {}
    for package in packages:
        by_code[package.package_code] = package
        by_slug.setdefault(package.slug, package)
    return lambda named: by_code.get(named) or by_slug.get(named)


def _covers(package: Package, location_code: str | None) -> bool:
    if location_code is None:
        return True
    if location_code in (REGIONS, GLOBALS):
        return package.location_type == ("REGION" if location_code == REGIONS else "GLOBAL")
    return location_code == package.location_code or location_code in package.locations


def _networks(location_code: str, operators: Iterable[catalogue.Operator]) -> Networks:
    return Networks(
        location_name=_country(location_code),
        location_code=location_code,
        operator_list=tuple([Operator(each.operator_name, each.network_type) for each in operators]),
    )


def _place(package: Package) -> Place:
    if package.location_type == "COUNTRY":
        return Place(package.location_code, package.location_name, 1)
    parts = tuple([Place(code, _country(code), 1) for code in package.locations])
    return Place(package.location_code, package.location_name, 2, parts, parts)


def _country(code: str) -> str:
    if code in COUNTRIES:
        return COUNTRIES[code].name
    return BUNDLES[code].name if code in BUNDLES else code
