"""Dealers: who they are, on which terms they buy, how they prove who they are, what is in their wallets."""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from dealer_server import store
from dealer_server.console import asked, statement
from dealer_server.console.operator import own
from dealer_server.console.operator.own import LOOK, MONEY, PAGE, TERMS
from dealer_server.console.visit import Answer, Download, Go, MustBeSure, NotHere, Page, Route, Visit
from dealer_server.operations import tenant, webhook
from dealer_server.operations.tenant import OperatorError, Terms
from dealer_server.rules import money
from dealer_server.store import console_dealer, console_dealers, ledger
from dealer_server.store.console_dealers import Dealer
from dealer_server.store.database import Connection
from dealer_server.store.ledger import Filter
from dealer_server.store.listing import Window
from esim_dealer.wire.calls import SetWebhook

CURRENCIES = sorted(money.EXPONENTS)
PRICES = 200
LATEST = 8
FRESH = ("created", "reset", "replaced")


async def dealers(visit: Visit) -> Page:
    text, after = asked.text(visit.query, "q"), asked.number(visit.query, "before")
    async with visit.parts.database.connection() as connection:
        found = await console_dealers.page(connection, text, after, PAGE + 1)
    following = found[PAGE - 1].tenant_id if len(found) > PAGE else None
    pager = asked.pager(visit, "/console/dealers", following)
    return own.page(visit, "dealers", dealers=found[:PAGE], pager=pager, text=text or "")


async def new(visit: Visit) -> Page:
    return _form(visit, {"currency": "USD", "qps": "10"}, "")


def _form(visit: Visit, values: Mapping[str, str], fault: str) -> Page:
    return own.page(
        visit, "dealer_new", values=values, fault=fault, currencies=CURRENCIES, status=400 if fault else 200
    )


async def create(visit: Visit) -> Answer:
    """Leads to the new AppSecret; so whoever creates is sure. Raises MustBeSure."""
    parts, form = visit.parts, visit.form
    if not visit.sure:
        raise MustBeSure
    try:
        created = await tenant.create_tenant(
            *(parts.database, parts.master_keys, parts.settings.environment, form.get("currency", "")),
            *(_terms(form, new=True), visit.author, lambda: visit.now),
        )
    except OperatorError as why:
        return _form(visit, form, str(why))
    return Go(f"/console/dealers/{created.tenant_id}/credentials/{created.app_key}?fresh=created")


def _terms(form: Mapping[str, str], *, new: bool) -> Terms:
    """What the form says; an empty field leaves what is there, save the allowlist. Raises OperatorError."""
    qps = asked.text(form, "qps")
    if qps is not None and (asked.number(form, "qps") is None):
        raise OperatorError(f"QPS {qps!r}: a whole number is expected; 0 is no limit")
    terms = Terms(
        name=asked.text(form, "name"),
        credit_limit=asked.text(form, "credit_limit"),
        low_balance=asked.text(form, "low_balance"),
        qps=asked.number(form, "qps"),
        ip_allow=form.get("ip_allow", "").replace(",", " ").split(),
        markup=asked.text(form, "markup"),
    )
    if new:
        return msgspec.structs.replace(terms, balance=asked.text(form, "balance"))
    return msgspec.structs.replace(terms, status=form.get("status") or None, frozen="frozen" in form)


async def one_dealer(visit: Visit) -> Page:
    async with visit.parts.database.connection() as connection:
        found = await _found(connection, visit)
        tenant_id = found.tenant_id
        entries = await ledger.page(connection, tenant_id, Filter(None, None, None), Window(LATEST, 0, None))
        return own.page(
            visit,
            "dealer",
            dealer=found,
            credentials=await console_dealers.credentials(connection, tenant_id),
            prices=await console_dealers.prices(connection, tenant_id, PRICES),
            endpoint=await store.webhook.endpoint(connection, tenant_id),
            entries=entries,
            markup=str(Decimal(found.markup_basis_points) / 100),
        )


async def _found(connection: Connection, visit: Visit) -> Dealer:
    """Raises NotHere."""
    found = await console_dealers.dealer(connection, asked.named(visit, "tenant_id"))
    if found is None:
        raise NotHere
    return found


async def _dealer(visit: Visit) -> Dealer:
    """Raises NotHere."""
    async with visit.parts.database.connection() as connection:
        return await _found(connection, visit)


def _home(dealer: Dealer) -> str:
    return f"/console/dealers/{dealer.tenant_id}"


