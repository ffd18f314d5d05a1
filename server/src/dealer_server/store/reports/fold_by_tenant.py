"""How do a dealer's ledger entries and purchases get into the sums where tables are distributed by tenant?

The dealer's node says what they add up to; the sums stand on the coordinator. Both are written in one transaction,
which commits in two phases, so that each entry is added exactly once, as on plain PostgreSQL (store/reports/fold.py).
"""

from collections.abc import Mapping

from dealer_server.db.by_tenant import OF_ALL, of_all
from dealer_server.db.session import Session
from dealer_server.store.distribution.due import fetch_all

_SUMS = ("sold", "revenue", "refunded", "refunds", "costed", "cost")
_KEY = ("day", "package_code", "supplier", "currency")
_TYPES: Mapping[str, str] = {
    "day": "date", "package_code": "text", "supplier": "text", "currency": "text",
    **dict.fromkeys(_SUMS, "bigint"),
}  # fmt: skip
_GIVEN = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(_TYPES.values(), 1))
_ADDED = ", ".join(f"{name} = r.{name} + excluded.{name}" for name in _SUMS)


def _add(table: str, key: str, more: str = "") -> str:
    return (
        f"INSERT INTO {table} AS r ({key}{', '.join(_TYPES)}) SELECT {more}given.* FROM unnest({_GIVEN})"
        f" AS given({', '.join(_TYPES)}) ON CONFLICT ({key}{', '.join(_KEY)}) DO UPDATE SET {_ADDED}"
    )


_ADD_DAY = _add("report_day", "tenant_id, ", "$11::bigint, ")
_ADD_ALL = _add("report_all", "")
_ADD_WALLET = """
INSERT INTO wallet_day AS d (tenant_id, day, kind, entries, amount)
SELECT $1::bigint, given.* FROM unnest($2::date[], $3::text[], $4::bigint[], $5::bigint[])
    AS given(day, kind, entries, amount)
ON CONFLICT (tenant_id, day, kind) DO UPDATE SET entries = d.entries + excluded.entries,
    amount = d.amount + excluded.amount
"""
_BEHIND = f"""
SELECT w.tenant_id, coalesce(c.version, 0) AS after, w.version AS upto
FROM wallet w LEFT JOIN report_cursor c ON c.tenant_id = w.tenant_id
WHERE {of_all("w")} w.version > coalesce(c.version, 0) AND ($1::bigint IS NULL OR w.tenant_id = $1) ORDER BY 1 LIMIT $2
"""
# Only from where it was read: after a crash of the coordinator a node finishes what it has prepared a little later, so
# that a reader may still see the cursor before it.
_ADVANCE = """
INSERT INTO report_cursor AS c (tenant_id, version) VALUES ($1, $2)
ON CONFLICT (tenant_id) DO UPDATE SET version = excluded.version WHERE c.version = $3 RETURNING 1
"""
# $1: the dealer; its entries after $2 up to $3. An order has a line 0, which stands for its entry.
_ENTRY = """
SELECT w.currency, (e.created_at AT TIME ZONE 'UTC')::date AS day, e.entry_type, e.reference, e.amount
FROM wallet w JOIN ledger_entry e ON e.tenant_id = w.tenant_id AND e.version > $2 AND e.version <= $3
WHERE w.tenant_id = $1
"""
_SOLD = f"""
SELECT e.currency, e.day, e.amount AS paid, i.line, i.package_code, coalesce(i.sold_supplier, i.supplier) AS supplier,
    i.quantity, i.price * i.quantity * i.period_num AS revenue, i.recharges IS NOT NULL AS recharge
FROM ({_ENTRY}) e JOIN order_item i ON i.tenant_id = $1 AND i.order_id = e.reference WHERE e.entry_type = 'ORDER_PAY'
"""
_CHANGED = f"""
SELECT day, package_code, supplier, currency, sum(sold)::bigint AS sold, sum(revenue)::bigint AS revenue,
    sum(refunded)::bigint AS refunded, sum(refunds)::bigint AS refunds, 0::bigint AS costed, 0::bigint AS cost
FROM (
    SELECT day, package_code, supplier, currency, quantity::bigint AS sold, revenue, 0::bigint AS refunded,
        0::bigint AS refunds FROM ({_SOLD}) sold
    UNION ALL
    SELECT e.day, i.package_code, coalesce(b.supplier, i.sold_supplier, i.supplier), e.currency, 0, 0, 1, l.amount
    FROM ({_ENTRY}) e JOIN refund r ON r.tenant_id = $1 AND r.refund_id = e.reference
    JOIN refund_line l ON l.tenant_id = $1 AND l.refund_id = r.refund_id AND l.status = 'COMPLETED'
    JOIN order_item i ON i.tenant_id = $1 AND i.order_id = r.order_id AND i.line = l.line
    LEFT JOIN purchase b ON b.tenant_id = $1 AND b.profile_id = l.profile_id AND b.state = 'DONE'
    WHERE e.entry_type = 'REFUND'
) change GROUP BY day, package_code, supplier, currency
"""
_MOVED = f"""
SELECT day, kind, count(*) AS entries, sum(amount)::bigint AS amount FROM (
    SELECT day, CASE WHEN recharge THEN 'RECHARGE' ELSE 'PURCHASE' END AS kind, paid AS amount
    FROM ({_SOLD}) sold WHERE line = 0
    UNION ALL SELECT day, entry_type, amount FROM ({_ENTRY}) e WHERE entry_type <> 'ORDER_PAY'
) moved GROUP BY day, kind
"""
_TO_REPORT = f"""
SELECT tenant_id FROM purchase WHERE {OF_ALL} state IN ('DONE', 'WRITTEN_OFF') AND NOT reported
    AND ($1::bigint IS NULL OR tenant_id = $1) ORDER BY tenant_id LIMIT $2
"""
_TAKE = """
UPDATE purchase p SET reported = true
FROM order_item i, wallet w, (SELECT profile_id, position FROM purchase
    WHERE tenant_id = $1 AND state IN ('DONE', 'WRITTEN_OFF') AND NOT reported
    ORDER BY profile_id, position LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) t
WHERE p.tenant_id = $1 AND p.profile_id = t.profile_id AND p.position = t.position
    AND i.tenant_id = $1 AND i.order_id = p.order_id AND i.line = p.line AND w.tenant_id = $1
RETURNING (coalesce(p.finished_at, p.created_at) AT TIME ZONE 'UTC')::date AS day, i.package_code, p.state, p.supplier,
    p.cost, p.cost_currency, coalesce(i.sold_supplier, i.supplier) AS sold_for, i.price * i.period_num AS price,
    w.currency
"""
DEALERS_AT_ONCE = 100
Sums = dict[tuple[object, ...], list[int]]


