"""How are the orders of one dealer written where tables are distributed by tenant?

In one transaction of the dealer's node: what one statement does on plain PostgreSQL (store/orders/order.py) is a
statement for each table here, as Citus runs an INSERT on its node only where it is a statement of its own. Each reads
the wallet, which names the node. Codes of the stock are taken in the same transaction, which commits in two phases.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dealer_server.db.session import Session


class Found(NamedTuple):
    """The wallet as the debit found it."""

    version: int
    balance: int


_MOVED = """balance = w.balance - $4, version = w.version + $2, order_count = w.order_count + $2,
    profile_count = w.profile_count + $3, updated_at = $5"""
_DEBIT = f"""
WITH fit AS MATERIALIZED (
    SELECT tenant_id, version, balance FROM wallet
    WHERE tenant_id = $1 AND NOT frozen AND balance + credit_limit >= $4 FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE wallet w SET {_MOVED}
    FROM fit WHERE w.tenant_id = $1 AND w.tenant_id = fit.tenant_id
)
SELECT version, balance FROM fit
"""
# It waits for the wallet by the UPDATE: after a lock that waited, an UPDATE of the same statement could deadlock
# (store/orders/order.py).
_DEBIT_WAITING = f"""
UPDATE wallet w SET {_MOVED}
WHERE tenant_id = $1 AND NOT frozen AND balance + credit_limit >= $4
RETURNING version - $2 AS version, balance + $4 AS balance
"""
_UNCOVERED = "SELECT FROM wallet WHERE tenant_id = $1 AND (frozen OR balance + credit_limit < $2)"

_OF_WALLET = "FROM wallet w CROSS JOIN unnest({arrays}) AS given({columns}) {more} WHERE w.tenant_id = $1"


def _insert(table: str, columns: str, selected: str, more: str = "", **arrays: str) -> str:
    """An INSERT of the rows in arrays from $3; $1: the tenant, $2: the time."""
    typed = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(arrays.values(), 3))
    source = _OF_WALLET.format(arrays=typed, columns=", ".join(arrays), more=more)
    return f"INSERT INTO {table} (tenant_id, {columns}) SELECT w.tenant_id, {selected} {source}"


_ORDERS = _insert(
    "orders",
    "order_id, transaction_id, digest, currency, amount, remark, updated_at",
    "given.order_id, given.transaction_id, given.digest, given.currency, given.amount, given.remark, $2::timestamptz",
    order_id="bigint",
    transaction_id="text",
    digest="bytea",
    currency="text",
    amount="bigint",
    remark="text",
)
_ENTRIES = _insert(
    "ledger_entry",
    "version, entry_type, reference, amount, balance_after, created_at",
    "given.version, 'ORDER_PAY', given.order_id, -given.amount, given.balance, $2::timestamptz",
    version="bigint",
    order_id="bigint",
    amount="bigint",
    balance="bigint",
)
_LINE = {
    "order_id": "bigint",
    "line": "smallint",
    "package_code": "text",
    "supplier": "text",
    "quantity": "smallint",
    "period_num": "smallint",
    "price": "bigint",
    "first_profile_id": "bigint",
}
_RECHARGED = {"recharges": "bigint", "plan_no": "smallint", "recharges_order_id": "bigint"}
_ITEMS = _insert(
    "order_item",
    "order_id, line, package_code, supplier, quantity, period_num, price, first_profile_id, due_at, recharges,"
    " recharges_order_id",
    "given.order_id, given.line, given.package_code, given.supplier, given.quantity, given.period_num, given.price,"
    " given.first_profile_id, $2::timestamptz, given.recharges, given.recharges_order_id",
    **_LINE,
    **_RECHARGED,
)
_PROFILES = _insert(
    "profile",
    "profile_id, order_id, line, updated_at, recharges, plan_no",
    "given.first_profile_id + n, given.order_id, given.line, $2::timestamptz, given.recharges,"
    " coalesce(given.plan_no, 1)",
    "CROSS JOIN LATERAL generate_series(0, given.quantity - 1) AS n",
    **_LINE,
    **_RECHARGED,
)
_EVENTS = _insert(
    "webhook_delivery",
    "delivery_id, order_id, event_type, order_version, state, due_at, created_at, finished_at",
    "given.delivery_id, given.order_id, 'ORDER_PAID', 1,"
    " CASE WHEN e.tenant_id IS NULL THEN 'SKIPPED' ELSE 'READY' END,"
    " CASE WHEN e.tenant_id IS NOT NULL THEN $2::timestamptz END, $2::timestamptz,"
    " CASE WHEN e.tenant_id IS NULL THEN $2::timestamptz END",
    "LEFT JOIN webhook_endpoint e ON e.tenant_id = w.tenant_id AND e.state = 'ACTIVE'",
    delivery_id="bigint",
    order_id="bigint",
)
_IDS = """
SELECT nextval(pg_get_serial_sequence('webhook_delivery', 'delivery_id')) AS delivery_id FROM generate_series(1, $1)
"""
# The eSIMs that are recharged: their orders are as they were looked at, and no other transaction holds them.
_ESIMS = """
SELECT order_id FROM orders o WHERE tenant_id = $1 AND EXISTS (
    SELECT FROM unnest($2::bigint[], $3::int[]) AS seen(order_id, version)
    WHERE seen.order_id = o.order_id AND seen.version = o.version) FOR NO KEY UPDATE SKIP LOCKED
