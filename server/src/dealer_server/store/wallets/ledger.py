"""The entries of a wallet's ledger, in pages, newest first."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_value, as_values
from dealer_server.store.orders.listing import Window
from esim_dealer.wire.vocabulary import EntryType


class Entry(NamedTuple):
    """One ledger entry. `order_id` is set for a debit or a refund, `topup_id` for a top-up."""

    version: int
    entry_type: EntryType
    amount: int
    balance_after: int
    order_id: int | None
    topup_id: int | None
    created_at: datetime


class Filter(NamedTuple):
    entry_type: EntryType | None
    start: datetime | None
    end: datetime | None

    @property
    def empty(self) -> bool:
        return all(value is None for value in self)


_ENTRIES = (
    " FROM ledger_entry e WHERE tenant_id = $1 AND ($2::text IS NULL OR entry_type = $2)"
    " AND ($3::timestamptz IS NULL OR created_at >= $3) AND ($4::timestamptz IS NULL OR created_at < $4)"
)


async def page(connection: Connection, tenant_id: int, entry_filter: Filter, window: Window) -> list[Entry]:
    """A page of entries; `window.after` is the version of the last entry of the page before."""
    rows = await connection.fetch(
        "SELECT version, entry_type, amount, balance_after, CASE entry_type WHEN 'ORDER_PAY' THEN reference"
        " WHEN 'REFUND' THEN (SELECT order_id FROM refund r WHERE r.tenant_id = e.tenant_id"
        "  AND r.refund_id = e.reference) END AS order_id,"
        f" CASE entry_type WHEN 'TOPUP' THEN reference END AS topup_id, created_at{_ENTRIES}"
        " AND ($5::bigint IS NULL OR version < $5) ORDER BY version DESC LIMIT $6 OFFSET $7",
        *_arguments(tenant_id, entry_filter),
        window.after,
        window.limit,
        window.offset,
    )
    return as_values(Entry, rows)


async def without_orders(connection: Connection, tenant_id: int, limit: int) -> list[Entry]:
    """The newest entries that are no debits of orders, `limit` of each kind, the newest first. They are the newest
    references of each kind: nothing looks back through all entries."""
    rows = await connection.fetch(
        "SELECT version, entry_type, amount, balance_after, CASE entry_type WHEN 'REFUND' THEN (SELECT order_id"
        "  FROM refund r WHERE r.tenant_id = $1 AND r.refund_id = e.reference) END AS order_id,"
        " CASE entry_type WHEN 'TOPUP' THEN reference END AS topup_id, created_at"
        " FROM unnest($2::text[]) AS kind CROSS JOIN LATERAL (SELECT * FROM ledger_entry"
        "  WHERE tenant_id = $1 AND entry_type = kind ORDER BY reference DESC LIMIT $3) e"
        " ORDER BY version DESC",
        tenant_id,
        ["REFUND", "TOPUP", "ADJUST"],
        limit,
    )
    return as_values(Entry, rows)


async def of_topup(connection: Connection, tenant_id: int, topup_id: int) -> Entry | None:
    """The credit of a top-up, None before it is approved."""
    row = await connection.fetchrow(
        "SELECT version, entry_type, amount, balance_after, NULL::bigint AS order_id, reference AS topup_id, created_at"
        " FROM ledger_entry WHERE tenant_id = $1 AND entry_type = 'TOPUP' AND reference = $2",
        tenant_id,
        topup_id,
    )
    return as_value(Entry, row) if row else None


async def count(connection: Connection, tenant_id: int, entry_filter: Filter) -> int:
    """The number of entries; without a filter it is the wallet's version."""
    if entry_filter.empty:
        return await connection.fetchval("SELECT version FROM wallet WHERE tenant_id = $1", tenant_id) or 0
    return await connection.fetchval(f"SELECT count(*){_ENTRIES}", *_arguments(tenant_id, entry_filter)) or 0


def _arguments(tenant_id: int, entry_filter: Filter) -> tuple[object, ...]:
    return tenant_id, entry_filter.entry_type, entry_filter.start, entry_filter.end


async def balance_after_topup(connection: Connection, tenant_id: int) -> int:
    """After the last top-up; 0 where there was none. A dealer has few, found by their kind: the + 0 keeps the planner
    from walking back through all entries."""
    return (
        await connection.fetchval(
            "SELECT balance_after FROM ledger_entry WHERE tenant_id = $1 AND version = (SELECT max(version + 0)"
            " FROM ledger_entry e WHERE e.tenant_id = $1 AND e.entry_type = 'TOPUP' AND e.reference > 0)",
            tenant_id,
        )
        or 0
    )
