"""Which rows break an invariant of the ledger, of orders, or of the work behind them?

One statement finds the rows that break one invariant in one way, and names their tenant. It joins whole tables, by hash
or sorted. In every statement $1 is the tenant that is audited, or NULL for all, and $2 is now.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import asyncpg

from dealer_server.db import sealing
from dealer_server.db.connection import Connection
from dealer_server.rules.orders.identity import EPOCH_SECONDS, SEQUENCE
from dealer_server.rules.orders.order import STOCK
from dealer_server.store.profiles.iccid import OVER
from dealer_server.store.tenants.tenant import ACT

SAMPLES = 20
_SECRETS_PER_FETCH = 5_000
_BODIES = 10_000

# Plans for whole tables: no compilation, no million look-ups because an estimate was wrong, and no parallel workers,
# whose shared memory containers are short of.
_SETTINGS = {
    "jit": "off",
    "enable_nestloop": "off",
    "max_parallel_workers_per_gather": "0",
    "statement_timeout": "0",
    "work_mem": "32MB",
}
# Over all tenants the tables themselves are read: an index that is broken hides what breaks its promise.
_WITHOUT_INDEXES = {"enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_bitmapscan": "off"}


class Query(NamedTuple):
    """Finds the rows that break `invariant` by `fault`. Their tenant_id is NULL where they belong to no tenant."""

    invariant: str
    fault: str
    sql: str


class Violations(NamedTuple):
    """How many rows a query found, and the first of them."""

    total: int
    rows: Sequence[dict[str, Any]]


class Secrets(NamedTuple):
    """Sealed values of one kind. `sql` gives what names the row, which is what `context` takes, and last the value."""

    what: str
    by_master_key: bool
    context: Callable[..., bytes]
    sql: str


async def prepare(connection: Connection, tenant_id: int | None) -> None:
    """Settings for the rest of the transaction."""
    settings = _SETTINGS if tenant_id is not None else _SETTINGS | _WITHOUT_INDEXES
    for name, value in settings.items():
        await connection.execute(f"SET LOCAL {name} = '{value}'")


async def violations(connection: Connection, query: Query, tenant_id: int | None, now: datetime) -> Violations:
    arguments = (tenant_id, now) if "$2" in query.sql else (tenant_id,)
    rows = await connection.fetch(
        f"SELECT count(*) OVER () AS violations, v.* FROM ({query.sql}) v"
        f" WHERE $1::bigint IS NULL OR v.tenant_id = $1 ORDER BY v.tenant_id LIMIT {SAMPLES}",
        *arguments,
    )
    found = [{name: _plain(value) for name, value in row.items() if name != "violations"} for row in rows]
    return Violations(rows[0]["violations"] if rows else 0, found)


def _plain(value: Any) -> Any:
    """Sums of amounts come as Decimal; every amount is an integer."""
    return int(value) if isinstance(value, Decimal) else value


class Head(NamedTuple):
    """The end of the audit log: how many acts there are, and the hash that stands for all of them."""

    acts: int
    hash: bytes


async def head(connection: Connection) -> Head:
    row = await connection.fetchrow("SELECT acts, hash FROM audit_head")
    return Head(*row) if row else Head(0, b"")


async def has_act(connection: Connection, digest: bytes) -> bool:
    """Whether the log holds the act of this hash; with its chain whole, it then holds all before it, unchanged."""
    return await connection.fetchval("SELECT EXISTS (SELECT FROM audit_log WHERE hash = $1)", digest) or False


async def sealed(
    connection: Connection, secrets: Secrets, tenant_id: int | None
) -> AsyncIterator[Sequence[asyncpg.Record]]:
    """The rows of these secrets, a few thousand at a time."""
    cursor = await connection.cursor(secrets.sql, tenant_id)
    while rows := await cursor.fetch(_SECRETS_PER_FETCH):
        yield rows


# What a profile is to its line, one bit each, so that bit_or over profiles answers every "all" and "any" of
# rules/delivery/delivery.py. VOIDED: cancelled before delivery; ENDED: cancelled after it.
_REFUNDED, _VOIDED, _FAILED, _WAITING, _ENDED, _DELIVERED, _ACTIVATING, _ACTIVATED, _HELD = (
    1 << bit for bit in range(9)
)
_LACKING = _FAILED | _WAITING
_IN_USE = _DELIVERED | _ACTIVATING | _ACTIVATED
_READY = _ENDED | _IN_USE
_LIVE = _LACKING | _READY
_KIND = f"""CASE
    WHEN refunded THEN {_REFUNDED}
    WHEN iccid IS NULL THEN CASE WHEN cancelled THEN {_VOIDED} WHEN failed THEN {_FAILED} ELSE {_WAITING} END
    WHEN cancelled THEN {_ENDED}
    ELSE CASE lifecycle_status
        WHEN 'ACTIVATING' THEN {_ACTIVATING} WHEN 'ACTIVATED' THEN {_ACTIVATED} ELSE {_DELIVERED} END
    END | CASE WHEN held THEN {_HELD} ELSE 0 END"""
_UNSOLD = "iccid IS NULL AND NOT refunded AND NOT cancelled AND NOT failed"
_WAITS = f"{_UNSOLD} AND NOT held"

_LINES = f"""
SELECT tenant_id, order_id, line, kinds, item_status, CASE
        WHEN kinds = {_REFUNDED} THEN 'REFUNDED'
        WHEN kinds & {_LIVE} = 0 THEN item_status
        WHEN kinds & {_LIVE} = {_FAILED} THEN 'FAILED'
        WHEN kinds & {_LIVE} = {_WAITING} AND item_status = 'PAID' THEN 'PAID'
        WHEN kinds & {_LACKING} <> 0 THEN 'PENDING'
        WHEN kinds & {_IN_USE} = {_ACTIVATED} THEN 'ACTIVATED'
        WHEN kinds & {_IN_USE} = 0 AND item_status IN ('ACTIVATING', 'ACTIVATED') THEN item_status
        WHEN kinds & {_ACTIVATING | _ACTIVATED} <> 0 OR item_status IN ('ACTIVATING', 'ACTIVATED') THEN 'ACTIVATING'
        ELSE 'DELIVERED' END AS settles_as
