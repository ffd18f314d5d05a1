"""Orders with their lines and profiles: written in batches, found and loaded by key."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import asyncpg

from dealer_server.db.arrays import batch, columns
from dealer_server.db.connection import Connection
from dealer_server.db.rows import columns_of, fields_of
from dealer_server.db.sealing import DataKeys, profile_context
from dealer_server.db.session import Session
from dealer_server.rules.orders.model import STOCK, Item, Order, Profile
from dealer_server.rules.orders.order import ExistingOrder, Placed

# One statement writes a whole batch, or nothing if one of its conditions does not hold: each wallet is at the version
# the batch was decided on, is not frozen, covers its debits and is not locked by another transaction; every
# transactionId is new; the stock has the codes. It waits for no lock: a row locked elsewhere fails the condition.
_WRITE = """
WITH debit AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        AS debit(tenant_id, known_version, orders, profiles, total)
), fit AS MATERIALIZED (
    SELECT 1 FROM debit JOIN wallet USING (tenant_id)
    WHERE version = known_version AND NOT frozen AND balance + credit_limit >= total
    FOR NO KEY UPDATE OF wallet SKIP LOCKED
), placed AS MATERIALIZED (
    SELECT * FROM unnest($6::bigint[], $7::bigint[], $8::text[], $9::bytea[], $10::text[], $11::bigint[], $12::bigint[],
        $13::bigint[], $14::text[])
        AS placed(tenant_id, order_id, transaction_id, digest, currency, amount, version, balance_after, remark)
), line AS MATERIALIZED (
    SELECT * FROM unnest($15::bigint[], $16::bigint[], $17::smallint[], $18::text[], $19::text[], $20::smallint[],
        $21::smallint[], $22::bigint[], $23::bigint[])
        AS line(tenant_id, order_id, line, package_code, supplier, quantity, period_num, price, first_profile_id)
),{free} holds AS MATERIALIZED (
    SELECT (SELECT count(*) FROM fit) = cardinality($1)
        {new}{enough} AS whole
), moved AS (
    UPDATE wallet SET balance = balance - debit.total, version = wallet.version + debit.orders,
        order_count = order_count + debit.orders, profile_count = profile_count + debit.profiles, updated_at = $24
    FROM debit, holds WHERE whole AND wallet.tenant_id = debit.tenant_id
), new_order AS (
    INSERT INTO orders (tenant_id, order_id, transaction_id, digest, currency, amount, remark, updated_at)
    SELECT tenant_id, order_id, transaction_id, digest, currency, amount, remark, $24 FROM placed, holds WHERE whole
), new_entry AS (
    INSERT INTO ledger_entry (tenant_id, version, entry_type, reference, amount, balance_after, created_at)
    SELECT tenant_id, version, 'ORDER_PAY', order_id, -amount, balance_after, $24 FROM placed, holds WHERE whole
), new_item AS (
    INSERT INTO order_item (tenant_id, order_id, line, package_code, supplier, quantity, period_num, price,
        first_profile_id, due_at)
    SELECT tenant_id, order_id, line, package_code, supplier, quantity, period_num, price, first_profile_id, $24
    FROM line, holds WHERE whole
), new_profile AS (
    INSERT INTO profile (tenant_id, profile_id, order_id, line, updated_at)
    SELECT tenant_id, first_profile_id + n, order_id, line, $24
    FROM holds, line, generate_series(0, quantity - 1) AS n WHERE whole
), new_event AS (
    INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, due_at, created_at,
        finished_at)
    SELECT placed.tenant_id, order_id, 'ORDER_PAID', 1,
        CASE WHEN endpoint.tenant_id IS NULL THEN 'SKIPPED' ELSE 'READY' END,
        CASE WHEN endpoint.tenant_id IS NULL THEN NULL ELSE $24 END, $24,
        CASE WHEN endpoint.tenant_id IS NULL THEN $24 END
    FROM holds CROSS JOIN placed LEFT JOIN webhook_endpoint endpoint
        ON endpoint.tenant_id = placed.tenant_id AND endpoint.state = 'ACTIVE' WHERE whole
){taken}
SELECT whole FROM holds
"""

# The codes that a batch takes: the unit with `number` n takes the n-th free code of its package. `remaining` says of
# packages that the batch was decided on as short how many free codes there are, no more and no less.
_FREE = """ unit AS MATERIALIZED (
    SELECT * FROM unnest($25::text[], $26::bigint[], $27::bigint[], $28::int[])
        AS unit(package_code, tenant_id, profile_id, number)
), remaining AS MATERIALIZED (
    SELECT * FROM unnest($29::text[], $30::int[]) AS remaining(package_code, codes)
), free AS MATERIALIZED (
    SELECT package_code, ARRAY(SELECT iccid FROM stock_profile s WHERE s.package_code = needed.package_code
        AND taken_by IS NULL ORDER BY iccid LIMIT needed.count FOR NO KEY UPDATE SKIP LOCKED) AS iccids
    FROM (SELECT package_code, count(*) FROM unit GROUP BY package_code) needed
),"""
_ENOUGH = """
        AND (SELECT coalesce(sum(cardinality(iccids)), 0) FROM free) = (SELECT count(*) FROM unit)
        AND NOT EXISTS (SELECT FROM remaining WHERE codes <> (SELECT count(*) FROM (SELECT FROM stock_profile s
            WHERE s.package_code = remaining.package_code AND taken_by IS NULL LIMIT codes + 1) seen))"""
_TAKEN = """, taken AS (
    UPDATE stock_profile s SET taken_tenant_id = tenant_id, taken_by = profile_id, taken_at = $24
    FROM holds, unit JOIN free USING (package_code) WHERE whole AND s.iccid = iccids[number]
)"""
# A known transactionId is looked up as the next one in order, which only one index can answer: while the statistics
# say that a tenant has no orders, the planner would scan all of them. The check costs an eighth of a large batch, so
# large batches leave it to the unique index, whose violation is an error in PostgreSQL's log.
_NEW = """AND NOT EXISTS (SELECT FROM placed WHERE transaction_id = (SELECT o.transaction_id FROM orders o
            WHERE o.tenant_id = placed.tenant_id AND o.transaction_id >= placed.transaction_id COLLATE "C"
            ORDER BY o.transaction_id LIMIT 1))"""
CHECKED_ORDERS = 8
_WRITE_FROM_STOCK = _WRITE.format(free=_FREE, enough=_ENOUGH, taken=_TAKEN, new=_NEW)
_WRITE_CHECKED = _WRITE.format(free="", enough="", taken="", new=_NEW)
_WRITE = _WRITE.format(free="", enough="", taken="", new="")
_NONE: Mapping[str, int] = {}


async def write(session: Session, placed: Sequence[Placed], remaining: Mapping[str, int] = _NONE) -> bool:
    """Writes orders, lines, profiles, debits, the stock codes they take, their ORDER_PAID events and their fulfillment
    work. False: a condition of the batch does not hold, and nothing was written. `remaining`: the number of free codes
    of stock packages, as the batch was decided on.

    Raises asyncpg.UniqueViolationError for a known transactionId in a large batch, or written at the same moment.
    """
    columns = [*_wallet_columns(placed), *_order_columns(placed), *_line_columns(placed), placed[0].at]
    units = _stock_columns(placed)
    if units or remaining:
        stock = [*(units or [(), (), (), ()]), list(remaining), list(remaining.values())]
        rows = await session.fetch(_WRITE_FROM_STOCK, *columns, *stock)
    else:
        rows = await session.fetch(_WRITE_CHECKED if len(placed) <= CHECKED_ORDERS else _WRITE, *columns)
    return rows[0]["whole"]


def _stock_columns(placed: Sequence[Placed]) -> list[tuple[Any, ...]]:
    """Per profile that takes a code: package, tenant, profile, and its number among those of the package."""
    rows, numbers = [], Counter[str]()
    for order in placed:
        profile_id = order.first_profile_id
        for line in order.request.lines:
            if line.supplier == STOCK:
                for n in range(line.quantity):
                    numbers[line.package_code] += 1
                    rows.append(
                        (line.package_code, order.request.tenant_id, profile_id + n, numbers[line.package_code])
                    )
            profile_id += line.quantity
    return list(zip(*rows, strict=True))


def _wallet_columns(placed: Sequence[Placed]) -> list[list[int]]:
    """Per wallet: tenant, version before, orders, profiles, total."""
    debits: dict[int, list[int]] = {}
    for order in placed:
        request = order.request
        debit = debits.get(request.tenant_id)
        if debit is None:
            debit = debits[request.tenant_id] = [request.tenant_id, order.version - 1, 0, 0, 0]
        debit[2] += 1
        debit[3] += request.profile_count
        debit[4] += request.amount
    return [list(column) for column in zip(*sorted(debits.values()), strict=True)]


def _order_columns(placed: Sequence[Placed]) -> list[tuple[Any, ...]]:
    return list(
        zip(
            *[
                (
                    order.request.tenant_id,
                    order.order_id,
                    order.request.transaction_id,
                    order.request.digest,
                    order.currency,
                    order.request.amount,
                    order.version,
                    order.balance_after,
                    order.request.remark,
                )
                for order in placed
            ],
            strict=True,
        )
    )


def _line_columns(placed: Sequence[Placed]) -> list[tuple[Any, ...]]:
    rows = []
    for order in placed:
        tenant_id, order_id, first = order.request.tenant_id, order.order_id, order.first_profile_id
        for number, line in enumerate(order.request.lines):
            rows.append(
                (
                    tenant_id,
                    order_id,
                    number,
                    line.package_code,
                    line.supplier,
                    line.quantity,
                    line.period_num,
                    line.price,
                    first,
                )
            )
            first += line.quantity
    return list(zip(*rows, strict=True))


async def find(session: Session | Connection, keys: Sequence[tuple[int, str]]) -> dict[tuple[int, str], ExistingOrder]:
    """The orders that already carry these (tenant_id, transactionId)."""
    rows = await session.fetch(
        f"SELECT o.* FROM {batch('key', tenant_id='bigint', transaction_id='text')} CROSS JOIN LATERAL"
        " (SELECT tenant_id, transaction_id, order_id, digest FROM orders o"
        " WHERE o.tenant_id = key.tenant_id AND o.transaction_id = key.transaction_id OFFSET 0) o",
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    return {
        (row["tenant_id"], row["transaction_id"]): ExistingOrder(order_id=row["order_id"], digest=row["digest"])
        for row in rows
    }


async def confirm(session: Session) -> None:
    """Returns once everything this session has read is also at the synchronous standby.

    A commit whose session was lost may become visible before the standby has it.
    """
    await session.fetch("SELECT pg_logical_emit_message(true, 'esim-dealer', '')")


async def ids(session: Session | Connection, keys: Sequence[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """The orderIds of these (tenant_id, transactionId)."""
    return {key: existing.order_id for key, existing in (await find(session, keys)).items()}


# One row per profile: the fields of its order, those of its line, its own. The list of columns is made of the classes'
# fields, so that slices of a row are their arguments; by name, each row would take ten times as long. OFFSET 0: each
# order is looked up by its key, whatever the statistics say.
_LOAD = f"""
SELECT {columns_of(Order, "items", table="o")}, {columns_of(Item, "profiles", table="i")},
    {columns_of(Profile, table="p")}
