"""What does a dealer need in order to buy?"""

from datetime import date, datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.incidents.dealer import FAILED_COUNTED, FEW_DAYS
from dealer_server.rules.incidents.overview import Balance
from dealer_server.rules.reports import recent
from dealer_server.store.reports import report

ORDERS = 50
"""Of how many of the latest orders the cheapest is taken."""

DEALERS = 100_000
"""Those that bought most of late are looked at."""


class Means(NamedTuple):
    """`cheapest`: what the cheapest of the latest orders came to, in ten-thousandths; None without an order.
    `credentials`: AppKeys that open calls."""

    cheapest: int | None
    credentials: int


class AnsweredRefund(NamedTuple):
    order_id: int
    amount: int
    rejected: bool
    settled_at: datetime


async def answered_refunds(connection: Connection, tenant_id: int, since: datetime, limit: int) -> list[AnsweredRefund]:
    """Of the dealer's latest refunds: those of which the supplier or an operator was asked, and that were answered
    since then."""
    rows = await connection.fetch(
        "SELECT order_id, CASE WHEN status = 'REJECTED' THEN amount ELSE credited END AS amount,"
        " status = 'REJECTED' AS rejected, settled_at"
        " FROM (SELECT * FROM refund WHERE tenant_id = $1 ORDER BY refund_id DESC LIMIT $3) r"
        " WHERE settled_at >= $2 AND EXISTS (SELECT FROM refund_line l WHERE l.tenant_id = $1"
        "  AND l.refund_id = r.refund_id AND l.way <> 'AT_ONCE') ORDER BY settled_at DESC",
        tenant_id,
        since,
        limit,
    )
    return [AnsweredRefund(**row) for row in rows]


async def failed_orders(connection: Connection, tenant_id: int) -> int:
    """Orders of which nothing could be made and that are not refunded, among the oldest that are not over;
    FAILED_COUNTED at most."""
    count: int | None = await connection.fetchval(
        "SELECT count(*) FROM (SELECT delivery_status FROM orders WHERE tenant_id = $1 AND order_status = 'FULFILLING'"
        " ORDER BY order_id LIMIT 1000) o WHERE delivery_status = 'FAILED'",
        tenant_id,
    )
    return min(count or 0, FAILED_COUNTED)


async def returned_orders(connection: Connection, tenant_id: int, first: int) -> list[int]:
    """Orders of these ids and later that failed and are refunded, among the oldest of those that are refunded;
    FAILED_COUNTED at most."""
    rows = await connection.fetch(
        "SELECT order_id FROM (SELECT order_id, delivery_status FROM orders WHERE tenant_id = $1"
        " AND order_status = 'REFUNDED' AND order_id >= $2 ORDER BY order_id LIMIT 1000) o"
        " WHERE delivery_status = 'FAILED' ORDER BY order_id LIMIT $3",
        tenant_id,
        first,
        FAILED_COUNTED,
    )
    return [row["order_id"] for row in rows]


async def short_balances(connection: Connection, today: date) -> list[Balance]:
    """Of dealers that may buy, those whose balance lasts for no more than FEW_DAYS, the shortest first."""
    rows = await report.grouped(connection, report.Filter(recent.pace(today)), ["dealer"], DEALERS)
    spent = {(row.keys["dealer"], row.currency): row.sums.net for row in rows}
    wallets = await connection.fetch(
        "SELECT tenant_id, t.name, w.currency, w.balance + w.credit_limit AS available"
        " FROM tenant t JOIN wallet w USING (tenant_id)"
        " WHERE t.tenant_id = ANY($1::bigint[]) AND t.status = 'ACTIVE' AND NOT w.frozen",
        list({dealer for dealer, _ in spent}),
    )
    found = list[Balance]()
    for row in wallets:
        days = recent.lasts(row["available"], spent.get((row["tenant_id"], row["currency"]), 0))
        if days is not None and days <= FEW_DAYS:
            found.append(Balance(**row, days=days))
    return sorted(found, key=lambda one: (one.days, one.tenant_id))


async def means(connection: Connection, tenant_id: int) -> Means:
    row = await connection.fetchrow(
        "SELECT (SELECT min(amount) FROM (SELECT amount FROM orders WHERE tenant_id = $1 ORDER BY order_id DESC"
        "  LIMIT $2) latest WHERE amount > 0)::bigint AS cheapest,"
        " (SELECT count(*)::int FROM credential WHERE tenant_id = $1 AND status = 'ACTIVE') AS credentials",
        tenant_id,
        ORDERS,
    )
    assert row is not None
    return Means(**row)
