"""What the console shows a dealer of its own: each statement names the tenant and scans a bounded number of rows.

Where few rows match a filter, a page is short and the next one continues further back: a page never scans more than
`MAX_SCANNED` rows by the primary key, however much the dealer has bought.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from dealer_server.db.connection import Connection
from dealer_server.rules.orders import identity
from dealer_server.rules.refunds.refund import Reason
from dealer_server.store.console.pages import ALL_IDS, MAX_SCANNED, ListPage
from dealer_server.store.orders.listing import Window
from dealer_server.store.profiles.iccid import RANK
from dealer_server.store.recharges import recharge
from dealer_server.store.tenants.tenant import RtFace
from dealer_server.store.wallets.ledger import Entry
from dealer_server.store.wallets.topup import Topup
from dealer_server.store.webhooks import log
from dealer_server.store.webhooks.log import Delivery, Filter

T = TypeVar("T")


class Wallet(NamedTuple):
    """Amounts in ten-thousandths."""

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


class Balance(NamedTuple):
    """What can be spent, in ten-thousandths. `low`: less than the dealer wants to have."""

    available: int
    currency: str
    frozen: bool
    low: bool


class RefundRow(NamedTuple):
    """`review`: how many of its profiles wait for an operator. `automatic`: of what could not be delivered."""

    refund_id: int
    status: str
    amount: int
    credited: int
    profiles: int
    review: int
    remark: str | None
    automatic: bool
    created_at: datetime
    settled_at: datetime | None


class AccessTerms(NamedTuple):
    """`qps` 0: no limit. `ip_allow`: the addresses that may call; empty: all. `edits_ip_allow`, `manages_keys`: what
    the dealer may change by itself."""

    qps: int
    ip_allow: Sequence[str]
    edits_ip_allow: bool
    manages_keys: bool
    rt_face: RtFace


class Span(NamedTuple):
    """Ids from `first` on and before `end`."""

    first: int
    end: int

    def until(self, before: int | None) -> "Span":
        """The part before an id."""
        return self if before is None else self._replace(end=min(before, self.end))


async def wallet(connection: Connection, tenant_id: int) -> Wallet:
    row = await connection.fetchrow(
        "SELECT t.name, w.currency, balance, credit_limit, low_balance_threshold, frozen, order_count, profile_count,"
        " version, updated_at FROM wallet w JOIN tenant t USING (tenant_id) WHERE tenant_id = $1",
        tenant_id,
    )
    assert row is not None, "a dealer has a wallet"
    return Wallet(**row)


async def balance(connection: Connection, tenant_id: int) -> Balance:
    row = await connection.fetchrow(
        "SELECT balance + credit_limit AS available, currency, frozen, balance + credit_limit < low_balance_threshold"
        " AS low FROM wallet WHERE tenant_id = $1",
        tenant_id,
    )
    assert row is not None, "a dealer has a wallet"
    return Balance(**row)


def _scanned(kind: type[T], key: str, rows: Sequence[Any], size: int, limit: int) -> ListPage[T]:
    """A page of the rows of a scan, of which `limit` were scanned at most."""
    matches = [row for row in rows if row[key] is not None]
    page = [_without_scan(kind, row) for row in matches[:size]]
    if len(matches) > size:
        return ListPage(page, matches[size - 1][key])
    return ListPage(page, rows[0]["last_scanned"] if rows[0]["scanned"] == limit else None)


def _without_scan(kind: type[T], row: Any) -> T:
    return kind(**{name: value for name, value in row.items() if name not in ("last_scanned", "scanned")})


def _page(rows: Sequence[T], size: int, key: str) -> ListPage[T]:
    """A page of `size` rows, of which `size` + 1 were read."""
    return ListPage(rows[:size], getattr(rows[size - 1], key) if len(rows) > size else None)


async def locate(connection: Connection, tenant_id: int, text: str) -> tuple[int | None, int | None]:
    """(orderId, profileId) of an orderNo, transactionId, ICCID or profileId; None for what does not exist."""
    number = identity.profile_id(text)
    row = await connection.fetchrow(
        "SELECT order_id, NULL::bigint AS profile_id FROM orders WHERE tenant_id = $1 AND order_id = $2"
        " UNION ALL SELECT order_id, NULL FROM orders WHERE tenant_id = $1 AND transaction_id = $3"
        " UNION ALL (SELECT order_id, profile_id FROM profile p WHERE tenant_id = $1 AND iccid = $3"
        f"  ORDER BY {RANK} DESC LIMIT 1)"
        " UNION ALL SELECT order_id, profile_id FROM profile WHERE tenant_id = $1 AND profile_id = $4"
        "  AND recharges IS NULL LIMIT 1",
        tenant_id,
        identity.order_id(text),
        text,
        number,
    )
    return (row["order_id"], row["profile_id"]) if row else (None, None)


async def order_of(connection: Connection, tenant_id: int, profile_id: int) -> int | None:
    return await connection.fetchval(
        "SELECT order_id FROM profile WHERE tenant_id = $1 AND profile_id = $2 AND recharges IS NULL",
        tenant_id,
        profile_id,
    )


async def refunds(
    connection: Connection, tenant_id: int, order_id: int, limit: int, profile_id: int | None = None
) -> Sequence[RefundRow]:
    """Of an order, or of one eSIM of it. Newest first."""
    rows = await connection.fetch(
        "SELECT refund_id, status, amount, credited, l.profiles, l.review, remark, author = 'system' AS automatic,"
        " created_at, settled_at"
        " FROM refund r CROSS JOIN LATERAL (SELECT count(*) AS profiles,"
        "  count(*) FILTER (WHERE way = 'REVIEW' AND l.status = 'PENDING') AS review"
        "  FROM refund_line l WHERE l.tenant_id = $1 AND l.refund_id = r.refund_id) l"
        " WHERE r.tenant_id = $1 AND order_id = $2 AND ($4::bigint IS NULL OR EXISTS (SELECT FROM refund_line o"
        "  WHERE o.tenant_id = $1 AND o.refund_id = r.refund_id AND o.profile_id = $4))"
        " ORDER BY refund_id DESC LIMIT $3",
        tenant_id,
        order_id,
        limit,
        profile_id,
    )
    return [RefundRow(**row) for row in rows]


async def not_refundable(connection: Connection, tenant_id: int, order_id: int) -> dict[int, Reason]:
    """Profiles that something other than their order keeps from being refunded. CANCELLED: their supplier is asked to
    void them."""
    rows = await connection.fetch(
        "SELECT profile_id FROM void_request WHERE tenant_id = $1 AND order_id = $2 AND outcome IS NULL",
        tenant_id,
        order_id,
    )
    recharged = await recharge.not_refundable(connection, [(tenant_id, order_id)])
    for row in rows:
        recharged[row["profile_id"]] = "CANCELLED"
    return recharged


# Webhooks

# Each row of a scan carries the last id that was scanned and how many rows were; a scan without a match is one row.
_DELIVERIES = f"""
WITH scanned AS MATERIALIZED (
    SELECT tenant_id, delivery_id, order_id, event_type, trigger, state, order_version, hints, attempt_count,
        CASE WHEN state IN ('READY', 'RETRY') THEN due_at END AS next_attempt_at, created_at
    FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id >= $7 AND delivery_id < $2
    ORDER BY delivery_id DESC LIMIT $5
)
SELECT ends.last_scanned, ends.scanned, found.*
FROM (SELECT min(delivery_id) AS last_scanned, count(*) AS scanned FROM scanned) ends
LEFT JOIN LATERAL (
    SELECT * FROM scanned WHERE ($3::text IS NULL OR event_type = $3)
        AND state = ANY($4::text[]) AND (NOT $10 OR {log.TRIED})
        AND ($8::timestamptz IS NULL OR created_at >= $8) AND ($9::timestamptz IS NULL OR created_at < $9)
    ORDER BY delivery_id DESC LIMIT $6
) found ON true ORDER BY found.delivery_id DESC
"""


async def deliveries_of(connection: Connection, tenant_id: int, order_id: int, limit: int) -> Sequence[Delivery]:
    """An order's events, newest first."""
    return await log.page(connection, tenant_id, Filter(order_id), Window(limit, 0, None))


