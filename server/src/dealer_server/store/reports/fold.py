"""How do ledger entries and purchases get into the sums by day, each exactly once? (docs/decisions/0040-reports.md)

The entries of a wallet become visible in the order of their versions, which have no gaps: its row is locked from the
moment an entry takes its version until that is committed. So a version is all that a cursor needs. One process at a
time adds; the cursor, or the mark of a purchase, is written by the statement that adds.
"""

from datetime import datetime

from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.store.reports import fold_by_tenant

_LOCK = 5_382_040
_SUMS = "sold, revenue, refunded, refunds, costed, cost"
_ADD = """
INSERT INTO {table} AS r ({key}, {sums})
SELECT {key}, sum(sold), sum(revenue), sum(refunded), sum(refunds), sum(costed), sum(cost)
FROM {source} GROUP BY {key} ON CONFLICT ({key}) DO UPDATE SET
    sold = r.sold + excluded.sold, revenue = r.revenue + excluded.revenue, refunded = r.refunded + excluded.refunded,
    refunds = r.refunds + excluded.refunds, costed = r.costed + excluded.costed, cost = r.cost + excluded.cost
"""
_OF_ALL = "day, package_code, supplier, currency"
_ADD_ALL = _ADD.format(table="report_all", key=_OF_ALL, sums=_SUMS, source="{source}")
_ADDED = (
    f"added AS ({_ADD.format(table='report_day', key=f'tenant_id, {_OF_ALL}', sums=_SUMS, source='change')}),"
    f" added_to_all AS ({_ADD_ALL.format(source='change')})"
)

# As the triggers of report_day keep them (docs/decisions/0070-sums-of-sums.md).
_ADD_SUMS = f"""
INSERT INTO report_sum (kind, tenant_id, day, package_code, supplier, currency, {_SUMS})
SELECT kind, coalesce(tenant_id, 0), of.day, of.package_code, supplier, currency, sum(sold), sum(revenue),
    sum(refunded), sum(refunds), sum(costed), sum(cost)
FROM report_day d
CROSS JOIN LATERAL (VALUES ('DAY', d.day, ''), ('MONTH', date_trunc('month', d.day::timestamp)::date, ''),
    ('PACKAGE_MONTH', date_trunc('month', d.day::timestamp)::date, d.package_code)) AS of(kind, day, package_code)
GROUP BY kind, of.day, of.package_code, supplier, currency, GROUPING SETS ((tenant_id), ())
"""

