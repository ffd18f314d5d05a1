"""Refunds that wait for an operator: each with what speaks for and against it, decided one by one or many at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from dealer_server.console.find.orders import ORDERS
from dealer_server.console.operator import decisions
from dealer_server.console.operator.queues import FILTERS, LATELY, exported, listed, refunds_in_review, wanted
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_FINANCE, OPERATORS
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Download, Html, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.errors import OperatorError, require_reason
from dealer_server.operations.refunds import review
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.store.console import queues
from dealer_server.store.console.queues import RefundRow

REFUNDS = "/console/refunds"
TABS = ("REVIEW", "REFUNDING", "REFUNDED", "REJECTED", "ALL")
COLUMNS: Mapping[str, Callable[[RefundRow], str]] = {
    "refundNo": lambda row: identity.refund_no(row.refund_id),
    "createTime": lambda row: f"{row.created_at:%Y-%m-%dT%H:%M:%SZ}",
    "tenantId": lambda row: str(row.tenant_id),
    "dealer": lambda row: row.dealer,
    "orderNo": lambda row: identity.order_no(row.order_id),
    "packages": lambda row: "; ".join(f"{code} x{count}" for code, count in row.packages),
    "currency": lambda row: row.currency,
    "amount": lambda row: money.text(row.amount, row.currency),
    "credited": lambda row: money.text(row.credited, row.currency),
    "status": lambda row: row.status,
    "inReview": lambda row: str(row.review),
    "used": lambda row: str(row.used),
    "installed": lambda row: str(row.installed),
    "reason": lambda row: "; ".join(row.reasons),
    "settleTime": lambda row: f"{row.settled_at:%Y-%m-%dT%H:%M:%SZ}" if row.settled_at else "",
    "remark": lambda row: row.remark or "",
}
"""What a file has in each column, by its name."""
PICK = "pick-"
"""What the boxes of refunds are named, before their refundNo."""
Verdict = Literal["approve", "reject"]


@page(REFUNDS, OPERATORS, "operator/refunds.html", MenuEntry("Refunds", "receipt-refund", 40, refunds_in_review))
async def refunds(context: RequestContext) -> Html:
    asked = await wanted(context)
    tenant_id = asked.dealer.tenant_id
    async with context.parts.database.connection() as connection:
        waiting = await queues.in_review(connection)
        found = await queues.by_status(connection, "refund", tenant_id)
        lately = await _settled_lately(connection) if asked.first else ()
        if tenant_id is not None:
            found |= await queues.unsettled(connection, tenant_id)
        else:
            found |= {
                "REVIEW": sum(count for _, count, _ in waiting),
                "REFUNDING": await queues.count(connection, "refunding"),
            }
    return await listed(
        context,
        asked,
        REFUNDS,
        TABS,
        queues.refunds,
        lambda row: row.refund_id,
        "refund",
        found,
        _decisions,
        waiting=waiting if asked.all else (),
        lately=lately,
    )


async def _settled_lately(connection: Connection) -> list[RefundRow]:
    """Of the newest, those that were settled last, below what waits; of what failed nobody asked for a refund."""
    newest = await queues.refunds(connection, None, None, PAGE_SIZE, settled=True, oldest_first=False)
    asked = [(row.settled_at, row) for row in newest if row.settled_at and row.author != "system"]
    return [row for _, row in sorted(asked, key=lambda one: one[0], reverse=True)][:LATELY]


async def _decisions(connection: Connection, rows: Sequence[RefundRow]) -> dict[str, Any]:
    """What is known of those that an operator decides."""
    found = await decisions.of_rows(connection, [row for row in rows if row.review])
    return {"decisions": {one.row.refund_id: one for one in found}}


@download(f"{REFUNDS}.csv", OPERATORS, listing=True)
async def export(context: RequestContext) -> Download:
    """All refunds of the tab, the newest first."""
    asked = await wanted(context)
    await params.record_export(context, "refunds.export", asked.dealer.tenant_id, FILTERS)
    return exported(context, asked, "refunds", TABS, queues.refunds, lambda row: row.refund_id, COLUMNS)


@action(f"{REFUNDS}/{{number}}/approve", OPERATOR_FINANCE)
async def approve_refund(context: RequestContext) -> Redirect:
    number = context.path["number"]
    order_id = await _decide(context, number, "approve", "")
    return Redirect(_after(context, order_id), f"{number} is approved; the credit follows")


@action(f"{REFUNDS}/{{number}}/reject", OPERATOR_FINANCE)
async def reject_refund(context: RequestContext) -> Redirect:
    number = context.path["number"]
    order_id = await _decide(context, number, "reject", context.form.get("reason", ""))
    return Redirect(_after(context, order_id), f"{number} is rejected")


def _after(context: RequestContext, order_id: int) -> str:
    """The page that it was decided on."""
    return f"{ORDERS}/{identity.order_no(order_id)}" if context.form.get("page") == "order" else REFUNDS


@action(f"{REFUNDS}/selected", OPERATOR_FINANCE, "operator/refund_selection.html")
async def select(context: RequestContext) -> Html:
    """What would be decided together, before anything is. `within`: those that the policy still covers."""
    picked = params.picked(context.form, PICK, "refund")
    ids = [found for number in picked if (found := identity.refund_id(number)) is not None]
    async with context.parts.database.connection() as connection:
        found = await queues.refunds(connection, "REVIEW", None, PAGE_SIZE, only=ids, oldest_first=True)
    rows = [row for row in found if row.within_policy or not context.form.get("within")]
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.currency] = totals.get(row.currency, 0) + row.review_amount
    return Html(
        200 if rows else 400,
        rows=rows,
        left=len(found) - len(rows),
        totals=totals,
        verdict=_verdict(context.form),
        pick=PICK,
    )


@action(f"{REFUNDS}/decide", OPERATOR_FINANCE)
async def decide(context: RequestContext) -> Redirect:
    """Each by itself: one that somebody else has decided meanwhile keeps no other back. Raises OperatorError."""
    verdict, reason = _verdict(context.form), context.form.get("reason", "")
    if verdict == "reject":
        require_reason(reason, "a rejection needs a reason: the dealer reads it")
    done, left = 0, list[str]()
    for number in params.picked(context.form, PICK, "refund"):
        try:
            await _decide(context, number, verdict, reason)
            done += 1
        except OperatorError as why:
            left.append(str(why))
    told = f"{many(done, 'refund')} {'approved; the credits follow' if verdict == 'approve' else 'rejected'}"
    return Redirect(REFUNDS, "; ".join([told, *left]), failed=not done)


def _verdict(form: Mapping[str, str]) -> Verdict:
    return "reject" if form.get("verdict") == "reject" else "approve"


async def _decide(context: RequestContext, number: str, verdict: Verdict, reason: str) -> int:
    """The orderId. Raises OperatorError."""
    database, author = context.parts.database, context.author
    if verdict == "approve":
        return (await review.approve_refund(database, number, author, lambda: context.now)).order_id
    return (await review.reject_refund(database, number, reason, author, lambda: context.now)).order_id
