"""How does a reseller's package list change our catalogue?

Its packages become ours, at its price plus a margin. Its texts are not trusted: a package that breaks a rule is left
out, with the reasons. What an operator has set by hand stays: code, slug, names, description, location type and
whether it is on sale.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
from msgspec import Meta

from dealer_server.rules.catalogue.countries import BUNDLES, COUNTRIES
from dealer_server.rules.catalogue.package import (
    OPTIONAL_PROFILE_FIELDS,
    Network,
    Operator,
    Package,
    faults,
    slug_of,
    sold_by_day,
)
from dealer_server.rules.money import money, percent
from esim_dealer.wire.vocabulary import ActivationType, DataType, DurationUnit, LocationType


class Margin(msgspec.Struct, frozen=True):
    """price = cost x (1 + basis_points / 10 000), at least cost + minimum, rounded up to the currency's unit.

    `minimum` is in ten-thousandths. `prefix` begins the codes of new packages.
    """

    basis_points: Annotated[int, Meta(ge=0, le=1_000_000)]
    minimum: Annotated[int, Meta(ge=0)] = 0
    prefix: str = ""


class Offer(msgspec.Struct, frozen=True):
    """A package of ours, and its route: what the supplier calls it and asks for it, in ten-thousandths."""

    package: Package
    sku: str
    cost: int | None


class Change(msgspec.Struct, frozen=True):
    """What becomes of one package. `offer` is what to write: None where it is left out.

    GONE: they sell it no longer; its offer is off sale. `why`: what was wrong with one LEFT_OUT, one line each.
    """

    kind: Literal["ADDED", "CHANGED", "GONE", "LEFT_OUT"]
    sku: str
    offer: Offer | None = None
    old_price: int | None = None
    new_price: int | None = None
    old_cost: int | None = None
    new_cost: int | None = None
    why: tuple[str, ...] = ()


class _Operator(msgspec.Struct, rename="camel"):
    operator_name: str
    network_type: str


class _Network(msgspec.Struct, rename="camel"):
    location_name: str = ""
    location_code: str = ""
    operator_list: list[_Operator] | None = None


class _Listed(msgspec.Struct, rename="camel"):
    """A package as the family lists it: volume in bytes, money in ten-thousandths, activeType 1 installation or 2
    network, dataType as in _DATA_TYPES."""

    package_code: str
    name: str
    price: Annotated[int, Meta(gt=0)]
    currency_code: str
    duration: int
    location: str
    slug: str = ""
    location_code: str = ""
    volume: int | None = None
    duration_unit: str = "DAY"
    data_type: Literal[1, 2, 3, 4] = 1
    active_type: Literal[1, 2] = 2
    unused_valid_time: int = 180
    description: str | None = None
    retail_price: int | None = None
    speed: str | None = None
    ip_export: str | None = None
    fup_policy: str | None = None
    support_top_up_type: int | None = None
    location_network_list: list[_Network] | None = None


_DATA_TYPES: dict[int, DataType] = {1: "TOTAL", 2: "DAILY_REDUCED", 3: "DAILY_CUTOFF", 4: "DAILY_UNLIMITED"}
_ACTIVATION: dict[int, ActivationType] = {1: "FIRST_INSTALL", 2: "FIRST_NETWORK"}
_CODES = {country.name.casefold(): country.code for country in COUNTRIES.values()}
_KEPT = ("package_code", "slug", "package_name", "description", "location_type", "location_code", "location_name",
         "continent", "status", "max_quantity", "min_period_num", "max_period_num")  # fmt: skip


class _Place(NamedTuple):
    location_type: LocationType
    location_code: str
    location_name: str
    continent: str


def rechargeable(listed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whose eSIMs may be recharged, of the packages that a supplier lists."""
    return [_sku(one) for one in listed if str(one.get("supportTopUpType")) in ("2", "3") and _sku(one)]