# $1: how many entries at most. $2: of this dealer; NULL: of all. An order has a line 0, which stands for its entry.
_ENTRIES = f"""
WITH behind AS MATERIALIZED (
    SELECT w.tenant_id, w.currency, coalesce(c.version, 0) AS after,
        least(w.version, coalesce(c.version, 0) + $1) AS upto
    FROM wallet w LEFT JOIN report_cursor c USING (tenant_id)
    WHERE w.version > coalesce(c.version, 0) AND ($2::bigint IS NULL OR w.tenant_id = $2)
), taken AS MATERIALIZED (
    SELECT * FROM (SELECT *, sum(upto - after) OVER (ORDER BY tenant_id) - (upto - after) AS before FROM behind) b
    WHERE before < $1
), entry AS MATERIALIZED (
    SELECT taken.tenant_id, currency, (created_at AT TIME ZONE 'UTC')::date AS day, entry_type, reference, amount
    FROM taken CROSS JOIN LATERAL (SELECT created_at, entry_type, reference, amount FROM ledger_entry e
        WHERE e.tenant_id = taken.tenant_id AND e.version > after AND e.version <= upto OFFSET 0) e
), sold AS MATERIALIZED (
    SELECT e.tenant_id, e.currency, e.day, e.amount AS paid, i.*
    FROM entry e CROSS JOIN LATERAL (
        SELECT line, package_code, coalesce(sold_supplier, supplier) AS supplier, quantity,
            price * quantity * period_num AS revenue, recharges IS NOT NULL AS recharge
        FROM order_item i WHERE i.tenant_id = e.tenant_id AND i.order_id = e.reference OFFSET 0) i
    WHERE e.entry_type = 'ORDER_PAY'
), refunded AS MATERIALIZED (
    SELECT e.tenant_id, e.currency, e.day, i.package_code, coalesce(b.supplier, i.supplier) AS supplier, l.amount
    FROM entry e
    CROSS JOIN LATERAL (SELECT order_id FROM refund r
        WHERE r.tenant_id = e.tenant_id AND r.refund_id = e.reference OFFSET 0) r
    CROSS JOIN LATERAL (SELECT profile_id, line, amount FROM refund_line l
        WHERE l.tenant_id = e.tenant_id AND l.refund_id = e.reference AND status = 'COMPLETED' OFFSET 0) l
    CROSS JOIN LATERAL (SELECT package_code, coalesce(sold_supplier, supplier) AS supplier FROM order_item i
        WHERE i.tenant_id = e.tenant_id AND i.order_id = r.order_id AND i.line = l.line OFFSET 0) i
    LEFT JOIN LATERAL (SELECT supplier FROM purchase b
        WHERE b.tenant_id = e.tenant_id AND b.profile_id = l.profile_id AND state = 'DONE' OFFSET 0) b ON true
    WHERE e.entry_type = 'REFUND'
), change AS (
    SELECT tenant_id, day, package_code, supplier, currency, quantity AS sold, revenue, 0 AS refunded, 0 AS refunds,
        0 AS costed, 0 AS cost FROM sold
    UNION ALL SELECT tenant_id, day, package_code, supplier, currency, 0, 0, 1, amount, 0, 0 FROM refunded
), moved AS (
    SELECT tenant_id, day, CASE WHEN recharge THEN 'RECHARGE' ELSE 'PURCHASE' END AS kind, paid AS amount
    FROM sold WHERE line = 0
    UNION ALL SELECT tenant_id, day, entry_type, amount FROM entry WHERE entry_type <> 'ORDER_PAY'
), {_ADDED}, added_to_wallet AS (
    INSERT INTO wallet_day AS d (tenant_id, day, kind, entries, amount)
    SELECT tenant_id, day, kind, count(*), sum(amount) FROM moved GROUP BY tenant_id, day, kind
    ON CONFLICT (tenant_id, day, kind) DO UPDATE SET entries = d.entries + excluded.entries,
        amount = d.amount + excluded.amount
), advanced AS (
    INSERT INTO report_cursor (tenant_id, version) SELECT tenant_id, upto FROM taken
    ON CONFLICT (tenant_id) DO UPDATE SET version = excluded.version
)
SELECT coalesce(sum(upto - after), 0)::bigint AS entries FROM taken
"""

# What a supplier delivered that the line was not sold for was its sale, not that of the other.
_PURCHASES = f"""
WITH taken AS (
    UPDATE purchase p SET reported = true WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM purchase
        WHERE state IN ('DONE', 'WRITTEN_OFF') AND NOT reported AND ($2::bigint IS NULL OR tenant_id = $2)
        ORDER BY tenant_id, profile_id, position LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING p.tenant_id, p.order_id, p.line, p.state, p.supplier, p.cost, p.cost_currency,
        (coalesce(p.finished_at, p.created_at) AT TIME ZONE 'UTC')::date AS day
), bought AS MATERIALIZED (
    SELECT t.*, i.*, w.currency FROM taken t
    CROSS JOIN LATERAL (
        SELECT package_code, coalesce(sold_supplier, i.supplier) AS sold_for, price * period_num AS price
        FROM order_item i WHERE i.tenant_id = t.tenant_id AND i.order_id = t.order_id AND i.line = t.line OFFSET 0) i
    CROSS JOIN LATERAL (SELECT currency FROM wallet w WHERE w.tenant_id = t.tenant_id OFFSET 0) w
), change AS (
    SELECT tenant_id, day, package_code, supplier, cost_currency AS currency, 0 AS sold, 0 AS revenue, 0 AS refunded,
        0 AS refunds, 1 AS costed, cost FROM bought WHERE cost IS NOT NULL
    UNION ALL SELECT tenant_id, day, package_code, supplier, currency, 1, price, 0, 0, 0, 0
    FROM bought WHERE state = 'DONE' AND supplier <> sold_for
    UNION ALL SELECT tenant_id, day, package_code, sold_for, currency, -1, -price, 0, 0, 0, 0
    FROM bought WHERE state = 'DONE' AND supplier <> sold_for
), {_ADDED}
SELECT count(*) AS purchases FROM taken
"""


