"""What the console shows a dealer of its own: each statement names the tenant and looks at a bounded number of rows.

Where few rows match a filter, a page is short and the next one goes on further back: a page never costs more than
looking at `LOOKED` rows by the primary key, however much the dealer has bought.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.orders import identity
from dealer_server.store.console.pages import LOOKED
from dealer_server.store.profiles.iccid import RANK
from dealer_server.store.wallets.topup import Topup
from dealer_server.store.webhooks.log import Delivery


class OrderLine(NamedTuple):
    """An order in a list; amounts in ten-thousandths."""

    order_id: int
    transaction_id: str
    currency: str
    amount: int
    refund_amount: int
    pay_status: str
    delivery_status: str
    order_status: str


class ProfileLine(NamedTuple):
    """A profile in a list."""

    profile_id: int
    order_id: int
    package_code: str
    iccid: str | None
    lifecycle_status: str
    plan_use_status: str
    failed: bool
    refunded: bool
    data_total_bytes: int | None
    data_usage_bytes: int


class Entry(NamedTuple):
    """One movement of money. `order_id` of a debit or a refund, `topup_id` of a top-up."""

    version: int
    entry_type: str
    amount: int
    balance_after: int
    order_id: int | None
    topup_id: int | None
    created_at: datetime


class Wallet(NamedTuple):
    """What a dealer has, owes and has bought; amounts in ten-thousandths."""

    name: str
    currency: str
    balance: int
    credit_limit: int
    low_balance_threshold: int
    frozen: bool
    order_count: int
    profile_count: int
    version: int
    updated_at: datetime

    @property
    def available(self) -> int:
        return self.balance + self.credit_limit


class RefundLine(NamedTuple):
    refund_id: int
    status: str
    amount: int
    credited: int
    profiles: int
    remark: str | None
    created_at: datetime
    settled_at: datetime | None


class Span(NamedTuple):
    """Ids from `first` on and before `end`."""

    first: int
    end: int


async def wallet(connection: Connection, tenant_id: int) -> Wallet:
    row = await connection.fetchrow(
        "SELECT t.name, w.currency, balance, credit_limit, low_balance_threshold, frozen, order_count, profile_count,"
        " version, updated_at FROM wallet w JOIN tenant t USING (tenant_id) WHERE tenant_id = $1",
        tenant_id,
    )
    assert row is not None, "a dealer has a wallet"
    return Wallet(*row)


_ORDERS = """
WITH looked AS MATERIALIZED (
    SELECT order_id, transaction_id, currency, amount, refund_amount, pay_status, delivery_status, order_status
    FROM orders WHERE tenant_id = $1 AND order_id >= $2 AND order_id < $3 ORDER BY order_id DESC LIMIT $5
)
SELECT ends.last, ends.count, found.* FROM (SELECT min(order_id) AS last, count(*) AS count FROM looked) ends
LEFT JOIN LATERAL (
    SELECT * FROM looked WHERE $4::text IS NULL OR order_status = $4 OR delivery_status = $4
    ORDER BY order_id DESC LIMIT $6
) found ON true ORDER BY found.order_id DESC
"""


async def orders(
    connection: Connection, tenant_id: int, span: Span, status: str | None, size: int, looked: int = LOOKED
) -> tuple[Sequence[OrderLine], int | None]:
    """The newest orders, and the id the next page goes on before. `status`: an orderStatus or a deliveryStatus."""
    looked = looked if status else size + 1
    rows = await connection.fetch(_ORDERS, tenant_id, *span, status, looked, size + 1)
    found = [OrderLine(*row[2:]) for row in rows if row[2] is not None]
    return _page(found, size, rows[0][0] if rows[0][1] == looked else None)


_PROFILES = """
WITH looked AS MATERIALIZED (
    SELECT profile_id, order_id, line, iccid, lifecycle_status, plan_use_status, failed, refunded, data_total_bytes,
        data_usage_bytes
    FROM profile WHERE tenant_id = $1 AND profile_id >= $2 AND profile_id < $3 ORDER BY profile_id DESC LIMIT $6
)
SELECT ends.last, ends.count, found.profile_id, found.order_id, i.package_code, found.iccid, found.lifecycle_status,
    found.plan_use_status, found.failed, found.refunded, found.data_total_bytes, found.data_usage_bytes