async def list_deliveries(
    connection: Connection,
    tenant_id: int,
    span: Span,
    wanted: Filter,
    size: int,
) -> ListPage[Delivery]:
    """The newest deliveries of these ids. Those that ended FAILED have an index of their own."""
    if wanted.states == ("FAILED",):
        found = await log.page(connection, tenant_id, wanted, Window(size + 1, 0, span.end))
        return _page(found, size, "delivery_id")
    found = ListPage[Delivery]([], None)
    what, times = (wanted.event_type, wanted.states), (wanted.start, wanted.end)
    for limit in (4 * size, MAX_SCANNED):  # most pages are full after a short look
        which = span.first, *times, wanted.tried
        rows = await connection.fetch(_DELIVERIES, tenant_id, span.end, *what, limit, size + 1, *which)
        found = _scanned(Delivery, "delivery_id", rows, size, limit)
        if len(found.rows) == size or found.next is None:
            break
    return found


class Counts(NamedTuple):
    """Of the newest deliveries: how many were needed, had a failed attempt, and were not sent. `more`: there are older
    ones."""

    needed: int
    tried: int
    skipped: int
    more: bool


async def delivery_counts(connection: Connection, tenant_id: int, most: int) -> Counts:
    """Of `most` deliveries at most."""
    row = await connection.fetchrow(
        "SELECT count(*) FILTER (WHERE state <> 'SKIPPED') AS needed,"
        f" count(*) FILTER (WHERE {log.TRIED}) AS tried, count(*) FILTER (WHERE state = 'SKIPPED') AS skipped,"
        " count(*) > $2 AS more FROM (SELECT state, attempt_count FROM webhook_delivery WHERE tenant_id = $1"
        " ORDER BY delivery_id DESC LIMIT $2 + 1) d",
        tenant_id,
        most,
    )
    assert row is not None
    return Counts(**row)


# Money

