"""Packages: on and off sale, the import with a preview of its changes, and stock."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import date
from statistics import median
from typing import Literal, NamedTuple

from dealer_server.console.find import tabs
from dealer_server.console.find.tabs import Tabs
from dealer_server.console.operator.catalogue import columns
from dealer_server.console.operator.incidents import findings
from dealer_server.console.operator.suppliers.listing import words_of
from dealer_server.console.shared import params
from dealer_server.console.shared.forms import uploads
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_ADMINS, OPERATORS
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Answer, Download, Html, NotFound, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.catalogue import import_packages
from dealer_server.operations.catalogue import load_stock as stock
from dealer_server.operations.catalogue.below_cost import cost_text
from dealer_server.operations.catalogue.set_status import set_package_status
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import percent
from dealer_server.rules.price_lists import price_list
from dealer_server.rules.reports import recent
from dealer_server.rules.reports.period import day_of
from dealer_server.rules.reports.sums import DaySums
from dealer_server.store.console import packages as console_packages
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.packages import PackageFilter, PackageRow, States
from dealer_server.store.reports import report

PACKAGES, IMPORT, STOCK = "/console/packages", "/console/packages/import", "/console/packages/{code}/stock"
STOCK_TEMPLATE = "operator/stock.html"
STATUSES = ("ON_SALE", "OFF_SALE")
KINDS = {"FIXED": "Fixed plans", "DAILY": "By the day", "RECHARGE": "Recharges"}
SOLD, ALL, AVAILABLE, SOLD_OUT = "SOLD", "ALL", "AVAILABLE", "SOLD_OUT"
SOLD_TAB = "Sold in 30 days"
SOLD_OUT_TAB = "Sold out"
PRESETS = (
    (SOLD_TAB, {"status": SOLD}),
    ("On sale", {"status": AVAILABLE}),
    (SOLD_OUT_TAB, {"status": SOLD_OUT}),
    ("Off sale", {"status": "OFF_SALE"}),
)
"""On sale, sold out and off sale are all of them."""
COLUMNS = ("name", "place", "data", "supplier", "-cost", "-price", "margin", "-sold", "-revenue")
FAULTS = 200
CHANGES = 500


@page(PACKAGES, OPERATORS, "operator/packages.html", MenuEntry("Packages", "package", 80), listing=True)
async def packages(context: RequestContext) -> Html:
    query, floor = context.query, context.parts.settings.margin_floor_basis_points or 0
    margins = _margins(floor)
    order, today = params.order(context, PACKAGES, COLUMNS, "-sold"), day_of(context.now)
    since = recent.shown(today).first
    asked = any(one != ("status", ALL) for one in params.asked(context).items())
    filters = _filters(query, margins, since)
    async with context.parts.database.connection() as connection:
        states = await console_packages.count_states(connection, filters, since)
        if states.sold and not asked and query.get("status") != ALL:
            filters = filters._replace(sold_since=since)
        rows = await console_packages.list_packages(
            connection,
            filters,
            params.text(query, "before"),
            PAGE_SIZE + 1,
            order.key,
            descending=order.descending,
            since=since,
        )
        sales = await _sales(connection, [row.package for row in rows[:PAGE_SIZE]], today)
        places = await console_packages.places(connection)
        costs = await console_packages.costs(connection)
        suppliers = await report.suppliers(connection)
        connected = await console_suppliers.list_suppliers(connection)
        counts = await findings.call_counts(connection, connected, context.now)
    following = rows[PAGE_SIZE - 1].package.package_code if len(rows) > PAGE_SIZE else None
    total = _in_state(states, filters)
    return Html(
        packages=[(row, _margin(row), sales.get(row.package.package_code)) for row in rows[:PAGE_SIZE]],
        far_below=_far_below(rows),
        filters=filters,
        asked=asked,
        total=total,
        tabs=await _tabs(context, states),
        costed=costs.known > 0,
        losses=costs.losses,
        floor=floor,
        kinds=KINDS,
        places=places,
        suppliers=suppliers,
        connected={row.code: row for row in connected},
        health=words_of(connected, counts),
        counts=counts,
        margins={name: margin.label for name, margin in margins.items()},
        margin=params.one_of(query, "margin", tuple(margins)) or "",
        cost_text=cost_text,
        pager=params.pager(context, PACKAGES, following, shown=min(len(rows), PAGE_SIZE), word="package", total=total),
        order=order,
    )


async def _tabs(context: RequestContext, states: States) -> Tabs:
    """Those that sold are listed where no tab is asked for, if any did or something is filtered."""
    first = SOLD_TAB if states.sold or any(params.filters(context).values()) else ""
    return await tabs.of(
        context, PACKAGES, PRESETS, _counts(states), every={"status": ALL}, first=first, problems=SOLD_OUT_TAB
    )


async def _sales(connection: Connection, packages: Sequence[Package], today: date) -> Mapping[str, recent.Recent]:
    """Of those that were sold in the last 30 days, by packageCode."""
    days: dict[str, list[DaySums]] = {}
    wanted, codes = report.Filter(recent.compared(today)), [package.package_code for package in packages]
    for row in await report.among(connection, wanted, ("package", "day"), codes):
        days.setdefault(row.keys["package"], []).append(DaySums(row.keys["day"], row.currency, row.sums))
    return {
        package.package_code: recent.recent(sold, package.currency, today)
        for package in packages
        if (sold := days.get(package.package_code))
    }


def _counts(states: States) -> Mapping[str, int]:
    return {
        SOLD_TAB: states.sold,
        "All": states.every,
        "On sale": states.on_sale,
        SOLD_OUT_TAB: states.sold_out,
        "Off sale": states.off_sale,
    }


def _in_state(states: States, filters: PackageFilter) -> int:
    if filters.sold_since is not None:
        return states.sold
    if filters.sold_out is not None:
        return states.sold_out if filters.sold_out else states.on_sale
    on_sale = states.on_sale + states.sold_out
    return {None: states.every, "ON_SALE": on_sale}.get(filters.status, states.off_sale)


class _Margin(NamedTuple):
    """A choice of the filter by margin. `below`: in hundredths of a percent of the price."""

    label: str
    below: int | None
    costed: bool


def _margins(floor: int) -> Mapping[str, _Margin]:
    found = {"loss": _Margin("Below the cost", 0, True)}
    if floor:
        found["floor"] = _Margin(f"Below the floor, {percent.shown(floor)}", floor, True)
    found |= {str(share): _Margin(f"Below {share} %", share * 100, True) for share in (10, 20, 30)}
    return found | {"unknown": _Margin("Cost not known", None, False)}


def _filters(query: Mapping[str, str], margins: Mapping[str, _Margin], since: date) -> PackageFilter:
    """`since`: the first of the days of SOLD."""
    margin, state = margins.get(query.get("margin", "")), query.get("status")
    return PackageFilter(
        text=params.text(query, "q"),
        status="ON_SALE" if state == AVAILABLE else params.one_of(query, "status", STATUSES),
        place=params.text(query, "region"),
        covers=params.text(query, "covers"),
        supplier=params.text(query, "supplier"),
        kind=params.one_of(query, "kind", tuple(KINDS)),
        margin=margin.below if margin else None,
        costed=margin.costed if margin else None,
        alone=True if query.get("route") == "alone" else None,
        sold_out={SOLD_OUT: True, AVAILABLE: False}.get(state or ""),
        sold_since=since if state == SOLD else None,
    )


def _margin(row: PackageRow) -> int | None:
    """What is left of the dealer price, in hundredths of a percent of it."""
    return None if row.cost is None else price_list.margin(row.package.price, row.cost)


def _far_below(rows: Sequence[PackageRow]) -> float:
    """Half of the usual margin of a page: less than that is marked."""
    known = [share for row in rows if (share := _margin(row)) is not None]
    return median(known) / 2 if known else 0


@action(f"{PACKAGES}/status", OPERATOR_ADMINS)
async def set_status(context: RequestContext) -> Redirect:
    code = context.form.get("package", "")
    status = _status(context.form)
    await set_package_status(context.parts.database, [code], status, context.author, lambda: context.now)
    return Redirect(f"{PACKAGES}/{code}", f"{code} is {'on' if status == 'ON_SALE' else 'off'} sale")


def _status(form: Mapping[str, str]) -> Literal["ON_SALE", "OFF_SALE"]:
    return "OFF_SALE" if form.get("status") == "OFF_SALE" else "ON_SALE"


# The import


@page(IMPORT, OPERATOR_ADMINS, "operator/import.html")
async def choose(context: RequestContext) -> Html:
    return Html(about=columns.ABOUT, needed=columns.NEEDED, optional=columns.OPTIONAL)


@download(f"{PACKAGES}/template.csv", OPERATOR_ADMINS)
async def template(_: RequestContext) -> Download:
    """A file to begin with."""

    async def chunks() -> AsyncIterator[bytes]:
        yield columns.template().encode()

    return Download("packages-template.csv", "text/csv; charset=utf-8", chunks())


@action(f"{PACKAGES}/preview", OPERATOR_ADMINS, "operator/import_preview.html")
async def preview(context: RequestContext) -> Answer:
    """What a file would change, or its faults; nothing is written."""
    text = uploads.decoded(context.files.get("file", b""))
    if text is None:
        raise OperatorError(uploads.NOT_CSV, "file")
    async with context.parts.database.connection() as connection:
        plan = await import_packages.plan_import(connection, text)
    return Html(
        plan=plan,
        faults=plan.faults[:FAULTS],
        changes=plan.changes[:CHANGES],
        warnings=plan.warnings[:FAULTS],
        losses=plan.losses[:FAULTS],
        cost_text=cost_text,
        packed="" if plan.faults else uploads.packed(text),
    )


@action(IMPORT, OPERATOR_ADMINS)
async def apply(context: RequestContext) -> Redirect:
    """Writes what was previewed, all or nothing."""
    text = uploads.unpacked(context.form.get("packed", ""))
    if text is None:
        return Redirect(IMPORT, uploads.MISSING, failed=True)
    try:
        imported = await import_packages.import_csv(
            context.parts.database,
            text,
            context.author,
            lambda: context.now,
            version=context.form.get("version", ""),
            allow_below_cost="allow_below_cost" in context.form,
        )
    except OperatorError as why:
        return Redirect(IMPORT, str(why), failed=True)
    if imported.faults:
        return Redirect(IMPORT, f"{many(len(imported.faults), 'fault')}; nothing was imported", failed=True)
    return Redirect(PACKAGES, f"{many(imported.packages, 'package')}, {imported.changed} of them new or changed")


# Stock


@page(STOCK, OPERATOR_ADMINS, STOCK_TEMPLATE)
async def choose_stock(context: RequestContext) -> Html:
    return Html(package=await _package(context), report=None)


@action(STOCK, OPERATOR_ADMINS, STOCK_TEMPLATE)
async def load_stock(context: RequestContext) -> Answer:
    """All profiles of the file or, with a report of every fault, none."""
    package, parts = await _package(context), context.parts
    text = uploads.decoded(context.files.get("file", b""))
    if text is None:
        raise OperatorError(uploads.NOT_CSV, "file")
    report = await stock.load_stock(parts.database, parts.data_keys, package.package_code, text, context.author)
    return Html(400 if report.faults else 200, package=package, report=report)


async def _package(context: RequestContext) -> Package:
    """Raises NotFound."""
    code = context.path["code"]
    async with context.parts.database.connection() as connection:
        package = (await console_packages.by_code(connection, [code])).get(code)
    if package is None:
        raise NotFound
    return package
