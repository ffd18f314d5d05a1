"""A dealer's wallet: the balance, the statement, top-ups, and when the balance is low."""

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date
from typing import NamedTuple, get_args

import msgspec

from dealer_server.console.find import dates, files
from dealer_server.console.shared import params, statement
from dealer_server.console.shared.calls import blaming, call
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import DEALER_FINANCE, DEALERS
from dealer_server.console.shared.request_context import Download, Html, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations import versions
from dealer_server.operations.tenants.set_terms import Terms, describe, set_tenant, texts
from dealer_server.operations.topups import request as topup_requests
from dealer_server.operations.wallets.low_limits import low_limits
from dealer_server.rules.incidents.dealer import is_low
from dealer_server.rules.money import money
from dealer_server.rules.notices.low_balance import PERCENTS
from dealer_server.rules.orders import identity
from dealer_server.rules.refusal import ParameterEmpty, ParameterInvalid
from dealer_server.rules.reports import recent
from dealer_server.rules.reports.balance_curve import curve, low_balance
from dealer_server.rules.reports.period import Period, day_of, start_of
from dealer_server.store.console import dealer, orders
from dealer_server.store.console.pages import ListPage
from dealer_server.store.reports import report
from dealer_server.store.reports import statement as movements
from dealer_server.store.reports.report import Filter
from dealer_server.store.wallets.topup import Topup
from esim_dealer.wire import calls
from esim_dealer.wire.vocabulary import PayMethod

WALLET, TOPUPS = "/console/wallet", "/console/wallet/topups"
PAY_METHODS = (("BANK_TRANSFER", "Bank transfer"), ("CARD", "Card"), ("USDT", "USDT"), ("OTHER", "Other"))
assert tuple(method for method, _ in PAY_METHODS) == get_args(PayMethod), "every way to pay has a name"
LATEST_TOPUPS = 5
TOPUP_COLUMNS: Mapping[str, Callable[[Topup], str]] = {
    "topupNo": lambda row: identity.topup_no(row.topup_id),
    "createTime": lambda row: f"{row.created_at:%Y-%m-%dT%H:%M:%SZ}",
    "currency": lambda row: row.currency,
    "amount": lambda row: money.text(row.amount, row.currency),
    "status": lambda row: row.status,
    "payMethod": lambda row: row.pay_method or "",
    "payReference": lambda row: row.pay_reference or "",
    "reviewTime": lambda row: f"{row.reviewed_at:%Y-%m-%dT%H:%M:%SZ}" if row.reviewed_at else "",
    "rejectReason": lambda row: row.reject_reason or "",
}


@page(WALLET, DEALERS, "dealer/wallet.html", MenuEntry("Wallet", "wallet", 60))
async def wallet(context: RequestContext) -> Html:
    tenant_id = context.tenant_id
    async with context.parts.database.connection() as connection:
        wallet = await dealer.wallet(connection, tenant_id)
        entries = await statement.page_of(connection, context, wallet, tenant_id, WALLET, f"{WALLET}/statement.csv")
        topups = await dealer.topups(connection, tenant_id, None, LATEST_TOPUPS)
        order_ids = [entry.order_id for entry in entries.entries]
        packages = await dealer.packages(connection, tenant_id, order_ids)
        references = await orders.references(connection, tenant_id, order_ids)
        _, waiting = await dealer.waiting_topups(connection, tenant_id)
        terms = await describe(connection, tenant_id)
        low = await low_limits(connection, tenant_id, wallet.currency)
        today = day_of(context.now)
        days = await report.by_day(connection, Filter(recent.compared(today), tenant_id))
        shown = recent.shown(today).days
        ends = [start_of(day) for day in shown[1:]]
        balances = await dealer.balances(connection, tenant_id, ends, wallet.version)
        moved = await _moved(connection, context, Period(shown[0], today))
    spent = recent.recent(days, wallet.currency, today)
    left = recent.days_left(wallet.available, spent)
    return Html(
        wallet=wallet,
        days_left=left,
        is_low=is_low(left),
        pace_days=recent.PACE_DAYS,
        per_day=recent.per_day(spent),
        version=versions.version_of(texts({"lowBalanceThreshold": terms["lowBalanceThreshold"]})),
        curve=curve(
            shown,
            [*balances, wallet.balance],
            low_balance(wallet.low_balance_threshold, wallet.credit_limit, low),
        ),
        statement=entries,
        moved=moved,
        dates=dates.of(context, WALLET),
        packages=packages,
        references=references,
        waiting=waiting,
        percents=PERCENTS,
        low_limits=low,
        topups=topups.rows,
        entry_types=statement.ENTRY_TYPES,
        pay_methods=PAY_METHODS,
        instructions=_instructions(context),
        transaction_id=_transaction_id(),
    )


class Moved(NamedTuple):
    """What came into the wallet in some days, and what left it (0 or less). `days`: both together, by day."""

    period: Period
    into: int = 0
    out: int = 0
    days: Mapping[date, int] = {}


