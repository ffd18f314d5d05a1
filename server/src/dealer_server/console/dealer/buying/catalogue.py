"""What a dealer can buy: the catalogue at its own prices."""

import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from dealer_server.console.find.tabs import Tab
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import DEALERS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.catalogue import choosing
from dealer_server.rules.catalogue.choosing import Choice, Kind, OnSale
from dealer_server.rules.catalogue.package import GB, Package, data_text, sold_by_day
from dealer_server.rules.money import money, percent
from dealer_server.rules.reports import recent
from dealer_server.rules.reports.period import day_of
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter
from dealer_server.store.tenants import tenant

CATALOGUE = "/console/catalogue"
KINDS: Mapping[Kind, str] = {"FIXED": "eSIM, fixed plan", "DAILY": "eSIM, by the day", "RECHARGE": "Recharge"}
GIGABYTES = (1, 3, 5, 10, 20, 50)
DAYS = (1, 3, 7, 15, 30, 90)
FILTERS = ("q", "place", "kind", "data", "days", "price", "part")
GLOBAL = "Global"
OFTEN, OFTEN_COUNTED = 4, 20
"""Packages that it often buys: how many are shown, and of how many."""
USUAL_SIZES = (1, 3, 5, 10)
"""Gigabytes of the packages whose prices stand in the row of a place."""


class PackageView(NamedTuple):
    """A package as dealers read of it. `data`, `days`: in words. `price`: in major units; `per_gb`: of a gigabyte, ""
    where its volume is unlimited; `resale`: what is recommended to ask, "" where that leaves nothing; `margin`: what
    it leaves, in percent of it."""

    package: Package
    kind: Kind
    kind_text: str
    data: str
    days: str
    price: str
    per_gb: str
    resale: str
    margin: str


class PlaceView(NamedTuple):
    """A country or region with what is on sale for it. `least`: what costs least, a day of what is sold by the day.
    `sizes`: a fixed package of each of USUAL_SIZES, of the usual days where there is one; None where there is none.
    `part`: of the list, in which it stands."""

    packages: list[PackageView]
    least: PackageView
    sizes: Sequence[PackageView | None]
    part: str

    @property
    def first(self) -> Package:
        return self.packages[0].package


@page(CATALOGUE, DEALERS, "dealer/buying/catalogue.html", MenuEntry("Catalogue", "building-store", 15))
async def catalogue(context: RequestContext) -> Html:
    """By place, in pages of places; or by price, in pages of packages."""
    query = context.query
    async with context.parts.database.connection() as connection:
        prices = await tenant.load_prices(connection, context.tenant_id)
        on_sale = context.parts.catalogue().on_sale(prices)
        filtered = any(query.get(name) for name in FILTERS)
        bought = await _often_bought(connection, context, on_sale)
    often = [] if filtered or query.get("sort") or query.get("before") else bought
    order = params.order(context, CATALOGUE, ("name", "price"), "name")
    fitting = choosing.choose(on_sale, _choice(query, prices.currency), by_price=order.key == "price")
    part = _part(query)
    found = [one for one in fitting if part is None or one.package.continent == part]
    if order.descending:
        found.reverse()
    asked = _asked(query, found)
    parts = _parts_first(bought, on_sale)
    leading = _leading(bought, on_sale)
    places = _by_place(found, asked, parts, leading)
    listed, word = (found, "package") if order.key == "price" else (places, "place")
    first = params.number(query, "before") or 0
    following = first + PAGE_SIZE if first + PAGE_SIZE < len(listed) else None
    shown = len(listed[first : first + PAGE_SIZE])
    paged = places[first : first + PAGE_SIZE] if order.key == "name" else []
    usual = _usual_days(paged)
    return Html(
        packages=[view(one) for one in found[first : first + PAGE_SIZE]] if order.key == "price" else [],
        places=[_place(of_place, usual, leading) for of_place in paged],
        sizes=list(usual.items()) if any(usual.values()) else [],
        package_count=len(found),
        place_count=len(places),
        often=[view(one) for one in often[:OFTEN]],
        asked=asked,
        tabs=_tabs(context, fitting, part, parts),
        order=order,
        pages=params.pager(context, CATALOGUE, following, shown=shown, word=word, total=len(listed)),
        currency=prices.currency,
        place_name=_name_of(on_sale, (params.text(query, "place") or "").upper()),
        kinds=KINDS,
        gigabytes=GIGABYTES,
        most_days=DAYS,
        filtered=filtered,
    )


