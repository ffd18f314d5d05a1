"""What the console shows of suppliers: health, open purchases, and stock."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

COUNTED = 10_000
STATE_WORDS = {
    "PLANNED": "waiting",
    "SENT": "asked",
    "PENDING": "in the making",
    "UNKNOWN": "asked again",
    "PARKED": "unconfirmed",
}
"""Of purchases without a final answer."""


class SupplierRow(NamedTuple):
    """`up` and what follows: its health when a worker last asked; None where none has asked yet."""

    code: str
    kind: str
    status: str
    updated_at: datetime
    paused_reason: str | None
    packages: int
    up: bool | None
    since: datetime | None
    asked_at: datetime | None
    detail: str | None
    balance: int | None
    currency: str | None

    @property
    def health(self) -> str:
        """A word for it."""
        return "NOT ASKED" if self.up is None else "UP" if self.up else "DOWN"


class OpenPurchases(NamedTuple):
    """Unfinished purchases of a supplier in one state; `oldest_at`: when the first of them was planned."""

    supplier: str
    state: str
    total: int
    oldest_at: datetime


class CostSpan(NamedTuple):
    """From what to what a supplier's units cost, in ten-thousandths of one currency."""

    supplier: str
    currency: str
    lowest: int
    highest: int


class StockRow(NamedTuple):
    """A package that is sold from stock; `free`: how many can still be sold."""

    package_code: str
    name: str
    free: int
    status: str


async def list_suppliers(connection: Connection) -> list[SupplierRow]:
    rows = await connection.fetch(
        "SELECT s.code, s.kind, s.status, s.updated_at, s.paused_reason,"
        " (SELECT count(*)::int FROM route r WHERE r.supplier = s.code) AS packages,"
        " h.up, h.since, h.asked_at, h.detail, h.balance, h.currency"
        " FROM supplier s LEFT JOIN supplier_health h USING (code) ORDER BY s.code"
    )
    return [SupplierRow(**row) for row in rows]


async def cost_spans(connection: Connection) -> list[CostSpan]:
    rows = await connection.fetch(
        "SELECT supplier, cost_currency AS currency, min(cost) AS lowest, max(cost) AS highest FROM route"
        " WHERE cost IS NOT NULL GROUP BY supplier, cost_currency ORDER BY supplier, cost_currency"
    )
    return [CostSpan(**row) for row in rows]


async def packages_of_builtin(connection: Connection, code: str) -> int:
    """How many packages a built-in supplier makes: by their route, or by themselves where they have none."""
    packages = await connection.fetchval(
        "SELECT count(*)::int FROM package p LEFT JOIN LATERAL ("
        "  SELECT bool_or(r.supplier = $1) AS named FROM route r WHERE r.package_code = p.package_code"
        ") r ON true WHERE coalesce(r.named, p.document ->> 'supplier' = $1)",
        code,
    )
    return packages or 0


async def open_purchases(connection: Connection, code: str | None = None) -> list[OpenPurchases]:
    """By the indexes of what is due and what is parked, and no further than COUNTED of each."""
    rows = await connection.fetch(
        "SELECT supplier, state, count(*)::int AS total, min(created_at) AS oldest_at FROM ("
        f" (SELECT supplier, state, created_at FROM purchase WHERE due_at IS NOT NULL LIMIT {COUNTED})"
        f" UNION ALL (SELECT supplier, state, created_at FROM purchase WHERE state = 'PARKED' LIMIT {COUNTED})"
        ") p WHERE $1::text IS NULL OR supplier = $1 GROUP BY supplier, state ORDER BY supplier, state",
        code,
    )
    return [OpenPurchases(**row) for row in rows]


async def stock(connection: Connection) -> list[StockRow]:
    """The lowest stock first."""
    rows = await connection.fetch(
        "SELECT p.package_code, p.document ->> 'package_name' AS name, coalesce(f.free, 0) AS free,"
        " p.document ->> 'status' AS status FROM package p LEFT JOIN"
        "  (SELECT package_code, count(*) AS free FROM stock_profile WHERE taken_by IS NULL GROUP BY package_code) f"
        "  USING (package_code)"
        " WHERE p.document ->> 'supplier' = 'stock' OR f.free > 0 ORDER BY 3, 1 LIMIT 500"
    )
    return [StockRow(**row) for row in rows]