_ENTRIES = """
SELECT version, entry_type, amount, balance_after, CASE entry_type WHEN 'ORDER_PAY' THEN reference
    WHEN 'REFUND' THEN (SELECT order_id FROM refund r WHERE r.tenant_id = $1 AND r.refund_id = e.reference)
    END AS order_id, CASE entry_type WHEN 'TOPUP' THEN reference END AS topup_id, created_at
FROM ledger_entry e WHERE tenant_id = $1 AND version >= $2 AND version < $3 AND ($4::text IS NULL OR entry_type = $4)
ORDER BY version DESC LIMIT $5
"""


async def entries(
    connection: Connection, tenant_id: int, span: Span, entry_type: str | None, size: int
) -> ListPage[Entry]:
    """The newest entries of these versions. Versions have no gaps, so that a range of them bounds the scan."""
    first = max(span.first, span.end - (MAX_SCANNED if entry_type else size + 1))
    rows = await connection.fetch(_ENTRIES, tenant_id, first, span.end, entry_type, size + 1)
    ledger = [Entry(**row) for row in rows]
    if len(ledger) > size:
        return _page(ledger, size, "version")
    return ListPage(ledger, first if first > span.first else None)


async def version_at(connection: Connection, tenant_id: int, at: datetime, newest: int) -> int:
    """The first version written at this time or later; `newest` + 1 where there is none. By bisection: versions are in
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


# By bisection too, of all moments together: after each step the newest entry before `at` is in (low, high].
_BALANCES = """
WITH RECURSIVE step AS (
    SELECT at, 0::bigint AS low, $3::bigint AS high FROM unnest($2::timestamptz[]) AS at
    UNION ALL
    SELECT at, CASE WHEN e.created_at < at THEN e.version ELSE low END,
        CASE WHEN e.created_at < at THEN high ELSE e.version - 1 END
    FROM step CROSS JOIN LATERAL (SELECT version, created_at FROM ledger_entry
        WHERE tenant_id = $1 AND version = (low + high + 1) / 2 OFFSET 0) e
    WHERE low < high
)
SELECT coalesce((SELECT balance_after FROM ledger_entry WHERE tenant_id = $1 AND version = low), 0) AS balance
FROM step WHERE low = high ORDER BY at
"""


async def balances(connection: Connection, tenant_id: int, times: Sequence[datetime], newest: int) -> list[int]:
    """What the wallet held just before each of these times, the earliest first."""
    return [row["balance"] for row in await connection.fetch(_BALANCES, tenant_id, times, newest)]


async def packages(
    connection: Connection, tenant_id: int, order_ids: Iterable[int | None]
) -> dict[int, list[tuple[str, int]]]:
    """What these orders are of: packageCodes and quantities by order."""
    rows = await connection.fetch(
        "SELECT order_id, package_code, quantity FROM order_item WHERE tenant_id = $1 AND order_id = ANY($2::bigint[])"
        " ORDER BY order_id, line",
        tenant_id,
        sorted({order_id for order_id in order_ids if order_id is not None}),
    )
    found: dict[int, list[tuple[str, int]]] = {}
    for row in rows:
        found.setdefault(row["order_id"], []).append((row["package_code"], row["quantity"]))
    return found


async def waiting_topups(connection: Connection, tenant_id: int) -> tuple[int, int]:
    """How many wait for review, and their sum."""
    row = await connection.fetchrow(
        "SELECT count(*)::int AS topups, coalesce(sum(amount), 0)::bigint AS amount FROM topup"
        " WHERE tenant_id = $1 AND status = 'PENDING'",
        tenant_id,
    )
    return (row["topups"], row["amount"]) if row else (0, 0)


async def topups(
    connection: Connection, tenant_id: int, before: int | None, size: int, span: tuple[int, int] = ALL_IDS
) -> ListPage[Topup]:
    """The newest first, of these ids."""
    rows = await connection.fetch(
        f"SELECT {', '.join(Topup._fields)} FROM topup WHERE tenant_id = $1 AND ($2::bigint IS NULL OR topup_id < $2)"
        " AND topup_id >= $4 AND topup_id < $5 ORDER BY topup_id DESC LIMIT $3",
        tenant_id,
        before,
        size + 1,
        *span,
    )
    return _page([Topup(**row) for row in rows], size, "topup_id")


# Credentials and first run


async def access_terms(connection: Connection, tenant_id: int) -> AccessTerms:
    row = await connection.fetchrow(
        "SELECT qps, ip_allow, edits_ip_allow, manages_keys, rt_face FROM tenant WHERE tenant_id = $1", tenant_id
    )
    assert row is not None, "a dealer's user has a dealer"
    return AccessTerms(**row)


async def failed_deliveries(connection: Connection, tenant_id: int, most: int) -> int:
    """How many webhooks ended FAILED; `most` + 1 where there are more."""
    count: int | None = await connection.fetchval(
        "SELECT count(*) FROM (SELECT FROM webhook_delivery WHERE tenant_id = $1 AND state = 'FAILED' LIMIT $2) failed",
        tenant_id,
        most + 1,
    )
    return count or 0