async def _often_bought(connection: Connection, context: RequestContext, on_sale: Sequence[OnSale]) -> list[OnSale]:
    """What this dealer spent most on in the last 30 days, as far as it is on sale."""
    wanted = Filter(recent.shown(day_of(context.now)), context.tenant_id)
    rows = await report.grouped(connection, wanted, ["package"], OFTEN_COUNTED)
    codes = [row.keys["package"] for row in rows if row.sums.sold]
    by_code = {one.package.package_code: one for one in on_sale if one.package.package_code in codes}
    return [by_code[code] for code in codes if code in by_code and by_code[code].kind != "RECHARGE"]


def _parts_first(bought: Iterable[OnSale], on_sale: Iterable[OnSale]) -> Sequence[str]:
    """Parts of the world: those that the dealer buys most for, then those with most packages; what belongs to no single
    one last."""
    counts = Counter(one.package.continent for one in on_sale)
    parts = dict.fromkeys([*(one.package.continent for one in bought), *(part for part, _ in counts.most_common())])
    return [*(part for part in parts if part), ""]


def _leading(bought: Iterable[OnSale], on_sale: Iterable[OnSale]) -> set[str]:
    """Codes of regions that stand before the countries of their part of the world: those that the dealer buys for, and
    where it buys for none the one that covers most countries."""
    regions = [one.package for one in on_sale if one.package.location_type != "COUNTRY"]
    widest = {one.continent: {one.location_code} for one in sorted(regions, key=lambda one: len(one.locations))}
    own = dict[str, set[str]]()
    for one in bought:
        if one.package.location_type != "COUNTRY":
            own.setdefault(one.package.continent, set()).add(one.package.location_code)
    return set[str]().union(*(widest | own).values())


def _asked(query: Mapping[str, str], found: Iterable[OnSale]) -> str:
    """The code of the place that is chosen, or whose name was typed; "" without one."""
    name = (params.text(query, "q") or "").casefold()
    named = (one.package.location_code for one in found if one.package.location_name.casefold() == name)
    return (params.text(query, "place") or next(named, "")).upper()


def _name_of(on_sale: Iterable[OnSale], code: str) -> str:
    names = (one.package.location_name for one in on_sale if one.package.location_code == code)
    return next(names, choosing.country_name(code))


def _by_place(
    found: Iterable[OnSale], asked: str, parts: Sequence[str], leading: Collection[str]
) -> list[list[OnSale]]:
    """Each place in the order it came, by part of the world, those that lead it first, countries before other regions;
    the one that is asked for stands before all."""
    places = dict[str, list[OnSale]]()
    for one in found:
        places.setdefault(one.package.location_code, []).append(one)
    first = places.pop(asked, None)
    firsts = [(of_place[0].package, of_place) for of_place in places.values()]
    firsts.sort(key=lambda one: (parts.index(one[0].continent), _rank(one[0], leading)))
    return [*([first] if first else []), *(of_place for _, of_place in firsts)]


def _rank(package: Package, leading: Collection[str]) -> int:
    """Of its place within a part of the world."""
    return 0 if package.location_code in leading else 1 if package.location_type == "COUNTRY" else 2


def _place(of_place: Sequence[OnSale], usual: Mapping[int, str], leading: Collection[str]) -> PlaceView:
    views, first = [view(one) for one in of_place], of_place[0].package
    least = view(min(of_place, key=lambda one: one.price))
    apart = first.continent and _rank(first, leading) == 2
    part = f"{first.continent or GLOBAL}{', several countries' if apart else ''}"
    return PlaceView(views, least, [_of_size(views, size, days) for size, days in usual.items()], part)


