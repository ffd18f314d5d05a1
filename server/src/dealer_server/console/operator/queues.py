"""What waits for an operator's decision: top-ups; and how many top-ups, refunds and purchases wait, for the menu."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from dealer_server.console.find import files
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.params import CREATED, NEWEST_FIRST, OLDEST_FIRST, PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_FINANCE, OPERATORS
from dealer_server.console.shared.request_context import Count, Download, Html, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.topups import review as topup_review
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.store.console import queues
from dealer_server.store.console.pages import ListPage
from dealer_server.store.console.queues import Queue, TopupRow

T = TypeVar("T")


class Load(Protocol[T]):
    def __call__(
        self, connection: Connection, status: str | None, seen: int | None, limit: int, /, *, oldest_first: bool
    ) -> Awaitable[list[T]]: ...


More = Callable[[Connection, Sequence[T]], Awaitable[dict[str, Any]]]
TOPUPS = "/console/topups"
TOPUP_TABS = ("PENDING", "APPROVED", "REJECTED", "CANCELLED", "ALL")
COLUMNS: Mapping[str, Callable[[TopupRow], str]] = {
    "topupNo": lambda row: identity.topup_no(row.topup_id),
    "createTime": lambda row: f"{row.created_at:%Y-%m-%dT%H:%M:%SZ}",
    "tenantId": lambda row: str(row.tenant_id),
    "dealer": lambda row: row.dealer,
    "transactionId": lambda row: row.transaction_id,
    "currency": lambda row: row.currency,
    "amount": lambda row: money.text(row.amount, row.currency),
    "payMethod": lambda row: row.pay_method or "",
    "payReference": lambda row: row.pay_reference or "",
    "status": lambda row: row.status,
    "reviewer": lambda row: row.reviewer or "",
    "reviewTime": lambda row: f"{row.reviewed_at:%Y-%m-%dT%H:%M:%SZ}" if row.reviewed_at else "",
    "rejectReason": lambda row: row.reject_reason or "",
    "remark": lambda row: row.remark or "",
}
"""What a file has in each column, by its name."""


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
        found = await queues.by_status(connection, "topup")
    counts = tab_counts(TOPUP_TABS, found | {"PENDING": sum(count for _, count, _ in waiting)})
    return await listed(
        context,
        TOPUPS,
        TOPUP_TABS,
        queues.topups,
        lambda row: row.topup_id,
        "top-up",
        waiting=waiting,
        counts=counts,
    )


@download(f"{TOPUPS}.csv", OPERATORS, listing=True)
async def export_topups(context: RequestContext) -> Download:
    await params.record_export(context, "topups.export", None, ("status",))
    return exported(context, "topups", TOPUP_TABS, queues.topups, lambda row: row.topup_id, COLUMNS)


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


def tab_counts(tabs: Sequence[str], found: Mapping[str, int]) -> dict[str, str]:
    """As tabs show them; those of a large table that are not known are left out."""
    most = found.get("ALL", 0) >= queues.MANY
    return {
        tab: f"{count:,}{'+' if count >= queues.MANY else ''}"
        for tab in tabs
        if (count := found.get(tab, None if most else 0)) is not None
    }


async def listed(
    context: RequestContext,
    path: str,
    tabs: tuple[str, ...],
    load: Load[T],
    id_of: Callable[[T], int],
    word: str,
    more: More[T] | None = None,
    **fields: Any,
) -> Html:
    """One tab of a queue of what `word` says, with these fields and what `more` reads of its rows. The first tab is
    what waits, the oldest first."""
    tab = params.one_of(context.query, "status", tabs) or tabs[0]
    status, seen = None if tab == "ALL" else tab, params.number(context.query, "before")
    order = params.order(context, path, CREATED, OLDEST_FIRST if tab == tabs[0] else NEWEST_FIRST)
    async with context.parts.database.connection() as connection:
        rows = await load(connection, status, seen, PAGE_SIZE + 1, oldest_first=not order.descending)
        fields |= await more(connection, rows[:PAGE_SIZE]) if more else {}
    following = id_of(rows[PAGE_SIZE - 1]) if len(rows) > PAGE_SIZE else None
    pager = params.pager(context, path, following, shown=min(len(rows), PAGE_SIZE), word=word)
    export = params.address(f"{path}.csv", {"status": tab})
    return Html(rows=rows[:PAGE_SIZE], tab=tab, tabs=tabs, pager=pager, order=order, export=export, **fields)


def exported(
    context: RequestContext,
    name: str,
    tabs: tuple[str, ...],
    load: Load[T],
    id_of: Callable[[T], int],
    columns: Mapping[str, Callable[[T], str]],
) -> Download:
    """All of one tab of a queue, the newest first."""
    tab = params.one_of(context.query, "status", tabs) or tabs[0]

    async def read(connection: Connection, seen: int | None, size: int) -> ListPage[T]:
        rows = await load(connection, None if tab == "ALL" else tab, seen, size + 1, oldest_first=False)
        return ListPage(rows[:size], id_of(rows[size - 1]) if len(rows) > size else None)

    return files.download(context, name, columns, read)