async def add_entries(session: Session, limit: int, tenant_id: int | None) -> int:
    """The next entries, dealer by dealer; how many."""
    added = 0
    for row in await fetch_all(session, _BEHIND, tenant_id, DEALERS_AT_ONCE):
        dealer, after, upto = row["tenant_id"], row["after"], min(row["upto"], row["after"] + limit)
        if not await session.fetch(_ADVANCE, dealer, upto, after):
            continue
        changed = await session.fetch(_CHANGED, dealer, after, upto)
        moved = await session.fetch(_MOVED, dealer, after, upto)
        await _add_sums(session, dealer, {tuple(r[n] for n in _KEY): [r[n] for n in _SUMS] for r in changed})
        if moved:
            columns = [[r[name] for r in moved] for name in ("day", "kind", "entries", "amount")]
            await session.fetch(_ADD_WALLET, dealer, *columns)
        added += upto - after
        if added >= limit:
            break
    return added


async def add_purchases(session: Session, limit: int, tenant_id: int | None) -> int:
    """What suppliers delivered or charged, dealer by dealer. What a supplier delivered that the line was not sold
    for was its sale, not that of the other."""
    added = 0
    waiting = await fetch_all(session, _TO_REPORT, tenant_id, limit)
    for dealer in dict.fromkeys([row["tenant_id"] for row in waiting]):
        taken = await session.fetch(_TAKE, dealer, limit)
        sums: Sums = {}
        for bought in taken:
            day, package_code = bought["day"], bought["package_code"]
            if bought["cost"] is not None:
                _count(
                    sums,
                    (day, package_code, bought["supplier"], bought["cost_currency"]),
                    costed=1,
                    cost=bought["cost"],
                )
            if bought["state"] == "DONE" and bought["supplier"] != bought["sold_for"]:
                for supplier, sign in ((bought["supplier"], 1), (bought["sold_for"], -1)):
                    key = day, package_code, supplier, bought["currency"]
                    _count(sums, key, sold=sign, revenue=sign * bought["price"])
        await _add_sums(session, dealer, sums)
        added += len(taken)
        if added >= limit:
            break
    return added


def _count(sums: Sums, key: tuple[object, ...], **added: int) -> None:
    of_key = sums.setdefault(key, [0] * len(_SUMS))
    for name, number in added.items():
        of_key[_SUMS.index(name)] += number


async def _add_sums(session: Session, tenant_id: int, sums: Sums) -> None:
    if sums:
        columns = [list(column) for column in zip(*[(*key, *added) for key, added in sums.items()], strict=True)]
        await session.fetch(_ADD_DAY, *columns, tenant_id)
        await session.fetch(_ADD_ALL, *columns)