def _of_size(views: Iterable[PackageView], size: int, days: str) -> PackageView | None:
    """Of several packages of so many gigabytes that of the usual days, else the longest."""
    fitting = [one for one in views if one.kind == "FIXED" and one.package.data_bytes == size * GB]
    return next((one for one in fitting if one.days == days), fitting[-1] if fitting else None)


def _usual_days(places: Iterable[Iterable[OnSale]]) -> Mapping[int, str]:
    """Each of USUAL_SIZES and how long most packages of it last; "" where no place has any of it."""
    days = {size: Counter[str]() for size in USUAL_SIZES}
    for one in chain.from_iterable(places):
        size, rest = divmod(one.package.data_bytes or 0, GB)
        if one.kind == "FIXED" and size in days and not rest:
            days[size][_days(one.package)] += 1
    return {size: counted.most_common(1)[0][0] if counted else "" for size, counted in days.items()}


def _part(query: Mapping[str, str]) -> str | None:
    """The part of the world that is asked for: None for all of it, "" for what belongs to no single one."""
    part = params.text(query, "part")
    return "" if part == GLOBAL else part


def _tabs(context: RequestContext, fitting: Iterable[OnSale], part: str | None, parts: Sequence[str]) -> list[Tab]:
    """In the order of the list."""
    counts = Counter(one.package.continent for one in fitting)
    kept = params.filters(context)
    named = [(name or GLOBAL, counts[name]) for name in parts if counts[name]]
    chosen = GLOBAL if part == "" else part or ""
    return [
        Tab(name, params.address(CATALOGUE, kept | {"part": value}), value == chosen, listed=f"{listed:,}")
        for name, value, listed in [("All", "", counts.total()), *((name, name, listed) for name, listed in named)]
    ]


def new_transaction_id() -> str:
    """Of a form that buys: however often it is sent, it buys once."""
    return f"console-{secrets.token_hex(8)}"


def view(one: OnSale) -> PackageView:
    package = one.package
    return PackageView(
        package=package,
        kind=one.kind,
        kind_text=KINDS[one.kind],
        data=_data(package),
        days=_days(package),
        price=money.text(one.price, package.currency),
        per_gb=_per_gb(one.price, package),
        resale=money.text(package.retail_price, package.currency) if package.retail_price > one.price else "",
        margin=percent.tenths(package.retail_price - one.price, package.retail_price),
    )


def _per_gb(price: int, package: Package) -> str:
    found = _of_a_gb(price, package)
    return "" if found is None else money.text(found, package.currency)


def _of_a_gb(price: int, package: Package) -> int | None:
    """To the currency's nearest unit; also of a package that is sold by the day and has its volume each day. None where
    its volume is unlimited."""
    if not package.data_bytes:
        return None
    unit = money.unit(package.currency)
    units = (2 * price * GB + package.data_bytes * unit) // (2 * package.data_bytes * unit)
    return units * unit


def _data(package: Package) -> str:
    volume = "Unlimited" if package.data_bytes is None else data_text(package.data_bytes, " ")
    return f"{volume} a day" if sold_by_day(package.data_type) and package.data_bytes is not None else volume


def _days(package: Package) -> str:
    if not sold_by_day(package.data_type):
        return f"{package.duration} day{'' if package.duration == 1 else 's'}"
    shortest, longest = package.min_period_num, package.max_period_num
    return f"{shortest} to {longest} days" if shortest < longest else f"{shortest} day{'' if shortest == 1 else 's'}"


def _choice(query: Mapping[str, str], currency: str) -> Choice:
    """What the filters ask for; one that cannot be read asks for nothing."""
    gigabytes = params.number(query, "data")
    return Choice(
        words=params.text(query, "q") or "",
        place=(params.text(query, "place") or "").upper(),
        kind=params.one_of(query, "kind", tuple(KINDS)),
        data_bytes=gigabytes * GB if gigabytes else None,
        days=params.number(query, "days"),
        most=_amount(query.get("price", ""), currency),
    )


def _amount(text: str, currency: str) -> int | None:
    try:
        return money.parse(text.strip(), currency)
    except ValueError:
        return None