def preview(
    listed: Sequence[Mapping[str, Any]],
    rule: Margin,
    existing: Sequence[Offer],
    supplier: str,
    recharges: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
) -> list[Change]:
    """What to change so that we sell what `supplier` lists, given what we sell of it; what stays is not mentioned.
    `recharges`: what eSIMs of each of its packages may be recharged with."""
    known = {offer.sku: offer for offer in existing}
    names = {name: offer.sku for offer in existing for name in _names(offer)}
    ours = {_sku(one): known[_sku(one)].package.package_code if _sku(one) in known else rule.prefix + _sku(one)
            for one in listed}  # fmt: skip
    fitting = _fitting(recharges, ours)
    changes, seen = list[Change](), set[str]()
    for one, top_up_for in [*((one, ()) for one in listed), *fitting]:
        sku = _sku(one)
        made = ("packageCode comes twice",) if sku in seen else _offer(one, rule, supplier, known.get(sku), top_up_for)
        seen.add(sku)
        if isinstance(made, Offer) and any(names.setdefault(name, sku) != sku for name in _names(made)):
            made = (f"slug {made.package.slug} is that of another package",)
        if made != known.get(sku):
            changes.append(_change(sku, known.get(sku), made))
    return [*changes, *(_gone(offer) for offer in existing if offer.sku not in seen and _on_sale(offer))]


def _fitting(
    recharges: Mapping[str, Sequence[Mapping[str, Any]]], ours: Mapping[str, str]
) -> list[tuple[Mapping[str, Any], tuple[str, ...]]]:
    """Each recharge once, with our codes of the packages whose eSIMs it fits."""
    found = dict[str, Mapping[str, Any]]()
    fits = dict[str, list[str]]()
    for base, listed in recharges.items():
        for one in listed:
            found.setdefault(_sku(one), one)
            fits.setdefault(_sku(one), []).append(ours[base])
    return [(one, tuple(sorted(fits[sku]))) for sku, one in found.items()]