# What a dealer's sums were is taken off those of all.
_EMPTY = f"""
WITH gone AS (DELETE FROM report_day WHERE tenant_id = $1 RETURNING *), less AS (
    SELECT day, package_code, supplier, currency, -sold AS sold, -revenue AS revenue, -refunded AS refunded,
        -refunds AS refunds, -costed AS costed, -cost AS cost FROM gone
)
{_ADD_ALL.format(source="less")}
"""


async def lock(session: Session, *, wait: bool) -> bool:
    """Whether no other process adds at present; holds until the transaction ends. `wait`: for the other one. Raises
    LockTimeout."""
    if wait:
        await session.fetch(f"SELECT pg_advisory_xact_lock({_LOCK})")
        return True
    [row] = await session.fetch(f"SELECT pg_try_advisory_xact_lock({_LOCK}) AS taken")
    return bool(row["taken"])


async def add_entries(session: Session, limit: int, tenant_id: int | None = None) -> int:
    """Adds the next entries of the ledger, `limit` of one dealer and less than twice of all; how many."""
    if session.distributed:
        return await fold_by_tenant.add_entries(session, limit, tenant_id)
    [row] = await session.fetch(_ENTRIES, limit, tenant_id)
    return row["entries"]


async def add_purchases(session: Session, limit: int, tenant_id: int | None = None) -> int:
    """Adds what suppliers have delivered or charged; how many purchases."""
    if session.distributed:
        return await fold_by_tenant.add_purchases(session, limit, tenant_id)
    [row] = await session.fetch(_PURCHASES, limit, tenant_id)
    return row["purchases"]


async def behind(session: Session | Connection) -> int:
    """How many entries are not in the sums yet."""
    [row] = await session.fetch(
        "SELECT coalesce(sum(w.version - coalesce(c.version, 0)), 0)::bigint AS entries"
        " FROM wallet w LEFT JOIN report_cursor c USING (tenant_id) WHERE w.version > coalesce(c.version, 0)"
    )
    return row["entries"]


async def begin_rebuild(session: Session, now: datetime) -> datetime:
    """When the rebuild began: now, or when the one that was not finished did."""
    [row] = await session.fetch(
        "INSERT INTO report_rebuild AS r (started_at) VALUES ($1)"
        " ON CONFLICT (one) DO UPDATE SET started_at = r.started_at RETURNING started_at",
        now,
    )
    return row["started_at"]


async def to_rebuild(session: Session, started_at: datetime) -> list[int]:
    """The dealers whose sums this rebuild has not emptied."""
    rows = await session.fetch(
        "SELECT w.tenant_id FROM wallet w LEFT JOIN report_cursor c USING (tenant_id)"
        " WHERE c.rebuilt_at IS NULL OR c.rebuilt_at <> $1 ORDER BY w.tenant_id",
        started_at,
    )
    return [row["tenant_id"] for row in rows]


async def empty(session: Session, tenant_id: int, started_at: datetime) -> None:
    """A dealer's sums begin anew. `lock` first."""
    await session.fetch(_EMPTY, tenant_id)
    await session.fetch("DELETE FROM wallet_day WHERE tenant_id = $1 RETURNING 1", tenant_id)
    await session.fetch("UPDATE purchase SET reported = false WHERE tenant_id = $1 AND reported", tenant_id)
    await session.fetch(
        "INSERT INTO report_cursor (tenant_id, version, rebuilt_at) VALUES ($1, 0, $2)"
        " ON CONFLICT (tenant_id) DO UPDATE SET version = 0, rebuilt_at = excluded.rebuilt_at",
        tenant_id,
        started_at,
    )


async def end_rebuild(session: Session) -> None:
    """The sums of all dealers and of months are made of those of each dealer and day. `lock` first."""
    await session.fetch("DELETE FROM report_all RETURNING 1")
    await session.fetch(_ADD_ALL.format(source="report_day"))
    await session.fetch("DELETE FROM report_sum RETURNING 1")
    await session.fetch(_ADD_SUMS)
    await session.fetch("DELETE FROM report_rebuild RETURNING 1")
