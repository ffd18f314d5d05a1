"""What waits for an operator's decision: top-ups; and how many top-ups, refunds and purchases wait, for the menu."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from dealer_server.console.find import choice, dates, files
from dealer_server.console.find.choice import Choice
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.params import CREATED, NEWEST_FIRST, OLDEST_FIRST, PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_FINANCE, OPERATORS
from dealer_server.console.shared.request_context import Count, Download, Html, NotFound, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.topups import review as topup_review
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.store.console import queues
from dealer_server.store.console.pages import ALL_IDS, ListPage
from dealer_server.store.console.queues import Queue, TopupRow
from dealer_server.store.wallets import ledger

T = TypeVar("T")


class Load(Protocol[T]):
    def __call__(
        self,
        connection: Connection,
        status: str | None,
        seen: int | None,
        limit: int,
        tenant_id: int | None,
        between: tuple[int, int],
        /,
        *,
        oldest_first: bool,
    ) -> Awaitable[list[T]]: ...


class Wanted(NamedTuple):
    """What a queue is filtered by besides its tab: a dealer, and ids, which hold their time. `begins`: no tab and no
    later page is asked for."""

    dealer: Choice
    between: tuple[int, int]
    begins: bool

    @property
    def all(self) -> bool:
        return self.dealer.tenant_id is None and self.between == ALL_IDS

    @property
    def first(self) -> bool:
        """Whether it is the first page of all that waits."""
        return self.all and self.begins


async def wanted(context: RequestContext) -> Wanted:
    query = context.query
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, query.get("dealer"))
    between = identity.ids_between(params.day(query, "from"), params.day(query, "to", after=True))
    return Wanted(dealer, between, not query.keys() & {"status", "before"})


More = Callable[[Connection, Sequence[T]], Awaitable[dict[str, Any]]]
FILTERS = ("status", "dealer", "from", "to")
LATELY = 5
"""What was decided last, below what waits."""
TOPUPS, TOPUP = "/console/topups", "/console/topups/{number}"
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
    asked = await wanted(context)
    async with context.parts.database.connection() as connection:
        waiting = await queues.pending_topups(connection)
        found = await queues.by_status(connection, "topup", asked.dealer.tenant_id)
        lately = await _decided_lately(connection) if asked.first else ()
    if asked.dealer.tenant_id is None:
        found |= {"PENDING": sum(count for _, count, _ in waiting)}
    return await listed(
        context,
        asked,
        TOPUPS,
        TOPUP_TABS,
        queues.topups,
        lambda row: row.topup_id,
        "top-up",
        found,
        _usual,
        waiting=waiting if asked.all else (),
        lately=lately,
    )


async def _decided_lately(connection: Connection) -> list[TopupRow]:
    """Of the newest, those that operators decided last, below what waits; dealers cancel their own."""
    newest = await queues.topups(connection, None, None, PAGE_SIZE, oldest_first=False)
    decided = [(row.reviewed_at, row) for row in newest if row.reviewed_at and row.status in ("APPROVED", "REJECTED")]
    return [row for _, row in sorted(decided, key=lambda one: one[0], reverse=True)][:LATELY]


async def _usual(connection: Connection, rows: Sequence[TopupRow]) -> dict[str, Any]:
    """What the dealers of those that wait usually pay."""
    waiting = [row.tenant_id for row in rows if row.status == "PENDING"]
    return {"usual": await queues.usual_topups(connection, waiting)}


@page(TOPUP, OPERATORS, "operator/topup.html")
async def topup(context: RequestContext) -> Html:
    """One of them, with its entry of the wallet."""
    topup_id = identity.topup_id(context.path["number"])
    if topup_id is None:
        raise NotFound
    async with context.parts.database.connection() as connection:
        this = (topup_id, topup_id + 1)
        rows = await queues.topups(connection, None, None, 1, None, this, oldest_first=False)
        if not rows:
            raise NotFound
        [row] = rows
        entry = await ledger.of_topup(connection, row.tenant_id, topup_id)
        fields = await _usual(connection, rows)
    return Html(topup=row, entry=entry, **fields)


@download(f"{TOPUPS}.csv", OPERATORS, listing=True)
async def export_topups(context: RequestContext) -> Download:
    asked = await wanted(context)
    await params.record_export(context, "topups.export", asked.dealer.tenant_id, FILTERS)
    return exported(context, asked, "topups", TOPUP_TABS, queues.topups, lambda row: row.topup_id, COLUMNS)


@action(f"{TOPUP}/approve", OPERATOR_FINANCE)
async def approve_topup(context: RequestContext) -> Redirect:
    number = context.path["number"]
    await topup_review.approve_topup(context.parts.database, number, context.author, lambda: context.now)
    return Redirect(TOPUPS, f"{number} is approved and credited")


@action(f"{TOPUP}/reject", OPERATOR_FINANCE)
async def reject_topup(context: RequestContext) -> Redirect:
    number, reason = context.path["number"], context.form.get("reason", "")
    await topup_review.reject_topup(context.parts.database, number, reason, context.author, lambda: context.now)
    return Redirect(TOPUPS, f"{number} is rejected")


def tab_counts(tabs: Sequence[str], found: Mapping[str, int], asked: Wanted) -> dict[str, str]:
    """As tabs show them; those of a large table that are not known, and of some days, are left out."""
    if asked.between != ALL_IDS:
        return {}
    most = found.get("ALL", 0) >= queues.MANY
    return {
        tab: f"{count:,}{'+' if count >= queues.MANY else ''}"
        for tab in tabs
        if (count := found.get(tab, None if most else 0)) is not None
    }


async def listed(
    context: RequestContext,
    asked: Wanted,
    path: str,
    tabs: tuple[str, ...],
    load: Load[T],
    id_of: Callable[[T], int],
    word: str,
    found: Mapping[str, int],
    more: More[T] | None = None,
    **fields: Any,
) -> Html:
    """One tab of a queue of what `word` says, with these fields and what `more` reads of its rows. `found`: how many
    there are, as far as that is known. The first tab is what waits, the oldest first."""
    tab = params.one_of(context.query, "status", tabs) or tabs[0]
    status, seen = None if tab == "ALL" else tab, params.number(context.query, "before")
    order = params.order(context, path, CREATED, OLDEST_FIRST if tab == tabs[0] else NEWEST_FIRST)
    which = asked.dealer.tenant_id, asked.between
    async with context.parts.database.connection() as connection:
        rows = await load(connection, status, seen, PAGE_SIZE + 1, *which, oldest_first=not order.descending)
        fields |= await more(connection, rows[:PAGE_SIZE]) if more else {}
        table = "topup" if path == TOPUPS else "refund"
        summed = rows and tab not in (tabs[0], "ALL", "REFUNDING")
        totals = await queues.sums(connection, table, tab, *which) if summed else []
    following = id_of(rows[PAGE_SIZE - 1]) if len(rows) > PAGE_SIZE else None
    counts, shown = tab_counts(tabs, found, asked), min(len(rows), PAGE_SIZE)
    total = found.get(tab) if tab in counts else None
    pager = params.pager(context, path, following, shown=shown, word=word, total=total, most=queues.MANY)
    kept = {name: context.query.get(name, "") for name in FILTERS}
    return Html(
        rows=rows[:PAGE_SIZE],
        tab=tab,
        tabs=[(word, params.address(path, kept | {"status": word})) for word in tabs],
        pager=pager,
        order=order,
        export=params.address(f"{path}.csv", kept | {"status": tab}),
        dealer=asked.dealer,
        dates=dates.of(context, path),
        faults=params.faults(context.query),
        filtered=not asked.all,
        counts=counts,
        totals=totals,
        overdue_before=context.now - timedelta(hours=hours) if (hours := context.parts.settings.queue_hours) else None,
        **fields,
    )


def exported(
    context: RequestContext,
    asked: Wanted,
    name: str,
    tabs: tuple[str, ...],
    load: Load[T],
    id_of: Callable[[T], int],
    columns: Mapping[str, Callable[[T], str]],
) -> Download:
    """All of one tab of a queue, the newest first."""
    tab = params.one_of(context.query, "status", tabs) or tabs[0]

    async def read(connection: Connection, seen: int | None, size: int) -> ListPage[T]:
        status, which = None if tab == "ALL" else tab, (asked.dealer.tenant_id, asked.between)
        rows = await load(connection, status, seen, size + 1, *which, oldest_first=False)
        return ListPage(rows[:size], id_of(rows[size - 1]) if len(rows) > size else None)

    return files.download(context, name, columns, read)