FROM {batch("key", tenant_id="bigint", order_id="bigint")}
CROSS JOIN LATERAL (SELECT * FROM orders o
    WHERE o.tenant_id = key.tenant_id AND o.order_id = key.order_id OFFSET 0) o
CROSS JOIN LATERAL (SELECT * FROM order_item i
    WHERE i.tenant_id = key.tenant_id AND i.order_id = key.order_id OFFSET 0) i
CROSS JOIN LATERAL (SELECT * FROM profile p WHERE p.tenant_id = key.tenant_id
    AND p.profile_id >= i.first_profile_id AND p.profile_id < i.first_profile_id + i.quantity OFFSET 0) p
"""
_ITEM_FROM = len(fields_of(Order, "items"))
_PROFILE_FROM = _ITEM_FROM + len(fields_of(Item, "profiles"))
_PROFILE_ID, _ACTIVATION_CODE = map(fields_of(Profile).index, ("profile_id", "activation_code"))
_of_order = itemgetter("tenant_id", "order_id")


async def key_of(connection: Connection, order_id: int) -> tuple[int, int] | None:
    """(tenant_id, order_id): orderIds are unique over all tenants."""
    row = await connection.fetchrow(
        "SELECT o.tenant_id, o.order_id FROM tenant t CROSS JOIN LATERAL (SELECT tenant_id, order_id FROM orders o"
        " WHERE o.tenant_id = t.tenant_id AND o.order_id = $1) o",
        order_id,
    )
    return _of_order(row) if row else None


async def exists(connection: Session | Connection, tenant_id: int, order_id: int) -> bool:
    return bool(
        await connection.fetch("SELECT 1 FROM orders WHERE tenant_id = $1 AND order_id = $2", tenant_id, order_id)
    )


async def load(
    session: Session | Connection, keys: Sequence[tuple[int, int]], data_keys: DataKeys
) -> dict[tuple[int, int], Order]:
    """The orders of these (tenant_id, orderId) with their lines and profiles; without those that do not exist."""
    rows = await session.fetch(_LOAD, [key[0] for key in keys], [key[1] for key in keys])
    grouped: dict[tuple[int, int], list[asyncpg.Record]] = {}
    for row in rows:
        grouped.setdefault(_of_order(row), []).append(row)
    return {key: _order(rows, data_keys) for key, rows in grouped.items()}


def _order(rows: list[asyncpg.Record], data_keys: DataKeys) -> Order:
    first = rows[0]
    if len(rows) > 1:
        rows.sort(key=itemgetter("profile_id"))  # profile ids of an order follow its lines
    tenant_id = first["tenant_id"]
    items: list[Item] = []
    at = 0
    while at < len(rows):
        row = rows[at]
        quantity = row["quantity"]
        profiles = tuple([_profile(tenant_id, of_profile, data_keys) for of_profile in rows[at : at + quantity]])
        items.append(Item(*row[_ITEM_FROM:_PROFILE_FROM], profiles=profiles))
        at += quantity
    return Order(*first[:_ITEM_FROM], items=tuple(items))


def _profile(tenant_id: int, row: asyncpg.Record, data_keys: DataKeys) -> Profile:
    values = list(row[_PROFILE_FROM:])
    sealed = values[_ACTIVATION_CODE]
    if sealed is not None:
        values[_ACTIVATION_CODE] = data_keys.open(sealed, profile_context(tenant_id, values[_PROFILE_ID])).decode()
    return Profile(*values)


async def lock(
    session: Connection | Session, keys: Sequence[tuple[int, int]], *, wait: bool = True
) -> set[tuple[int, int]]:
    """Locks orders, in the order of their keys, until the transaction ends; without `wait` only those that no other
    transaction holds. Returns the (tenant_id, orderId) of the locked ones."""
    rows = await session.fetch(
        f"SELECT o.* FROM {batch('key', tenant_id='bigint', order_id='bigint')} CROSS JOIN LATERAL"
        " (SELECT tenant_id, order_id FROM orders o WHERE o.tenant_id = key.tenant_id AND o.order_id = key.order_id"
        f" FOR NO KEY UPDATE{'' if wait else ' SKIP LOCKED'}) o",
        *columns(sorted(set(keys)), 2),
    )
    return {_of_order(row) for row in rows}


async def next_block(connection: Session | Connection, kind: str, first_now: int, size: int) -> int:
    """The first of `size` ids that were never handed out, not below `first_now`. One row counts, so that no clock can
    repeat an id.

    It needs no flush of its own: the rows that use an id come later in the same write-ahead log.
    """
    rows = await connection.fetch(
        "UPDATE id_block SET next = greatest(next, $2) + $3 WHERE kind = $1 RETURNING next - $3 AS first",
        kind,
        first_now,
        size,
    )
    return rows[0]["first"]
