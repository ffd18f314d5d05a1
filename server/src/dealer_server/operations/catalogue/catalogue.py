"""What is on sale? The catalogue in memory, with each dealer's prices, priced order lines and encoded pages.

The whole catalogue is a few megabytes. operations/cache.py replaces it where it has changed.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from dealer_server.operations.catalogue import list_packages
from dealer_server.operations.catalogue.list_packages import DealerView, PackageFilter
from dealer_server.operations.catalogue.list_regions import list_regions
from dealer_server.rules.catalogue import choosing
from dealer_server.rules.catalogue.choosing import OnSale
from dealer_server.rules.catalogue.countries import COUNTRIES
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.orders import priced_lines, pricing
from dealer_server.rules.orders.priced_lines import Offer, PricedLines
from dealer_server.rules.orders.pricing import OwnPrice, PriceList
from dealer_server.rules.price_lists import price_list
from dealer_server.rules.price_lists.price_list import Cost, PriceListTerms
from dealer_server.rules.recharges import recharge
from dealer_server.rules.recharges.recharge import Priced
from dealer_server.rules.rt import ordering
from dealer_server.rules.rt import package as rt_package
from esim_dealer.wire import calls, envelope

V = TypeVar("V")
PAGES_KEPT = 512
PAGES_KEPT_BYTES = 64 * 1024 * 1024
PRICED_CALLS_KEPT = 10_000
PRICED_LINES_KEPT = 4  # of a longer call nothing is kept
COVERAGES_KEPT = 1_024


class CataloguePackage(NamedTuple):
    """A package with when it changed last, and what keywords are looked for in."""

    package: Package
    updated_at: datetime
    search_text: str


class Catalogue:
    """The catalogue at one version. It never changes: a new version is a new Catalogue."""

    def __init__(
        self,
        version: int,
        packages: Iterable[tuple[Package, datetime]],
        price_lists: Iterable[PriceListTerms] = (),
        costs: Mapping[str, Cost] = MappingProxyType({}),
        sms_suppliers: Collection[str] = (),
    ):
        """`costs` by packageCode, for lists whose markup is added to them. `sms_suppliers`: those that send SMS."""
        self.version = version
        self._price_lists = {terms.price_list_id: terms for terms in price_lists}
        self._costs = costs
        self._sms_suppliers = frozenset(sms_suppliers)
        self._listed_prices: dict[int, Mapping[str, OwnPrice]] = {}
        self._packages = [CataloguePackage(package, at, _search_text(package)) for package, at in packages]
        self._by_code = {listed.package.package_code: listed.package for listed in self._packages}
        self._own_prices: dict[PriceList, dict[str, OwnPrice]] = {}
        self._priced: dict[object, PricedLines] = {}
        self._priced_recharges: dict[object, Priced] = {}
        self._named = rt_package.by_code_or_slug(self._by_code.values())
        self._pages: OrderedDict[tuple[PriceList, Hashable], bytes] = OrderedDict()
        self._pages_bytes = 0

    def __len__(self) -> int:
        return len(self._by_code)

    @property
    def packages(self) -> Collection[Package]:
        """All of them."""
        return self._by_code.values()

    def package(self, package_code: str) -> Package | None:
        return self._by_code.get(package_code)

    def price_lines(self, call: calls.PlaceOrder, prices: PriceList) -> PricedLines:
        """The lines of an order call at this dealer's prices. Short calls are kept, as the same few come again and
        again. Raises 000105, 000106, 000108."""
        lines = tuple([(line.package_code, line.quantity, line.period_num, bytes(line.price)) for line in call.items])
        key = (prices, call.currency, bytes(call.amount), lines)
        priced = self._priced.get(key)
        if priced is None:
            priced = priced_lines.price_lines(call, prices.currency, lambda code: self.offer(code, prices))
            if priced.refused is None and len(lines) <= PRICED_LINES_KEPT:
                _keep(self._priced, key, priced)
        return priced

    def price_recharge(self, call: calls.RechargeProfile, prices: PriceList) -> Priced:
        """A recharge call at this dealer's prices; kept as well. Raises 000106, 000108."""
        key = (prices, call.currency, call.package_code, call.period_num, bytes(call.price), bytes(call.amount))
        priced = self._priced_recharges.get(key)
        if priced is None:
            priced = recharge.price(call, prices.currency, self.offer(call.package_code, prices))
            if priced.refused is None and priced.refused_price is None:
                _keep(self._priced_recharges, key, priced)
        return priced

    def price_rt_order(self, call: ordering.Order, prices: PriceList) -> PricedLines:
        """An order of the RT face at this dealer's prices; short ones are kept as well. Raises 000105."""
        key = (prices, call.content)
        priced = self._priced.get(key)
        if priced is None:
            priced = ordering.priced(call, prices.currency, self._rt_offer(prices))
            if priced.refused is None and len(priced.lines) <= PRICED_LINES_KEPT:
                _keep(self._priced, key, priced)
        return priced

    def price_rt_recharge(self, call: ordering.Recharge, prices: PriceList) -> Priced:
        """A recharge of the RT face at this dealer's prices."""
        return ordering.priced_recharge(call, prices.currency, self._rt_offer(prices))

    def named(self, code_or_slug: str) -> Package | None:
        """The package with this packageCode, else with this slug: clients of the RT family order by either."""
        return self._named(code_or_slug)

    def offer(self, package_code: str, prices: PriceList) -> Offer | None:
        """The package as this dealer may buy it, or None where it does not exist."""
        package = self._by_code.get(package_code)
        return Offer(package, self._price(package, prices)) if package else None

    def on_sale(self, prices: PriceList) -> list[OnSale]:
        """All that this dealer may buy, with what keywords are looked for in; by place, kind, volume and days."""
        found = [
            OnSale(entry.package, price, entry.search_text)
            for entry in self._packages
            if (price := self._price(entry.package, prices)) is not None
        ]
        return sorted(found, key=choosing.position)

    def recharging(self, base: Package, prices: PriceList) -> list[Offer]:
        """What recharges eSIMs of `base`, by packageCode; also what is not on sale for this dealer."""
        fitting = [listed.package for listed in self._packages if recharge.fits(listed.package, base)]
        fitting.sort(key=lambda package: package.package_code)
        return [Offer(package, self._price(package, prices)) for package in fitting]

    def version_for(self, prices: PriceList) -> str:
        """The catalogVersion a dealer sees. It changes with the catalogue and with the dealer's own prices."""
        return f"{self.version}-{prices.fingerprint}"

    def page(self, prices: PriceList, filters: PackageFilter) -> bytes:
        """`data` of /package/list, encoded; the last few hundred pages are kept."""

        def encoded() -> bytes:
            base = self.package(filters.fits) if filters.fits is not None else None
            page = list_packages.page(self._views(prices), filters, base, self.version_for(prices))
            return envelope.encoder.encode(page)

        return self._page(prices, filters, encoded)

    def not_modified(self, prices: PriceList, filters: PackageFilter) -> bytes:
        """`data` of /package/list, encoded, for a dealer who has this version already."""
        return envelope.encoder.encode(list_packages.not_modified(filters, self.version_for(prices)))

    def regions(self, prices: PriceList, call: calls.RegionList) -> bytes:
        """`data` of /region/list, encoded."""
        on_sale = [entry.package for entry in self._packages if self._price(entry.package, prices) is not None]
        return envelope.encoder.encode(list_regions(on_sale, call))

    def rt_packages(self, prices: PriceList, wanted: rt_package.Filter) -> bytes:
        """`obj` of package/list of the RT face, encoded: all that this dealer may buy, by packageCode."""

        def encoded() -> bytes:
            base = self.named(wanted.fits) if wanted.fits is not None else None
            listed = [
                rt_package.entry(Offer(each.package, price), each.package.supplier in self._sms_suppliers)
                for each in self._packages
                if (price := self._price(each.package, prices)) is not None
                and rt_package.matches(each.package, wanted)
                and (wanted.fits is None or (base is not None and recharge.fits(each.package, base)))
            ]
            return msgspec.json.encode({"packageList": sorted(listed, key=lambda entry: entry.package_code)})

        return self._page(prices, wanted, encoded)

    def rt_places(self, prices: PriceList) -> bytes:
        """`obj` of location/list of the RT face, encoded."""

        def encoded() -> bytes:
            on_sale = [entry.package for entry in self._packages if self._price(entry.package, prices) is not None]
            return msgspec.json.encode({"locationList": rt_package.places(on_sale)})

        return self._page(prices, rt_package.Place, encoded)

    def sends_sms(self, package: Package | None) -> bool:
        """Whether the supplier of a package sends SMS."""
        return package is not None and package.supplier in self._sms_suppliers

    def _page(self, prices: PriceList, wanted: Hashable, encode: Callable[[], bytes]) -> bytes:
        """What a dealer is answered who wants this; the last few hundred answers are kept."""
        key = (prices, wanted)
        encoded = self._pages.get(key)
        if encoded is None:
            encoded = self._pages[key] = encode()
            self._pages_bytes += len(encoded)
            while len(self._pages) > PAGES_KEPT or self._pages_bytes > PAGES_KEPT_BYTES:
                _, oldest = self._pages.popitem(last=False)
                self._pages_bytes -= len(oldest)
        else:
            self._pages.move_to_end(key)
        return encoded

    def _views(self, prices: PriceList) -> list[DealerView]:
        """Every package in the dealer's currency as the dealer sees it, in the order of lists."""
        own, listed = self._own(prices), self._listed(prices)
        views = []
        for package, changed_at, search_text in self._packages:
            if package.currency == prices.currency:
                price = pricing.price(package, prices, own, listed)
                updated_at = pricing.updated_at(package, changed_at, prices, own, listed)
                at = list_packages.position(package, updated_at)
                views.append(DealerView(package, price, updated_at, search_text, at))
        return sorted(views, key=lambda view: view.position)

    def _rt_offer(self, prices: PriceList) -> Callable[[str], Offer | None]:
        def offer(code_or_slug: str) -> Offer | None:
            package = self.named(code_or_slug)
            return Offer(package, self._price(package, prices)) if package else None

        return offer

    def _price(self, package: Package, prices: PriceList) -> int | None:
        return pricing.price(package, prices, self._own(prices), self._listed(prices))

    def _listed(self, prices: PriceList) -> Mapping[str, OwnPrice] | None:
        """What packages cost on this dealer's price list, worked out once for all dealers of it. Empty for a list that
        this version does not hold yet: nothing is sold at a wrong price."""
        number = prices.price_list_id
        if number is None:
            return None
        found = self._listed_prices.get(number)
        if found is None:
            terms = self._price_lists.get(number)
            packages = [listed.package for listed in self._packages]
            found = price_list.resolve(packages, self._costs, terms) if terms is not None else {}
            self._listed_prices[number] = found
        return found

    def _own(self, prices: PriceList) -> Mapping[str, OwnPrice]:
        """The dealer's own prices by packageCode."""
        if not prices.single:
            return {}
        own = self._own_prices.get(prices)
        if own is None:
            own = self._own_prices[prices] = dict(prices.single)
        return own


def _search_text(package: Package) -> str:
    words = (package.package_code, package.package_name, package.slug, package.location_name)
    return f"{' '.join(words).casefold()} {_country_names(package.locations)}"


@lru_cache(maxsize=COVERAGES_KEPT)
def _country_names(locations: tuple[str, ...]) -> str:
    """Casefolded. Hundreds of packages cover the same countries."""
    return " ".join(COUNTRIES[code].name for code in locations if code in COUNTRIES).casefold()


def _keep(kept: dict[object, V], key: object, value: V) -> None:
    if len(kept) >= PRICED_CALLS_KEPT:
        kept.clear()
    kept[key] = value
