"""A package that a dealer can buy: what it holds, what it costs in all, and what else there is for the same place."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dealer_server.console.dealer.buying.catalogue import CATALOGUE, new_transaction_id, view
from dealer_server.console.shared import params
from dealer_server.console.shared.page import page
from dealer_server.console.shared.permissions import DEALERS
from dealer_server.console.shared.request_context import Html, NotFound, RequestContext
from dealer_server.rules.catalogue import choosing
from dealer_server.rules.catalogue.choosing import OnSale
from dealer_server.rules.catalogue.package import Package, sold_by_day
from dealer_server.rules.money import money, percent
from dealer_server.store.console import dealer
from dealer_server.store.console.dealer import Wallet
from dealer_server.store.tenants import tenant

PLANS = 12
"""Others of the same place that are shown: those next to it."""
USUAL_MARKUP, MOST_MARKUP = 35, 1_000
"""Percent."""


class Sum(NamedTuple):
    """What so many cost, against the balance; amounts in ten-thousandths. `after` and `missing`: one of them is 0."""

    quantity: int
    days: int
    total: int
    after: int
    missing: int


class Resale(NamedTuple):
    """A price that a dealer may ask, and what it leaves, in ten-thousandths. `markup`: in percent, as the form has it.
    `margin`: what is left in percent of the price. `suggested`: what the operator recommends to ask, 0 for nothing."""

    markup: str
    price: int
    left: int
    margin: str
    suggested: int


@page(f"{CATALOGUE}/{{package_code}}", DEALERS, "dealer/buying/package.html")
async def package(context: RequestContext) -> Html:
    """Raises NotFound also where it is not on sale for this dealer."""
    async with context.parts.database.connection() as connection:
        prices = await tenant.load_prices(connection, context.tenant_id)
        wallet = await dealer.wallet(connection, context.tenant_id)
    catalogue = context.parts.catalogue()
    offer = catalogue.offer(context.path["package_code"], prices)
    if offer is None or offer.price is None:
        raise NotFound
    package = offer.package
    others = [one for one in catalogue.on_sale(prices) if _is_beside(one, package)]
    return Html(
        view=view(OnSale(package, offer.price, "")),
        exit_country=choosing.country_name(package.ip_export),
        covered=sorted(((code, choosing.country_name(code)) for code in package.locations), key=lambda one: one[1]),
        networks=[(choosing.country_name(one.location_code), one.operators) for one in package.networks],
        daily=sold_by_day(package.data_type),
        plans=[view(one) for one in _around(others, package)],
        plan_count=len(others),
        wallet=wallet,
        sum=_sum(context.query, package, offer.price, wallet),
        resale=_resale(context.query, package, offer.price),
        unit_price=offer.price,
        unit=money.unit(package.currency),
        decimals=money.exponent_of(package.currency),
        transaction_id=new_transaction_id(),
    )


def _resale(query: Mapping[str, str], package: Package, price: int) -> Resale:
    """At the markup that is asked for, else at the suggested price, else at the usual markup."""
    suggested = package.retail_price if package.retail_price > price else 0
    asked = _basis_points(query.get("markup", ""))
    markup = asked or (percent.share(suggested - price, price) if suggested and price else 100 * USUAL_MARKUP)
    own = suggested if suggested and not asked else money.marked_up(price, markup, package.currency)
    shown = percent.number(round(markup, -1))
    return Resale(shown, own, own - price, percent.tenths(own - price, own), suggested)


def _basis_points(text: str) -> int | None:
    """Of a markup in percent, a tenth at least and MOST_MARKUP at most; None for anything else."""
    whole = re.fullmatch(r"([0-9]{1,4})(?:[.]([0-9]))?", text.strip())
    found = int(whole[1]) * 100 + int(whole[2] or 0) * 10 if whole else 0
    return found if 0 < found <= 100 * MOST_MARKUP else None


def _is_beside(one: OnSale, package: Package) -> bool:
    return (one.package.location_code, one.package.type) == (package.location_code, package.type)


def _around(others: Iterable[OnSale], package: Package) -> list[OnSale]:
    """The plan itself among those that stand next to it."""
    ladder = sorted(others, key=choosing.position)
    at = next((at for at, one in enumerate(ladder) if one.package.package_code == package.package_code), 0)
    first = max(min(at - PLANS // 2, len(ladder) - PLANS), 0)
    return ladder[first : first + PLANS]


def _sum(query: Mapping[str, str], package: Package, price: int, wallet: Wallet) -> Sum:
    """Of what the form asks for; what cannot be bought so counts as the nearest that can."""
    daily = sold_by_day(package.data_type)
    quantity = min(max(params.number(query, "quantity") or 1, 1), package.max_quantity)
    least, most = (package.min_period_num, package.max_period_num) if daily else (1, 1)
    days = min(max(params.number(query, "days") or least, least), most)
    total = quantity * days * price
    left = wallet.available - total
    return Sum(quantity, days, total, max(left, 0), max(-left, 0))
