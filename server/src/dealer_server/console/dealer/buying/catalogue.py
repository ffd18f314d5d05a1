"""What a dealer can buy: the catalogue at its own prices, and a page for each package."""

import secrets
from collections.abc import Mapping
from itertools import groupby
from typing import NamedTuple

from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import DEALERS
from dealer_server.console.shared.request_context import Html, NotFound, RequestContext
from dealer_server.rules.catalogue import choosing
from dealer_server.rules.catalogue.choosing import Choice, Kind, OnSale
from dealer_server.rules.catalogue.package import GB, Package, data_text, sold_by_day
from dealer_server.rules.money import money
from dealer_server.store.console import dealer
from dealer_server.store.tenants import tenant

CATALOGUE = "/console/catalogue"
KINDS: Mapping[Kind, str] = {"FIXED": "eSIM, fixed plan", "DAILY": "eSIM, by the day", "RECHARGE": "Recharge"}
GIGABYTES = (1, 3, 5, 10, 20, 50)
DAYS = (1, 3, 7, 15, 30, 90)
FILTERS = ("q", "place", "kind", "data", "days", "price")


class PackageView(NamedTuple):
    """A package as dealers read of it. `data`, `days`: in words. `price`: in major units; `per_gb`: of a gigabyte, ""
    where its volume is unlimited."""

    package: Package
    kind: Kind
    kind_text: str
    data: str
    days: str
    price: str
    per_gb: str


@page(CATALOGUE, DEALERS, "dealer/buying/catalogue.html", MenuEntry("Catalogue", "building-store", 15))
async def catalogue(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        prices = await tenant.load_prices(connection, context.tenant_id)
    on_sale = context.parts.catalogue().on_sale(prices)
    order = params.order(context, CATALOGUE, ("name", "price"), "name")
    found = choosing.choose(on_sale, _choice(context.query, prices.currency), by_price=order.key == "price")
    if order.descending:
        found.reverse()
    first = params.number(context.query, "before") or 0
    following = first + PAGE_SIZE if first + PAGE_SIZE < len(found) else None
    packages = [view(one) for one in found[first : first + PAGE_SIZE]]
    return Html(
        packages=packages,
        places=[[*of_place] for _, of_place in groupby(packages, lambda one: one.package.location_code)],
        order=order,
        pages=params.pager(
            context,
            CATALOGUE,
            following,
            shown=len(packages),
            word="package",
            total=len(found),
        ),
        currency=prices.currency,
        countries=choosing.countries_on_sale(on_sale),
        bundles=choosing.bundles_on_sale(on_sale),
        kinds=KINDS,
        gigabytes=GIGABYTES,
        most_days=DAYS,
        filtered=any(context.query.get(name) for name in FILTERS),
    )


@page(f"{CATALOGUE}/{{package_code}}", DEALERS, "dealer/buying/package.html")
async def package(context: RequestContext) -> Html:
    """Raises NotFound also where it is not on sale for this dealer."""
    async with context.parts.database.connection() as connection:
        prices = await tenant.load_prices(connection, context.tenant_id)
        wallet = await dealer.wallet(connection, context.tenant_id)
    offer = context.parts.catalogue().offer(context.path["package_code"], prices)
    if offer is None or offer.price is None:
        raise NotFound
    package = offer.package
    return Html(
        view=view(OnSale(package, offer.price, "")),
        covered=choosing.country_names(package.locations),
        networks=[(choosing.country_name(one.location_code), one.operators) for one in package.networks],
        daily=sold_by_day(package.data_type),
        wallet=wallet,
        transaction_id=new_transaction_id(),
    )


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
    )


def _per_gb(price: int, package: Package) -> str:
    """To the currency's nearest unit; also of a package that is sold by the day and has its volume each day."""
    if not package.data_bytes:
        return ""
    unit = money.unit(package.currency)
    units = (2 * price * GB + package.data_bytes * unit) // (2 * package.data_bytes * unit)
    return money.text(units * unit, package.currency)


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
