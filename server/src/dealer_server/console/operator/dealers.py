"""Dealers: who they are, on which terms they buy, how they prove who they are, what is in their wallets."""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from dealer_server.console.operator import permissions
from dealer_server.console.operator.permissions import LOOK, MONEY, PAGE, TERMS
from dealer_server.console.shared import params, statement
from dealer_server.console.shared.request_context import (
    Answer,
    Download,
    NotFound,
    Page,
    ReauthenticationRequired,
    Redirect,
    RequestContext,
    Route,
)
from dealer_server.db.connection import Connection
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.tenants import credentials
from dealer_server.operations.tenants.create import create_tenant
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

CURRENCIES = sorted(money.EXPONENTS)
PRICES = 200
LATEST = 8
FRESH = ("created", "reset", "replaced")


async def dealers(context: RequestContext) -> Page:
    text, after = params.text(context.query, "q"), params.number(context.query, "before")
    async with context.parts.database.connection() as connection:
        found = await console_dealers.page(connection, text, after, PAGE + 1)
    following = found[PAGE - 1].tenant_id if len(found) > PAGE else None
    pager = params.pager(context, "/console/dealers", following)
    return permissions.page(context, "dealers", dealers=found[:PAGE], pager=pager, text=text or "")


async def new(context: RequestContext) -> Page:
    return _form(context, {"currency": "USD", "qps": "10"}, "")


def _form(context: RequestContext, values: Mapping[str, str], fault: str) -> Page:
    return permissions.page(
        context, "dealer_new", values=values, fault=fault, currencies=CURRENCIES, status=400 if fault else 200
    )


async def create(context: RequestContext) -> Answer:
    """Leads to the new AppSecret; so whoever creates is sure. Raises MustBeSure."""
    parts, form = context.parts, context.form
    if not context.sure:
        raise ReauthenticationRequired
    try:
        created = await create_tenant(
            *(parts.database, parts.master_keys, parts.settings.environment, form.get("currency", "")),
            *(_terms(form, new=True), context.author, lambda: context.now),
        )
    except OperatorError as why:
        return _form(context, form, str(why))
    return Redirect(f"/console/dealers/{created.tenant_id}/credentials/{created.app_key}?fresh=created")


def _terms(form: Mapping[str, str], *, new: bool) -> Terms:
    """What the form says; an empty field leaves what is there, save the allowlist. Raises OperatorError."""
    qps = params.text(form, "qps")
    if qps is not None and (params.number(form, "qps") is None):
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


async def one_dealer(context: RequestContext) -> Page:
    async with context.parts.database.connection() as connection:
        found = await _found(connection, context)
        tenant_id = found.tenant_id
        entries = await ledger.page(connection, tenant_id, Filter(None, None, None), Window(LATEST, 0, None))
        return permissions.page(
            context,
            "dealer",
            dealer=found,
            credentials=await console_dealers.credentials(connection, tenant_id),
            prices=await console_dealers.prices(connection, tenant_id, PRICES),
            endpoint=await endpoints.find(connection, tenant_id),
            entries=entries,
            markup=str(Decimal(found.markup_basis_points) / 100),
        )


async def _found(connection: Connection, context: RequestContext) -> Dealer:
    """Raises NotHere."""
    found = await console_dealers.dealer(connection, params.named(context, "tenant_id"))
    if found is None:
        raise NotFound
    return found


async def _dealer(context: RequestContext) -> Dealer:
    """Raises NotHere."""
    async with context.parts.database.connection() as connection:
        return await _found(connection, context)


def _home(dealer: Dealer) -> str:
    return f"/console/dealers/{dealer.tenant_id}"


async def set_terms(context: RequestContext) -> Answer:
    dealer = await _dealer(context)
    terms = _terms(context.form, new=False)
    await set_tenant(context.parts.database, dealer.tenant_id, terms, context.author, lambda: context.now)
    return Redirect(_home(dealer), "The terms are changed")


async def set_price(context: RequestContext) -> Answer:
    """One package's price for this dealer; `off`: not on sale for it; `list`: the price list's again."""
    dealer = await _dealer(context)
    package, price = params.text(context.form, "package"), params.text(context.form, "price")
    if not package or not price:
        raise OperatorError("A package code and a price are needed")
    terms = Terms(prices={package: price})
    await set_tenant(context.parts.database, dealer.tenant_id, terms, context.author, lambda: context.now)
    said = {"off": "is off sale now", "list": "follows the price list again"}.get(price, f"is {price} now")
    return Redirect(_home(dealer), f"{package} {said}")


