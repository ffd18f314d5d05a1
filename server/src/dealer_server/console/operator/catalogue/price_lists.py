"""Price lists: the terms of each, what packages cost on it with the margin beside, its dealers, and its file."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from dealer_server import store
from dealer_server.console.find import choice, tabs
from dealer_server.console.operator.catalogue import list_sales
from dealer_server.console.operator.catalogue.list_sales import ListSales
from dealer_server.console.shared import params
from dealer_server.console.shared.forms import uploads
from dealer_server.console.shared.forms.confirmation import confirmed
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_ADMINS, OPERATORS
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Answer, Download, Html, NotFound, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.catalogue.below_cost import cost_text
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.price_lists import change, import_list, show
from dealer_server.operations.price_lists.change import ListForm
from dealer_server.operations.tenants.assign_price_list import assign
from dealer_server.rules.money import percent
from dealer_server.rules.price_lists import price_list
from dealer_server.rules.price_lists.effect import Effect
from dealer_server.rules.price_lists.price_list import PriceListTerms
from dealer_server.rules.reports import recent
from dealer_server.rules.reports.period import day_of
from dealer_server.store.console import packages as console_packages
from dealer_server.store.console.packages import PackageFilter
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter

LISTS, LIST, NEW = "/console/price-lists", "/console/price-lists/{price_list_id}", "/console/price-lists/new"
FORM_TEMPLATE = "operator/catalogue/price_list_new.html"
EXCEPTIONS = "Exceptions"
PRESETS = ((EXCEPTIONS, {"only": "exceptions"}),)
"""What a list has of its own stands first, where it has any."""
ORDERS = ("name", "-cost", "-price", "-sold")
"""Of the packages of a list."""
DEALERS = 200
CHANGES = 500
FAULTS = 200


class Row(NamedTuple):
    """A list among others."""

    terms: PriceListTerms
    rule: str
    sales: ListSales

    @property
    def revenue(self) -> int:
        return self.sales.main[1].revenue if self.sales.main else 0


COLUMNS: Mapping[str, Callable[[Row], Any]] = {
    "name": lambda row: (row.terms.name.lower(), row.terms.name),
    "-exceptions": lambda row: (len(row.terms.exceptions), row.terms.name),
    "-dealers": lambda row: (len(row.sales.dealers), row.terms.name),
    "-revenue": lambda row: (row.revenue, row.terms.name),
}


@page(LISTS, OPERATORS, "operator/catalogue/price_lists.html", MenuEntry("Price lists", "tag", 85))
async def price_lists(context: RequestContext) -> Html:
    """The dealer price, which those without a list pay, is the last of them."""
    async with context.parts.database.connection() as connection:
        found = await store.price_list.load(connection)
        sales = await list_sales.by_list(connection, day_of(context.now))
    nobody = ListSales((), {})
    order = params.order(context, LISTS, tuple(COLUMNS), "-revenue")
    rows = [
        Row(
            terms,
            price_list.rule(terms.basis, terms.markup_basis_points),
            sales.get(terms.price_list_id, nobody),
        )
        for terms in found
    ]
    return Html(
        lists=order.sorted(rows, {name.removeprefix("-"): by for name, by in COLUMNS.items()}),
        bare=sales.get(None, nobody),
        order=order,
    )


@page(NEW, OPERATOR_ADMINS, FORM_TEMPLATE)
async def new(context: RequestContext) -> Html:
    blank = PriceListTerms(0, "-", "PRICE", 0, context.now)
    async with context.parts.database.connection() as connection:
        return Html(list=await _proposed(connection, context, blank), cost_text=cost_text)


@action(LISTS, OPERATOR_ADMINS)
async def create(context: RequestContext) -> Redirect:
    if context.form.get("do") == "preview":
        return _preview(context, NEW)
    number = await change.create_list(context.parts.database, _form(context), context.author, lambda: context.now)
    return Redirect(f"{LISTS}/{number}", "The price list is made. Assign it to dealers, and set exceptions")


@page(LIST, OPERATORS, "operator/catalogue/price_list.html")
async def show_list(context: RequestContext) -> Html:
    query, today = context.query, day_of(context.now)
    async with context.parts.database.connection() as connection:
        terms = await _terms(connection, context)
        home = _home(terms)
        order = params.order(context, home, ORDERS, "-sold")
        wanted = PackageFilter(text=params.text(query, "q"))
        excepted = wanted._replace(codes=list(terms.exceptions))
        counts = [await console_packages.count_packages(connection, one) for one in (wanted, excepted)]
        counted: dict[str, int] = dict(zip(("All", EXCEPTIONS), counts, strict=True))
        first = EXCEPTIONS if terms.exceptions else ""
        only = query.get("only") == "exceptions" or bool(first and not params.asked(context))
        rows = await console_packages.list_packages(
            connection,
            excepted if only else wanted,
            params.text(query, "before"),
            PAGE_SIZE + 1,
            order.key,
            descending=order.descending,
            since=recent.shown(today).first,
        )
        packages = [row.package for row in rows[:PAGE_SIZE]]
        codes = [package.package_code for package in packages]
        costs = await store.price_list.costs(connection, codes)
        dealers = await store.price_list.dealers(connection, terms.price_list_id, DEALERS)
        proposed = await _proposed(connection, context, terms)
        sales = (await list_sales.by_list(connection, today)).get(terms.price_list_id)
        sold = await report.among(connection, Filter(recent.shown(today)), ("package",), codes)
    following = packages[-1].package_code if len(rows) > PAGE_SIZE else None
    return Html(
        terms=terms,
        rule=price_list.rule(terms.basis, terms.markup_basis_points),
        list=proposed,
        version=change.list_version(terms),
        versions={one.package_code: change.exceptions_version(terms, [one]) for one in packages},
        prices_version=change.exceptions_version(terms, packages),
        lines=show.lines(packages, costs, terms),
        sold={row.keys["package"]: row.sums.sold for row in sold if row.sums.sold},
        dealers=dealers,
        sales=sales.main if sales else None,
        text=wanted.text or "",
        only=only,
        all_since=_all_since(terms, codes),
        tabs=await tabs.of(context, home, PRESETS, counted, every={"only": "all"}, first=first),
        order=order,
        pager=params.pager(context, home, following, shown=len(packages), word="package", total=counts[only]),
        cost_text=cost_text,
    )


def _all_since(terms: PriceListTerms, codes: Sequence[str]) -> datetime | None:
    """The minute since which all of these are exceptions; None where they differ."""
    times = {one.updated_at.replace(second=0, microsecond=0) for code in codes if (one := terms.exceptions.get(code))}
    return times.pop() if len(times) == 1 and all(code in terms.exceptions for code in codes) else None


class Proposed(NamedTuple):
    """Terms as they are typed, and what they come to; `effect` None where they are not valid."""

    name: str
    basis: str
    markup: str
    effect: Effect | None


async def _proposed(connection: Connection, context: RequestContext, terms: PriceListTerms) -> Proposed:
    """The terms of a list, with what the query says instead."""
    query = context.query
    basis, markup = query.get("basis", terms.basis), query.get("markup", percent.number(terms.markup_basis_points))
    name = query.get("name", terms.name if terms.price_list_id else "")
    try:
        wanted = change.proposed(terms, basis, markup)
    except OperatorError:
        return Proposed(name, basis, markup, None)
    effect = await show.shown_effect(connection, context.parts.catalogue().packages, wanted)
    return Proposed(name, wanted.basis, markup, effect)


def _preview(context: RequestContext, page: str) -> Redirect:
    """The page of the form with what was typed, which shows what it comes to."""
    return Redirect(params.address(page, {name: context.form.get(name, "") for name in ("name", "basis", "markup")}))


@action(f"{LIST}/terms", OPERATOR_ADMINS)
async def set_terms(context: RequestContext) -> Answer:
    terms = await _load(context)
    if context.form.get("do") == "preview":
        return _preview(context, _home(terms))

    async def write(allowed: bool) -> Answer:
        await change.set_list(
            context.parts.database,
            terms.price_list_id,
            _form(context),
            context.form.get("version"),
            context.author,
            lambda: context.now,
            allow_below_cost=allowed,
        )
        return Redirect(_home(terms), "The price list is changed")

    return await confirmed(context, f"{_home(terms)}/terms", _home(terms), write)


@action(f"{LIST}/exceptions", OPERATOR_ADMINS)
async def set_exceptions(context: RequestContext) -> Answer:
    """The prices of packages on the list, of those that were changed, or of the one that is named. `off`: not on sale;
    `list`: as the markup says again."""
    terms, prices = await _load(context), _prices(context.form)
    if not prices:
        return Redirect(_home(terms), "No price was changed")

    async def write(allowed: bool) -> Answer:
        await change.set_exceptions(
            context.parts.database,
            terms.price_list_id,
            prices,
            context.author,
            lambda: context.now,
            version=context.form.get("version"),
            allow_below_cost=allowed,
        )
        [(package, price), *others] = prices.items()
        state = {"off": "is not on sale now", "list": "follows the markup again"}.get(price, f"costs {price} now")
        return Redirect(_home(terms), f"{len(prices)} prices are changed" if others else f"{package} {state}")

    return await confirmed(context, f"{_home(terms)}/exceptions", _home(terms), write)


def _prices(form: Mapping[str, str]) -> dict[str, str]:
    """By package code. Raises OperatorError."""
    named, price = params.text(form, "package"), params.text(form, "price")
    if named and price:
        return {named: price}
    if "package" in form or "price" in form:
        raise OperatorError("A package code and a price are needed", "price" if named else "package")
    typed = {name.removeprefix("price "): text.strip() for name, text in form.items() if name.startswith("price ")}
    return {code: text for code, text in typed.items() if text != form.get(f"was {code}")}


@action(f"{LIST}/assign", OPERATOR_ADMINS)
async def assign_list(context: RequestContext) -> Redirect:
    terms = await _load(context)
    async with context.parts.database.connection() as connection:
        tenant_id = (await choice.dealer(connection, context.form.get("dealer"))).required
    await assign(context.parts.database, tenant_id, terms.price_list_id, context.author, lambda: context.now)
    return Redirect(_home(terms), f"Dealer {tenant_id} has the price list now")


@action(f"{LIST}/unassign", OPERATOR_ADMINS)
async def unassign_list(context: RequestContext) -> Redirect:
    terms, tenant_id = await _load(context), params.number(context.form, "dealer")
    if tenant_id is None:
        raise OperatorError("A dealer is needed")
    await assign(context.parts.database, tenant_id, None, context.author, lambda: context.now)
    return Redirect(_home(terms), f"Dealer {tenant_id} has no price list now")


@action(f"{LIST}/remove", OPERATOR_ADMINS)
async def remove(context: RequestContext) -> Redirect:
    terms = await _load(context)
    await change.remove_list(context.parts.database, terms.price_list_id, context.author)
    return Redirect(LISTS, f"{terms.name} is removed")


# Its file


@download(f"{LIST}/export.csv", OPERATORS, listing=True)
async def export(context: RequestContext) -> Download:
    """All packages on the list; who took it is in the audit log."""
    async with context.parts.database.connection() as connection:
        terms = await _terms(connection, context)
        text = await show.export(connection, terms)
    await params.record_export(context, "price_list.export", None, ())

    async def chunks() -> AsyncIterator[bytes]:
        yield text.encode("utf-8-sig")

    return Download(f"price-list-{terms.price_list_id}.csv", "text/csv; charset=utf-8", chunks())


@page(f"{LIST}/import", OPERATOR_ADMINS, "operator/catalogue/list_import.html")
async def choose(context: RequestContext) -> Html:
    return Html(terms=await _load(context))


@action(f"{LIST}/preview", OPERATOR_ADMINS, "operator/catalogue/list_preview.html")
async def preview(context: RequestContext) -> Answer:
    """What a file would change, or its faults; nothing is written."""
    text = uploads.decoded(context.files.get("file", b""))
    async with context.parts.database.connection() as connection:
        terms = await _terms(connection, context)
        if text is None:
            raise OperatorError(uploads.NOT_CSV, "file")
        plan = await import_list.plan_list(connection, terms, text)
    return Html(
        terms=terms,
        plan=plan,
        faults=plan.faults[:FAULTS],
        changes=plan.changes[:CHANGES],
        packed="" if plan.faults else uploads.packed(text),
        cost_text=cost_text,
    )


@action(f"{LIST}/import", OPERATOR_ADMINS)
async def apply(context: RequestContext) -> Redirect:
    """Writes what was previewed, all or nothing."""
    terms, text = await _load(context), uploads.unpacked(context.form.get("packed", ""))
    back = f"{_home(terms)}/import"
    if text is None:
        return Redirect(back, uploads.MISSING, failed=True)
    try:
        plan = await import_list.import_list(
            context.parts.database,
            terms.price_list_id,
            text,
            context.author,
            lambda: context.now,
            version=context.form.get("version", ""),
            allow_below_cost="allow_below_cost" in context.form,
        )
    except OperatorError as why:
        return Redirect(back, str(why), failed=True)
    if plan.faults:
        return Redirect(back, f"{many(len(plan.faults), 'fault')}; nothing was imported", failed=True)
    return Redirect(_home(terms), f"{many(plan.packages, 'package')} read, {many(len(plan.changes), 'price')} changed")


def _form(context: RequestContext) -> ListForm:
    form = context.form
    return ListForm(form.get("name", ""), form.get("basis", "PRICE"), form.get("markup", ""))


def _home(terms: PriceListTerms) -> str:
    return f"{LISTS}/{terms.price_list_id}"


async def _load(context: RequestContext) -> PriceListTerms:
    """Raises NotFound."""
    async with context.parts.database.connection() as connection:
        return await _terms(connection, context)


async def _terms(connection: Connection, context: RequestContext) -> PriceListTerms:
    """The list of the path. Raises NotFound."""
    terms = await show.load_list(connection, params.path_number(context, "price_list_id"))
    if terms is None:
        raise NotFound
    return terms