async def set_terms(visit: Visit) -> Answer:
    dealer = await _dealer(visit)
    terms = _terms(visit.form, new=False)
    await tenant.set_tenant(visit.parts.database, dealer.tenant_id, terms, visit.author, lambda: visit.now)
    return Go(_home(dealer), "The terms are changed")


async def set_price(visit: Visit) -> Answer:
    """One package's price for this dealer; `off`: not on sale for it; `list`: the price list's again."""
    dealer = await _dealer(visit)
    package, price = asked.text(visit.form, "package"), asked.text(visit.form, "price")
    if not package or not price:
        raise OperatorError("A package code and a price are needed")
    terms = Terms(prices={package: price})
    await tenant.set_tenant(visit.parts.database, dealer.tenant_id, terms, visit.author, lambda: visit.now)
    said = {"off": "is off sale now", "list": "follows the price list again"}.get(price, f"is {price} now")
    return Go(_home(dealer), f"{package} {said}")


async def adjust(visit: Visit) -> Answer:
    dealer = await _dealer(visit)
    amount = ("-" if visit.form.get("direction") == "take" else "") + visit.form.get("amount", "").strip()
    await tenant.adjust(
        *(visit.parts.database, dealer.tenant_id, amount, visit.form.get("reason", ""), visit.author),
        lambda: visit.now,
    )
    return Go(_home(dealer), f"The wallet is adjusted by {amount} {dealer.currency}")


async def set_callback(visit: Visit) -> Answer:
    dealer = await _dealer(visit)
    url = visit.form.get("callback_url", "").strip()
    if len(url) > 512:
        raise OperatorError("A callback URL has at most 512 characters")
    await webhook.set_webhook(
        *(visit.parts.database, visit.parts.callbacks, dealer.tenant_id, SetWebhook(callback_url=url), visit.now),
        visit.author,
    )
    return Go(_home(dealer), "The callback URL is set" if url else "The callback URL is removed")


# Credentials


async def _credential(visit: Visit) -> tuple[Dealer, str]:
    """The dealer and an AppKey of its. Raises NotHere, and MustBeSure where somebody else may be at the screen."""
    app_key = visit.path["app_key"]
    async with visit.parts.database.connection() as connection:
        dealer = await _found(connection, visit)
        if app_key not in [one.app_key for one in await console_dealers.credentials(connection, dealer.tenant_id)]:
            raise NotHere
    if not visit.sure:
        raise MustBeSure
    return dealer, app_key


async def secret(visit: Visit) -> Page:
    """Who looked is in the audit log. `fresh`: what was just done, for the page's words."""
    dealer, app_key = await _credential(visit)
    parts = visit.parts
    shown = await tenant.view_secret(parts.database, parts.master_keys, app_key, visit.author)
    fresh = asked.one_of(visit.query, "fresh", FRESH) or ""
    return own.page(visit, "secret", dealer=dealer, app_key=app_key, secret=shown, fresh=fresh)


async def reset(visit: Visit) -> Go:
    """Leads to the new secret; `now`: the old one ends at once."""
    dealer, app_key = await _credential(visit)
    parts, at_once = visit.parts, "now" in visit.form
    await tenant.reset_secret(
        *(parts.database, parts.master_keys, app_key, visit.author, lambda: visit.now),
        tenant.OVERLAP * (not at_once),
    )
    return Go(f"{_home(dealer)}/credentials/{app_key}?fresh={'replaced' if at_once else 'reset'}")


async def disable(visit: Visit) -> Answer:
    dealer, app_key = await _credential(visit)
    await tenant.disable_credential(visit.parts.database, app_key, visit.author)
    return Go(_home(dealer), f"{app_key} is disabled")


async def enable(visit: Visit) -> Answer:
    dealer, app_key = await _credential(visit)
    await tenant.enable_credential(visit.parts.database, app_key, visit.author)
    return Go(_home(dealer), f"{app_key} is enabled")


# The statement


async def show_statement(visit: Visit) -> Page:
    async with visit.parts.database.connection() as connection:
        dealer = await _found(connection, visit)
        held = await console_dealer.wallet(connection, dealer.tenant_id)
        path = f"{_home(dealer)}/statement"
        listed = await statement.page(connection, visit, held, dealer.tenant_id, path, f"{path}.csv")
    return own.page(visit, "statement", dealer=dealer, listed=listed, types=statement.ENTRY_TYPES)


async def export(visit: Visit) -> Download:
    return await statement.export(visit, (await _dealer(visit)).tenant_id)


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
