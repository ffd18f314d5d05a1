"""A dealer's money: what it has, every movement of it, asking for more, and when to be warned."""

import secrets
from typing import get_args

import msgspec

from dealer_server.console.dealer import permissions
from dealer_server.console.dealer.permissions import EVERYONE, MONEY, PAGE
from dealer_server.console.shared import params, statement
from dealer_server.console.shared.request_context import Download, Page, Redirect, RequestContext, Route
from dealer_server.operations.tenants.set_terms import Terms, set_tenant
from dealer_server.operations.topups.request import cancel_topup, request_topup
from dealer_server.store.console import dealer
from esim_dealer.wire import calls
from esim_dealer.wire.vocabulary import PayMethod

PAY_METHODS = (("BANK_TRANSFER", "Bank transfer"), ("CARD", "Card"), ("USDT", "USDT"), ("OTHER", "Other"))
assert tuple(word for word, _ in PAY_METHODS) == get_args(PayMethod), "every way to pay has a name"
TOPUPS = 10


async def wallet(context: RequestContext) -> Page:
    about = context.tenant_id, "/console/wallet", "/console/wallet/statement.csv"
    async with context.parts.database.connection() as connection:
        held = await dealer.wallet(connection, context.tenant_id)
        listed = await statement.page(connection, context, held, *about)
        topups, _ = await dealer.topups(connection, context.tenant_id, None, TOPUPS)
    return permissions.page(
        context,
        "wallet",
        wallet=held,
        listed=listed,
        topups=topups,
        entry_types=statement.ENTRY_TYPES,
        pay_methods=PAY_METHODS,
        transaction_id=f"console-{secrets.token_hex(8)}",
    )


async def topups(context: RequestContext) -> Page:
    async with context.parts.database.connection() as connection:
        before = params.number(context.query, "before")
        found, following = await dealer.topups(connection, context.tenant_id, before, PAGE)
    return permissions.page(
        context, "topups", topups=found, pages=params.pager(context, "/console/wallet/topups", following)
    )


async def export(context: RequestContext) -> Download:
    return await statement.export(context, context.tenant_id)


async def ask(context: RequestContext) -> Redirect:
    """Asks for a top-up, as /account/topup does: nothing is credited before an operator approves. The form holds its
    transactionId, so that sending it twice asks once."""
    given = context.form
    amount = params.text(given, "amount") or ""
    wanted = permissions.call(
        calls.RequestTopup,
        transactionId=given.get("transaction_id", ""),
        amount=msgspec.Raw(msgspec.json.encode(amount)),
        payMethod=params.one_of(given, "pay_method", get_args(PayMethod)),
        payReference=params.text(given, "pay_reference"),
        remark=params.text(given, "remark"),
    )
    made = await request_topup(context.parts.database, context.tenant_id, wanted, context.now, context.author)
    return Redirect("/console/wallet", f"Top-up {made.topup_no} of {made.amount} {made.currency} waits for approval")


async def cancel(context: RequestContext) -> Redirect:
    """Withdraws a top-up that waits, as /account/topup/cancel does."""
    wanted = permissions.call(calls.CancelTopup, topupNo=context.path["number"])
    made = await cancel_topup(context.parts.database, context.tenant_id, wanted, context.now, context.author)
    return Redirect("/console/wallet", f"Top-up {made.topup_no} is withdrawn")


async def threshold(context: RequestContext) -> Redirect:
    """Below this available balance /account/balance says lowBalance, and the console warns; 0 is never."""
    terms = Terms(low_balance=params.text(context.form, "threshold") or "0")
    await set_tenant(context.parts.database, context.tenant_id, terms, context.author, lambda: context.now)
    return Redirect("/console/wallet", "The low-balance threshold is set")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/wallet", EVERYONE, wallet, "Wallet"),
    Route("GET", "/console/wallet/statement.csv", EVERYONE, export),
    Route("GET", "/console/wallet/topups", EVERYONE, topups),
    Route("POST", "/console/wallet/topups", MONEY, ask),
    Route("POST", "/console/wallet/topups/{number}/cancel", MONEY, cancel),
    Route("POST", "/console/wallet/threshold", MONEY, threshold),
)