async def adjust(context: RequestContext) -> Answer:
    dealer = await _dealer(context)
    amount = ("-" if context.form.get("direction") == "take" else "") + context.form.get("amount", "").strip()
    await adjust_balance(
        *(context.parts.database, dealer.tenant_id, amount, context.form.get("reason", ""), context.author),
        lambda: context.now,
    )
    return Redirect(_home(dealer), f"The wallet is adjusted by {amount} {dealer.currency}")


async def set_callback(context: RequestContext) -> Answer:
    dealer = await _dealer(context)
    url = context.form.get("callback_url", "").strip()
    if len(url) > 512:
        raise OperatorError("A callback URL has at most 512 characters")
    await endpoint.set_webhook(
        *(context.parts.database, context.parts.callbacks, dealer.tenant_id, SetWebhook(callback_url=url), context.now),
        context.author,
    )
    return Redirect(_home(dealer), "The callback URL is set" if url else "The callback URL is removed")


# Credentials


async def _credential(context: RequestContext) -> tuple[Dealer, str]:
    """The dealer and an AppKey of its. Raises NotHere, and MustBeSure where somebody else may be at the screen."""
    app_key = context.path["app_key"]
    async with context.parts.database.connection() as connection:
        dealer = await _found(connection, context)
        if app_key not in [one.app_key for one in await console_dealers.credentials(connection, dealer.tenant_id)]:
            raise NotFound
    if not context.sure:
        raise ReauthenticationRequired
    return dealer, app_key


async def secret(context: RequestContext) -> Page:
    """Who looked is in the audit log. `fresh`: what was just done, for the page's words."""
    dealer, app_key = await _credential(context)
    parts = context.parts
    shown = await credentials.view_secret(parts.database, parts.master_keys, app_key, context.author)
    fresh = params.one_of(context.query, "fresh", FRESH) or ""
    return permissions.page(context, "secret", dealer=dealer, app_key=app_key, secret=shown, fresh=fresh)


async def reset(context: RequestContext) -> Redirect:
    """Leads to the new secret; `now`: the old one ends at once."""
    dealer, app_key = await _credential(context)
    parts, at_once = context.parts, "now" in context.form
    await credentials.reset_secret(
        *(parts.database, parts.master_keys, app_key, context.author, lambda: context.now),
        credentials.OVERLAP * (not at_once),
    )
    return Redirect(f"{_home(dealer)}/credentials/{app_key}?fresh={'replaced' if at_once else 'reset'}")


async def disable(context: RequestContext) -> Answer:
    dealer, app_key = await _credential(context)
    await credentials.disable_credential(context.parts.database, app_key, context.author)
    return Redirect(_home(dealer), f"{app_key} is disabled")


async def enable(context: RequestContext) -> Answer:
    dealer, app_key = await _credential(context)
    await credentials.enable_credential(context.parts.database, app_key, context.author)
    return Redirect(_home(dealer), f"{app_key} is enabled")


# The statement


async def show_statement(context: RequestContext) -> Page:
    async with context.parts.database.connection() as connection:
        dealer = await _found(connection, context)
        held = await console_dealer.wallet(connection, dealer.tenant_id)
        path = f"{_home(dealer)}/statement"
        listed = await statement.page(connection, context, held, dealer.tenant_id, path, f"{path}.csv")
    return permissions.page(context, "statement", dealer=dealer, listed=listed, types=statement.ENTRY_TYPES)


async def export(context: RequestContext) -> Download:
    return await statement.export(context, (await _dealer(context)).tenant_id)


_ONE = "/console/dealers/{tenant_id}"
ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/dealers", LOOK, dealers, "Dealers"),
    Route("POST", "/console/dealers", TERMS, create),
    Route("GET", "/console/dealers/new", TERMS, new),
    Route("GET", _ONE, LOOK, one_dealer),
    Route("POST", f"{_ONE}/terms", TERMS, set_terms),
    Route("POST", f"{_ONE}/prices", TERMS, set_price),
    Route("POST", f"{_ONE}/adjust", MONEY, adjust),
    Route("POST", f"{_ONE}/callback", TERMS, set_callback),
    Route("GET", f"{_ONE}/credentials/{{app_key}}", TERMS, secret),
    Route("POST", f"{_ONE}/credentials/{{app_key}}/reset", TERMS, reset),
    Route("POST", f"{_ONE}/credentials/{{app_key}}/disable", TERMS, disable),
    Route("POST", f"{_ONE}/credentials/{{app_key}}/enable", TERMS, enable),
    Route("GET", f"{_ONE}/statement", LOOK, show_statement),
    Route("GET", f"{_ONE}/statement.csv", LOOK, export),
)
