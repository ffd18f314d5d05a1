"""What waits for an operator's word: top-ups and refunds; and how many there are, for the menu."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from dealer_server.console.operator import permissions
from dealer_server.console.operator.permissions import LOOK, MONEY, PAGE
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Answer, Count, Page, Redirect, RequestContext, Route
from dealer_server.db.connection import Connection
from dealer_server.operations.refunds import review as refund_review
from dealer_server.operations.topups import review as topup_review
from dealer_server.store.console import queues
from dealer_server.store.console.queues import Queue

T = TypeVar("T")
Load = Callable[[Connection, str | None, int | None, int], Awaitable[list[T]]]
"""(connection, status, before, limit) to rows."""
TOPUPS = ("PENDING", "APPROVED", "REJECTED", "CANCELLED", "ALL")
REFUNDS = ("REVIEW", "REFUNDING", "REFUNDED", "REJECTED", "ALL")


def _waiting(queue: Queue) -> Count:
    async def count(context: RequestContext) -> int:
        async with context.parts.database.connection() as connection:
            return await queues.count(connection, queue)

    return count


pending, in_review, parked = _waiting("topups"), _waiting("refunds"), _waiting("purchases")


async def topups(context: RequestContext) -> Page:
    return await _page(context, "topups", TOPUPS, queues.topups, lambda one: one.topup_id)


async def approve_topup(context: RequestContext) -> Answer:
    number = context.path["number"]
    await topup_review.approve_topup(context.parts.database, number, context.author, lambda: context.now)
    return Redirect("/console/topups", f"{number} is approved and credited")


async def reject_topup(context: RequestContext) -> Answer:
    number = context.path["number"]
    await topup_review.reject_topup(
        context.parts.database, number, context.form.get("reason", ""), context.author, lambda: context.now
    )
    return Redirect("/console/topups", f"{number} is rejected")


async def refunds(context: RequestContext) -> Page:
    return await _page(context, "refunds", REFUNDS, queues.refunds, lambda one: one.refund_id)


async def approve_refund(context: RequestContext) -> Answer:
    number = context.path["number"]
    await refund_review.approve_refund(context.parts.database, number, context.author, lambda: context.now)
    return Redirect("/console/refunds", f"{number} is approved; the credit follows")


async def reject_refund(context: RequestContext) -> Answer:
    number = context.path["number"]
    await refund_review.reject_refund(
        context.parts.database, number, context.form.get("reason", ""), context.author, lambda: context.now
    )
    return Redirect("/console/refunds", f"{number} is rejected")


async def _page(
    context: RequestContext, name: str, tabs: tuple[str, ...], load: Load[T], number: Callable[[T], int]
) -> Page:
    """One tab of a queue, as `load` gives it. The first tab is what waits."""
    tab = params.one_of(context.query, "status", tabs) or tabs[0]
    status, before = None if tab == "ALL" else tab, params.number(context.query, "before")
    async with context.parts.database.connection() as connection:
        found = await load(connection, status, before, PAGE + 1)
    following = number(found[PAGE - 1]) if len(found) > PAGE else None
    pager = params.pager(context, f"/console/{name}", following)
    return permissions.page(context, name, rows=found[:PAGE], tab=tab, tabs=tabs, pager=pager)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/topups", LOOK, topups, "Top-ups"),
    Route("POST", "/console/topups/{number}/approve", MONEY, approve_topup),
    Route("POST", "/console/topups/{number}/reject", MONEY, reject_topup),
    Route("GET", "/console/refunds", LOOK, refunds, "Refunds"),
    Route("POST", "/console/refunds/{number}/approve", MONEY, approve_refund),
    Route("POST", "/console/refunds/{number}/reject", MONEY, reject_refund),
)
COUNTS = {"Top-ups": pending, "Refunds": in_review, "Suppliers": parked}
