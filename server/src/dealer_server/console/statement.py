"""The movements of a wallet, in pages and all of them as a file: a dealer's own, or any dealer's for an operator."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, get_args

from dealer_server.console import asked
from dealer_server.console.asked import Pager
from dealer_server.console.visit import Download, Visit
from dealer_server.rules import identity, money
from dealer_server.store import console_dealer
from dealer_server.store.console_dealer import Entry, Span, Wallet
from dealer_server.store.database import Connection
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


async def page(connection: Connection, visit: Visit, held: Wallet, tenant_id: int, path: str, file: str) -> Listed:
    """`path`: of the page, `file`: of the same as CSV."""
    span = await _span(connection, visit, held, tenant_id)
    entries, following = await console_dealer.entries(connection, tenant_id, span, _kind(visit), PAGE)
    filters = {name: value for name, value in visit.query.items() if name not in ("before", "trail")}
    return Listed(entries, asked.pager(visit, path, following), asked.address(file, filters))


async def export(visit: Visit, tenant_id: int) -> Download:
    """What the pages show, all of it, a few hundred rows at a time; who takes it is in the audit log."""
    await asked.exported(visit, "statement.export", tenant_id, FILTERS)
    name = f"statement-{tenant_id}-{visit.now:%Y%m%d-%H%M%S}.csv"
    return Download(name, "text/csv; charset=utf-8", _csv(visit, tenant_id))


async def _csv(visit: Visit, tenant_id: int) -> AsyncIterator[bytes]:
    yield asked.csv_lines([COLUMNS])
    database = visit.parts.database
    async with database.connection() as connection:
        held = await console_dealer.wallet(connection, tenant_id)
        span = await _span(connection, visit, held, tenant_id)
    following: int | None = span.end
    while following is not None:
        span = span._replace(end=following)
        async with database.connection() as connection:
            found, following = await console_dealer.entries(connection, tenant_id, span, _kind(visit), ROWS_PER_CHUNK)
        if found:
            yield asked.csv_lines([_cells(one, held.currency) for one in found])


def _kind(visit: Visit) -> str | None:
    return asked.one_of(visit.query, "type", ENTRY_TYPES)


async def _span(connection: Connection, visit: Visit, held: Wallet, tenant_id: int) -> Span:
    """The ledger entries of the days asked for, before the page's `before`."""
    start, end = asked.day(visit.query, "from"), asked.day(visit.query, "to", after=True)
    newest = held.version
    first = 1 if start is None else await console_dealer.version_at(connection, tenant_id, start, newest)
    last = newest + 1 if end is None else await console_dealer.version_at(connection, tenant_id, end, newest)
    before = asked.number(visit.query, "before")
    return Span(first, last if before is None else min(before, last))


def _cells(one: Entry, currency: str) -> tuple[str, ...]:
    return (
        *(str(one.version), f"{one.created_at:%Y-%m-%dT%H:%M:%SZ}", one.entry_type),
        *(money.text(one.amount, currency), money.text(one.balance_after, currency), currency),
        "" if one.order_id is None else identity.order_no(one.order_id),
        "" if one.topup_id is None else identity.topup_no(one.topup_id),
    )
