"""The movements of a wallet, in pages and all of them as a file: a dealer's own, or any dealer's for an operator."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, get_args

from dealer_server.console.shared import params
from dealer_server.console.shared.params import Pager
from dealer_server.console.shared.request_context import Download, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.store.console import dealer
from dealer_server.store.console.dealer import Entry, Span, Wallet
from esim_dealer.wire.vocabulary import EntryType

ENTRY_TYPES: tuple[str, ...] = get_args(EntryType)
PAGE = 50
ROWS_PER_CHUNK = 1_000
FILTERS = ("type", "from", "to")
COLUMNS = ("entryNo", "createTime", "entryType", "amount", "balanceAfter", "currency", "orderNo", "topupNo")


class Listed(NamedTuple):
    """A page of what the address asks for. `export`: the file's address."""

    entries: Sequence[Entry]
    pages: Pager
    export: str


async def page(
    connection: Connection, context: RequestContext, held: Wallet, tenant_id: int, path: str, file: str
) -> Listed:
    """`path`: of the page, `file`: of the same as CSV."""
    span = await _span(connection, context, held, tenant_id)
    entries, following = await dealer.entries(connection, tenant_id, span, _kind(context), PAGE)
    filters = {name: value for name, value in context.query.items() if name not in ("before", "trail")}
    return Listed(entries, params.pager(context, path, following), params.address(file, filters))


async def export(context: RequestContext, tenant_id: int) -> Download:
    """What the pages show, all of it, a few hundred rows at a time; who takes it is in the audit log."""
    await params.exported(context, "statement.export", tenant_id, FILTERS)
    name = f"statement-{tenant_id}-{context.now:%Y%m%d-%H%M%S}.csv"
    return Download(name, "text/csv; charset=utf-8", _csv(context, tenant_id))


async def _csv(context: RequestContext, tenant_id: int) -> AsyncIterator[bytes]:
    yield params.csv_lines([COLUMNS])
    database = context.parts.database
    async with database.connection() as connection:
        held = await dealer.wallet(connection, tenant_id)
        span = await _span(connection, context, held, tenant_id)
    following: int | None = span.end
    while following is not None:
        span = span._replace(end=following)
        async with database.connection() as connection:
            found, following = await dealer.entries(connection, tenant_id, span, _kind(context), ROWS_PER_CHUNK)
        if found:
            yield params.csv_lines([_cells(one, held.currency) for one in found])


def _kind(context: RequestContext) -> str | None:
    return params.one_of(context.query, "type", ENTRY_TYPES)


async def _span(connection: Connection, context: RequestContext, held: Wallet, tenant_id: int) -> Span:
    """The ledger entries of the days asked for, before the page's `before`."""
    start, end = params.day(context.query, "from"), params.day(context.query, "to", after=True)
    newest = held.version
    first = 1 if start is None else await dealer.version_at(connection, tenant_id, start, newest)
    last = newest + 1 if end is None else await dealer.version_at(connection, tenant_id, end, newest)
    before = params.number(context.query, "before")
    return Span(first, last if before is None else min(before, last))


def _cells(one: Entry, currency: str) -> tuple[str, ...]:
    return (
        *(str(one.version), f"{one.created_at:%Y-%m-%dT%H:%M:%SZ}", one.entry_type),
        *(money.text(one.amount, currency), money.text(one.balance_after, currency), currency),
        "" if one.order_id is None else identity.order_no(one.order_id),
        "" if one.topup_id is None else identity.topup_no(one.topup_id),
    )