FROM (SELECT min(profile_id) AS last, count(*) AS count FROM looked) ends
LEFT JOIN LATERAL (
    SELECT * FROM looked
    WHERE ($4::text IS NULL OR lifecycle_status = $4) AND ($5::text IS NULL OR plan_use_status = $5)
    ORDER BY profile_id DESC LIMIT $7
) found ON true
LEFT JOIN order_item i ON i.tenant_id = $1 AND i.order_id = found.order_id AND i.line = found.line
ORDER BY found.profile_id DESC
"""


async def profiles(
    connection: Connection,
    tenant_id: int,
    span: Span,
    lifecycle_status: str | None,
    plan_use_status: str | None,
    size: int,
) -> tuple[Sequence[ProfileLine], int | None]:
    """The newest profiles, and the id the next page goes on before."""
    looked = LOOKED if lifecycle_status or plan_use_status else size + 1
    rows = await connection.fetch(_PROFILES, tenant_id, *span, lifecycle_status, plan_use_status, looked, size + 1)
    found = [ProfileLine(*row[2:]) for row in rows if row[2] is not None]
    return _page(found, size, rows[0][0] if rows[0][1] == looked else None)


def _page(found: list, size: int, looked_to: int | None) -> tuple[Sequence, int | None]:
    """Where there are more than fit, the next page goes on after the last that does; else where looking ended."""
    if len(found) > size:
        return found[:size], found[size - 1][0]
    return found, looked_to


async def locate(connection: Connection, tenant_id: int, text: str) -> tuple[int | None, int | None]:
    """(orderId, profileId) of what a dealer typed: an orderNo, transactionId, ICCID or profileId; None: no such one."""
    number = identity.profile_id(text)
    row = await connection.fetchrow(
        "SELECT order_id, NULL::bigint FROM orders WHERE tenant_id = $1 AND order_id = $2"
        " UNION ALL SELECT order_id, NULL FROM orders WHERE tenant_id = $1 AND transaction_id = $3"
        " UNION ALL (SELECT order_id, profile_id FROM profile p WHERE tenant_id = $1 AND iccid = $3"
        f"  ORDER BY {RANK} DESC LIMIT 1)"
        " UNION ALL SELECT order_id, profile_id FROM profile WHERE tenant_id = $1 AND profile_id = $4 LIMIT 1",
        *(tenant_id, identity.order_id(text), text, number),
    )
    return (row[0], row[1]) if row else (None, None)


async def order_of(connection: Connection, tenant_id: int, profile_id: int) -> int | None:
    return await connection.fetchval(
        "SELECT order_id FROM profile WHERE tenant_id = $1 AND profile_id = $2", tenant_id, profile_id
    )


async def refunds(connection: Connection, tenant_id: int, order_id: int, limit: int) -> Sequence[RefundLine]:
    """Newest first."""
    rows = await connection.fetch(
        "SELECT refund_id, status, amount, credited, (SELECT count(*) FROM refund_line l WHERE l.tenant_id = $1"
        "  AND l.refund_id = r.refund_id), remark, created_at, settled_at"
        " FROM refund r WHERE tenant_id = $1 AND order_id = $2 ORDER BY refund_id DESC LIMIT $3",
        *(tenant_id, order_id, limit),
    )
    return [RefundLine(*row) for row in rows]


async def voids_waiting(connection: Connection, tenant_id: int, order_id: int) -> frozenset[int]:
    """Profiles whose supplier is asked to void them."""
    rows = await connection.fetch(
        "SELECT profile_id FROM void_request WHERE tenant_id = $1 AND order_id = $2 AND outcome IS NULL",
        tenant_id,
        order_id,
    )
    return frozenset(row[0] for row in rows)


# Webhooks

_DELIVERY = (
    "tenant_id, delivery_id, order_id, event_type, trigger, state, order_version, hints, attempt_count,"
    " CASE WHEN state IN ('READY', 'RETRY') THEN due_at END, created_at"
)


async def deliveries_of(connection: Connection, tenant_id: int, order_id: int, limit: int) -> Sequence[Delivery]:
    """An order's events, newest first."""
    rows = await connection.fetch(
        f"SELECT {_DELIVERY} FROM webhook_delivery WHERE tenant_id = $1 AND order_id = $2 AND trigger <> 'TEST'"
        " ORDER BY order_version DESC, delivery_id DESC LIMIT $3",
        *(tenant_id, order_id, limit),
    )
    return [Delivery(*row) for row in rows]


_DELIVERIES = f"""
WITH looked AS MATERIALIZED (
    SELECT {_DELIVERY} FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id < $2
    ORDER BY delivery_id DESC LIMIT $5
)
SELECT ends.last, ends.count, found.* FROM (SELECT min(delivery_id) AS last, count(*) AS count FROM looked) ends
LEFT JOIN LATERAL (
    SELECT * FROM looked WHERE trigger <> 'TEST' AND ($3::text IS NULL OR event_type = $3)
        AND ($4::text IS NULL OR state = $4)
    ORDER BY delivery_id DESC LIMIT $6
) found ON true ORDER BY found.delivery_id DESC
"""


