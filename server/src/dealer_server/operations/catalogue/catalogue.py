"""What is on sale, held in memory: the catalogue as last imported, each dealer's view of it, and its pages.

The whole catalogue is a few megabytes; processes look several times a second whether it changed.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from dealer_server.rules import refusal
from dealer_server.rules.catalogue.countries import COUNTRIES
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money
from dealer_server.rules.orders import order, pricing, snapshot
from dealer_server.rules.orders.order import Offer, PricedLines
from dealer_server.rules.orders.pricing import Own, PriceList
from esim_dealer.wire import calls, envelope

PAGES_KEPT = 512
PAGES_KEPT_BYTES = 64 * 1024 * 1024
BASKETS_KEPT = 10_000
LINES_KEPT = 4


class ListedPackage(NamedTuple):
    package: Package
    updated_at: datetime
    search: str  # what a keyword is looked for in


class DealerView(NamedTuple):
    """A package as one dealer sees it: its price (None: off sale), its last change, its place in lists."""

    package: Package
    price: int | None
    updated_at: datetime
    search: str
    place: tuple[int, str]


class Filter(msgspec.Struct, frozen=True):
    """A /package/list call, checked. `after` is the place of the package the previous page ended with."""

    type: str | None
    location_code: str | None
    package_code: str | None
    keyword: str | None
    data_type: str | None
    updated_since: datetime | None
    page_num: int
    page_size: int
    after: tuple[int, str] | None


class Catalogue:
    """The catalogue at one version. Never changes: a new version is a new shelf."""

    def __init__(self, version: int, packages: Iterable[tuple[Package, datetime]]):
        self.version = version
        self._listed = [ListedPackage(package, at, _search(package)) for package, at in packages]
        self._by_code = {listed.package.package_code: listed.package for listed in self._listed}
        self._singles: dict[PriceList, dict[str, Own]] = {}
        self._baskets: dict[object, PricedLines] = {}
        self._pages: OrderedDict[tuple[PriceList, Filter], bytes] = OrderedDict()
        self._pages_bytes = 0

    def basket(self, call: calls.PlaceOrder, prices: PriceList) -> PricedLines:
        """What the lines of a call come to for this dealer; the same few lines come again and again, so those are kept.

        Raises the refusal of a malformed amount.
        """
        lines = tuple([(one.package_code, one.quantity, one.period_num, bytes(one.price)) for one in call.items])
        key = (prices, call.currency, bytes(call.amount), lines)
        basket = self._baskets.get(key)
        if basket is None:
            basket = order.price(call, prices.currency, lambda code: self.offer(code, prices))
            if basket.refused is None and len(lines) <= LINES_KEPT:
                if len(self._baskets) >= BASKETS_KEPT:
                    self._baskets.clear()
                self._baskets[key] = basket
        return basket

    def offer(self, package_code: str, prices: PriceList) -> Offer | None:
        """The package as this dealer may buy it, or None where it does not exist."""
        package = self._by_code.get(package_code)
        return Offer(package, pricing.price(package, prices, self._single(prices))) if package else None

    def package(self, package_code: str) -> Package | None:
        return self._by_code.get(package_code)

    def __len__(self) -> int:
        return len(self._by_code)

    def page(self, prices: PriceList, wanted: Filter) -> bytes:
        """A page of /package/list, encoded; the last few hundred are kept. Raises 000108."""
        key = (prices, wanted)
        encoded = self._pages.get(key)
        if encoded is None:
            encoded = self._pages[key] = envelope.encoder.encode(self._page(prices, wanted))
            self._pages_bytes += len(encoded)
            while len(self._pages) > PAGES_KEPT or self._pages_bytes > PAGES_KEPT_BYTES:
                _, oldest = self._pages.popitem(last=False)
                self._pages_bytes -= len(oldest)
        else:
            self._pages.move_to_end(key)
        return encoded

    def not_modified(self, prices: PriceList, wanted: Filter) -> bytes:
        """The answer to a dealer whose mirror is at this version already."""
        page = calls.Page(page_num=wanted.page_num, page_size=wanted.page_size, total=0)
        return envelope.encoder.encode(
            calls.Packages(catalog_version=self.version_for(prices), not_modified=True, packages=(), pager=page)
        )

    def regions(self, prices: PriceList, call: calls.RegionList) -> bytes:
        """/region/list: every location with packages on sale for this dealer."""
        found: dict[str, list[Package]] = {}
        for listed in self._listed:
            package = listed.package
            if call.type in (None, package.location_type) and self._on_sale(package, prices):
                found.setdefault(package.location_code, []).append(package)
        regions = [_region(packages[0], len(packages)) for packages in found.values()]
        keyword = (call.keyword or "").casefold()
        regions = [
            one
            for one in sorted(regions, key=lambda one: one.region_code)
            if keyword in one.region_name.casefold() or keyword in one.region_code.casefold()
        ]
        return envelope.encoder.encode(calls.Regions(regions=tuple(regions)))

    def _page(self, prices: PriceList, wanted: Filter) -> calls.Packages:
        view = [seen for seen in self._view(prices) if _matches(seen, wanted)]
        start = (wanted.page_num - 1) * wanted.page_size
        if wanted.after is not None:
            after = wanted.after
            start = next((index for index, seen in enumerate(view) if seen.place > after), len(view))
        page = view[start : start + wanted.page_size]
        more = start + wanted.page_size < len(view)
        return calls.Packages(
            catalog_version=self.version_for(prices),
            not_modified=False,
            packages=tuple(_wire(seen) for seen in page),
            pager=calls.Page(
                page_num=wanted.page_num,
                page_size=wanted.page_size,
                total=len(view),
                next=_cursor(page[-1].place) if page and more else UNSET,
            ),
        )

    def version_for(self, prices: PriceList) -> str:
        """The catalogVersion a dealer sees: another when the catalogue or its own prices change."""
        return f"{self.version}-{prices.fingerprint}"

    def _on_sale(self, package: Package, prices: PriceList) -> bool:
        return pricing.price(package, prices, self._single(prices)) is not None

    def _view(self, prices: PriceList) -> list[DealerView]:
        """Every package in the dealer's currency as it sees it, newest change first."""
        single = self._single(prices)
        seen = [
            DealerView(
                listed.package,
                pricing.price(listed.package, prices, single),
                at := pricing.updated_at(listed.package, listed.updated_at, prices, single),
                listed.search,
                (-int(at.timestamp() * 1_000_000), listed.package.package_code),
            )
            for listed in self._listed
            if listed.package.currency == prices.currency
        ]
        return sorted(seen, key=lambda one: one.place)

    def _single(self, prices: PriceList) -> Mapping[str, Own]:
        if not prices.single:
            return {}
        single = self._singles.get(prices)
        if single is None:
            single = self._singles[prices] = dict(prices.single)
        return single


