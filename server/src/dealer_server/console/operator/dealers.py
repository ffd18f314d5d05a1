"""Dealers: their terms, prices, credentials, callback URLs and wallets."""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from dealer_server.console.shared import params, statement
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_ADMINS, OPERATOR_FINANCE, OPERATORS
from dealer_server.console.shared.request_context import Answer, Download, Html, NotFound, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.tenants.create import create_tenant
from dealer_server.operations.tenants.credentials import (
    OVERLAP,
    disable_credential,
    enable_credential,
    reset_secret,
    view_secret,
)
from dealer_server.operations.tenants.set_terms import Terms, set_tenant
from dealer_server.operations.wallets.adjust import adjust_balance
from dealer_server.operations.webhooks import endpoint
from dealer_server.rules.money import money
from dealer_server.store.console import dealer as console_dealer
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console.dealers import Dealer
from dealer_server.store.orders.listing import Window
from dealer_server.store.wallets import ledger
from dealer_server.store.wallets.ledger import Filter
from dealer_server.store.webhooks import endpoints
from esim_dealer.wire.calls import SetWebhook

DEALERS, DEALER, CREDENTIAL = (
    "/console/dealers",
    "/console/dealers/{tenant_id}",
    "/console/dealers/{tenant_id}/credentials/{app_key}",
)
NEW_TEMPLATE = "operator/dealer_new.html"
CURRENCIES = sorted(money.EXPONENTS)
PRICES = 200
LATEST_ENTRIES = 8
FRESH = ("created", "reset", "replaced")
MAX_URL_LENGTH = 512


@page(DEALERS, OPERATORS, "operator/dealers.html", MenuEntry("Dealers", "building-store", 70))
async def dealers(context: RequestContext) -> Html:
    text, after = params.text(context.query, "q"), params.number(context.query, "before")
    async with context.parts.database.connection() as connection:
        rows = await console_dealers.list_dealers(connection, text, after, PAGE_SIZE + 1)
    following = rows[PAGE_SIZE - 1].tenant_id if len(rows) > PAGE_SIZE else None
    return Html(dealers=rows[:PAGE_SIZE], pager=params.pager(context, DEALERS, following), text=text or "")


@page(f"{DEALERS}/new", OPERATOR_ADMINS, NEW_TEMPLATE)
async def new(context: RequestContext) -> Html:
    return _form({"currency": "USD", "qps": "10"})


def _form(values: Mapping[str, str], fault: str = "") -> Html:
    return Html(400 if fault else 200, values=values, fault=fault, currencies=CURRENCIES)


@action(DEALERS, OPERATOR_ADMINS, NEW_TEMPLATE)
async def create(context: RequestContext) -> Answer:
    """Leads to the new AppSecret. Raises ReauthenticationRequired."""
    parts, form = context.parts, context.form
    context.require_recent_authentication()
    try:
        created = await create_tenant(
            *(parts.database, parts.master_keys, parts.settings.environment, form.get("currency", "")),
            *(_terms(form, new=True), context.author, lambda: context.now),
        )
    except OperatorError as why:
        return _form(form, str(why))
    return Redirect(f"{DEALERS}/{created.tenant_id}/credentials/{created.app_key}?fresh=created")


def _terms(form: Mapping[str, str], *, new: bool) -> Terms:
    """An empty field changes nothing, except the allowlist. Raises OperatorError."""
    qps = params.text(form, "qps")
    if qps is not None and params.number(form, "qps") is None:
        raise OperatorError(f"QPS {qps!r}: a whole number is expected; 0 is no limit")
    terms = Terms(
        name=params.text(form, "name"),
        credit_limit=params.text(form, "credit_limit"),
        low_balance=params.text(form, "low_balance"),
        qps=params.number(form, "qps"),
        ip_allow=form.get("ip_allow", "").replace(",", " ").split(),
        markup=params.text(form, "markup"),
    )
    if new:
        return msgspec.structs.replace(terms, balance=params.text(form, "balance"))
    return msgspec.structs.replace(terms, status=form.get("status") or None, frozen="frozen" in form)