async def deliveries(
    connection: Connection, tenant_id: int, end: int, event_type: str | None, state: str | None, size: int
) -> tuple[Sequence[Delivery], int | None]:
    """The newest deliveries before an id, and the id the next page goes on before."""
    looked = LOOKED if event_type or state else size + 1
    rows = await connection.fetch(_DELIVERIES, tenant_id, end, event_type, state, looked, size + 1)
    found = [Delivery(*row[2:]) for row in rows if row[2] is not None]
    last = rows[0][0] if rows[0][1] == looked else None
    if len(found) > size:
        return found[:size], found[size - 1].delivery_id
    return found, last


async def deliveries_failed(
    connection: Connection, tenant_id: int, end: int, event_type: str | None, size: int
) -> tuple[Sequence[Delivery], int | None]:
    """Those that ended FAILED: there is an index of these."""
    rows = await connection.fetch(
        f"SELECT {_DELIVERY} FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id < $2 AND state = 'FAILED'"
        " AND trigger <> 'TEST' AND ($3::text IS NULL OR event_type = $3) ORDER BY delivery_id DESC LIMIT $4",
        *(tenant_id, end, event_type, size + 1),
    )
    found = [Delivery(*row) for row in rows]
    return found[:size], found[size - 1].delivery_id if len(found) > size else None


# Money

_ENTRIES = """
SELECT version, entry_type, amount, balance_after, CASE entry_type WHEN 'ORDER_PAY' THEN reference
    WHEN 'REFUND' THEN (SELECT order_id FROM refund r WHERE r.tenant_id = $1 AND r.refund_id = e.reference) END,
    CASE entry_type WHEN 'TOPUP' THEN reference END, created_at
FROM ledger_entry e WHERE tenant_id = $1 AND version >= $2 AND version < $3 AND ($4::text IS NULL OR entry_type = $4)
ORDER BY version DESC LIMIT $5
"""


async def entries(
    connection: Connection, tenant_id: int, span: Span, entry_type: str | None, size: int
) -> tuple[Sequence[Entry], int | None]:
    """The newest entries of these versions, and the version the next page goes on before. Versions have no gaps, so
    that `LOOKED` of them are as many rows."""
    first = max(span.first, span.end - (LOOKED if entry_type else size + 1))
    rows = await connection.fetch(_ENTRIES, tenant_id, first, span.end, entry_type, size + 1)
    return _page([Entry(*row) for row in rows], size, first if first > span.first else None)


async def version_at(connection: Connection, tenant_id: int, at: datetime, newest: int) -> int:
    """The first version written at this time or later; `newest` + 1 where there is none. By halves: versions are in
    the order of time, which has no index."""
    low, high = 1, newest + 1
    while low < high:
        middle = (low + high) // 2
        created: datetime | None = await connection.fetchval(
            "SELECT created_at FROM ledger_entry WHERE tenant_id = $1 AND version = $2", tenant_id, middle
        )
        assert created is not None, "versions have no gaps"
        low, high = (low, middle) if created >= at else (middle + 1, high)
    return low


async def topups(
    connection: Connection, tenant_id: int, before: int | None, size: int
) -> tuple[Sequence[Topup], int | None]:
    rows = await connection.fetch(
        f"SELECT {', '.join(Topup._fields)} FROM topup WHERE tenant_id = $1 AND ($2::bigint IS NULL OR topup_id < $2)"
        " ORDER BY topup_id DESC LIMIT $3",
        *(tenant_id, before, size + 1),
    )
    found = [Topup(*row) for row in rows]
    return found[:size], found[size - 1].topup_id if len(found) > size else None


# Credentials and first run


async def access_terms(connection: Connection, tenant_id: int) -> tuple[int, Sequence[str]]:
    """QPS (0: no limit) and the addresses that may call (none: all)."""
    row = await connection.fetchrow("SELECT qps, ip_allow FROM tenant WHERE tenant_id = $1", tenant_id)
    assert row is not None, "a person of a dealer has a dealer"
    return row[0], list(row[1])


async def failed_deliveries(connection: Connection, tenant_id: int, most: int) -> int:
    """How many webhooks ended FAILED; `most` + 1 where there are more."""
    found: int | None = await connection.fetchval(
        "SELECT count(*) FROM (SELECT FROM webhook_delivery WHERE tenant_id = $1 AND state = 'FAILED' LIMIT $2) failed",
        *(tenant_id, most + 1),
    )
    return found or 0