def price_of(cost: int, rule: Margin, currency: str) -> int:
    """In ten-thousandths; ValueError when the currency is none of ISO 4217."""
    step = money.unit(currency)
    exact = max(-(-cost * (10_000 + rule.basis_points) // 10_000), cost + rule.minimum)
    return -(-exact // step) * step


def ceiling(price: int, floor_basis_points: int) -> int:
    """What a unit sold at `price` may cost at most, so that this part of the price stays with us; ten-thousandths."""
    return price * (10_000 - floor_basis_points) // 10_000


def below_floor(price: int, cost: int, currency: str, floor_basis_points: int) -> str | None:
    """Why a unit that the dealer pays `price` for is not bought at `cost`: less than this part of the price would stay
    with us. None where it may be bought. Amounts in ten-thousandths of `currency`."""
    if cost <= ceiling(price, floor_basis_points):
        return None
    amounts = money.fine_text(cost), money.fine_text(price)
    words = f"the cost {amounts[0]} {currency} leaves {share(price, cost)} of the price {amounts[1]} {currency}"
    return f"{words}; the margin floor is {percent.shown(floor_basis_points)}"


def share(price: int, cost: int) -> str:
    """Which part of the price stays with us, such as 16.67 %; below zero for a loss."""
    return percent.fixed(percent.share(price - cost, price)) if price else "nothing"


def read_percent(text: str) -> int:
    """12.5 is 1250 basis points; a part of a price, so at most 100. Raises ValueError, which says what is accepted."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,2})?", text) or Decimal(text) > 100:
        raise ValueError("must be percent from 0 to 100 such as 12.5")
    return int(Decimal(text) * 100)


def _change(sku: str, before: Offer | None, made: Offer | tuple[str, ...]) -> Change:
    old = (before.package.price, before.cost) if before else (None, None)
    if isinstance(made, Offer):
        kind = "CHANGED" if before else "ADDED"
        return Change(kind, sku, made, old[0], made.package.price, old[1], made.cost)
    return Change("LEFT_OUT", sku, None, old[0], old_cost=old[1], why=made)


def _gone(offer: Offer) -> Change:
    off_sale = msgspec.structs.replace(offer.package, status="OFF_SALE")
    gone = msgspec.structs.replace(offer, package=off_sale)
    return Change("GONE", offer.sku, gone, offer.package.price, old_cost=offer.cost)


def _names(offer: Offer) -> tuple[str, str]:
    """What no two packages may share."""
    return "code " + offer.package.package_code, "slug " + offer.package.slug


def _on_sale(offer: Offer) -> bool:
    return offer.package.status == "ON_SALE"


def _offer(
    one: Mapping[str, Any], rule: Margin, supplier: str, before: Offer | None, top_up_for: tuple[str, ...]
) -> Offer | tuple[str, ...]:
    """Ours for theirs, or why there is none. `top_up_for`: it recharges eSIMs of these packages; empty: it is one."""
    try:
        listed = msgspec.convert(one, _Listed, strict=False)
        price = price_of(listed.price, rule, listed.currency_code)
    except msgspec.ValidationError as error:
        return (f"not a package of the family: {error}",)
    except ValueError as error:
        return (f"currencyCode {error}",)
    if listed.package_code.startswith("TOPUP") and not top_up_for:
        return ("a top-up that is listed for no package",)
    package = _package(listed, price, rule, supplier)
    if top_up_for:
        package = msgspec.structs.replace(
            package, type="TOPUP", top_up_for=top_up_for, top_up_support=False, max_quantity=1
        )
    if before is not None:
        kept = {field: getattr(before.package, field) for field in _KEPT}
        package = msgspec.structs.replace(package, **kept)
    if wrong := tuple([f"{field} {must}" for field, must in faults(package)]):
        return wrong
    return Offer(package, listed.package_code, listed.price)


def _package(listed: _Listed, price: int, rule: Margin, supplier: str) -> Package:
    data_type = _DATA_TYPES[listed.data_type]
    by_day = sold_by_day(data_type)
    locations = tuple(dict.fromkeys(part for part in listed.location.upper().replace(" ", "").split(",") if part))
    place = _place(listed, locations)
    code = rule.prefix + listed.package_code
    return Package(
        package_code=code,
        slug=slug_of(code),
        package_name=listed.name.strip(),
        description=(listed.description or "").strip(),
        type="BASE",
        status="ON_SALE",
        location_type=place.location_type,
        location_code=place.location_code,
        location_name=place.location_name,
        continent=place.continent,
        locations=locations,
        price=price,
        retail_price=max(price, price_of(listed.retail_price or 0, Margin(0), listed.currency_code)),
        currency=listed.currency_code,
        data_type=data_type,
        data_bytes=None if data_type == "DAILY_UNLIMITED" else listed.volume,
        fup_speed=(listed.fup_policy or "").strip() or None if by_day and data_type != "DAILY_CUTOFF" else None,
        duration=listed.duration,
        duration_unit=cast(DurationUnit, listed.duration_unit),  # judged with the rest
        min_period_num=1,
        max_period_num=30 if by_day else 1,
        unused_valid_days=listed.unused_valid_time,
        activation_type=_ACTIVATION[listed.active_type],
        speed=(listed.speed or "").strip(),
        ip_export=_export(listed),
        top_up_support=listed.support_top_up_type in (2, 3),
        max_quantity=100,
        networks=tuple(_networks(listed, locations)),
        supported_fields=OPTIONAL_PROFILE_FIELDS,
        supplier=supplier,
    )


def _place(listed: _Listed, locations: tuple[str, ...]) -> _Place:
    """A country by itself, one of the usual bundles, or a region of theirs by its code or the beginning of its slug."""
    if len(locations) == 1 and locations[0] in COUNTRIES:
        country = COUNTRIES[locations[0]]
        return _Place("COUNTRY", country.code, country.name, country.continent)
    code = (listed.location_code or listed.slug.partition("_")[0]).strip().lstrip("!").upper()
    if code in BUNDLES:
        bundle = BUNDLES[code]
        return _Place(bundle.location_type, bundle.code, bundle.name, bundle.continent)
    return _Place("GLOBAL" if code.startswith("GL") else "REGION", code, code, "")


def _networks(listed: _Listed, locations: tuple[str, ...]) -> Iterator[Network]:
    """Those of countries that we know, the newest technology of each operator."""
    for network in listed.location_network_list or ():
        code = network.location_code or _CODES.get(network.location_name.strip().casefold(), "")
        operators = tuple(
            Operator(one.operator_name.strip(), one.network_type.rpartition("/")[2].strip())
            for one in network.operator_list or ()
        )
        if code in locations and operators:
            yield Network(code, operators)


def _export(listed: _Listed) -> str:
    code = (listed.ip_export or "").strip().upper()
    return code if code in COUNTRIES else ""


def _sku(one: Mapping[str, Any]) -> str:
    code = one.get("packageCode")
    return code[:64] if isinstance(code, str) else ""
