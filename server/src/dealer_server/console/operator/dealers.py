"""Dealers: their terms, prices, credentials, callback URLs and wallets."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, get_args

import msgspec

from dealer_server.console.find import choice, dates, files, tabs
from dealer_server.console.find import orders as find_orders
from dealer_server.console.operator.dealer_page import figures
from dealer_server.console.operator.dealer_page.figures import ExportedDealer, Sales
from dealer_server.console.operator.incidents import findings
from dealer_server.console.shared import keys, params, reports, statement, uses
from dealer_server.console.shared.calls import blaming, call
from dealer_server.console.shared.forms.confirmation import confirmed
from dealer_server.console.shared.incidents import receiver_health
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_ADMINS, OPERATOR_FINANCE, OPERATORS
from dealer_server.console.shared.request_context import Answer, Download, Html, NotFound, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations import versions
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.tenants import onboard
from dealer_server.operations.tenants.set_terms import Terms, describe, price_version, set_tenant, texts
from dealer_server.operations.wallets.adjust import adjust_balance
from dealer_server.operations.wallets.low_limits import low_limits
from dealer_server.operations.webhooks import endpoint
from dealer_server.rules.access import scopes
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money
from dealer_server.rules.notices import low_balance
from dealer_server.rules.orders import identity
from dealer_server.rules.price_lists.price_list import current_cost, margin
from dealer_server.rules.refusal import CallbackUrlRefused
from dealer_server.rules.reports import recent
from dealer_server.rules.reports.period import day_of, start_of
from dealer_server.store.catalogue import price_list
from dealer_server.store.console import dealer as console_dealer
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import orders, user
from dealer_server.store.console.dealers import Dealer, DealerRow, Price, Status
from dealer_server.store.console.incidents import buying
from dealer_server.store.console.orders import OrderFilter
from dealer_server.store.console.pages import ListPage
from dealer_server.store.reports import report
from dealer_server.store.tenants import credential
from dealer_server.store.wallets import ledger
from dealer_server.store.wallets.ledger import Entry
from dealer_server.store.webhooks import endpoints
from dealer_server.store.webhooks import recent as recent_deliveries
from dealer_server.store.webhooks.answers import Answered
from esim_dealer.wire.calls import SetWebhook

DEALERS, DEALER = "/console/dealers", "/console/dealers/{tenant_id}"
PRICES = 200
COLUMNS = ("-turnover", "name", "-balance", "-orders")
MOST_DEALERS = 100_000
NO_LIST = "none"
"""As a price list: of dealers without one."""
TABS: tuple[tuple[str, Status], ...] = (("Active", "ACTIVE"), ("Suspended", "DISABLED"), ("Low balance", "LOW"))
STATUSES: tuple[Status, ...] = get_args(Status)
CELLS: Mapping[str, Callable[[ExportedDealer], str]] = {
    "tenantId": lambda one: str(one.row.tenant_id),
    "dealer": lambda one: one.row.name,
    "status": lambda one: one.row.status,
    "frozen": lambda one: str(one.row.frozen).lower(),
    "currency": lambda one: one.row.currency,
    "revenue30Days": lambda one: money.text(one.row.turnover, one.row.currency),
    "balance": lambda one: money.text(one.row.balance, one.row.currency),
    "creditLimit": lambda one: money.text(one.row.credit_limit, one.row.currency),
    "orders": lambda one: str(one.row.order_count),
    "esims": lambda one: str(one.row.profile_count),
    "lastOrderTime": lambda one: (
        f"{identity.created_at(one.row.last_order_id):%Y-%m-%dT%H:%M:%SZ}" * bool(one.row.last_order_id)
    ),
    "webhooks": lambda one: one.health,
}
"""What a file has in each column, by its name."""
LATEST_ENTRIES, LATEST_TOPUPS, LATEST_ORDERS, PEOPLE = 4, 2, 6, 20
"""Of the entries of the wallet so many are shown, and so many top-ups are always among them."""
COUNTED = 1_000
"""Deliveries, of which no more are counted."""


@page(DEALERS, OPERATORS, "operator/dealers.html", MenuEntry("Dealers", "building-store", 15), listing=True)
async def dealers(context: RequestContext) -> Html:
    text, price_list_id = params.text(context.query, "q"), _price_list_id(context)
    status: Status | None = params.one_of(context.query, "status", STATUSES)
    start, order = params.number(context.query, "before") or 0, params.order(context, DEALERS, COLUMNS, COLUMNS[0])
    async with context.parts.database.connection() as connection:
        rows = await _listed(connection, context, start, PAGE_SIZE + 1)
        counts = await console_dealers.counts(
            connection, text, await _short(connection, context), price_list_id=price_list_id
        )
        everybody = await console_dealers.count_dealers(connection, text, price_list_id)
        total = counts[status] if status is not None else everybody
        listed = await figures.of_rows(connection, rows[:PAGE_SIZE], context.now)
        waiting = await console_dealers.waiting(connection, [row.tenant_id for row in rows[:PAGE_SIZE]])
        listed_on = await price_list.load(connection, [price_list_id]) if price_list_id else []
    drafts = await onboard.list_drafts(context.parts.database) if context.user.full_role in OPERATOR_ADMINS else []
    shown, following = min(len(rows), PAGE_SIZE), start + PAGE_SIZE if len(rows) > PAGE_SIZE else None
    presets = [(name, {"status": state}) for name, state in TABS]
    told = {name: counts[state] for name, state in TABS}
    return Html(
        dealers=listed,
        waiting=waiting,
        pager=params.pager(context, DEALERS, following, shown=shown, word="dealer", total=total),
        order=order,
        text=text or "",
        price_list=listed_on[0].name if listed_on else context.query.get("list", "") * (price_list_id is not None),
        filtered=bool(text or status or price_list_id is not None),
        tabs=await tabs.of(context, DEALERS, presets, told | {"All": everybody}),
        export=params.address(f"{DEALERS}.csv", params.filters(context)),
        drafts=drafts,
    )


async def _listed(connection: Connection, context: RequestContext, start: int, limit: int) -> list[DealerRow]:
    order = params.order(context, DEALERS, COLUMNS, COLUMNS[0])
    return await console_dealers.list_dealers(
        connection,
        params.text(context.query, "q"),
        start,
        limit,
        order.key,
        descending=order.descending,
        status=params.one_of(context.query, "status", STATUSES),
        turnover=await _turnover(connection, context.now),
        short=await _short(connection, context),
        price_list_id=_price_list_id(context),
    )


def _price_list_id(context: RequestContext) -> int | None:
    """Whose dealers are asked for; 0: those without a price list."""
    return 0 if context.query.get("list") == NO_LIST else params.number(context.query, "list")


async def _short(connection: Connection, context: RequestContext) -> list[int]:
    """Dealers whose balance lasts only for some days."""
    return [one.tenant_id for one in await buying.short_balances(connection, day_of(context.now))]


async def _turnover(connection: Connection, now: datetime) -> dict[int, int]:
    """Of each dealer in the last 30 days."""
    found: dict[int, int] = {}
    for row in await report.grouped(connection, report.Filter(recent.shown(day_of(now))), ["dealer"], MOST_DEALERS):
        dealer = row.keys["dealer"]
        found[dealer] = found.get(dealer, 0) + row.sums.revenue
    return found


@download(f"{DEALERS}.csv", OPERATORS, listing=True)
async def export_dealers(context: RequestContext) -> Download:
    """All dealers of the list, in its order; who takes the file is in the audit log."""
    await params.record_export(context, "dealers.export", None, ("q", "status", "list"))

    async def read(connection: Connection, seen: int | None, size: int) -> ListPage[ExportedDealer]:
        rows = await _listed(connection, context, seen or 0, size)
        found = await figures.exported(connection, rows, context.now)
        return ListPage(found, (seen or 0) + size if len(rows) == size else None)

    return files.download(context, "dealers", CELLS, read)


def terms_of(form: Mapping[str, str]) -> Terms:
    """An empty field changes nothing, except the allowlist. Raises OperatorError."""
    qps = params.text(form, "qps")
    if qps is not None and params.number(form, "qps") is None:
        raise OperatorError(f"QPS {qps!r}: a whole number is expected; 0 is no limit", "qps")
    return Terms(
        name=params.text(form, "name"),
        credit_limit=params.text(form, "credit_limit"),
        low_balance=params.text(form, "low_balance"),
        qps=params.number(form, "qps"),
        ip_allow=keys.addresses(form),
        markup=params.text(form, "markup"),
        edits_ip_allow=form.get("edits_ip_allow") == "on",
        manages_keys=form.get("manages_keys") == "on",
        rt_face=params.text(form, "rt_face"),
    )


@page(DEALER, OPERATORS, "operator/dealer.html")
async def show_dealer(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        dealer = await _load(connection, context)
        tenant_id = dealer.tenant_id
        endpoint_now = await endpoints.find(connection, tenant_id)
        prices = await console_dealers.prices(connection, tenant_id, PRICES)
        limits = await low_limits(connection, tenant_id, dealer.currency)
        answered = (await figures.endpoint_answers(connection, [tenant_id], context.now)).get(tenant_id, Answered())
        entries = _latest_entries(await ledger.without_orders(connection, tenant_id, LATEST_TOPUPS + LATEST_ENTRIES))
        latest = (await orders.list_orders(connection, OrderFilter(tenant_id=tenant_id), None, LATEST_ORDERS)).rows
        own, terms = {one.package_code: one.price for one in prices}, await describe(connection, tenant_id)
        return Html(
            dealer=dealer,
            version=versions.version_of(texts(terms)),
            incidents=await findings.of_dealer(connection, context, dealer, answered),
            credentials=await credential.of_tenant(connection, tenant_id),
            uses=uses.newest(await credential.uses_of_tenant(connection, tenant_id)),
            scopes=scopes.MEANINGS,
            prices=await _own_prices(connection, context, prices),
            prices_version=price_version(own, dealer.currency),
            price_versions={code: price_version({code: own[code]}, dealer.currency) for code in own},
            price_list=await price_list.of_dealer(connection, tenant_id),
            endpoint=endpoint_now,
            health=receiver_health(endpoint_now, answered.accepted, answered.attempts),
            answered=answered,
            entries=entries,
            entry_packages=await console_dealer.packages(connection, tenant_id, [one.order_id for one in entries]),
            percents=low_balance.PERCENTS,
            low_limits=limits,
            low=dealer.available < dealer.low_balance_threshold
            or bool(limits and not dealer.low_balance_threshold and dealer.balance < limits[0]),
            orders=latest,
            in_review=await find_orders.in_review(connection, latest),
            failed=await console_dealer.failed_deliveries(connection, tenant_id, COUNTED),
            unsent=await recent_deliveries.unfinished(connection, tenant_id, COUNTED),
            counted=COUNTED,
            people=await user.listed(connection, tenant_id, limit=PEOPLE),
            most_people=PEOPLE,
            **_sales_fields(await figures.sales(connection, dealer, context.now), dealer),
        )


def _latest_entries(entries: Sequence[Entry]) -> list[Entry]:
    """Of entries from the newest on."""
    topups = [one for one in entries if one.topup_id][:LATEST_TOPUPS]
    others = [one for one in entries if one not in topups]
    latest = [*topups, *others[: LATEST_TOPUPS + LATEST_ENTRIES - len(topups)]]
    return sorted(latest, key=lambda one: one.version, reverse=True)


class OwnPriceRow(NamedTuple):
    """A price of the dealer's own. `package` None: it is not in the catalogue any more. `margin` in hundredths of a
    percent of the price; None where the cost is not known, or it is not on sale."""

    own: Price
    package: Package | None
    margin: int | None


async def _own_prices(connection: Connection, context: RequestContext, prices: Sequence[Price]) -> list[OwnPriceRow]:
    costs, catalogue = (
        await price_list.costs(connection, [one.package_code for one in prices]),
        context.parts.catalogue(),
    )
    found = list[OwnPriceRow]()
    for one in prices:
        package = catalogue.package(one.package_code)
        cost = current_cost(package, costs.get(one.package_code)) if package else None
        known = one.price is not None and cost is not None
        found.append(OwnPriceRow(one, package, margin(one.price or 0, cost or 0) if known else None))
    return found


def _sales_fields(sales: Sales, dealer: Dealer) -> dict[str, Any]:
    """Its last 30 days as figures and as a chart."""
    return {
        "sales": sales,
        "sold": sales.total,
        "starts": [start_of(day) for day in sales.recent.days],
        "revenues": reports.amounts(sales.recent.sums, "revenue", dealer.currency),
        "before": reports.chart_before(sales.recent.before, dealer.currency),
    }


async def load(context: RequestContext) -> Dealer:
    """The dealer of the path. Raises NotFound."""
    async with context.parts.database.connection() as connection:
        return await _load(connection, context)


async def _load(connection: Connection, context: RequestContext) -> Dealer:
    dealer = await console_dealers.dealer(connection, params.path_number(context, "tenant_id"))
    if dealer is None:
        raise NotFound
    return dealer


def home(dealer: Dealer) -> str:
    return f"{DEALERS}/{dealer.tenant_id}"


@action(f"{DEALER}/terms", OPERATOR_ADMINS)
async def set_terms(context: RequestContext) -> Answer:
    dealer = await load(context)
    form = context.form
    terms = msgspec.structs.replace(terms_of(form), status=form.get("status") or None, frozen="frozen" in form)
    return await _set(context, dealer, terms, "The terms are changed")


@action(f"{DEALER}/prices", OPERATOR_ADMINS)
async def set_price(context: RequestContext) -> Answer:
    """The price of a package for this dealer; `off`: not on sale for it; `list`: as in the price list again."""
    dealer = await load(context)
    price = params.text(context.form, "price")
    if not price:
        raise OperatorError("Price: nothing is given; accepted is an amount, off or list", "price")
    async with context.parts.database.connection() as connection:
        package = await choice.package_code(connection, context.form.get("package"))
    state = {"off": "is off sale now", "list": "follows the price list again"}.get(price, f"is {price} now")
    return await _set(context, dealer, Terms(prices={package: price}), f"{package} {state}")


async def _set(context: RequestContext, dealer: Dealer, terms: Terms, done: str) -> Answer:
    """Raises OperatorError, ChangedMeanwhile."""

    async def write(allowed: bool) -> Answer:
        await set_tenant(
            context.parts.database,
            dealer.tenant_id,
            terms,
            context.author,
            lambda: context.now,
            version=context.form.get("version"),
            allow_below_cost=allowed,
        )
        return Redirect(home(dealer), done)

    return await confirmed(context, context.url, home(dealer), write)


@action(f"{DEALER}/adjust", OPERATOR_FINANCE)
async def adjust(context: RequestContext) -> Redirect:
    dealer = await load(context)
    amount = ("-" if context.form.get("direction") == "take" else "") + context.form.get("amount", "").strip()
    await adjust_balance(
        context.parts.database,
        dealer.tenant_id,
        amount,
        context.form.get("reason", ""),
        context.author,
        lambda: context.now,
    )
    return Redirect(home(dealer), f"The wallet is adjusted by {money.grouped(amount)} {dealer.currency}")


@action(f"{DEALER}/callback", OPERATOR_ADMINS)
async def set_callback(context: RequestContext) -> Redirect:
    dealer = await load(context)
    url = context.form.get("callback_url", "").strip()
    request = call(SetWebhook, callbackUrl=url, standardHeaders=context.form.get("standard_headers") == "on")
    parts, now = context.parts, context.now
    with blaming("callback_url", CallbackUrlRefused):
        await endpoint.set_webhook(parts.database, parts.callbacks, dealer.tenant_id, request, now, context.author)
    return Redirect(home(dealer), "The callback URL is set" if url else "The callback URL is removed")


# The statement


@page(f"{DEALER}/statement", OPERATORS, "operator/statement.html", listing=True)
async def show_statement(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        dealer = await _load(connection, context)
        wallet = await console_dealer.wallet(connection, dealer.tenant_id)
        path = f"{home(dealer)}/statement"
        entries = await statement.page_of(connection, context, wallet, dealer.tenant_id, path, f"{path}.csv")
    return Html(dealer=dealer, statement=entries, types=statement.ENTRY_TYPES, dates=dates.of(context, path))


@download(f"{DEALER}/statement.csv", OPERATORS, listing=True)
async def export(context: RequestContext) -> Download:
    return await statement.export(context, (await load(context)).tenant_id)
