"""A package: its fields and how they are edited, its routes and stock, who pays which price, and its sales."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import msgspec

from dealer_server import store
from dealer_server.console.find import orders as find_orders
from dealer_server.console.find import places
from dealer_server.console.operator.incidents import findings
from dealer_server.console.operator.suppliers.listing import words_of
from dealer_server.console.shared import params
from dealer_server.console.shared.forms.confirmation import confirmed
from dealer_server.console.shared.page import action, download, page
from dealer_server.console.shared.permissions import OPERATOR_ADMINS, OPERATORS
from dealer_server.console.shared.request_context import Answer, Download, Html, NotFound, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.catalogue import edit_package
from dealer_server.operations.catalogue.below_cost import cost_text
from dealer_server.operations.catalogue.edit_package import WrongFields
from dealer_server.operations.versions import version_of
from dealer_server.rules.catalogue import importing
from dealer_server.rules.catalogue.package import Package, data_text
from dealer_server.rules.money import money, percent
from dealer_server.rules.price_lists import price_list
from dealer_server.rules.price_lists.price_list import Cost, PriceListTerms
from dealer_server.rules.reports import recent
from dealer_server.rules.reports.period import Period, day_of, start_of
from dealer_server.rules.reports.sums import DaySums, Sums, totals
from dealer_server.store.catalogue import who_pays
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import packages as console_packages
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.orders import OrderFilter
from dealer_server.store.console.packages import Edit
from dealer_server.store.console.suppliers import SupplierRow
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter
from dealer_server.store.suppliers.purchase import Hop

PACKAGES, PACKAGE, EDIT = "/console/packages", "/console/packages/{code}", "/console/packages/{code}/edit"
NEW = "/console/packages/new"
FORM_TEMPLATE = "operator/catalogue/package_form.html"
PAYERS = 200
LATEST_ORDERS = 6
UNHEALTHY = ("degraded", "failing", "down", "paused")
DATA_UNITS = ("KB", "MB", "GB", "TB")
STARTING = {"currency": "USD", "dataType": "TOTAL", "type": "BASE", "duration": "30", "supplier": "stock"}


class Data(NamedTuple):
    """How much data, as the form asks for it."""

    amount: str
    unit: str


class Unhealthy(NamedTuple):
    """A supplier of a package's route, and what it is: degraded, failing, down, paused."""

    supplier: str
    word: str


class Payer(NamedTuple):
    """Who pays this for the package: a dealer, those of a list, those with a markup. `margin` in hundredths of a
    percent of the price; None where the cost is not known."""

    who: str
    href: str
    why: str
    dealers: int
    price: int | None
    margin: int | None