FROM order_item JOIN
    (SELECT tenant_id, order_id, line, bit_or({_KIND}) AS kinds FROM profile GROUP BY tenant_id, order_id, line) p
    USING (tenant_id, order_id, line)
"""
_ORDERS = f"""
SELECT tenant_id, order_id, order_status, kinds, unsettled_line, CASE
        WHEN order_status = 'REFUNDED' OR kinds = {_REFUNDED} THEN 'REFUNDED'
        WHEN kinds & {_HELD} <> 0 THEN 'REFUNDING'
        WHEN kinds & {_LACKING} = 0 THEN 'COMPLETED'
        WHEN order_status <> 'PAID' OR begun THEN 'FULFILLING'
        ELSE 'PAID' END AS settles_as
FROM orders JOIN (
    SELECT tenant_id, order_id, bit_or(kinds) AS kinds, bool_or(settles_as <> 'PAID') AS begun,
        min(line) FILTER (
            WHERE item_status <> settles_as OR (item_status = 'REFUNDED' AND kinds <> {_REFUNDED})) AS unsettled_line
    FROM ({_LINES}) line GROUP BY tenant_id, order_id) lines USING (tenant_id, order_id)
"""

QUERIES = (
    Query(
        "A1",
        "balance is not the sum of the entries",
        """
        SELECT tenant_id, w.balance, coalesce(e.total, 0) AS entries_total
        FROM wallet w FULL JOIN (SELECT tenant_id, sum(amount) AS total FROM ledger_entry GROUP BY tenant_id) e
            USING (tenant_id)
        WHERE w.balance IS DISTINCT FROM coalesce(e.total, 0)
        """,
    ),
    Query(
        "A2",
        "version is not the number of entries, or not the last one",
        """
        SELECT tenant_id, w.version, coalesce(e.entries, 0) AS entries, coalesce(e.last, 0) AS last_version
        FROM wallet w FULL JOIN
            (SELECT tenant_id, count(*) AS entries, max(version) AS last FROM ledger_entry GROUP BY tenant_id) e
            USING (tenant_id)
        WHERE w.version IS DISTINCT FROM coalesce(e.entries, 0) OR w.version IS DISTINCT FROM coalesce(e.last, 0)
        """,
    ),
    Query(
        "A3",
        "the entry does not follow from the one before",
        """
        SELECT * FROM (
            SELECT tenant_id, version, entry_type, reference, amount, balance_after,
                lag(version, 1, 0::bigint) OVER entries AS version_before,
                lag(balance_after, 1, 0::bigint) OVER entries AS balance_before
            FROM ledger_entry WINDOW entries AS (PARTITION BY tenant_id ORDER BY version)) e
        WHERE version <> version_before + 1 OR balance_after <> balance_before::numeric + amount
        """,
    ),
    Query(
        "A4",
        "balance is below minus the credit limit",
        "SELECT tenant_id, balance, credit_limit FROM wallet WHERE balance::numeric + credit_limit < 0",
    ),
    Query(
        "A5",
        "the order has not one debit of its amount, or the debit has no order",
        """
        SELECT tenant_id, order_id, o.amount, coalesce(e.debits, 0) AS debits, e.debited
        FROM orders o FULL JOIN
            (SELECT tenant_id, reference AS order_id, count(*) AS debits, -min(amount) AS debited
            FROM ledger_entry WHERE entry_type = 'ORDER_PAY' GROUP BY tenant_id, reference) e
            USING (tenant_id, order_id)
        WHERE e.debits IS DISTINCT FROM 1 OR e.debited IS DISTINCT FROM o.amount
        """,
    ),
    Query(
        "A5",
        "the order's currency is not the wallet's",
        """
        SELECT tenant_id, order_id, o.currency, w.currency AS wallet_currency
        FROM orders o JOIN wallet w USING (tenant_id) WHERE o.currency <> w.currency
        """,
    ),
    Query(
        "A6",
        "amount is not the sum of price x quantity x periodNum",
        """
        SELECT tenant_id, order_id, o.amount, i.total AS lines_total
        FROM orders o LEFT JOIN
            (SELECT tenant_id, order_id, sum(price * (quantity * period_num::numeric)) AS total
            FROM order_item GROUP BY tenant_id, order_id) i USING (tenant_id, order_id)
        WHERE o.amount IS DISTINCT FROM i.total
        """,
    ),
    Query(
        "A7",
        "refund_amount is outside of 0 to amount",
        "SELECT tenant_id, order_id, amount, refund_amount FROM orders WHERE refund_amount NOT BETWEEN 0 AND amount",
    ),
    Query(
        "A7",
        "the refund entries are not what the orders were refunded",
        """
        SELECT tenant_id, coalesce(e.total, 0) AS entries_total, coalesce(o.total, 0) AS orders_total
        FROM (SELECT tenant_id, sum(amount) AS total FROM ledger_entry WHERE entry_type = 'REFUND' GROUP BY tenant_id) e
        FULL JOIN (SELECT tenant_id, sum(refund_amount) AS total FROM orders GROUP BY tenant_id) o USING (tenant_id)
        WHERE coalesce(e.total, 0) <> coalesce(o.total, 0)
        """,
    ),
    Query(
        "A7",
        "the refund's credit is not what its profiles came to, or not what the ledger says",
        """
        SELECT tenant_id, order_id, refund_id, status, credited, coalesce(l.total, 0) AS lines_total, e.amount AS entry
        FROM refund LEFT JOIN
            (SELECT tenant_id, refund_id, sum(amount) AS total FROM refund_line WHERE status = 'COMPLETED'
            GROUP BY tenant_id, refund_id) l USING (tenant_id, refund_id)
        LEFT JOIN (SELECT tenant_id, reference AS refund_id, amount FROM ledger_entry WHERE entry_type = 'REFUND') e
            USING (tenant_id, refund_id)
        WHERE credited <> coalesce(l.total, 0) OR (status = 'REFUNDED') <> (e.amount IS NOT NULL)
            OR credited <> coalesce(e.amount, 0)
        """,
    ),
    Query(
        "A7",
        "the order was refunded another amount than its refunds credited",
        """
        SELECT tenant_id, order_id, refund_amount, coalesce(r.total, 0) AS credited FROM orders LEFT JOIN
            (SELECT tenant_id, order_id, sum(credited) AS total FROM refund GROUP BY tenant_id, order_id) r
            USING (tenant_id, order_id)
        WHERE refund_amount <> coalesce(r.total, 0)
        """,
    ),
    Query(
        "A8",
        "the profile is not refunded once, or held by no refund",
        """
        SELECT tenant_id, order_id, profile_id, refunded, held, coalesce(l.completed, 0) AS completed,
            coalesce(l.pending, 0) AS pending
        FROM profile LEFT JOIN
            (SELECT tenant_id, profile_id, count(*) FILTER (WHERE l.status = 'COMPLETED') AS completed,
                count(*) FILTER (WHERE r.status = 'REFUNDING') AS pending
            FROM refund_line l JOIN refund r USING (tenant_id, refund_id)
            GROUP BY tenant_id, profile_id) l USING (tenant_id, profile_id)
        WHERE refunded::int <> coalesce(l.completed, 0) OR held::int <> coalesce(l.pending, 0)
        """,
    ),
    Query(
        "A9",
        "the profile is outside of its line's profileIds",
        """
        SELECT tenant_id, order_id, line, profile_id, first_profile_id, quantity
        FROM profile JOIN order_item USING (tenant_id, order_id, line)
        WHERE profile_id NOT BETWEEN first_profile_id AND first_profile_id + quantity - 1
        """,
    ),
    Query(
        "A9",
        "the line's profileIds overlap another line's",
        """
        SELECT * FROM (
            SELECT tenant_id, order_id, line, first_profile_id, quantity, max(first_profile_id + quantity)
                OVER (ORDER BY first_profile_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS free_from
            FROM order_item) i
        WHERE first_profile_id < free_from
        """,
    ),
    Query(
        "A9",
        "profiles share an iccid that was not sold again, or live ones of one dealer do",
        f"""
        WITH shared AS (
            SELECT iccid FROM profile WHERE iccid IS NOT NULL AND NOT refunded GROUP BY iccid HAVING count(*) > 1
        ), one AS (
            SELECT p.*, {OVER} AS over, EXISTS (SELECT FROM purchase b WHERE b.tenant_id = p.tenant_id
                AND b.profile_id = p.profile_id AND b.iccid = p.iccid AND b.state = 'DONE'
                AND b.planned_iccid IS NULL) AS resold
            FROM profile p JOIN shared USING (iccid) WHERE NOT refunded
        )
        SELECT tenant_id, order_id, profile_id, iccid FROM one WHERE EXISTS (SELECT FROM one other
            WHERE other.iccid = one.iccid AND other.profile_id <> one.profile_id AND NOT (one.resold OR other.resold)
                OR other.iccid = one.iccid AND other.profile_id <> one.profile_id AND NOT (one.over OR other.over)
                    AND other.tenant_id = one.tenant_id)
        """,
    ),
    Query(
        "A9",
        "a stock code was taken for a profile that neither has it nor waits for it",
        f"""
        SELECT taken_tenant_id AS tenant_id, s.iccid, taken_by AS profile_id, p.iccid AS profile_iccid
        FROM stock_profile s LEFT JOIN profile p ON p.tenant_id = s.taken_tenant_id AND p.profile_id = s.taken_by
            LEFT JOIN order_item i USING (tenant_id, order_id, line)
        WHERE s.taken_by IS NOT NULL AND s.iccid IS DISTINCT FROM p.iccid
            AND (p.profile_id IS NULL OR p.iccid IS NOT NULL OR p.cancelled OR i.supplier <> '{STOCK}')
        """,
    ),
    Query(
        "A9",
        "a profile has a stock code that was not taken for it, or should have one",
        f"""
        SELECT p.tenant_id, order_id, profile_id, iccid, s.taken_tenant_id, s.taken_by
        FROM profile p JOIN stock_profile s USING (iccid)
        WHERE NOT refunded AND (s.taken_tenant_id, s.taken_by) IS DISTINCT FROM (p.tenant_id, p.profile_id)
            AND NOT EXISTS (SELECT FROM purchase b WHERE b.tenant_id = p.tenant_id AND b.profile_id = p.profile_id
                AND b.iccid = p.iccid AND b.state = 'DONE')
        UNION ALL
        SELECT tenant_id, order_id, profile_id, iccid, NULL, NULL
        FROM profile p JOIN order_item i USING (tenant_id, order_id, line)
        WHERE supplier = '{STOCK}' AND iccid IS NOT NULL
            AND NOT EXISTS (SELECT FROM stock_profile s WHERE s.iccid = p.iccid)
        """,
    ),
    Query(
        "A10",
        "the line has not as many profiles as its quantity",
        """
        SELECT tenant_id, order_id, line, quantity, coalesce(profiles, 0) AS profiles
        FROM order_item LEFT JOIN
            (SELECT tenant_id, order_id, line, count(*) AS profiles FROM profile GROUP BY tenant_id, order_id, line) p
            USING (tenant_id, order_id, line)
        WHERE quantity IS DISTINCT FROM profiles
        """,
    ),
    Query(
        "A10",
        "delivery_status does not say how many live profiles have codes",
        f"""
        SELECT tenant_id, order_id, delivery_status, settles_as FROM (
            SELECT tenant_id, order_id, delivery_status, CASE
                WHEN kinds & {_LIVE} = 0 THEN delivery_status
                WHEN kinds & {_LACKING} = 0 THEN 'DELIVERED'
                WHEN kinds & {_READY} <> 0 THEN 'PARTIAL'
                WHEN kinds & {_LIVE} = {_FAILED} THEN 'FAILED'
                ELSE 'PENDING' END AS settles_as
            FROM orders JOIN
                (SELECT tenant_id, order_id, bit_or({_KIND}) AS kinds FROM profile GROUP BY tenant_id, order_id) p
                USING (tenant_id, order_id)) settled
        WHERE delivery_status <> settles_as
        """,
    ),
    Query(
        "A11",
        "the statuses of the order or of a line do not follow from its profiles",
        f"""
        SELECT tenant_id, order_id, order_status, settles_as, unsettled_line FROM ({_ORDERS}) settled
        WHERE order_status <> settles_as OR (order_status = 'REFUNDED' AND kinds <> {_REFUNDED})
            OR unsettled_line IS NOT NULL
        """,
    ),
    Query(
        "A11",
        "the order's payStatus does not follow from its refunds",
        """
        SELECT tenant_id, order_id, pay_status, order_status, amount, refund_amount FROM orders
        WHERE (pay_status = 'REFUNDED' AND refund_amount <> amount)
            OR (pay_status <> 'REFUNDED' AND amount > 0 AND (refund_amount = amount OR order_status = 'REFUNDED'))
        """,
    ),
    Query(
        "A11",
        "the profile's states contradict each other",
        """
        SELECT tenant_id, order_id, profile_id, lifecycle_status, plan_use_status, failed, refunded, activated,
            cancelled, iccid IS NOT NULL AS has_iccid, activation_code IS NOT NULL AS has_activation_code,
            qr_token IS NOT NULL AS has_qr_token
        FROM profile
        WHERE cancelled <> (lifecycle_status = 'CANCELLED')
            OR (lifecycle_status <> 'CANCELLED' AND (iccid IS NULL) <> (lifecycle_status = 'PENDING'))
            OR (iccid IS NULL) <> (activation_code IS NULL) OR (iccid IS NULL) <> (qr_token IS NULL)
            OR (activated AND lifecycle_status NOT IN ('ACTIVATED', 'CANCELLED'))
            OR (NOT activated AND lifecycle_status = 'ACTIVATED')
            OR (refunded AND NOT cancelled)
            OR (iccid IS NOT NULL AND failed)
            OR (iccid IS NULL AND plan_use_status <> 'NOT_STARTED')
        """,
    ),
    # The text is made anew, so that no index answers in place of the table.
    Query(
        "A12",
        "orders share a transactionId",
        """
        SELECT tenant_id, transaction_id || '' AS transaction_id, count(*) AS orders, min(order_id) AS order_id
        FROM orders GROUP BY tenant_id, transaction_id || '' HAVING count(*) > 1
        """,
    ),
    Query(
        "A13",
        "the order has not one ORDER_PAID",
        """
        SELECT tenant_id, order_id, coalesce(d.events, 0) AS events FROM orders LEFT JOIN
            (SELECT tenant_id, order_id, count(*) AS events FROM webhook_delivery
            WHERE event_type = 'ORDER_PAID' AND trigger <> 'TEST' GROUP BY tenant_id, order_id) d
            USING (tenant_id, order_id)
        WHERE d.events IS DISTINCT FROM 1
        """,
    ),
    Query(
        "A13",
        "the order has not one REFUND_COMPLETED for each credited refund",
        """
        SELECT tenant_id, order_id, coalesce(r.refunds, 0) AS refunds, coalesce(d.events, 0) AS events
        FROM (SELECT tenant_id, order_id, count(*) AS refunds FROM refund WHERE status = 'REFUNDED'
            GROUP BY tenant_id, order_id) r
        FULL JOIN (SELECT tenant_id, order_id, count(*) AS events FROM webhook_delivery
            WHERE event_type = 'REFUND_COMPLETED' AND trigger <> 'TEST' GROUP BY tenant_id, order_id) d
            USING (tenant_id, order_id)
        WHERE coalesce(r.refunds, 0) <> coalesce(d.events, 0)
        """,
    ),
    Query(
        "A14",
        "the delivery's attempts are too many, not numbered without gap, or none explains that it is DELIVERED",
        """
        SELECT tenant_id, order_id, delivery_id, event_type, trigger, state, attempt_count, attempts, first, last,
            accepted
        FROM webhook_delivery FULL JOIN
            (SELECT tenant_id, delivery_id, count(*) AS attempts, min(number) AS first, max(number) AS last,
                coalesce(bool_or(http_status BETWEEN 200 AND 299), false) AS accepted
            FROM webhook_attempt GROUP BY tenant_id, delivery_id) a USING (tenant_id, delivery_id)
        WHERE state IS NULL OR (trigger <> 'RESEND' AND attempt_count > 8)
            OR last - first + 1 <> attempts OR last > attempt_count
            OR (first > 1 AND created_at > $2::timestamptz - interval '30 days')
            OR (state = 'DELIVERED' AND (attempt_count = 0 OR (first = 1 AND NOT accepted)))
        """,
    ),
    Query(
        "A14",
        "the delivery is in flight past its lease",
        """
        SELECT tenant_id, order_id, delivery_id, event_type, due_at, attempt_count FROM webhook_delivery
        WHERE state = 'IN_FLIGHT' AND (due_at IS NULL OR due_at < $2::timestamptz - interval '5 minutes')
        """,
    ),
    Query(
        "A15",
        "the delivery was attempted before it was frozen, or tells of another state of the order than its own",
        """
        SELECT tenant_id, order_id, delivery_id, event_type, d.attempt_count, d.body IS NOT NULL AS has_body, d.hints,
            d.order_version, o.version
        FROM webhook_delivery d JOIN orders o USING (tenant_id, order_id)
        WHERE (attempt_count > 0 AND body IS NULL) OR (body IS NOT NULL AND hints IS NULL) OR order_version > o.version
            OR (event_type = 'ORDER_PAID' AND (order_version <> 1 OR hints <> '{ORDER_PAID}'))
        """,
    ),
    Query(
        "A16",
        "the line is due although no profile of it waits",
        f"""
        SELECT tenant_id, order_id, line, due_at FROM order_item i
        WHERE due_at IS NOT NULL AND NOT EXISTS (
            SELECT FROM profile p WHERE p.tenant_id = i.tenant_id AND p.order_id = i.order_id AND p.line = i.line
                AND {_WAITS})
        """,
    ),
    Query(
        "A16",
        "the profile waits although its line is not due",
        f"""
        SELECT tenant_id, order_id, line, profile_id FROM profile JOIN order_item USING (tenant_id, order_id, line)
        WHERE {_WAITS} AND due_at IS NULL AND NOT EXISTS (
            SELECT FROM purchase p WHERE p.tenant_id = profile.tenant_id AND p.profile_id = profile.profile_id
                AND p.state IN ('PLANNED', 'SENT', 'PENDING', 'UNKNOWN', 'PARKED'))
        """,
    ),
    Query(
        "A16",
        "the purchase is due since long",
        """
        SELECT tenant_id, order_id, line, profile_id, supplier, state, due_at, calls FROM purchase
        WHERE due_at < $2::timestamptz - interval '15 minutes'
        """,
    ),
    Query(
        "A16",
        "the line is due since long",
        """
        SELECT tenant_id, order_id, line, supplier, due_at, claims FROM order_item
        WHERE due_at < $2::timestamptz - interval '15 minutes'
        """,
    ),
    Query(
        "A16",
        "the refund is due since long, cannot be settled, or waits for nobody's word",
        """
        SELECT tenant_id, order_id, refund_id, due_at FROM refund r
        WHERE due_at < $2::timestamptz - interval '15 minutes'
            OR (status = 'REFUNDING' AND settle_failures > 5) OR (status = 'REFUNDING' AND due_at IS NULL
            AND NOT EXISTS (SELECT FROM refund_line l WHERE l.tenant_id = r.tenant_id AND l.refund_id = r.refund_id
                AND l.status = 'PENDING'))
        """,
    ),
    Query(
        "A16",
        "the refund waits for a supplier that nobody asks",
        """
        SELECT l.tenant_id, order_id, refund_id, profile_id
        FROM refund_line l JOIN refund r USING (tenant_id, refund_id)
        WHERE l.status = 'PENDING' AND way = 'SUPPLIER' AND NOT EXISTS (SELECT FROM void_request v
            WHERE v.tenant_id = l.tenant_id AND v.profile_id = l.profile_id AND v.refund_id = l.refund_id
                AND v.outcome IS NULL)
        """,
    ),
    Query(
        "A16",
        "the delivery waits behind none of its order",
        """
        SELECT tenant_id, order_id, delivery_id, event_type, created_at
        FROM webhook_delivery d JOIN webhook_endpoint e USING (tenant_id)
        WHERE d.state = 'WAITING' AND e.state = 'ACTIVE' AND NOT EXISTS (
            SELECT FROM webhook_delivery head WHERE head.tenant_id = d.tenant_id AND head.order_id = d.order_id
                AND head.state IN ('READY', 'RETRY', 'IN_FLIGHT'))
        """,
    ),
    Query(
        "A16",
        "the life is due since long",
        """
        SELECT tenant_id, order_id, line, profile_id, supplier, due_at, claims FROM profile_life
        WHERE due_at < $2::timestamptz - interval '1 hour'
        """,
    ),
    Query(
        "A17",
        "an eSIM was bought that is neither in its dealer's hands, nor voided or being voided",
        """
        SELECT tenant_id, order_id, line, profile_id, supplier, unit_key, iccid FROM purchase b
        WHERE state = 'DONE' AND NOT EXISTS (SELECT FROM profile p
                WHERE p.tenant_id = b.tenant_id AND p.profile_id = b.profile_id AND p.iccid = b.iccid)
            AND NOT EXISTS (SELECT FROM void_request v
                WHERE v.tenant_id = b.tenant_id AND v.profile_id = b.profile_id AND v.iccid = b.iccid)
        """,
    ),
    Query(
        "A17",
        "the profile's codes were never bought",
        """
        SELECT p.tenant_id, p.order_id, p.line, p.profile_id, i.supplier, p.iccid
        FROM profile p JOIN order_item i USING (tenant_id, order_id, line) JOIN supplier s ON s.code = i.supplier
        WHERE p.iccid IS NOT NULL AND NOT EXISTS (SELECT FROM purchase b WHERE b.tenant_id = p.tenant_id
            AND b.profile_id = p.profile_id AND b.iccid = p.iccid AND b.state = 'DONE')
        """,
    ),
    Query(
        "A18",
        "nobody answers for the entry in the audit log",
        """
        SELECT tenant_id, version, entry_type, amount, created_at FROM ledger_entry e
        WHERE entry_type IN ('ADJUST', 'TOPUP') AND NOT EXISTS (
            SELECT FROM audit_log a WHERE a.tenant_id = e.tenant_id AND a.detail ->> 'entryVersion' = e.version::text
                AND a.author <> '')
        """,
    ),
    Query(
        "A24",
        "the act is not what was written down, or the one before it is gone",
        f"""
        SELECT tenant_id, audit_id, at, author, action FROM (
            SELECT *, lag(hash, 1, ''::bytea) OVER (ORDER BY audit_id) AS hash_before FROM audit_log) act
        WHERE hash IS DISTINCT FROM sha256(hash_before || {ACT})
        """,
    ),
    Query(
        "A24",
        "acts are missing at the end of the log",
        """
        SELECT NULL::bigint AS tenant_id, head.acts, log.acts AS found FROM
            (SELECT count(*) AS acts, (SELECT hash FROM audit_log ORDER BY audit_id DESC LIMIT 1) AS hash
            FROM audit_log) log LEFT JOIN audit_head head ON true
        WHERE log.acts IS DISTINCT FROM head.acts OR coalesce(log.hash, '') IS DISTINCT FROM head.hash
        """,
    ),
    # A process whose clock was wrong leaves such rows: nobody works on them until that time has come.
    Query(
        "A25",
        "the order is of the future",
        f"""
        SELECT tenant_id, order_id, updated_at FROM orders
        WHERE order_id >= (extract(epoch FROM $2::timestamptz + interval '1 minute')::bigint - {EPOCH_SECONDS})
            * {SEQUENCE} OR updated_at > $2 + interval '1 minute'
        """,
    ),
    Query(
        "A25",
        "the entry is of the future",
        """
        SELECT tenant_id, version, entry_type, created_at FROM ledger_entry
        WHERE created_at > $2::timestamptz + interval '1 minute'
        """,
    ),
    Query(
        "A25",
        "the line is due later than the first time is at once, and every other within the hour",
        """
        SELECT tenant_id, order_id, line, supplier, due_at, claims FROM order_item
        WHERE due_at > $2::timestamptz + CASE WHEN claim IS NULL THEN interval '1 minute' ELSE interval '61 minutes' END
        """,
    ),
    Query(
        "A25",
        "the purchase is due later than its longest wait",
        """
        SELECT tenant_id, order_id, line, profile_id, supplier, state, due_at, calls FROM purchase
        WHERE due_at > $2::timestamptz + interval '15 minutes'
        """,
    ),
    Query(
        "A25",
        "the refund or the void is due later than its longest wait",
        """
        SELECT tenant_id, order_id, refund_id, NULL::bigint AS profile_id, due_at FROM refund
        WHERE due_at > $2::timestamptz + interval '15 minutes'
        UNION ALL
        SELECT tenant_id, order_id, refund_id, profile_id, due_at FROM void_request
        WHERE due_at > $2::timestamptz + interval '61 minutes'
        """,
    ),
    # READY: spread over a minute at most, or held back for usage alone. How long a RETRY waits is a setting.
    Query(
        "A25",
        "the delivery is due later than its first attempt or its lease can be",
        """
        SELECT tenant_id, order_id, delivery_id, event_type, state, due_at, not_before FROM webhook_delivery
        WHERE (state = 'IN_FLIGHT' OR (state = 'READY' AND due_at IS DISTINCT FROM not_before))
            AND due_at > $2::timestamptz + interval '2 minutes'
        """,
    ),
    *(
        Query(
            "A20",
            f"a row of {child} has none of {parent} of its tenant",
            f"""
            SELECT tenant_id, {", ".join(f"c.{name}" for name in names)} FROM {child} c
            WHERE NOT EXISTS (SELECT FROM {parent} p WHERE p.tenant_id = c.tenant_id AND {on})
            """,
        )
        for child, parent, names, on in (
            ("orders", "wallet", ("order_id",), "true"),
            ("order_item", "orders", ("order_id", "line"), "p.order_id = c.order_id"),
            (
                "profile",
                "order_item",
                ("order_id", "line", "profile_id"),
                "p.order_id = c.order_id AND p.line = c.line",
            ),
            ("refund", "orders", ("order_id", "refund_id"), "p.order_id = c.order_id"),
            ("webhook_delivery", "orders", ("order_id", "delivery_id", "event_type"), "p.order_id = c.order_id"),
        )
    ),
    Query(
        "A20",
        "a row of refund_line has no refund of its tenant and of its profile's order",
        """
        SELECT tenant_id, r.order_id, refund_id, profile_id, p.order_id AS order_of_profile
        FROM refund_line LEFT JOIN refund r USING (tenant_id, refund_id)
            LEFT JOIN profile p USING (tenant_id, profile_id)
        WHERE r.order_id IS DISTINCT FROM p.order_id OR r.order_id IS NULL
        """,
    ),
    Query(
        "A20",
        "the order of a debit is another tenant's",
        """
        SELECT e.tenant_id, e.version, e.reference AS order_id, o.tenant_id AS order_tenant_id
        FROM ledger_entry e JOIN orders o ON o.order_id = e.reference
        WHERE entry_type = 'ORDER_PAY' AND o.tenant_id <> e.tenant_id
        """,
    ),
    Query(
        "A20",
        "a stock code was taken for another tenant than the profile's",
        """
        SELECT p.tenant_id, s.iccid, p.profile_id, s.taken_tenant_id
        FROM stock_profile s JOIN profile p ON p.profile_id = s.taken_by
        WHERE p.tenant_id IS DISTINCT FROM s.taken_tenant_id
        """,
    ),
    Query(
        "A21",
        "a profile sold from stock waits and has taken no code",
        f"""
        SELECT p.tenant_id, order_id, profile_id, package_code
        FROM profile p JOIN order_item USING (tenant_id, order_id, line)
        WHERE supplier = '{STOCK}' AND {_UNSOLD} AND NOT EXISTS
            (SELECT FROM stock_profile WHERE taken_tenant_id = p.tenant_id AND taken_by = p.profile_id)
        """,
    ),
    Query(
        "A22",
        "the wallet does not count the orders and profiles bought",
        """
        SELECT tenant_id, order_count, coalesce(orders, 0) AS orders, profile_count, coalesce(profiles, 0) AS profiles
        FROM wallet LEFT JOIN (SELECT tenant_id, count(*) AS orders FROM orders GROUP BY tenant_id) o USING (tenant_id)
            LEFT JOIN (SELECT tenant_id, count(*) AS profiles FROM profile GROUP BY tenant_id) p USING (tenant_id)
        WHERE order_count <> coalesce(orders, 0) OR profile_count <> coalesce(profiles, 0)
        """,
    ),
    Query(
        "A23",
        "an id in use will be handed out again",
        """
        SELECT tenant_id, kind, last_id, next FROM (
            SELECT tenant_id, 'order' AS kind, max(order_id) AS last_id FROM orders GROUP BY tenant_id
            UNION ALL SELECT tenant_id, 'profile', max(profile_id) FROM profile GROUP BY tenant_id
            UNION ALL
            SELECT tenant_id, 'profile', max(first_profile_id + quantity - 1) FROM order_item GROUP BY tenant_id
            ) used LEFT JOIN id_block USING (kind)
        WHERE next IS NULL OR last_id >= next
        """,
    ),
    Query(
        "A23",
        "tenants share an orderId",
        """
        SELECT tenant_id, order_id FROM orders JOIN
            (SELECT order_id FROM orders GROUP BY order_id HAVING count(*) > 1) twice USING (order_id)
        """,
    ),
)

DATA_KEYS = Secrets(
    "the data key",
    True,
    sealing.data_key_context,
    "SELECT data_key_id, sealed_key FROM data_key WHERE $1::bigint IS NULL OR true",
)
# The newest bodies stand for all: those take more room than all else together.
SECRETS = (
    Secrets(
        "the AppSecret",
        True,
        sealing.credential_context,
        "SELECT tenant_id, app_key, secret_version, sealed_secret FROM credential"
        " WHERE $1::bigint IS NULL OR tenant_id = $1",
    ),
    Secrets(
        "the AppSecret before the reset",
        True,
        sealing.credential_context,
        "SELECT tenant_id, app_key, secret_version - 1 AS secret_version, previous_secret FROM credential"
        " WHERE previous_secret IS NOT NULL AND ($1::bigint IS NULL OR tenant_id = $1)",
    ),
    DATA_KEYS,
    Secrets(
        "the activation code",
        False,
        sealing.profile_context,
        "SELECT tenant_id, profile_id, activation_code FROM profile"
        " WHERE activation_code IS NOT NULL AND ($1::bigint IS NULL OR tenant_id = $1)",
    ),
    Secrets(
        "the activation code in stock",
        False,
        sealing.stock_context,
        "SELECT iccid, activation_code FROM stock_profile WHERE $1::bigint IS NULL OR taken_tenant_id = $1",
    ),
    Secrets(
        "the supplier's settings",
        False,
        sealing.supplier_context,
        "SELECT code, settings FROM supplier WHERE $1::bigint IS NULL OR true",
    ),
    Secrets(
        "the webhook body",
        False,
        sealing.delivery_context,
        "SELECT tenant_id, delivery_id, body FROM webhook_delivery"
        " WHERE body IS NOT NULL AND ($1::bigint IS NULL OR tenant_id = $1)"
        f" ORDER BY delivery_id DESC LIMIT {_BODIES}",
    ),
)
