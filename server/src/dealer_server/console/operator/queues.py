"""What waits for an operator's word: top-ups and refunds; and how many there are, for the menu."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from dealer_server.console import asked
from dealer_server.console.operator import own
from dealer_server.console.operator.own import LOOK, MONEY, PAGE
from dealer_server.console.visit import Answer, Count, Go, Page, Route, Visit
from dealer_server.operations import review, topup
from dealer_server.store import console_queues
from dealer_server.store.console_queues import Queue
from dealer_server.store.database import Connection

T = TypeVar("T")
Load = Callable[[Connection, str | None, int | None, int], Awaitable[list[T]]]
"""(connection, status, before, limit) to rows."""
TOPUPS = ("PENDING", "APPROVED", "REJECTED", "CANCELLED", "ALL")
REFUNDS = ("REVIEW", "REFUNDING", "REFUNDED", "REJECTED", "ALL")


def _waiting(queue: Queue) -> Count:
    async def count(visit: Visit) -> int:
        async with visit.parts.database.connection() as connection:
            return await console_queues.count(connection, queue)

    return count


pending, in_review, parked = _waiting("topups"), _waiting("refunds"), _waiting("purchases")


async def topups(visit: Visit) -> Page:
    return await _page(visit, "topups", TOPUPS, console_queues.topups, lambda one: one.topup_id)


async def approve_topup(visit: Visit) -> Answer:
    number = visit.path["number"]
    await topup.approve(visit.parts.database, number, visit.author, lambda: visit.now)
    return Go("/console/topups", f"{number} is approved and credited")


async def reject_topup(visit: Visit) -> Answer:
    number = visit.path["number"]
    await topup.reject(visit.parts.database, number, visit.form.get("reason", ""), visit.author, lambda: visit.now)
    return Go("/console/topups", f"{number} is rejected")


async def refunds(visit: Visit) -> Page:
    return await _page(visit, "refunds", REFUNDS, console_queues.refunds, lambda one: one.refund_id)


async def approve_refund(visit: Visit) -> Answer:
    number = visit.path["number"]
    await review.approve(visit.parts.database, number, visit.author, lambda: visit.now)
    return Go("/console/refunds", f"{number} is approved; the credit follows")


async def reject_refund(visit: Visit) -> Answer:
    number = visit.path["number"]
    await review.reject(visit.parts.database, number, visit.form.get("reason", ""), visit.author, lambda: visit.now)
    return Go("/console/refunds", f"{number} is rejected")


async def _page(visit: Visit, name: str, tabs: tuple[str, ...], load: Load[T], number: Callable[[T], int]) -> Page:
    """One tab of a queue, as `load` gives it. The first tab is what waits."""
    tab = asked.one_of(visit.query, "status", tabs) or tabs[0]
    status, before = None if tab == "ALL" else tab, asked.number(visit.query, "before")
    async with visit.parts.database.connection() as connection:
        found = await load(connection, status, before, PAGE + 1)
    following = number(found[PAGE - 1]) if len(found) > PAGE else None
    pager = asked.pager(visit, f"/console/{name}", following)
    return own.page(visit, name, rows=found[:PAGE], tab=tab, tabs=tabs, pager=pager)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/topups", LOOK, topups, "Top-ups"),
    Route("POST", "/console/topups/{number}/approve", MONEY, approve_topup),
    Route("POST", "/console/topups/{number}/reject", MONEY, reject_topup),
    Route("GET", "/console/refunds", LOOK, refunds, "Refunds"),
    Route("POST", "/console/refunds/{number}/approve", MONEY, approve_refund),
    Route("POST", "/console/refunds/{number}/reject", MONEY, reject_refund),
)
COUNTS = {"Top-ups": pending, "Refunds": in_review, "Suppliers": parked}