@page(PACKAGE, OPERATORS, "operator/catalogue/package.html")
async def show_package(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        package = await _package(connection, context)
        code, today = package.package_code, day_of(context.now)
        hops = (await store.purchase.routes(connection, [code])).get(code, [])
        cost = (await store.price_list.costs(connection, [code])).get(code)
        known = price_list.current_cost(package, cost)
        suppliers = await console_suppliers.list_suppliers(connection)
        counts = await findings.call_counts(connection, suppliers, context.now)
        health = words_of(suppliers, counts)
        latest = (
            await console_orders.list_orders(connection, OrderFilter(package_code=code), None, LATEST_ORDERS)
        ).rows
        own_floor = (await store.purchase.margin_floors(connection, [code])).get(code)
        return Html(
            package=package,
            columns=importing.texts(package),
            data_text=data_text,
            hops=[(hop, _hop_margin(package, hop)) for hop in hops],
            suppliers={row.code: row for row in suppliers},
            counts=counts,
            health=health,
            unhealthy=_unhealthy(hops, suppliers, health),
            floor=own_floor if own_floor is not None else context.parts.settings.margin_floor_basis_points or 0,
            cost=known,
            margin=None if known is None else price_list.margin(package.price, known),
            cost_text=cost_text,
            free=await who_pays.free_stock(connection, code) if package.supplier == "stock" else None,
            payers=await _payers(connection, package, cost),
            most_payers=PAYERS,
            **_sales(await _days(connection, code, recent.compared(today)), package.currency, today),
            latest=latest,
            in_review=await find_orders.in_review(connection, latest),
        )


def _unhealthy(hops: Sequence[Hop], suppliers: Sequence[SupplierRow], health: Mapping[str, str]) -> list[Unhealthy]:
    """In the order of the route."""
    paused = {row.code for row in suppliers if row.status != "ACTIVE"}
    words = {code: "paused" if code in paused else word.lower() for code, word in health.items()}
    return [Unhealthy(hop.supplier, words[hop.supplier]) for hop in hops if words.get(hop.supplier) in UNHEALTHY]


async def _package(connection: Connection, context: RequestContext) -> Package:
    """Raises NotFound."""
    code = context.path["code"]
    package = (await console_packages.by_code(connection, [code])).get(code)
    if package is None:
        raise NotFound
    return package


def _hop_margin(package: Package, hop: Hop) -> int | None:
    """What is left of the dealer price where this supplier makes it, in hundredths of a percent of it."""
    if hop.cost is None or hop.cost_currency != package.currency:
        return None
    return price_list.margin(package.price, hop.cost)


async def _payers(connection: Connection, package: Package, cost: Cost | None) -> list[Payer]:
    known = price_list.current_cost(package, cost)

    def payer(who: str, href: str, why: str, dealers: int, price: int | None) -> Payer:
        margin = price_list.margin(price, known) if price is not None and known is not None else None
        return Payer(who, href, why, dealers, price, margin)

    found = []
    for markup, dealers in await who_pays.markups(connection, package.package_code, package.currency, PAYERS):
        text = f"Markup {percent.shown(markup)}" if markup else "Dealer price"
        price = money.marked_up(package.price, markup, package.currency)
        found.append(payer("Dealers without a price list", "", text, dealers, price))
    listed = {one.price_list_id: one for one in await store.price_list.listed(connection)}
    for terms in await store.price_list.load(connection):
        one = listed.get(terms.price_list_id)
        why = _list_text(
            terms, price_list.agreed_cost(package, cost) is not None, package.package_code in terms.exceptions
        )
        href, dealers = f"/console/price-lists/{terms.price_list_id}", one.dealers if one else 0
        found.append(payer(terms.name, href, why, dealers, price_list.price(package, cost, terms)))
    own = await who_pays.custom_prices(connection, package.package_code, PAYERS)
    dealers = [payer(one.name, f"/console/dealers/{one.tenant_id}", "Custom price", 1, one.price) for one in own]
    return [*found, *dealers]


def _list_text(terms: PriceListTerms, costed: bool, excepted: bool) -> str:
    """How a list comes to its price. Over a cost that is not known it is the dealer price."""
    if excepted:
        return "Price list, exception"
    if terms.basis == "COST" and not costed:
        return "Price list, dealer price: no cost known"
    rule = price_list.rule(terms.basis, terms.markup_basis_points)
    return f"Price list, {rule[:1].lower()}{rule[1:]}"


async def _sold(connection: Connection, package_code: str, now: datetime) -> Mapping[str, Sums]:
    """In the last 30 days, by currency."""
    return totals(await _days(connection, package_code, recent.shown(day_of(now))))


async def _days(connection: Connection, package_code: str, period: Period) -> Sequence[DaySums]:
    return await report.by_day(connection, Filter(period, package_code=package_code))


def _sales(days: Sequence[DaySums], currency: str, today: date) -> dict[str, Any]:
    """In the last 30 days, beside those before: the total, and what the chart shows."""
    found = recent.recent(days, currency, today)
    before = [one.sold for one in found.before]
    return {
        "sales": found,
        "starts": [start_of(day) for day in found.days],
        "sold": [one.sold for one in found.sums],
        "before": before if any(before) else [],
    }


# Its form


@page(NEW, OPERATOR_ADMINS, FORM_TEMPLATE)
async def new(context: RequestContext) -> Html:
    return await _form(context, None, STARTING)


@action(NEW, OPERATOR_ADMINS, FORM_TEMPLATE)
async def create(context: RequestContext) -> Answer:
    cells = _cells(context.form)

    async def write(allowed: bool) -> Answer:
        made = await edit_package.create_package(
            context.parts.database, cells, context.author, lambda: context.now, allow_below_cost=allowed
        )
        return Redirect(PACKAGE.format(code=made.package_code), f"{made.package_code} is made")

    try:
        return await confirmed(context, NEW, PACKAGES, write)
    except WrongFields as why:
        return await _form(context, None, cells, why.faults)


@page(EDIT, OPERATOR_ADMINS, FORM_TEMPLATE)
async def edit(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        package = await _package(connection, context)
    return await _form(context, package, importing.texts(package), typed=context.query)


@action(EDIT, OPERATOR_ADMINS, FORM_TEMPLATE)
async def save(context: RequestContext) -> Answer:
    async with context.parts.database.connection() as connection:
        package = await _package(connection, context)
    code, before = package.package_code, importing.texts(package)
    cells = _elsewhere(_cells(context.form), before)
    if context.form.get("do") == "preview":
        return await _form(context, package, before | cells)

    async def write(allowed: bool) -> Answer:
        await edit_package.edit_package(
            context.parts.database,
            code,
            cells,
            context.form.get("version"),
            context.author,
            lambda: context.now,
            allow_below_cost=allowed,
        )
        return Redirect(PACKAGE.format(code=code), f"{code} is saved")

    try:
        return await confirmed(context, EDIT.format(code=code), PACKAGE.format(code=code), write)
    except WrongFields as why:
        return await _form(context, package, before | cells, why.faults)


_OF_THE_PLACE = ("locationName", "locationType", "continent", "locations", "networks")


def _elsewhere(cells: dict[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """What another place is called and covers follows from it, where it was not typed too."""
    if cells.get("locationCode") in (None, before["locationCode"]):
        return cells
    return cells | {name: "" for name in _OF_THE_PLACE if cells.get(name, before[name]) == before[name]}


class Effect(NamedTuple):
    """What a price leaves over the cost at the first supplier. `cost` None: it is not known in the package's currency;
    `price` None: none is typed yet that can be read. `retail`: what dealers may ask, None for nothing."""

    supplier: str
    cost: int | None
    price: int | None
    retail: int | None

    @property
    def margin(self) -> int | None:
        return None if self.cost is None or self.price is None else price_list.margin(self.price, self.cost)

    @property
    def kept(self) -> int | None:
        """What a dealer keeps of the retail price, in hundredths of a percent of it."""
        return None if self.price is None or not self.retail else price_list.margin(self.retail, self.price)


def _effect(package: Package, route: Sequence[Hop], cells: Mapping[str, str]) -> Effect:
    first = route[0] if route else Hop("", "", None, None)
    cost = first.cost if first.cost_currency == package.currency else None
    return Effect(first.supplier, cost, _amount(package, cells["price"]), _amount(package, cells["retailPrice"]))


def _amount(package: Package, typed: str) -> int | None:
    try:
        return money.parse(typed.strip(), package.currency)
    except ValueError:
        return None


class Beside(NamedTuple):
    """What an editor sees beside the form. `payers`: who pays what at the price that is typed; `sold`: in the last 30
    days, by currency; `edit`: the last one; `unhealthy`: what suppliers of the route are, by code."""

    payers: Sequence[Payer]
    floor: int
    hops: Sequence[tuple[Hop, int | None]]
    sold: Mapping[str, Sums]
    edit: Edit | None
    unhealthy: Mapping[str, str]


async def _beside(
    connection: Connection, context: RequestContext, package: Package, route: Sequence[Hop], typed: int | None
) -> Beside:
    code = package.package_code
    priced = package if typed is None else msgspec.structs.replace(package, price=typed)
    cost = (await store.price_list.costs(connection, [code])).get(code)
    own_floor = (await store.purchase.margin_floors(connection, [code])).get(code)
    suppliers = await console_suppliers.list_suppliers(connection)
    health = words_of(suppliers, await findings.call_counts(connection, suppliers, context.now))
    return Beside(
        payers=await _payers(connection, priced, cost),
        floor=own_floor if own_floor is not None else context.parts.settings.margin_floor_basis_points or 0,
        hops=[(hop, _hop_margin(priced, hop)) for hop in route],
        sold=await _sold(connection, code, context.now),
        edit=await console_packages.last_edit(connection, code),
        unhealthy={one.supplier: one.word for one in _unhealthy(route, suppliers, health)},
    )


async def _form(
    context: RequestContext,
    package: Package | None,
    cells: Mapping[str, str],
    faults: Mapping[str, str] | None = None,
    typed: Mapping[str, str] | None = None,
) -> Html:
    """`typed`: the prices whose effect is shown, where they are not those of the form."""
    route: Sequence[Hop] = ()
    effect = beside = None
    async with context.parts.database.connection() as connection:
        codes = await edit_package.suppliers(connection)
        if package is not None:
            route = (await store.purchase.routes(connection, [package.package_code])).get(package.package_code, ())
            effect = _effect(package, route, {**cells, **(typed or {})})
            beside = await _beside(connection, context, package, route, effect.price)
    version = context.form.get("version") or (version_of(importing.texts(package)) if package is not None else "")
    return Html(
        400 if faults else 200,
        package=package,
        cells=dict.fromkeys(importing.NAMES, "") | dict(cells),
        place=_place(package, cells.get("locationCode", "")),
        data=_data(cells.get("dataBytes", "")),
        data_units=DATA_UNITS,
        faults=faults or {},
        version=version,
        suppliers=codes,
        routed=bool(route),
        effect=effect,
        beside=beside,
        most_payers=PAYERS,
        cost_text=cost_text,
        currencies=sorted(money.EXPONENTS),
    )


def _cells(form: Mapping[str, str]) -> dict[str, str]:
    """The columns that a form has. The unit of its data may be typed too; a place has its code, or its usual name."""
    cells = {name: form[name].strip() for name in importing.NAMES if name in form}
    if "locationCode" in cells:
        cells["locationCode"] = places.code_of(cells["locationCode"])
    amount, unit = cells.get("dataBytes", ""), form.get("dataUnit", "")
    return cells | {"dataBytes": amount + unit} if amount[-1:].isdigit() and unit in DATA_UNITS else cells


def _place(package: Package | None, code: str) -> str:
    """As the field shows it."""
    known = package.location_name if package is not None and package.location_code == code else ""
    return places.label_of(code, known)


def _data(cell: str) -> Data:
    """Bytes without a unit stay as they are, with none to choose."""
    unit = cell[-2:]
    return Data(cell[:-2].strip(), unit) if unit in DATA_UNITS else Data(cell, "" if cell.isdigit() else "GB")


# The catalogue as a file


@download(f"{PACKAGES}/export.csv", OPERATORS, listing=True)
async def export(context: RequestContext) -> Download:
    """All packages, as an import reads them back; who took it is in the audit log."""
    await params.record_export(context, "catalog.export", None, ())
    async with context.parts.database.connection() as connection:
        packages = await store.package.some(connection, None)

    async def chunks() -> AsyncIterator[bytes]:
        yield importing.write(packages).encode("utf-8-sig")

    return Download("packages.csv", "text/csv; charset=utf-8", chunks())
