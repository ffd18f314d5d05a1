"""Buying with a CSV file: upload or paste, look at prices and faults, buy, follow, and take the results."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from dealer_server.audit_context import Actor
from dealer_server.console.dealer.buying import words
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.permissions import DEALER_FINANCE, permissions
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Answer, Download, Html, NotFound, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.orders import bulk as operations
from dealer_server.operations.orders.bulk import Bought, BulkNotFound, Quote
from dealer_server.rules.money import money
from dealer_server.rules.orders import bulk as rules
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.orders.bulk import BulkLine
from dealer_server.rules.orders.model import Order
from dealer_server.store.orders import bulk as store_bulk
from dealer_server.store.orders import order as store_order
from dealer_server.store.orders.bulk import OrderState
from dealer_server.store.tenants import tenant

BULK, ONE = "/console/bulk", "/console/bulk/{bulk_id}"
FAULTS_SHOWN = 100
ORDERS_AT_ONCE = 20
SHOWN = 20
NO_TEXT = "This is no CSV text in UTF-8. Save the file as CSV UTF-8 and choose it again."
EMPTY = "Choose a file, or paste its lines."
COLUMNS = (
    "line",
    "reference",
    "transactionId",
    "orderNo",
    "packageCode",
    "profileId",
    "ICCID",
    "orderStatus",
    "problem",
)
CODES = ("activationCode", "installPageUrl")


class LineView(NamedTuple):
    """A line of the file. `amount`: in major units, "" where there is no price. `problem`: why it was not bought."""

    line: BulkLine
    amount: str
    order_no: str
    state: OrderState | None
    problem: str


@page(BULK, DEALER_FINANCE, "dealer/buying/bulk.html", MenuEntry("Buy by CSV", "file-import", 16))
async def choose(context: RequestContext) -> Html:
    return await _form(context)


@action(BULK, DEALER_FINANCE, "dealer/buying/bulk.html")
async def read(context: RequestContext) -> Answer:
    """Nothing is bought yet. Faults are shown beside the text, which can be corrected there."""
    file = context.files.get("file", b"")
    try:
        text = file.decode("utf-8-sig") if file else context.form.get("text", "")
    except UnicodeDecodeError:
        return await _form(context, problem=NO_TEXT)
    if not text.strip():
        return await _form(context, problem=EMPTY)
    parts = context.parts
    found, bulk_id = await operations.read_bulk(
        parts.database,
        parts.catalogue(),
        context.tenant_id,
        text.replace("\0", ""),
        _no_mail_reason(context),
        context.author,
        context.now,
    )
    if bulk_id is None:
        return await _form(context, text=text, faults=found.faults)
    return Redirect(f"{BULK}/{bulk_id}")


def _no_mail_reason(context: RequestContext) -> str:
    """Why no install page can be mailed, "" where it can. The page holds codes, which not every user may have."""
    if not permissions(context.user).secrets:
        return "only an admin may mail install pages"
    return "no mail is sent from here" if context.parts.settings.mails == "none" else ""


async def _form(
    context: RequestContext, *, text: str = "", problem: str = "", faults: Sequence[rules.Fault] = ()
) -> Html:
    async with context.parts.database.connection() as connection:
        newest = await store_bulk.newest(connection, context.tenant_id, SHOWN)
    return Html(
        400 if problem or faults else 200,
        text=text,
        problem=problem,
        faults=faults[:FAULTS_SHOWN],
        fault_count=len(faults),
        newest=newest,
        columns=rules.COLUMNS,
        most=rules.MOST_ORDERS,
        no_mail_reason=_no_mail_reason(context),
    )


@download(f"{BULK}/template.csv", DEALER_FINANCE)
async def template(context: RequestContext) -> Download:
    """A file to fill in: a package of the catalogue, and one by the day where there is one."""
    async with context.parts.database.connection() as connection:
        prices = await tenant.load_prices(connection, context.tenant_id)
    first = {one.kind: one.package for one in reversed(context.parts.catalogue().on_sale(prices))}
    examples: list[tuple[str, ...]] = []
    if fixed := first.get("FIXED"):
        examples.append((fixed.package_code, "2", "", "Family trip", "B-1042", "", ""))
    if daily := first.get("DAILY"):
        examples.append((daily.package_code, "1", str(daily.min_period_num), "", "B-1043", "", ""))

    async def lines() -> AsyncIterator[bytes]:
        yield params.csv_lines([rules.COLUMNS, *examples])

    return Download("orders-template.csv", "text/csv; charset=utf-8", lines())


@page(ONE, DEALER_FINANCE, "dealer/buying/bulk_order.html")
async def show(context: RequestContext) -> Html:
    """Before it is bought, while it is, and what came of it."""
    bulk_id = params.path_number(context, "bulk_id")
    async with context.parts.database.connection() as connection:
        quote = await _quote(connection, context, bulk_id)
        states = await store_bulk.states(connection, context.tenant_id, list(quote.orders.values()))
        before = await store_bulk.bought_before(connection, context.tenant_id, bulk_id)
    left = quote.left
    return Html(
        quote=quote,
        lines=[_view(quote, line, states) for line in quote.lines],
        left=len(left),
        esims=sum(line.quantity for line in left),
        mailed=sum(line.quantity for line in left if line.mail),
        total=money.text(quote.total, quote.currency),
        missing=quote.total - quote.available if left and quote.total > quote.available else 0,
        delivered=sum(state.delivery_status == "DELIVERED" for state in states.values()),
        moving=any(state.order_status in ("PAID", "FULFILLING", "REFUNDING") for state in states.values()),
        before=before,
    )


def _view(quote: Quote, line: BulkLine, states: Mapping[int, OrderState]) -> LineView:
    order_id, price = quote.orders.get(line.line), quote.prices.get(line.line)
    refused = quote.refused.get(line.line)
    problem = words.plain(refused.refused, refused.message) if refused else ""
    state = None if order_id is None else states.get(order_id)
    amount = state.amount if state else None if price is None else line.amount(price)
    if order_id is None and price is None:
        problem = "It is not on sale any more."
    return LineView(
        line=line,
        amount="" if amount is None else money.text(amount, quote.currency),
        order_no="" if order_id is None else identity.order_no(order_id),
        state=state,
        problem=problem,
    )


@action(f"{ONE}/buy", DEALER_FINANCE)
async def buy(context: RequestContext) -> Redirect:
    """Places what is left, at the prices that were shown. Each line buys once, however often this is sent."""
    parts, bulk_id = context.parts, params.path_number(context, "bulk_id")
    try:
        bought = await operations.place_bulk(
            parts.database,
            parts.catalogue(),
            parts.orders,
            context.tenant_id,
            bulk_id,
            context.form.get("seen", ""),
            _no_mail_reason(context),
            Actor.current(context.author, None),
            context.now,
        )
    except BulkNotFound:
        raise NotFound from None
    return Redirect(f"{BULK}/{bulk_id}", _told(bought), failed=bool(bought.refused or bought.unknown))


def _told(bought: Bought) -> str:
    told = [f"{many(bought.placed + bought.repeated, 'order')} placed"]
    if bought.refused:
        told.append(f"{bought.refused:,} refused: the reasons stand beside them")
    if bought.unknown:
        told.append(f"{bought.unknown:,} not certain: continue, and each is bought once")
    return "; ".join(told)


@download(f"{ONE}/results.csv", DEALER_FINANCE)
async def results(context: RequestContext) -> Download:
    """A line for each eSIM; with codes for those who may see them. Who takes it is in the audit log."""
    bulk_id = params.path_number(context, "bulk_id")
    async with context.parts.database.connection() as connection:
        quote = await _quote(connection, context, bulk_id)
    await params.record_export(context, f"bulk.export {bulk_id}", context.tenant_id, ())
    return Download(f"bulk-{bulk_id}.csv", "text/csv; charset=utf-8", _csv(context, quote))


async def _csv(context: RequestContext, quote: Quote) -> AsyncIterator[bytes]:
    with_codes = permissions(context.user).secrets
    yield params.csv_lines([COLUMNS + CODES if with_codes else COLUMNS])
    for first in range(0, len(quote.lines), ORDERS_AT_ONCE):
        lines = quote.lines[first : first + ORDERS_AT_ONCE]
        keys = [(context.tenant_id, quote.orders[line.line]) for line in lines if line.line in quote.orders]
        async with context.parts.database.connection() as connection:
            found = await store_order.load(connection, keys, context.parts.data_keys)
        rows: list[Sequence[str]] = []
        for line in lines:
            order = found.get((context.tenant_id, quote.orders.get(line.line, 0)))
            rows += _rows(context, quote, line, order, with_codes=with_codes)
        yield params.csv_lines(rows)


def _rows(
    context: RequestContext, quote: Quote, line: BulkLine, order: Order | None, *, with_codes: bool
) -> list[Sequence[str]]:
    transaction_id = rules.transaction_id(quote.bulk.token, line.line)
    begin = (str(line.line), line.reference, transaction_id)
    if order is None:
        problem = _view(quote, line, {}).problem or "not bought"
        return [(*begin, "", line.package_code, "", "", "", problem, *([""] * len(CODES) if with_codes else ()))]
    rows: list[Sequence[str]] = []
    for item in order.items:
        for profile in item.profiles:
            shown = snapshot.profile(profile, item, order.tenant_id, context.parts.links)
            row = (*begin, order.order_no, item.package_code, str(profile.profile_id), shown.iccid or "")
            codes = (shown.activation_code or "", shown.install_page_url or "") if with_codes else ()
            rows.append((*row, order.order_status, "", *codes))
    return rows


async def _quote(connection: Connection, context: RequestContext, bulk_id: int) -> Quote:
    """Raises NotFound."""
    try:
        return await operations.quote_bulk(connection, context.parts.catalogue(), context.tenant_id, bulk_id)
    except BulkNotFound:
        raise NotFound from None
