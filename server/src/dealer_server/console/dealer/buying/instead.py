"""What can be sold in place of a package that cannot be bought now?"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import UNSET

from dealer_server.console.dealer.buying.catalogue import CATALOGUE, PackageView, view
from dealer_server.console.shared import params
from dealer_server.console.shared.calls import call
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import RequestContext
from dealer_server.operations.orders.check import check_order
from dealer_server.rules.catalogue import choosing
from dealer_server.rules.catalogue.choosing import OnSale
from dealer_server.rules.catalogue.package import Package, data_text, sold_by_day
from dealer_server.rules.money import money
from dealer_server.rules.orders.pricing import PriceList
from dealer_server.store.tenants import tenant
from esim_dealer.wire import calls

CHECKED, SHOWN = 12, 2


class Replacement(NamedTuple):
    """`differs`: how much more or less it has and costs than the package, such as 1 GB more. `address`: of the form
    that buys it. `closest`: it differs least."""

    view: PackageView
    differs: Sequence[str]
    address: str
    closest: bool


class Instead(NamedTuple):
    """`again`: whether the package itself can be bought. `stocked`: its eSIMs are counted, so that this is certain.
    `others`: the nearest with less data and with more, else two of the same kind, as far as they are available; the
    closest first."""

    again: bool = False
    stocked: bool = False
    others: Sequence[Replacement] = ()


async def instead_of(
    context: RequestContext, package: Package, price: int | None, filled: Mapping[str, object]
) -> Instead:
    """`price`: of the package, None where it has none. `filled`: the fields of the form, which the forms of others keep
    (quantity among them)."""
    quantity = params.number({"quantity": str(filled.get("quantity", ""))}, "quantity") or 1
    async with context.parts.database.connection() as connection:
        prices = await tenant.load_prices(connection, context.tenant_id)
    nearest = choosing.nearest(context.parts.catalogue().on_sale(prices), package)
    able = [one for one in nearest if one.package.max_quantity >= quantity][:CHECKED]
    check = await _check(context, prices, [package, *(one.package for one in able)], quantity)
    itself, *lines = check.items
    found = [one for one, line in zip(able, lines, strict=True) if line.availability == "AVAILABLE"]
    return Instead(
        again=itself.availability == "AVAILABLE",
        stocked=itself.stock is not UNSET,
        others=[_replacement(one, package, price, filled, found[0]) for one in _less_and_more(found, package)],
    )


async def _check(
    context: RequestContext, prices: PriceList, packages: Sequence[Package], quantity: int
) -> calls.OrderCheck:
    lines: list[dict[str, object]] = [
        {
            "packageCode": one.package_code,
            "quantity": quantity,
            **({"periodNum": one.min_period_num} if sold_by_day(one.data_type) else {}),
        }
        for one in packages
    ]
    wanted = call(calls.CheckOrder, items=lines)
    return await check_order(context.parts.database, context.parts.catalogue(), prices, context.tenant_id, wanted)


def _less_and_more(found: Sequence[OnSale], package: Package) -> list[OnSale]:
    """Of the nearest first, which stays the first."""
    less = [one for one in found if _volume(one.package) < _volume(package)]
    more = [one for one in found if one not in less]
    return sorted([*less[:1], *more[:1]], key=found.index) if less and more else list(found[:SHOWN])


def _volume(package: Package) -> float:
    return float("inf") if package.data_bytes is None else package.data_bytes


def _replacement(
    one: OnSale, package: Package, price: int | None, filled: Mapping[str, object], closest: OnSale
) -> Replacement:
    its, differs = one.package, list[str]()
    if its.data_bytes and package.data_bytes and its.data_bytes != package.data_bytes:
        differs.append(
            _compared(data_text(abs(its.data_bytes - package.data_bytes), " "), its.data_bytes, package.data_bytes)
        )
    if not sold_by_day(its.data_type):
        by = abs(its.duration - package.duration)
        differs.append(_compared(many(by, "day"), its.duration, package.duration) if by else "same days")
    if price is not None and price != one.price:
        differs.append(_compared(money.shown(abs(one.price - price), its.currency), one.price, price))
    return Replacement(view(one), differs, params.address(f"{CATALOGUE}/{its.package_code}", filled), one == closest)


def _compared(by: str, its: int, other: int) -> str:
    return f"{by} {'less' if its < other else 'more'}"
