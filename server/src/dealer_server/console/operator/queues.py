"""What waits for an operator's decision: top-ups; and how many top-ups, refunds and purchases wait, for the menu."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.params import CREATED, NEWEST_FIRST, OLDEST_FIRST, PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_FINANCE, OPERATORS
from dealer_server.console.shared.request_context import Count, Html, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.topups import review as topup_review
from dealer_server.store.console import queues
from dealer_server.store.console.queues import Queue

T = TypeVar("T")


class Load(Protocol[T]):
    def __call__(
        self, connection: Connection, status: str | None, seen: int | None, limit: int, /, *, oldest_first: bool
    ) -> Awaitable[list[T]]: ...


TOPUPS = "/console/topups"
TOPUP_TABS = ("PENDING", "APPROVED", "REJECTED", "CANCELLED", "ALL")


def _counter(queue: Queue) -> Count:
    async def count(context: RequestContext) -> int:
        async with context.parts.database.connection() as connection:
            return await queues.count(connection, queue)

    return count


pending_topups, refunds_in_review, parked_purchases = _counter("topups"), _counter("refunds"), _counter("purchases")


@page(TOPUPS, OPERATORS, "operator/topups.html", MenuEntry("Top-ups", "cash", 62, pending_topups))
async def topups(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        waiting = await queues.pending_topups(connection)
    return await listed(context, TOPUPS, TOPUP_TABS, queues.topups, lambda row: row.topup_id, "top-up", waiting=waiting)


@action(f"{TOPUPS}/{{number}}/approve", OPERATOR_FINANCE)
async def approve_topup(context: RequestContext) -> Redirect:
    number = context.path["number"]
    await topup_review.approve_topup(context.parts.database, number, context.author, lambda: context.now)
    return Redirect(TOPUPS, f"{number} is approved and credited")


@action(f"{TOPUPS}/{{number}}/reject", OPERATOR_FINANCE)
async def reject_topup(context: RequestContext) -> Redirect:
    number, reason = context.path["number"], context.form.get("reason", "")
    await topup_review.reject_topup(context.parts.database, number, reason, context.author, lambda: context.now)
    return Redirect(TOPUPS, f"{number} is rejected")


async def listed(
    context: RequestContext,
    path: str,
    tabs: tuple[str, ...],
    load: Load[T],
    id_of: Callable[[T], int],
    word: str,
    **fields: Any,
) -> Html:
    """One tab of a queue of what `word` says, with these fields. The first tab is what waits, the oldest first."""
    tab = params.one_of(context.query, "status", tabs) or tabs[0]
    status, seen = None if tab == "ALL" else tab, params.number(context.query, "before")
    order = params.order(context, path, CREATED, OLDEST_FIRST if tab == tabs[0] else NEWEST_FIRST)
    async with context.parts.database.connection() as connection:
        rows = await load(connection, status, seen, PAGE_SIZE + 1, oldest_first=not order.descending)
    following = id_of(rows[PAGE_SIZE - 1]) if len(rows) > PAGE_SIZE else None
    pager = params.pager(context, path, following, shown=min(len(rows), PAGE_SIZE), word=word)
    return Html(rows=rows[:PAGE_SIZE], tab=tab, tabs=tabs, pager=pager, order=order, **fields)
