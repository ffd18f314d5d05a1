"""Which packages does a page of /package/list hold? (specification 4.9)"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from dealer_server.operations.paging import wanted
from dealer_server.rules import refusal
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money
from dealer_server.rules.orders import snapshot
from dealer_server.rules.recharges import recharge
from esim_dealer.wire import calls


class DealerView(NamedTuple):
    """A package as one dealer sees it. `price`: None where it is off sale; `search_text`: what keywords are looked for
    in; `position`: its place in lists, the newest change first."""

    package: Package
    price: int | None
    updated_at: datetime
    search_text: str
    position: tuple[int, str]


class PackageFilter(msgspec.Struct, frozen=True):
    """A checked /package/list call. `after`: the position of the last package of the page before."""

    type: str | None
    location_code: str | None
    package_code: str | None
    keyword: str | None
    data_type: str | None
    updated_since: datetime | None
    page_num: int
    page_size: int
    after: tuple[int, str] | None
    fits: str | None = None  # the package of eSIMs that are to be recharged


def parse_filter(call: calls.PackageList, fits: str | None = None) -> PackageFilter:
    """Reads "" as absent. `fits`: only what recharges eSIMs of this package. Raises 000108."""
    pager = wanted(call.pager)
    return PackageFilter(
        type=_one_of("type", call.type, ("BASE", "TOPUP")),
        location_code=call.location_code or None,
        package_code=call.package_code or None,
        keyword=(call.keyword or "").casefold().strip() or None,
        data_type=_one_of("dataType", call.data_type, ("TOTAL", "DAILY_REDUCED", "DAILY_CUTOFF", "DAILY_UNLIMITED")),
        updated_since=_time("updatedSince", call.updated_since),
        page_num=pager.page_num,
        page_size=pager.page_size,
        after=_parse_cursor(pager.after) if pager.after else None,
        fits=fits,
    )


def position(package: Package, updated_at: datetime) -> tuple[int, str]:
    return -int(updated_at.timestamp() * 1_000_000), package.package_code


def page(
    views: Sequence[DealerView], filters: PackageFilter, base: Package | None, catalog_version: str
) -> calls.Packages:
    """`views`: all packages, in the order of their positions. `base`: the package named by `fits`."""
    matching = [view for view in views if _matches(view, filters)]
    if filters.fits is not None:
        matching = [view for view in matching if base is not None and recharge.fits(view.package, base)]
    start = (filters.page_num - 1) * filters.page_size
    if filters.after is not None:
        after = filters.after
        start = next((index for index, view in enumerate(matching) if view.position > after), len(matching))
    shown = matching[start : start + filters.page_size]
    more = start + filters.page_size < len(matching)
    return calls.Packages(
        catalog_version=catalog_version,
        not_modified=False,
        packages=tuple(_wire(view) for view in shown),
        pager=calls.Page(
            page_num=filters.page_num,
            page_size=filters.page_size,
            total=len(matching),
            next=_cursor(shown[-1].position) if shown and more else UNSET,
        ),
    )


def not_modified(filters: PackageFilter, catalog_version: str) -> calls.Packages:
    """The answer to a dealer who has this version of the catalogue already."""
    pager = calls.Page(page_num=filters.page_num, page_size=filters.page_size, total=0)
    return calls.Packages(catalog_version=catalog_version, not_modified=True, packages=(), pager=pager)


def _matches(view: DealerView, filters: PackageFilter) -> bool:
    """Packages off sale are listed only with updatedSince, for dealers who keep a copy of the catalogue."""
    package = view.package
    return (
        (view.price is not None or filters.updated_since is not None)
        and filters.type in (None, package.type)
        and filters.package_code in (None, package.package_code)
        and filters.data_type in (None, package.data_type)
        and (
            filters.location_code is None
            or filters.location_code == package.location_code
            or filters.location_code in package.locations
        )
        and (filters.keyword is None or filters.keyword in view.search_text)
        and (filters.updated_since is None or view.updated_at >= filters.updated_since)
    )


def _cursor(position: tuple[int, str]) -> str:
    return f"{-position[0]}:{position[1]}"


def _parse_cursor(cursor: str) -> tuple[int, str]:
    """Raises 000108."""
    microseconds, colon, package_code = cursor.partition(":")
    if not colon or not (microseconds.isascii() and microseconds.isdigit() and len(microseconds) <= 18):
        raise refusal.ParameterInvalid("pager.after is malformed; accepted: pager.next of the previous answer")
    return -int(microseconds), package_code


def _one_of(name: str, value: str | None, accepted: tuple[str, ...]) -> str | None:
    if value and value not in accepted:
        raise refusal.ParameterInvalid(f"{name} is {value!r}; accepted: {', '.join(accepted)}")
    return value or None


def _time(name: str, value: str | None) -> datetime | None:
    if not value:
        return None
    try:
        return msgspec.convert(value, calls.Time)
    except msgspec.ValidationError:
        raise refusal.ParameterInvalid(f"{name} is not an RFC 3339 time such as 2026-11-20T08:15:30Z") from None


def _wire(view: DealerView) -> calls.Package:
    package, price = view.package, view.price
    return calls.Package(
        package_code=package.package_code,
        slug=package.slug,
        package_name=package.package_name,
        description=package.description,
        type=package.type,
        status="OFF_SALE" if price is None else "ON_SALE",
        location_type=package.location_type,
        location_code=package.location_code,
        locations=package.locations,
        price=money.text(package.price if price is None else price, package.currency),
        retail_price=money.text(package.retail_price, package.currency),
        currency=package.currency,
        data_type=package.data_type,
        data_bytes=package.data_bytes,
        fup_speed=package.fup_speed or UNSET,
        duration=package.duration,
        duration_unit=package.duration_unit,
        min_period_num=package.min_period_num,
        max_period_num=package.max_period_num,
        unused_valid_days=package.unused_valid_days,
        activation_type=package.activation_type,
        speed=package.speed,
        ip_export=package.ip_export,
        top_up_support=package.top_up_support,
        support_top_up_type=package.support_top_up_type,
        top_up_mode=package.top_up_mode if package.top_up_support or package.type == "TOPUP" else UNSET,
        max_quantity=package.max_quantity,
        networks=_networks(package),
        supported_fields=package.supported_fields,
        update_time=snapshot.whole_seconds(view.updated_at),
    )


def _networks(package: Package) -> tuple[calls.Network, ...]:
    return tuple(
        calls.Network(
            location_code=network.location_code,
            operators=tuple(
                calls.Operator(operator_name=operator.operator_name, network_type=operator.network_type)
                for operator in network.operators
            ),
        )
        for network in package.networks
    )
