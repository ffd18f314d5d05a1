"""What moved in a wallet between two days, and what was bought in them?"""

from datetime import date
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.reports.period import Period
from dealer_server.rules.reports.statement import DayEntries
from dealer_server.store.wallets.ledger import Entry


class PackageSums(NamedTuple):
    """sold, refunded: eSIMs and recharges; amounts in ten-thousandths."""

    package_code: str
    name: str | None
    sold: int
    revenue: int
    refunded: int
    refunds: int


async def opening(connection: Connection, tenant_id: int, first: date) -> int:
    """The sum of all entries of earlier days."""
    amount: int | None = await connection.fetchval(
        "SELECT coalesce(sum(amount), 0)::bigint FROM wallet_day WHERE tenant_id = $1 AND day < $2", tenant_id, first
    )
    return amount or 0


async def first_day(connection: Connection, tenant_id: int) -> date | None:
    """The day of the first entry; None where there is none yet."""
    return await connection.fetchval("SELECT min(day) FROM wallet_day WHERE tenant_id = $1", tenant_id)


async def days(connection: Connection, tenant_id: int, period: Period) -> list[DayEntries]:
    rows = await connection.fetch(
        "SELECT day, kind, entries, amount FROM wallet_day WHERE tenant_id = $1 AND day BETWEEN $2 AND $3"
        " ORDER BY day, kind",
        tenant_id,
        *period,
    )
    return [DayEntries(**row) for row in rows]


async def packages(connection: Connection, tenant_id: int, currency: str, period: Period) -> list[PackageSums]:
    """What was sold or refunded, the most revenue first."""
    rows = await connection.fetch(
        "SELECT s.*, document ->> 'package_name' AS name FROM ("
        " SELECT package_code, sum(sold)::bigint AS sold, sum(revenue)::bigint AS revenue,"
        "  sum(refunded)::bigint AS refunded, sum(refunds)::bigint AS refunds FROM report_day"
        " WHERE tenant_id = $1 AND currency = $2 AND day BETWEEN $3 AND $4 GROUP BY package_code"
        ") s LEFT JOIN package USING (package_code) WHERE (sold, revenue, refunded, refunds) <> (0, 0, 0, 0)"
        " ORDER BY revenue DESC, package_code",
        tenant_id,
        currency,
        *period,
    )
    return [PackageSums(**row) for row in rows]


# Versions follow time, but for entries that waited for each other at midnight: $2 and $3 leave room for those.
_ENTRIES = """
SELECT version, entry_type, amount, balance_after, CASE entry_type WHEN 'ORDER_PAY' THEN reference
    WHEN 'REFUND' THEN (SELECT order_id FROM refund r WHERE r.tenant_id = $1 AND r.refund_id = e.reference)
    END AS order_id, CASE entry_type WHEN 'TOPUP' THEN reference END AS topup_id, created_at
FROM (SELECT * FROM ledger_entry WHERE tenant_id = $1 AND version >= $2 AND version < $3 OFFSET 0) e
WHERE (created_at AT TIME ZONE 'UTC')::date BETWEEN $4 AND $5 ORDER BY version
"""


async def entries(connection: Connection, tenant_id: int, first: int, end: int, period: Period) -> list[Entry]:
    """Those of the period among these versions, the oldest first."""
    return [Entry(**row) for row in await connection.fetch(_ENTRIES, tenant_id, first, end, *period)]