def _matches(seen: DealerView, wanted: Filter) -> bool:
    """Whether a package is in the list; what is off sale is shown to mirrors only."""
    package = seen.package
    return (
        (seen.price is not None or wanted.updated_since is not None)
        and wanted.type in (None, package.type)
        and wanted.package_code in (None, package.package_code)
        and wanted.data_type in (None, package.data_type)
        and (
            wanted.location_code is None
            or wanted.location_code == package.location_code
            or wanted.location_code in package.locations
        )
        and (wanted.keyword is None or wanted.keyword in seen.search)
        and (wanted.updated_since is None or seen.updated_at >= wanted.updated_since)
    )


def _cursor(place: tuple[int, str]) -> str:
    return f"{-place[0]}:{place[1]}"


def _place(cursor: str) -> tuple[int, str]:
    """Where a page ended. Raises 000108."""
    microseconds, colon, package_code = cursor.partition(":")
    if not colon or not (microseconds.isascii() and microseconds.isdigit() and len(microseconds) <= 18):
        raise refusal.ParameterInvalid("pager.after is malformed; accepted: pager.next of the previous answer")
    return -int(microseconds), package_code


def _search(package: Package) -> str:
    countries = " ".join(COUNTRIES[code].name for code in package.locations if code in COUNTRIES)
    words = (package.package_code, package.package_name, package.slug, package.location_name, countries)
    return " ".join(words).casefold()


def _wire(seen: DealerView) -> calls.Package:
    package, price = seen.package, seen.price
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
        max_quantity=package.max_quantity,
        networks=tuple(
            calls.Network(
                location_code=network.location_code,
                operators=tuple(
                    calls.Operator(operator_name=one.operator_name, network_type=one.network_type)
                    for one in network.operators
                ),
            )
            for network in package.networks
        ),
        supported_fields=package.supported_fields,
        update_time=snapshot.whole_seconds(seen.updated_at),
    )


def _region(package: Package, count: int) -> calls.Region:
    country = package.location_type == "COUNTRY"
    return calls.Region(
        region_code=package.location_code,
        region_name=package.location_name,
        type=package.location_type,
        continent=package.continent,
        package_count=count,
        sub_regions=()
        if country
        else tuple(calls.SubRegion(region_code=code, region_name=COUNTRIES[code].name) for code in package.locations),
    )


def check(call: calls.PackageList) -> Filter:
    """The call with "" read as absent. Raises 000108."""
    pager = call.pager or calls.Pager()
    return Filter(
        type=_one_of("type", call.type, ("BASE", "TOPUP")),
        location_code=call.location_code or None,
        package_code=call.package_code or None,
        keyword=(call.keyword or "").casefold().strip() or None,
        data_type=_one_of("dataType", call.data_type, ("TOTAL", "DAILY_REDUCED", "DAILY_CUTOFF", "DAILY_UNLIMITED")),
        updated_since=_time("updatedSince", call.updated_since),
        page_num=pager.page_num,
        page_size=pager.page_size,
        after=_place(pager.after) if pager.after else None,
    )


def _one_of(name: str, value: str | None, accepted: tuple[str, ...]) -> str | None:
    if value and value not in accepted:
        raise refusal.ParameterInvalid(f"{name} is {value!r}; accepted: {', '.join(accepted)}")
    return value or None


def _time(name: str, value: str | None) -> datetime | None:
    if not value:
        return None
    try:
        at = msgspec.convert(value, calls.Time)
    except msgspec.ValidationError:
        raise refusal.ParameterInvalid(f"{name} is not an RFC 3339 time such as 2026-11-20T08:15:30Z") from None
    return at