"""
_REMAINING = """
SELECT count(*) FROM unnest($1::text[], $2::int[]) AS remaining(package_code, codes)
WHERE codes <> (SELECT count(*) FROM (SELECT FROM stock_profile s
    WHERE s.package_code = remaining.package_code AND taken_by IS NULL LIMIT codes + 1) seen)
"""
_TAKE = """
UPDATE stock_profile SET taken_tenant_id = $1, taken_by = taken.profile_id, taken_at = $2
FROM (SELECT free.iccid, unit.profile_id FROM unnest($4::bigint[]) WITH ORDINALITY AS unit(profile_id, number)
    JOIN (SELECT iccid, row_number() OVER (ORDER BY iccid) AS number FROM (
        SELECT iccid FROM stock_profile WHERE package_code = $3 AND taken_by IS NULL
        ORDER BY iccid LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED) locked) free USING (number)) taken
WHERE stock_profile.iccid = taken.iccid RETURNING 1
"""


class NotWhole(Exception):
    """The stock lacks codes, or an eSIM that is recharged has changed: nothing may be written."""


class Rows(NamedTuple):
    """The rows of one dealer's orders. `spent`: the debits up to each order. `recharges`: (eSIM, plan_no, order_id,
    version seen) of each line. `units`: the profiles that take a code, by package."""

    tenant_id: int
    at: object
    orders: Sequence[tuple[Any, ...]]
    lines: Sequence[tuple[Any, ...]]
    recharges: Sequence[tuple[Any, ...]]
    units: Mapping[str, Sequence[int]]

    @property
    def total(self) -> int:
        return sum(order[4] for order in self.orders)

    @property
    def profiles(self) -> int:
        return 0 if self.recharges else sum(line[4] for line in self.lines)


async def write(session: Session, rows: Rows, remaining: Mapping[str, int], *, wait: bool) -> bool | None:
    """True: written. False: the wallet is frozen or does not cover the debits; None: another transaction holds it. Call
    it inside a transaction. Raises NotWhole, UniqueViolationError: roll it back then."""
    tenant_id, total = rows.tenant_id, rows.total
    debit = _DEBIT_WAITING if wait else _DEBIT
    found = await session.fetch(debit, tenant_id, len(rows.orders), rows.profiles, total, rows.at)
    if not found:
        return False if await session.fetch(_UNCOVERED, tenant_id, total) else None
    wallet = Found(**found[0])
    if rows.recharges:
        seen = {(order_id, version) for _, _, order_id, version in rows.recharges}
        held = await session.fetch(_ESIMS, tenant_id, *[list(column) for column in zip(*seen, strict=True)])
        if len(held) != len(seen):
            raise NotWhole
    await _take_codes(session, rows, remaining)
    await _insert_rows(session, rows, wallet)
    return True


async def _insert_rows(session: Session, rows: Rows, wallet: Found) -> None:
    entries, spent = [], 0
    for number, order in enumerate(rows.orders, 1):
        spent += order[4]
        entries.append((wallet.version + number, order[0], order[4], wallet.balance - spent))
    await session.fetch(_ORDERS, rows.tenant_id, rows.at, *_columns(rows.orders))
    await session.fetch(_ENTRIES, rows.tenant_id, rows.at, *_columns(entries))
    recharged = [row[:3] for row in rows.recharges] or [(None, None, None)] * len(rows.lines)
    lines = _columns([(*line, *recharge) for line, recharge in zip(rows.lines, recharged, strict=True)])
    await session.fetch(_ITEMS, rows.tenant_id, rows.at, *lines)
    await session.fetch(_PROFILES, rows.tenant_id, rows.at, *lines)
    ids = [row["delivery_id"] for row in await session.fetch(_IDS, len(rows.orders))]
    await session.fetch(_EVENTS, rows.tenant_id, rows.at, ids, [order[0] for order in rows.orders])


async def _take_codes(session: Session, rows: Rows, remaining: Mapping[str, int]) -> None:
    for package_code in sorted(rows.units):
        profiles = rows.units[package_code]
        taken = await session.fetch(_TAKE, rows.tenant_id, rows.at, package_code, list(profiles), len(profiles))
        if len(taken) != len(profiles):
            raise NotWhole
    if remaining:
        expected = {code: count - len(rows.units.get(code, ())) for code, count in remaining.items()}
        [row] = await session.fetch(_REMAINING, list(expected), list(expected.values()))
        if row["count"]:
            raise NotWhole


def _columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
