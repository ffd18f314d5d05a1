"""A dealer's money: what it has, every movement of it, asking for more, and when to be warned."""

import secrets
from collections.abc import AsyncIterator
from typing import get_args

import msgspec

from dealer_server.console import asked
from dealer_server.console.dealer import own
from dealer_server.console.dealer.own import EVERYONE, MONEY, PAGE
from dealer_server.console.visit import Download, Go, Page, Route, Visit
from dealer_server.operations import tenant, topup
from dealer_server.rules import identity, money
from dealer_server.rules.snapshot import whole_seconds
from dealer_server.store import console_dealer
from dealer_server.store.console_dealer import Entry, Span, Wallet
from dealer_server.store.database import Connection
from esim_dealer.wire import calls
from esim_dealer.wire.vocabulary import EntryType, PayMethod

ENTRY_TYPES = get_args(EntryType)
PAY_METHODS = (("BANK_TRANSFER", "Bank transfer"), ("CARD", "Card"), ("USDT", "USDT"), ("OTHER", "Other"))
assert tuple(word for word, _ in PAY_METHODS) == get_args(PayMethod), "every way to pay has a name"
FILTERS = ("type", "from", "to")
TOPUPS = 10
ROWS_PER_CHUNK = 500
COLUMNS = ("entryNo", "createTime", "entryType", "amount", "balanceAfter", "currency", "orderNo", "topupNo")


async def wallet(visit: Visit) -> Page:
    entry_type = asked.one_of(visit.query, "type", ENTRY_TYPES)
    async with visit.parts.database.connection() as connection:
        held = await console_dealer.wallet(connection, visit.tenant_id)
        span = await _span(connection, visit, held)
        entries, following = await console_dealer.entries(connection, visit.tenant_id, span, entry_type, PAGE)
        topups, _ = await console_dealer.topups(connection, visit.tenant_id, None, TOPUPS)
    filters = {name: value for name, value in visit.query.items() if name not in ("before", "trail")}
    return own.page(
        visit,
        "wallet",
        wallet=held,
        entries=entries,
        topups=topups,
        entry_types=ENTRY_TYPES,
        pay_methods=PAY_METHODS,
        transaction_id=f"console-{secrets.token_hex(8)}",
        pages=asked.pager(visit, "/console/wallet", following),
        export=asked.address("/console/wallet/statement.csv", filters),
    )


async def topups(visit: Visit) -> Page:
    async with visit.parts.database.connection() as connection:
        before = asked.number(visit.query, "before")
        found, following = await console_dealer.topups(connection, visit.tenant_id, before, PAGE)
    return own.page(visit, "topups", topups=found, pages=asked.pager(visit, "/console/wallet/topups", following))


async def _span(connection: Connection, visit: Visit, held: Wallet) -> Span:
    """The ledger entries of the days asked for, before the page's `before`."""
    start, end = asked.day(visit.query, "from"), asked.day(visit.query, "to", after=True)
    tenant_id, newest = visit.tenant_id, held.version
    first = 1 if start is None else await console_dealer.version_at(connection, tenant_id, start, newest)
    last = newest + 1 if end is None else await console_dealer.version_at(connection, tenant_id, end, newest)
    before = asked.number(visit.query, "before")
    return Span(first, last if before is None else min(before, last))


async def statement(visit: Visit) -> Download:
    """What the page shows, all of it, a few hundred rows at a time."""
    await own.record(visit, "statement.export", {name: asked.text(visit.query, name) for name in FILTERS})
    return Download(f"statement-{visit.now:%Y%m%d-%H%M%S}.csv", "text/csv; charset=utf-8", _csv(visit))


async def _csv(visit: Visit) -> AsyncIterator[bytes]:
    entry_type = asked.one_of(visit.query, "type", ENTRY_TYPES)
    yield asked.csv_lines([COLUMNS])
    async with visit.parts.database.connection() as connection:
        held = await console_dealer.wallet(connection, visit.tenant_id)
        span = await _span(connection, visit, held)
    while True:
        async with visit.parts.database.connection() as connection:
            found, following = await console_dealer.entries(
                connection, visit.tenant_id, span, entry_type, ROWS_PER_CHUNK
            )
        if found:
            yield asked.csv_lines([_cells(one, held.currency) for one in found])
        if following is None:
            return
        span = span._replace(end=following)


def _cells(one: Entry, currency: str) -> tuple[str, ...]:
    return (
        str(one.version),
        f"{whole_seconds(one.created_at):%Y-%m-%dT%H:%M:%SZ}",
        one.entry_type,
        money.text(one.amount, currency),
        money.text(one.balance_after, currency),
        currency,
        "" if one.order_id is None else identity.order_no(one.order_id),
        "" if one.topup_id is None else identity.topup_no(one.topup_id),
    )


async def ask(visit: Visit) -> Go:
    """Asks for a top-up, as /account/topup does: nothing is credited before an operator approves. The form holds its
    transactionId, so that sending it twice asks once."""
    given = visit.form
    amount = asked.text(given, "amount") or ""

    async def work() -> str:
        wanted = own.call(
            calls.RequestTopup,
            transactionId=given.get("transaction_id", ""),
            amount=msgspec.Raw(msgspec.json.encode(amount)),
            payMethod=asked.one_of(given, "pay_method", get_args(PayMethod)),
            payReference=asked.text(given, "pay_reference"),
            remark=asked.text(given, "remark"),
        )
        asked_for = await topup.request(visit.parts.database, visit.tenant_id, wanted, visit.now, visit.author)
        return f"Top-up {asked_for.topup_no} of {asked_for.amount} {asked_for.currency} waits for approval"

    return await own.done(work(), "/console/wallet")


async def threshold(visit: Visit) -> Go:
    """Below this available balance /account/balance says lowBalance, and the console warns; 0 is never."""
    terms = tenant.Terms(low_balance=asked.text(visit.form, "threshold") or "0")

    async def work() -> str:
        await tenant.set_tenant(visit.parts.database, visit.tenant_id, terms, visit.author, lambda: visit.now)
        return "The low-balance threshold is set"

    return await own.done(work(), "/console/wallet")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/wallet", EVERYONE, wallet, "Wallet"),
    Route("GET", "/console/wallet/statement.csv", EVERYONE, statement),
    Route("GET", "/console/wallet/topups", EVERYONE, topups),
    Route("POST", "/console/wallet/topups", MONEY, ask),
    Route("POST", "/console/wallet/threshold", MONEY, threshold),
)