async def _moved(connection: Connection, context: RequestContext, latest: Period) -> Moved:
    """In the days that are asked for, else in the `latest`; nothing where one type is asked for."""
    first, end = params.day(context.query, "from"), params.day(context.query, "to")
    if first or end:
        begin = first.date() if first else await movements.first_day(connection, context.tenant_id) or latest.first
        latest = Period(begin, end.date() if end else latest.last)
    if context.query.get("type"):
        return Moved(latest)
    found = await movements.days(connection, context.tenant_id, latest)
    amounts, days = [one.amount for one in found], Counter[date]()
    for one in found:
        days[one.day] += one.amount
    return Moved(latest, sum(one for one in amounts if one > 0), sum(one for one in amounts if one < 0), days)


def _transaction_id() -> str:
    """Of a form that requests a top-up: sent twice, it requests one."""
    return f"console-{secrets.token_hex(8)}"


def _instructions(context: RequestContext) -> str:
    """How top-ups are paid, as the operator has set it; "" where nothing is set."""
    return context.parts.settings.topup_instructions.replace("\\n", "\n").strip()


@page(TOPUPS, DEALERS, "dealer/topups.html")
async def topups(context: RequestContext) -> Html:
    before, faults = params.number(context.query, "before"), params.faults(context.query)
    found = ListPage[Topup]((), None)
    async with context.parts.database.connection() as connection:
        if not faults:
            found = await dealer.topups(connection, context.tenant_id, before, PAGE_SIZE, _span(context))
        wallet = await dealer.wallet(connection, context.tenant_id)
    return Html(
        dates=dates.of(context, TOPUPS),
        faults=faults,
        filtered=bool(context.query.get("from") or context.query.get("to")),
        export=params.address(f"{TOPUPS}.csv", params.filters(context)),
        topups=found.rows,
        pages=params.pager(context, TOPUPS, found.next, shown=len(found.rows), word="top-up"),
        wallet=wallet,
        pay_methods=PAY_METHODS,
        instructions=_instructions(context),
        transaction_id=_transaction_id(),
    )


def _span(context: RequestContext) -> tuple[int, int]:
    return identity.ids_between(params.day(context.query, "from"), params.day(context.query, "to", after=True))


@download(f"{TOPUPS}.csv", DEALERS, listing=True)
async def export_topups(context: RequestContext) -> Download:
    """All top-ups of the list; who takes the file is in the audit log."""
    await params.record_export(context, "topups.export", context.tenant_id, ("from", "to"))
    return files.download(
        context,
        "topups",
        TOPUP_COLUMNS,
        lambda connection, seen, size: dealer.topups(connection, context.tenant_id, seen, size, _span(context)),
    )


@download(f"{WALLET}/statement.csv", DEALERS, listing=True)
async def export(context: RequestContext) -> Download:
    return await statement.export(context, context.tenant_id)


@action(TOPUPS, DEALER_FINANCE)
async def request_topup(context: RequestContext) -> Redirect:
    """As /account/topup does: nothing is credited before an operator approves. The form holds its transactionId, so
    that sending it twice makes one request."""
    form = context.form
    amount = params.text(form, "amount") or ""
    request = call(
        calls.RequestTopup,
        transactionId=form.get("transaction_id", ""),
        amount=msgspec.Raw(msgspec.json.encode(amount)),
        payMethod=params.one_of(form, "pay_method", get_args(PayMethod)),
        payReference=params.text(form, "pay_reference"),
        remark=params.text(form, "remark"),
    )
    with blaming("amount", ParameterInvalid, ParameterEmpty):
        made = await topup_requests.request_topup(
            context.parts.database, context.tenant_id, request, context.now, context.author
        )
    return Redirect(WALLET, f"Top-up {made.topup_no} of {made.amount} {made.currency} waits for approval")


@action(f"{TOPUPS}/{{number}}/cancel", DEALER_FINANCE)
async def cancel_topup(context: RequestContext) -> Redirect:
    """Withdraws a top-up that waits, as /account/topup/cancel does."""
    request = call(calls.CancelTopup, topupNo=context.path["number"])
    made = await topup_requests.cancel_topup(
        context.parts.database, context.tenant_id, request, context.now, context.author
    )
    return Redirect(WALLET, f"Top-up {made.topup_no} is cancelled")


@action(f"{WALLET}/threshold", DEALER_FINANCE)
async def set_threshold(context: RequestContext) -> Redirect:
    """Below this available balance /account/balance answers lowBalance, and the dealer is told; 0: it answers it never,
    and the dealer is told at PERCENTS of the last top-up."""
    terms = Terms(low_balance=params.text(context.form, "threshold") or "0")
    await set_tenant(
        context.parts.database,
        context.tenant_id,
        terms,
        context.author,
        lambda: context.now,
        version=context.form.get("version"),
    )
    return Redirect(WALLET, "The low balance notice is set")
