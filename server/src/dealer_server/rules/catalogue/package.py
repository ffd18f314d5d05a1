"""What is a package, and which packages make sense?"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, get_args

import msgspec

from dealer_server.rules.catalogue.countries import CONTINENTS, COUNTRIES
from dealer_server.rules.money import money
from esim_dealer.wire.vocabulary import (
    ActivationType,
    DataType,
    DurationUnit,
    LocationType,
    PackageStatus,
    PackageType,
    PlanMode,
)

KB, MB, GB, TB = 2**10, 2**20, 2**30, 2**40
"""Data volume is binary: 1 GB is 1 073 741 824 bytes (specification 10)."""

OPTIONAL_PROFILE_FIELDS = (
    "esimStatus",
    "smdpStatus",
    "planUseStatus",
    "planUseStartTime",
    "planUseEndTime",
    "dataUsageBytes",
    "remainDataBytes",
    "usagePercent",
)
"""The profile fields a supplier may or may not fill."""

SUPPLIED_FIELDS = {"simulated": OPTIONAL_PROFILE_FIELDS, "stock": ()}
"""Which of them each supplier fills: the simulated one all; codes from stock come with no reports."""

ALWAYS_SOLD_OUT = "TEST-STOCKOUT"
"""A package of test environments whose stock is never loaded, so that dealers can try 200011 (specification 11)."""

PRICE_MAX = 1_000_000_000 * money.SCALE
"""So that the price of the largest line, 500 profiles for 365 days, still is a 64-bit integer."""


class Operator(msgspec.Struct, frozen=True):
    """A mobile network a profile may use, and the newest technology there: "5G"."""

    operator_name: str
    network_type: str


class Network(msgspec.Struct, frozen=True):
    """The operators of one country that a profile may use."""

    location_code: str
    operators: tuple[Operator, ...]


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """What a dealer can order by its packageCode. Money is in ten-thousandths of the currency's major unit."""

    package_code: str
    slug: str
    package_name: str
    description: str
    type: PackageType
    status: PackageStatus
    location_type: LocationType
    location_code: str
    location_name: str
    continent: str  # "" where it spans several
    locations: tuple[str, ...]
    price: int  # default dealer price of a unit; of one day for DAILY_*
    retail_price: int
    currency: str
    data_type: DataType
    data_bytes: int | None  # of one day for DAILY_*; None for DAILY_UNLIMITED
    fup_speed: str | None  # the speed after the day's data is used
    duration: int
    duration_unit: DurationUnit
    min_period_num: int
    max_period_num: int
    unused_valid_days: int
    activation_type: ActivationType
    speed: str
    ip_export: str  # the country whose addresses the traffic carries, "" when not known
    top_up_support: bool
    max_quantity: int
    networks: tuple[Network, ...]
    supported_fields: tuple[str, ...]
    supplier: str
    fallback: str = ""  # who makes it where `supplier` is the stock and that is short
    top_up_mode: PlanMode = "ADD"  # how its supplier adds a TOPUP package, or adds to the eSIMs of another one
    apn: str = ""  # what travellers enter where a phone does not find it by itself
    top_up_for: tuple[str, ...] = ()  # of a TOPUP package: whose eSIMs it recharges, where not all of its place

    @property
    def support_top_up_type(self) -> int:
        """The RT family's number: 1 cannot be recharged, 2 can, 3 can for a number of days (periodNum)."""
        if not self.top_up_support:
            return 1
        return 3 if sold_by_day(self.data_type) else 2


# What follows from the package's route, and from its supplier's catalogue, is no field of a file.
FIELDS = frozenset(Package.__struct_fields__) - {"fallback", "top_up_for"}


def sold_by_day(data_type: DataType) -> bool:
    """DAILY_* packages are bought for a number of days (periodNum), TOTAL ones as they are."""
    return data_type != "TOTAL"


def speed_of(networks: tuple[Network, ...]) -> str:
    """The technologies the networks offer, oldest first: "3G/4G/5G"."""
    return "/".join(sorted({operator.network_type for network in networks for operator in network.operators}))


def slug_of(text: str) -> str:
    """The text as part of an address: "Côte d'Ivoire 1 GB" becomes "cote-d-ivoire-1-gb"."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall("[a-z0-9]+", plain))


def data_text(data_bytes: int, space: str = "") -> str:
    """A volume in its largest whole unit: "500MB"; with a space, for people, "500 MB"."""
    for size, unit in ((TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "KB")):
        if data_bytes % size == 0 and data_bytes >= size:
            return f"{data_bytes // size}{space}{unit}"
    return f"{data_bytes}{space}B" if space else str(data_bytes)


def parse_data(text: str) -> int:
    """A volume as `data_text` writes it, or in bytes; ValueError says what is accepted."""
    match = re.fullmatch(r"([0-9]{1,16}) ?(KB|MB|GB|TB)?", text)
    if match is None:
        raise ValueError("must be a whole number of KB, MB, GB or TB such as 1GB or 500MB, or of bytes without a unit")
    return int(match[1]) * {None: 1, "KB": KB, "MB": MB, "GB": GB, "TB": TB}[match[2]]


def operators_text(operators: tuple[Operator, ...]) -> str:
    """The compact form: "Orange/5G|SFR/4G"."""
    return "|".join(f"{operator.operator_name}/{operator.network_type}" for operator in operators)


def parse_operators(text: str) -> tuple[Operator, ...]:
    """Read the compact form. A name may hold a slash, the network type may not."""
    return tuple(Operator(*_parts(entry, "/", last=True)) for entry in text.split("|"))


def networks_text(networks: tuple[Network, ...]) -> str:
    """The compact form: "FR:Orange/5G|SFR/4G;ES:Movistar/5G"."""
    return ";".join(f"{network.location_code}:{operators_text(network.operators)}" for network in networks)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Read the compact form; ValueError says what is accepted."""
    return tuple(_network(entry) for entry in text.split(";")) if text else ()


