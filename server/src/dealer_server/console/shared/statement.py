"""A wallet's statement, in pages and as a file: a dealer's own, or any dealer's for an operator."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, get_args

from dealer_server.console.shared import params
from dealer_server.console.shared.params import SHORT_PAGE, Pager
from dealer_server.console.shared.request_context import Download, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.store.console import dealer
from dealer_server.store.console.dealer import Span, Wallet
from dealer_server.store.wallets.ledger import Entry
from esim_dealer.wire.vocabulary import EntryType

ENTRY_TYPES: tuple[str, ...] = get_args(EntryType)
ROWS_PER_CHUNK = 1_000
FILTERS = ("type", "from", "to")
COLUMNS = ("entryNo", "createTime", "entryType", "amount", "balanceAfter", "currency", "orderNo", "topupNo")


class StatementPage(NamedTuple):
    """`export`: the address of the file with the same filters."""

    entries: Sequence[Entry]
    pages: Pager
    export: str


async def page_of(
    connection: Connection, context: RequestContext, wallet: Wallet, tenant_id: int, path: str, file: str
) -> StatementPage:
    """`path`: of the page, `file`: of the same as CSV."""
    span, entry_type = await _span(connection, context, wallet, tenant_id), _entry_type(context)
    seen = span.until(params.number(context.query, "before"))
    found = await dealer.entries(connection, tenant_id, seen, entry_type, SHORT_PAGE)
    total = span.end - span.first if entry_type is None else None  # versions have no gaps
    pages = params.pager(context, path, found.next, shown=len(found.rows), word="entry", total=total, size=SHORT_PAGE)
    return StatementPage(found.rows, pages, params.address(file, params.filters(context)))


async def export(context: RequestContext, tenant_id: int) -> Download:
    """All entries, some rows at a time; the audit log records who exported them."""
    await params.record_export(context, "statement.export", tenant_id, FILTERS)
    name = f"statement-{tenant_id}-{context.now:%Y%m%d-%H%M%S}.csv"
    return Download(name, "text/csv; charset=utf-8", _csv(context, tenant_id))


async def _csv(context: RequestContext, tenant_id: int) -> AsyncIterator[bytes]:
    yield params.csv_lines([COLUMNS])
    database, entry_type = context.parts.database, _entry_type(context)
    async with database.connection() as connection:
        wallet = await dealer.wallet(connection, tenant_id)
        span = await _span(connection, context, wallet, tenant_id)
    following: int | None = span.end
    while following is not None:
        async with database.connection() as connection:
            found = await dealer.entries(connection, tenant_id, span.until(following), entry_type, ROWS_PER_CHUNK)
        if found.rows:
            yield params.csv_lines([_cells(entry, wallet.currency) for entry in found.rows])
        following = found.next


def _entry_type(context: RequestContext) -> str | None:
    return params.one_of(context.query, "type", ENTRY_TYPES)


async def _span(connection: Connection, context: RequestContext, wallet: Wallet, tenant_id: int) -> Span:
    """The versions between the days of the filter."""
    start, end = params.day(context.query, "from"), params.day(context.query, "to", after=True)
    newest = wallet.version
    first = 1 if start is None else await dealer.version_at(connection, tenant_id, start, newest)
    last = newest + 1 if end is None else await dealer.version_at(connection, tenant_id, end, newest)
    return Span(first, last)


def _cells(entry: Entry, currency: str) -> tuple[str, ...]:
    return (
        *(str(entry.version), f"{entry.created_at:%Y-%m-%dT%H:%M:%SZ}", entry.entry_type),
        *(money.text(entry.amount, currency), money.text(entry.balance_after, currency), currency),
        "" if entry.order_id is None else identity.order_no(entry.order_id),
        "" if entry.topup_id is None else identity.topup_no(entry.topup_id),
    )
