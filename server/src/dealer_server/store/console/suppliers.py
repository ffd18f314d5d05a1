"""How suppliers fare: purchases that are open or parked, calls of late, what is left in stock."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

COUNTED = 10_000


class Listed(NamedTuple):
    """`up` and what follows: how it was when a worker asked it last; None where none has asked yet."""

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


class Open(NamedTuple):
    """Purchases of a supplier in one state that are not over; `oldest_at`: when the first of them was planned."""

    supplier: str
    state: str
    total: int
    oldest_at: datetime


class Stock(NamedTuple):
    """A package that is sold from stock: how many can still be sold, and how many were loaded in all."""

    package_code: str
    name: str
    free: int
    status: str


async def listed(connection: Connection) -> list[Listed]:
    rows = await connection.fetch(
        "SELECT s.code, s.kind, s.status, s.updated_at, s.paused_reason,"
        " (SELECT count(*)::int FROM route r WHERE r.supplier = s.code),"
        " h.up, h.since, h.asked_at, h.detail, h.balance, h.currency"
        " FROM supplier s LEFT JOIN supplier_health h USING (code) ORDER BY s.code"
    )
    return [Listed(*row) for row in rows]


async def unfinished(connection: Connection, code: str | None = None) -> list[Open]:
    """By the indexes of what is due and what is parked, and no further than COUNTED of each."""
    rows = await connection.fetch(
        "SELECT supplier, state, count(*)::int, min(created_at) FROM ("
        f" (SELECT supplier, state, created_at FROM purchase WHERE due_at IS NOT NULL LIMIT {COUNTED})"
        f" UNION ALL (SELECT supplier, state, created_at FROM purchase WHERE state = 'PARKED' LIMIT {COUNTED})"
        ") p WHERE $1::text IS NULL OR supplier = $1 GROUP BY supplier, state ORDER BY supplier, state",
        code,
    )
    return [Open(*row) for row in rows]


async def stock(connection: Connection) -> list[Stock]:
    """The shortest first."""
    rows = await connection.fetch(
        "SELECT p.package_code, p.document ->> 'package_name', free.count, p.document ->> 'status'"
        " FROM package p CROSS JOIN LATERAL (SELECT count(*) FROM stock_profile s"
        "  WHERE s.package_code = p.package_code AND taken_by IS NULL) free"
        " WHERE p.document ->> 'supplier' = 'stock' OR free.count > 0 ORDER BY 3, 1 LIMIT 500"
    )
    return [Stock(*row) for row in rows]