def _network(text: str) -> Network:
    location_code, operators = _parts(text, ":", last=False)
    return Network(location_code, parse_operators(operators))


def _parts(text: str, mark: str, *, last: bool) -> tuple[str, str]:
    left, found, right = text.rpartition(mark) if last else text.partition(mark)
    if not found:
        raise ValueError("must have the form FR:Orange/5G|SFR/4G;ES:Movistar/5G")
    return left.strip(), right.strip()


class Rule(NamedTuple):
    """What every package keeps: whose field is to blame, which others it looks at, and the words for who broke it."""

    field: str
    holds: Callable[[Package], bool]
    must: str
    reads: tuple[str, ...] = ()


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def _text(value: str, longest: int, shortest: int = 0) -> bool:
    """One line of text within its length that neither begins nor ends with a blank."""
    return shortest <= len(value) <= longest and value == value.strip() and not _CONTROL.search(value)


def _like(pattern: str, value: str) -> bool:
    return re.fullmatch(pattern, value) is not None


def _each_once(values: Collection[str], allowed: Collection[str]) -> bool:
    return len(set(values)) == len(values) and all(value in allowed for value in values)


def _operators_well_formed(network: Network) -> bool:
    return bool(network.operators) and all(
        _text(operator.operator_name, 64, 1)
        and not {"|", ";"} & set(operator.operator_name)
        and _like(r"[0-9A-Za-z+]{1,8}", operator.network_type)
        for operator in network.operators
    )


