"""A dealer's refunds: what was asked for, what came of it, and why one was rejected."""

from collections.abc import Callable, Mapping

from dealer_server.console.dealer.timeline import refusal_text
from dealer_server.console.find import dates, files, tabs
from dealer_server.console.shared import params, words
from dealer_server.console.shared.page import MenuEntry, download, page
from dealer_server.console.shared.params import CREATED, NEWEST_FIRST, SHORT_PAGE, Pager
from dealer_server.console.shared.permissions import DEALERS
from dealer_server.console.shared.request_context import Download, Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.store.console import dealer, orders, queues
from dealer_server.store.console.pages import ListPage
from dealer_server.store.console.queues import RefundRow

REFUNDS = "/console/refunds"
STATES = ("REVIEW", "REFUNDING", "REFUNDED", "REJECTED")
OPEN = STATES[:2]
MOST_OPEN = 10
"""Those that are not settled stand first, so many of each state."""
COLUMNS: Mapping[str, Callable[[RefundRow], str]] = {
    "refundNo": lambda row: identity.refund_no(row.refund_id),
    "createTime": lambda row: f"{row.created_at:%Y-%m-%dT%H:%M:%SZ}",
    "orderNo": lambda row: identity.order_no(row.order_id),
    "packages": lambda row: "; ".join(f"{code} x{count}" for code, count in row.packages),
    "currency": lambda row: row.currency,
    "amount": lambda row: money.text(row.amount, row.currency),
    "credited": lambda row: money.text(row.credited, row.currency),
    "status": lambda row: row.status,
    "reason": lambda row: refusal_text(row.refusals),
    "settleTime": lambda row: f"{row.settled_at:%Y-%m-%dT%H:%M:%SZ}" if row.settled_at else "",
    "remark": lambda row: row.remark or "",
}


@page(REFUNDS, DEALERS, "dealer/refunds.html", MenuEntry("Refunds", "receipt-refund", 35), listing=True)
async def refunds(context: RequestContext) -> Html:
    order, seen = params.order(context, REFUNDS, CREATED, NEWEST_FIRST), params.number(context.query, "before")
    faults = params.faults(context.query, status=STATES)
    found, amounts, unsettled = ListPage[RefundRow]((), None), dict[str, int](), list[RefundRow]()
    status = params.text(context.query, "status")
    dated = bool(context.query.get("from") or context.query.get("to"))
    filtered = dated or any(params.text(context.query, name) for name in ("status", "q"))
    async with context.parts.database.connection() as connection:
        counted = await queues.by_status(connection, "refund", context.tenant_id)
        counted |= await queues.unsettled(connection, context.tenant_id)
        none = 0 if counted["ALL"] < queues.MANY else None
        known = {state: counted.get(state, none) for state in STATES}
        if not faults:
            oldest_first = not order.descending
            found = await _read(connection, context, seen, SHORT_PAGE, oldest_first=oldest_first, settled=not filtered)
            for state in [state for state in OPEN if known[state] != 0] if not filtered and seen is None else ():
                unsettled += await queues.refunds(
                    connection, state, None, MOST_OPEN, context.tenant_id, oldest_first=oldest_first
                )
            if not params.text(context.query, "q"):
                amounts = await queues.refund_amounts(connection, context.tenant_id, _span(context))
        order_ids = [row.order_id for row in (*unsettled, *found.rows)]
        references = await orders.references(connection, context.tenant_id, order_ids)
    presets = [(words.text(state), {"status": state}) for state in STATES]
    counts = {words.text(state): count for state, count in known.items() if count is not None}
    counts |= {"All": counted["ALL"]}
    return Html(
        sums=[
            (words.text(state).lower() + (" in all" if state == "REFUNDED" and not dated else ""), amounts[state])
            for state in STATES
            if amounts.get(state) and status in (None, state)
        ],
        currency=next((row.currency for row in (*unsettled, *found.rows)), ""),
        references=references,
        open=[_shown(row) for row in unsettled],
        more_open=[state for state in OPEN if (known[state] or 0) > MOST_OPEN],
        faults=faults,
        dates=dates.of(context, REFUNDS),
        refunds=[_shown(row) for row in found.rows],
        order=order,
        pager=_pager(context, found, counts),
        tabs=await tabs.of(context, REFUNDS, presets, counts, queues.MANY),
        filtered=filtered,
        export=params.address(f"{REFUNDS}.csv", params.filters(context)),
    )


def _pager(context: RequestContext, found: ListPage[RefundRow], counts: Mapping[str, int]) -> Pager:
    status, narrowed = params.text(context.query, "status"), any(context.query.get(one) for one in ("q", "from", "to"))
    known, word, most = counts.get(words.text(status) if status else "All"), "refund", queues.MANY
    if not (status or narrowed) and known is not None:
        not_settled = sum(counts.get(words.text(state), 0) for state in OPEN)
        known, word, most = known - not_settled, "settled refund", most - not_settled
    return params.pager(
        context,
        REFUNDS,
        found.next,
        shown=len(found.rows),
        word=word,
        total=None if narrowed else known,
        most=most,
        size=SHORT_PAGE,
    )


@download(f"{REFUNDS}.csv", DEALERS, listing=True)
async def export(context: RequestContext) -> Download:
    """All refunds of the list, the newest first; who takes the file is in the audit log."""
    await params.record_export(context, "refunds.export", context.tenant_id, ("status", "q", "from", "to"))
    return files.download(
        context,
        "refunds",
        COLUMNS,
        lambda connection, seen, size: _read(connection, context, seen, size, oldest_first=False),
    )


def _span(context: RequestContext) -> tuple[int, int]:
    return identity.ids_between(params.day(context.query, "from"), params.day(context.query, "to", after=True))


async def _read(
    connection: Connection,
    context: RequestContext,
    seen: int | None,
    size: int,
    *,
    oldest_first: bool,
    settled: bool = False,
) -> ListPage[RefundRow]:
    status, text = params.one_of(context.query, "status", STATES), params.text(context.query, "q")
    span, order_id = _span(context), None
    if text and (number := identity.refund_id(text)) is not None:
        span = number, number + 1
    elif text:
        order_id = (await dealer.locate(connection, context.tenant_id, text))[0] or 0  # none has this number
    rows = await queues.refunds(
        connection,
        status,
        seen,
        size + 1,
        context.tenant_id,
        oldest_first=oldest_first,
        span=span,
        order_id=order_id,
        settled=settled,
    )
    return ListPage(rows[:size], rows[size - 1].refund_id if len(rows) > size else None)


def _shown(refund: RefundRow) -> tuple[RefundRow, str, str]:
    """With its state, and why it was rejected."""
    return refund, _state(refund), refusal_text(refund.refusals)


def _state(refund: RefundRow) -> str:
    """In words, where its status alone does not say it."""
    if refund.status == "REFUNDING" and refund.review:
        return words.text("REVIEW")
    if refund.status == "REFUNDED" and refund.credited < refund.amount:
        return "Partly refunded"
    return words.text(refund.status)
