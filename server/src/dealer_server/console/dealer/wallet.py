"""A dealer's money: what it has, every movement of it, asking for more, and when to be warned."""

import secrets
from typing import get_args

import msgspec

from dealer_server.console import asked, statement
from dealer_server.console.dealer import own
from dealer_server.console.dealer.own import EVERYONE, MONEY, PAGE
from dealer_server.console.visit import Download, Go, Page, Route, Visit
from dealer_server.operations import tenant, topup
from dealer_server.store import console_dealer
from esim_dealer.wire import calls
from esim_dealer.wire.vocabulary import PayMethod

PAY_METHODS = (("BANK_TRANSFER", "Bank transfer"), ("CARD", "Card"), ("USDT", "USDT"), ("OTHER", "Other"))
assert tuple(word for word, _ in PAY_METHODS) == get_args(PayMethod), "every way to pay has a name"
TOPUPS = 10


async def wallet(visit: Visit) -> Page:
    about = visit.tenant_id, "/console/wallet", "/console/wallet/statement.csv"
    async with visit.parts.database.connection() as connection:
        held = await console_dealer.wallet(connection, visit.tenant_id)
        listed = await statement.page(connection, visit, held, *about)
        topups, _ = await console_dealer.topups(connection, visit.tenant_id, None, TOPUPS)
    return own.page(
        visit,
        "wallet",
        wallet=held,
        listed=listed,
        topups=topups,
        entry_types=statement.ENTRY_TYPES,
        pay_methods=PAY_METHODS,
        transaction_id=f"console-{secrets.token_hex(8)}",
    )


async def topups(visit: Visit) -> Page:
    async with visit.parts.database.connection() as connection:
        before = asked.number(visit.query, "before")
        found, following = await console_dealer.topups(connection, visit.tenant_id, before, PAGE)
    return own.page(visit, "topups", topups=found, pages=asked.pager(visit, "/console/wallet/topups", following))


async def export(visit: Visit) -> Download:
    return await statement.export(visit, visit.tenant_id)


async def ask(visit: Visit) -> Go:
    """Asks for a top-up, as /account/topup does: nothing is credited before an operator approves. The form holds its
    transactionId, so that sending it twice asks once."""
    given = visit.form
    amount = asked.text(given, "amount") or ""
    wanted = own.call(
        calls.RequestTopup,
        transactionId=given.get("transaction_id", ""),
        amount=msgspec.Raw(msgspec.json.encode(amount)),
        payMethod=asked.one_of(given, "pay_method", get_args(PayMethod)),
        payReference=asked.text(given, "pay_reference"),
        remark=asked.text(given, "remark"),
    )
    made = await topup.request(visit.parts.database, visit.tenant_id, wanted, visit.now, visit.author)
    return Go("/console/wallet", f"Top-up {made.topup_no} of {made.amount} {made.currency} waits for approval")


async def cancel(visit: Visit) -> Go:
    """Withdraws a top-up that waits, as /account/topup/cancel does."""
    wanted = own.call(calls.CancelTopup, topupNo=visit.path["number"])
    made = await topup.cancel(visit.parts.database, visit.tenant_id, wanted, visit.now, visit.author)
    return Go("/console/wallet", f"Top-up {made.topup_no} is withdrawn")


async def threshold(visit: Visit) -> Go:
    """Below this available balance /account/balance says lowBalance, and the console warns; 0 is never."""
    terms = tenant.Terms(low_balance=asked.text(visit.form, "threshold") or "0")
    await tenant.set_tenant(visit.parts.database, visit.tenant_id, terms, visit.author, lambda: visit.now)
    return Go("/console/wallet", "The low-balance threshold is set")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/wallet", EVERYONE, wallet, "Wallet"),
    Route("GET", "/console/wallet/statement.csv", EVERYONE, export),
    Route("GET", "/console/wallet/topups", EVERYONE, topups),
    Route("POST", "/console/wallet/topups", MONEY, ask),
    Route("POST", "/console/wallet/topups/{number}/cancel", MONEY, cancel),
    Route("POST", "/console/wallet/threshold", MONEY, threshold),
)