@page(DEALER, OPERATORS, "operator/dealer.html")
async def show_dealer(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        dealer = await _load(connection, context)
        tenant_id, latest = dealer.tenant_id, Window(LATEST_ENTRIES, 0, None)
        return Html(
            dealer=dealer,
            credentials=await console_dealers.credentials(connection, tenant_id),
            prices=await console_dealers.prices(connection, tenant_id, PRICES),
            endpoint=await endpoints.find(connection, tenant_id),
            entries=await ledger.page(connection, tenant_id, Filter(None, None, None), latest),
            markup=str(Decimal(dealer.markup_basis_points) / 100),
        )


async def load(context: RequestContext) -> Dealer:
    """The dealer of the path. Raises NotFound."""
    async with context.parts.database.connection() as connection:
        return await _load(connection, context)


async def _load(connection: Connection, context: RequestContext) -> Dealer:
    dealer = await console_dealers.dealer(connection, params.path_number(context, "tenant_id"))
    if dealer is None:
        raise NotFound
    return dealer


def _home(dealer: Dealer) -> str:
    return f"{DEALERS}/{dealer.tenant_id}"


@action(f"{DEALER}/terms", OPERATOR_ADMINS)
async def set_terms(context: RequestContext) -> Redirect:
    dealer = await load(context)
    terms = _terms(context.form, new=False)
    await set_tenant(context.parts.database, dealer.tenant_id, terms, context.author, lambda: context.now)
    return Redirect(_home(dealer), "The terms are changed")


@action(f"{DEALER}/prices", OPERATOR_ADMINS)
async def set_price(context: RequestContext) -> Redirect:
    """The price of a package for this dealer; `off`: not on sale for it; `list`: as in the price list again."""
    dealer = await load(context)
    package, price = params.text(context.form, "package"), params.text(context.form, "price")
    if not package or not price:
        raise OperatorError("A package code and a price are needed")
    terms = Terms(prices={package: price})
    await set_tenant(context.parts.database, dealer.tenant_id, terms, context.author, lambda: context.now)
    state = {"off": "is off sale now", "list": "follows the price list again"}.get(price, f"is {price} now")
    return Redirect(_home(dealer), f"{package} {state}")


@action(f"{DEALER}/adjust", OPERATOR_FINANCE)
async def adjust(context: RequestContext) -> Redirect:
    dealer = await load(context)
    amount = ("-" if context.form.get("direction") == "take" else "") + context.form.get("amount", "").strip()
    await adjust_balance(
        *(context.parts.database, dealer.tenant_id, amount, context.form.get("reason", ""), context.author),
        lambda: context.now,
    )
    return Redirect(_home(dealer), f"The wallet is adjusted by {amount} {dealer.currency}")


@action(f"{DEALER}/callback", OPERATOR_ADMINS)
async def set_callback(context: RequestContext) -> Redirect:
    dealer = await load(context)
    url = context.form.get("callback_url", "").strip()
    if len(url) > MAX_URL_LENGTH:
        raise OperatorError(f"A callback URL has at most {MAX_URL_LENGTH} characters")
    await endpoint.set_webhook(
        *(context.parts.database, context.parts.callbacks, dealer.tenant_id, SetWebhook(callback_url=url), context.now),
        context.author,
    )
    return Redirect(_home(dealer), "The callback URL is set" if url else "The callback URL is removed")


# Credentials


async def _credential(context: RequestContext) -> tuple[Dealer, str]:
    """The dealer and its AppKey. Raises NotFound, ReauthenticationRequired."""
    app_key = context.path["app_key"]
    async with context.parts.database.connection() as connection:
        dealer = await _load(connection, context)
        credentials = await console_dealers.credentials(connection, dealer.tenant_id)
    if app_key not in [credential.app_key for credential in credentials]:
        raise NotFound
    context.require_recent_authentication()
    return dealer, app_key


@page(CREDENTIAL, OPERATOR_ADMINS, "operator/secret.html")
async def secret(context: RequestContext) -> Html:
    """The audit log records who saw it. `fresh`: what was just done, for the words of the page."""
    dealer, app_key = await _credential(context)
    parts = context.parts
    text = await view_secret(parts.database, parts.master_keys, app_key, context.author)
    fresh = params.one_of(context.query, "fresh", FRESH) or ""
    return Html(dealer=dealer, app_key=app_key, secret=text, fresh=fresh)


@action(f"{CREDENTIAL}/reset", OPERATOR_ADMINS)
async def reset(context: RequestContext) -> Redirect:
    """Leads to the new secret; `now`: the old one ends at once."""
    dealer, app_key = await _credential(context)
    parts, at_once = context.parts, "now" in context.form
    await reset_secret(
        *(parts.database, parts.master_keys, app_key, context.author, lambda: context.now),
        OVERLAP * (not at_once),
    )
    return Redirect(f"{_home(dealer)}/credentials/{app_key}?fresh={'replaced' if at_once else 'reset'}")


@action(f"{CREDENTIAL}/disable", OPERATOR_ADMINS)
async def disable(context: RequestContext) -> Redirect:
    dealer, app_key = await _credential(context)
    await disable_credential(context.parts.database, app_key, context.author)
    return Redirect(_home(dealer), f"{app_key} is disabled")


@action(f"{CREDENTIAL}/enable", OPERATOR_ADMINS)
async def enable(context: RequestContext) -> Redirect:
    dealer, app_key = await _credential(context)
    await enable_credential(context.parts.database, app_key, context.author)
    return Redirect(_home(dealer), f"{app_key} is enabled")


# The statement


@page(f"{DEALER}/statement", OPERATORS, "operator/statement.html")
async def show_statement(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        dealer = await _load(connection, context)
        wallet = await console_dealer.wallet(connection, dealer.tenant_id)
        path = f"{_home(dealer)}/statement"
        entries = await statement.page_of(connection, context, wallet, dealer.tenant_id, path, f"{path}.csv")
    return Html(dealer=dealer, statement=entries, types=statement.ENTRY_TYPES)


@download(f"{DEALER}/statement.csv", OPERATORS)
async def export(context: RequestContext) -> Download:
    return await statement.export(context, (await load(context)).tenant_id)