RULES = (
    Rule(
        "package_code",
        lambda p: _like(r"[A-Za-z0-9._:@-]{1,64}", p.package_code),
        "must be 1 to 64 letters, digits or any of . _ : @ -",
    ),
    Rule(
        "slug",
        lambda p: _like(r"[a-z0-9]+(-[a-z0-9]+)*", p.slug) and len(p.slug) <= 100,
        "must be small letters and digits joined by single dashes, at most 100 characters",
    ),
    Rule("package_name", lambda p: _text(p.package_name, 200, 1), "must be 1 to 200 characters in one line"),
    Rule(
        "description",
        lambda p: _text(p.description.replace("\n", " "), 2000) and p.description == p.description.strip(),
        "must be at most 2000 characters, without control characters but line breaks",
    ),
    Rule("type", lambda p: p.type in ("BASE", "TOPUP"), "must be BASE or TOPUP"),
    Rule("status", lambda p: p.status in ("ON_SALE", "OFF_SALE"), "must be ON_SALE or OFF_SALE"),
    Rule(
        "location_type",
        lambda p: p.location_type in ("COUNTRY", "REGION", "GLOBAL"),
        "must be COUNTRY, REGION or GLOBAL",
    ),
    Rule(
        "location_type",
        lambda p: (p.location_type == "COUNTRY") == (p.location_code in COUNTRIES),
        "must be COUNTRY when locationCode is a country's, and only then",
        ("location_code",),
    ),
    Rule(
        "location_code",
        lambda p: _like(r"[A-Z0-9][A-Z0-9-]{1,31}", p.location_code),
        "must be 2 to 32 capital letters, digits or dashes, such as FR or EU-35",
    ),
    Rule("apn", lambda p: _like(r"[!-~]{0,100}", p.apn), "must be at most 100 visible ASCII characters"),
    Rule("location_name", lambda p: _text(p.location_name, 100, 1), "must be 1 to 100 characters in one line"),
    Rule(
        "continent",
        lambda p: p.continent in ("", *CONTINENTS),
        f"must be one of {', '.join(CONTINENTS)}, or - for none",
    ),
    Rule(
        "locations",
        lambda p: bool(p.locations) and _each_once(p.locations, COUNTRIES),
        "must be ISO 3166-1 alpha-2 codes (or XK), at least one, each once, such as FR;ES",
    ),
    Rule(
        "locations",
        lambda p: p.location_type != "COUNTRY" or p.locations == (p.location_code,),
        "must be locationCode alone when locationType is COUNTRY",
        ("location_type", "location_code"),
    ),
    Rule("currency", lambda p: p.currency in money.EXPONENTS, "must be an ISO 4217 currency code such as USD"),
    *(
        Rule(
            field,
            lambda p, field=field: (
                0 < getattr(p, field) <= PRICE_MAX and getattr(p, field) % money.unit(p.currency) == 0
            ),
            "must be more than 0 and at most 1000000000",
            ("currency",),
        )
        for field in ("price", "retail_price")
    ),
    Rule(
        "data_type",
        lambda p: p.data_type in ("TOTAL", "DAILY_REDUCED", "DAILY_CUTOFF", "DAILY_UNLIMITED"),
        "must be TOTAL, DAILY_REDUCED, DAILY_CUTOFF or DAILY_UNLIMITED",
    ),
    Rule(
        "data_bytes",
        lambda p: p.data_bytes is None or 0 < p.data_bytes < 2**53,
        "must be more than 0 and below 8192TB",
    ),
    Rule(
        "data_bytes",
        lambda p: (p.data_bytes is None) == (p.data_type == "DAILY_UNLIMITED"),
        "must be given, save for DAILY_UNLIMITED, where it must be empty",
        ("data_type",),
    ),
    Rule(
        "fup_speed",
        lambda p: p.fup_speed is None or _text(p.fup_speed, 32, 1),
        "must be 1 to 32 characters in one line",
    ),
    Rule(
        "fup_speed",
        lambda p: (
            (p.fup_speed is not None)
            if p.data_type == "DAILY_REDUCED"
            else p.data_type != "DAILY_CUTOFF" or p.fup_speed is None
        ),
        "must be given for DAILY_REDUCED (such as 384 Kbps) and empty for DAILY_CUTOFF",
        ("data_type",),
    ),
    Rule("duration", lambda p: 1 <= p.duration <= 3650, "must be 1 to 3650"),
    Rule(
        "duration",
        lambda p: p.duration == 1 or not sold_by_day(p.data_type),
        "must be 1 for DAILY_*: their days are ordered as periodNum",
        ("data_type",),
    ),
    Rule("duration_unit", lambda p: p.duration_unit == "DAY", "must be DAY"),
    Rule("min_period_num", lambda p: 1 <= p.min_period_num <= 365, "must be 1 to 365"),
    Rule("max_period_num", lambda p: 1 <= p.max_period_num <= 365, "must be 1 to 365"),
    Rule(
        "max_period_num",
        lambda p: p.max_period_num >= p.min_period_num,
        "must not be below minPeriodNum",
        ("min_period_num",),
    ),
    Rule(
        "min_period_num",
        lambda p: sold_by_day(p.data_type) or p.min_period_num == 1,
        "must be 1 for TOTAL",
        ("data_type",),
    ),
    Rule(
        "max_period_num",
        lambda p: sold_by_day(p.data_type) or p.max_period_num == 1,
        "must be 1 for TOTAL",
        ("data_type",),
    ),
    Rule("unused_valid_days", lambda p: 1 <= p.unused_valid_days <= 3650, "must be 1 to 3650"),
    Rule(
        "activation_type",
        lambda p: p.activation_type in ("FIRST_INSTALL", "FIRST_NETWORK"),
        "must be FIRST_INSTALL or FIRST_NETWORK",
    ),
    Rule(
        "speed",
        lambda p: _like(r"([0-9A-Za-z][0-9A-Za-z +./-]{0,31})?", p.speed) and p.speed == p.speed.strip(),
        "must be at most 32 characters such as 3G/4G/5G, or - for none",
    ),
    Rule("ip_export", lambda p: p.ip_export in ("", *COUNTRIES), "must be an ISO 3166-1 alpha-2 code or empty"),
    Rule("top_up_mode", lambda p: p.top_up_mode in get_args(PlanMode), "must be ADD or QUEUE"),
    Rule("max_quantity", lambda p: 1 <= p.max_quantity <= 100, "must be 1 to 100"),
    Rule(
        "networks",
        lambda p: all(map(_operators_well_formed, p.networks)),
        "must name operators of 1 to 64 characters, each with its network type such as 5G",
    ),
    Rule(
        "networks",
        lambda p: _each_once([network.location_code for network in p.networks], p.locations),
        "must be in countries among locations, each once",
        ("locations",),
    ),
    Rule(
        "supported_fields",
        lambda p: _each_once(p.supported_fields, OPTIONAL_PROFILE_FIELDS),
        f"must be among {';'.join(OPTIONAL_PROFILE_FIELDS)}, each once, or - for none",
    ),
    Rule(
        "supplier",
        lambda p: _like(r"[a-z0-9][a-z0-9:_-]{0,63}", p.supplier),
        "must be a supplier's code such as stock",
    ),
)


_RULES_IN_ORDER = sorted(RULES, key=lambda rule: bool(rule.reads))


def faults(package: Package, known: Collection[str] = FIELDS) -> Iterator[tuple[str, str]]:
    """What is wrong with a package: (field, "must …"), the first fault of each field.

    `known` names the fields that hold something. A rule that looks at an unknown or faulty field is left out.
    """
    sound = set(known)
    for rule in _RULES_IN_ORDER:
        if sound.issuperset((rule.field, *rule.reads)) and not rule.holds(package):
            sound.remove(rule.field)
            yield rule.field, rule.must
