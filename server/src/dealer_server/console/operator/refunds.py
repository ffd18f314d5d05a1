"""Refunds that wait for an operator: each with what speaks for and against it, decided one by one or many at once."""

from collections.abc import Mapping
from typing import Literal

from dealer_server.console.operator.queues import listed, refunds_in_review
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_FINANCE, OPERATORS
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Html, Redirect, RequestContext
from dealer_server.operations.errors import OperatorError, require_reason
from dealer_server.operations.refunds import review
from dealer_server.rules.orders import identity
from dealer_server.store.console import queues

REFUNDS = "/console/refunds"
TABS = ("REVIEW", "REFUNDING", "REFUNDED", "REJECTED", "ALL")
PICK = "pick-"
"""What the boxes of refunds are named, before their refundNo."""
Verdict = Literal["approve", "reject"]


@page(REFUNDS, OPERATORS, "operator/refunds.html", MenuEntry("Refunds", "receipt-refund", 40, refunds_in_review))
async def refunds(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        waiting = await queues.in_review(connection)
    return await listed(context, REFUNDS, TABS, queues.refunds, lambda row: row.refund_id, "refund", waiting=waiting)


@action(f"{REFUNDS}/{{number}}/approve", OPERATOR_FINANCE)
async def approve_refund(context: RequestContext) -> Redirect:
    number = context.path["number"]
    await _decide(context, number, "approve", "")
    return Redirect(REFUNDS, f"{number} is approved; the credit follows")


@action(f"{REFUNDS}/{{number}}/reject", OPERATOR_FINANCE)
async def reject_refund(context: RequestContext) -> Redirect:
    number = context.path["number"]
    await _decide(context, number, "reject", context.form.get("reason", ""))
    return Redirect(REFUNDS, f"{number} is rejected")


@action(f"{REFUNDS}/selected", OPERATOR_FINANCE, "operator/refund_selection.html")
async def select(context: RequestContext) -> Html:
    """What would be decided together, before anything is."""
    picked = _picked(context.form)
    ids = [found for number in picked if (found := identity.refund_id(number)) is not None]
    async with context.parts.database.connection() as connection:
        rows = await queues.refunds(connection, "REVIEW", None, PAGE_SIZE, only=ids, oldest_first=True)
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.currency] = totals.get(row.currency, 0) + row.amount
    return Html(200 if rows else 400, rows=rows, totals=totals, verdict=_verdict(context.form), pick=PICK)


@action(f"{REFUNDS}/decide", OPERATOR_FINANCE)
async def decide(context: RequestContext) -> Redirect:
    """Each by itself: one that somebody else has decided meanwhile keeps no other back. Raises OperatorError."""
    verdict, reason = _verdict(context.form), context.form.get("reason", "")
    if verdict == "reject":
        require_reason(reason, "a rejection needs a reason, for the audit log")
    done, left = 0, list[str]()
    for number in _picked(context.form):
        try:
            await _decide(context, number, verdict, reason)
            done += 1
        except OperatorError as why:
            left.append(str(why))
    told = f"{many(done, 'refund')} {'approved; the credits follow' if verdict == 'approve' else 'rejected'}"
    return Redirect(REFUNDS, "; ".join([told, *left]), failed=not done)


def _picked(form: Mapping[str, str]) -> list[str]:
    """Raises OperatorError."""
    numbers = [name.removeprefix(PICK) for name in form if name.startswith(PICK)]
    if not 1 <= len(numbers) <= PAGE_SIZE:
        raise OperatorError(f"choose 1 to {PAGE_SIZE} refunds; these are {len(numbers)}")
    return numbers


def _verdict(form: Mapping[str, str]) -> Verdict:
    return "reject" if form.get("verdict") == "reject" else "approve"


async def _decide(context: RequestContext, number: str, verdict: Verdict, reason: str) -> None:
    """Raises OperatorError."""
    database, author = context.parts.database, context.author
    if verdict == "approve":
        await review.approve_refund(database, number, author, lambda: context.now)
    else:
        await review.reject_refund(database, number, reason, author, lambda: context.now)
