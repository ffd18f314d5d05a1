"""Orders with their lines and profiles: written in batches, found and loaded by key."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import asyncpg
import msgspec

from dealer_server.db.arrays import batch, columns
from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.db.rows import columns_of, fields_of
from dealer_server.db.sealing import DataKeys, profile_context
from dealer_server.db.session import Session
from dealer_server.rules.orders.model import STOCK, Item, Order, Profile
from dealer_server.rules.orders.order import ExistingOrder, NextPlan, Placed
from dealer_server.rules.recharges.recharge import Fit
from dealer_server.store.orders import write_by_tenant
from dealer_server.store.orders.write_by_tenant import NotWhole
from dealer_server.store.profiles import plans
from dealer_server.store.recharges.recharge import NEXT_PLAN

# One statement writes a whole batch, except the orders of wallets that are frozen, do not cover their debits or are
# locked by another transaction. It writes nothing at all where a transactionId is known, the stock lacks codes, or the
# order of an eSIM that is recharged has changed. It waits for no lock, unless it shall wait for wallets. Debits are
# relative to the wallet as its lock finds it, whoever moved it last: an order is the `number`th of the wallet at this
# `place` of the debits, `spent` their total up to it.
_WRITE = """
WITH debit AS MATERIALIZED (
    SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        AS debit(place, tenant_id, orders, profiles, total)
), found AS MATERIALIZED (
    SELECT debit.*, version, balance FROM debit LEFT JOIN LATERAL (
        SELECT version, balance FROM wallet
        WHERE wallet.tenant_id = debit.tenant_id AND NOT frozen AND balance + credit_limit >= total
        FOR NO KEY UPDATE{skip}) fit ON true
), placed AS MATERIALIZED (
    SELECT * FROM unnest($6::int[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::bytea[],
        $13::text[], $14::bigint[], $15::text[])
        AS placed(place, number, spent, tenant_id, order_id, transaction_id, digest, currency, amount, remark)
), line AS MATERIALIZED (
    SELECT * FROM unnest($16::int[], $17::bigint[], $18::bigint[], $19::smallint[], $20::text[], $21::text[],
        $22::smallint[], $23::smallint[], $24::bigint[], $25::bigint[]{recharge_types})
        AS asked(place, tenant_id, order_id, line, package_code, supplier, quantity, period_num, price,
            first_profile_id{recharge_line}){next_plan}
),{free}{esims} holds AS MATERIALIZED (
    SELECT true {new}{enough}{unchanged} AS whole, versions, balances
    FROM (SELECT array_agg(coalesce(version, -1) ORDER BY place) AS versions,
        array_agg(coalesce(balance, 0) ORDER BY place) AS balances FROM found) known
), moved AS ({moved}
), new_order AS (
    INSERT INTO orders (tenant_id, order_id, transaction_id, digest, currency, amount, remark, updated_at)
    SELECT tenant_id, order_id, transaction_id, digest, currency, amount, remark, $26
    FROM placed, holds WHERE whole AND versions[place] >= 0
), new_entry AS (
    INSERT INTO ledger_entry (tenant_id, version, entry_type, reference, amount, balance_after, created_at)
    SELECT tenant_id, versions[place] + number, 'ORDER_PAY', order_id, -amount, balances[place] - spent, $26
    FROM placed, holds WHERE whole AND versions[place] >= 0
), new_item AS (
    INSERT INTO order_item (tenant_id, order_id, line, package_code, supplier, quantity, period_num, price,
        first_profile_id, due_at{recharge_item})
    SELECT tenant_id, order_id, line, package_code, supplier, quantity, period_num, price, first_profile_id,
        $26{recharge_item}
    FROM line, holds WHERE whole AND versions[place] >= 0
), new_profile AS (
    INSERT INTO profile (tenant_id, profile_id, order_id, line, updated_at{recharge})
    SELECT tenant_id, {profile_id}, order_id, line, $26{recharge}
    FROM holds, line{each} WHERE whole AND versions[place] >= 0
), new_event AS (
    INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, due_at, created_at,
        finished_at)
    SELECT placed.tenant_id, order_id, 'ORDER_PAID', 1,
        CASE WHEN endpoint.tenant_id IS NULL THEN 'SKIPPED' ELSE 'READY' END,
        CASE WHEN endpoint.tenant_id IS NULL THEN NULL ELSE $26 END, $26,
        CASE WHEN endpoint.tenant_id IS NULL THEN $26 END
    FROM holds CROSS JOIN placed LEFT JOIN webhook_endpoint endpoint
        ON endpoint.tenant_id = placed.tenant_id AND endpoint.state = 'ACTIVE' WHERE whole AND versions[place] >= 0
){taken}
SELECT whole, ARRAY(SELECT tenant_id FROM found WHERE version IS NULL) AS missed,
    CASE WHEN -1 = ANY (versions) THEN ARRAY(SELECT tenant_id FROM debit JOIN wallet USING (tenant_id)
        WHERE frozen OR balance + credit_limit < total) END AS uncovered{plans}
FROM holds
"""

_MOVED = """
    UPDATE wallet SET balance = wallet.balance - total, version = wallet.version + orders,
        order_count = order_count + orders, profile_count = profile_count + profiles, updated_at = $26
    FROM found, holds WHERE whole AND found.version IS NOT NULL AND wallet.tenant_id = found.tenant_id"""
# After it waited, the statement still sees the wallet as it was before. An UPDATE would go from there to the wallet as
# it is now, by way of a lock that another one which waits for the wallet may hold: a deadlock, if a third transaction
# shares the old row (a foreign key does). INSERT finds the row as it is now. None is inserted: there is one.
_MOVED_NOW = """
    INSERT INTO wallet AS w (tenant_id, currency, balance, version, order_count, profile_count, updated_at)
    SELECT found.tenant_id, '', total, orders, orders, profiles, $26
    FROM found, holds WHERE whole AND found.version IS NOT NULL
    ON CONFLICT (tenant_id) DO UPDATE SET balance = w.balance - excluded.balance,
        version = w.version + excluded.version, order_count = w.order_count + excluded.order_count,
        profile_count = w.profile_count + excluded.profile_count, updated_at = excluded.updated_at"""
# The codes that a batch takes: the unit with `number` n takes the n-th free code of its package. `remaining` says of
# packages that the batch was decided on as short how many free codes there are, no more and no less.
_FREE = """ unit AS MATERIALIZED (
    SELECT * FROM unnest($27::int[], $28::text[], $29::bigint[], $30::bigint[], $31::int[])
        AS unit(place, package_code, tenant_id, profile_id, number)
), remaining AS MATERIALIZED (
    SELECT * FROM unnest($32::text[], $33::int[]) AS remaining(package_code, codes)
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
    UPDATE stock_profile s SET taken_tenant_id = tenant_id, taken_by = profile_id, taken_at = $26
    FROM holds, unit JOIN free USING (package_code)
    WHERE whole AND versions[place] >= 0 AND s.iccid = iccids[number]
)"""
# The eSIMs that a batch recharges: their orders are as they were looked at, and no other transaction holds them.
_ESIMS = """ esim AS MATERIALIZED (
    SELECT seen.order_id IS NOT NULL AS unchanged FROM line LEFT JOIN LATERAL (
        SELECT order_id FROM orders o WHERE o.tenant_id = line.tenant_id AND o.order_id = line.recharges_order_id
            AND o.version = line.seen_version FOR NO KEY UPDATE SKIP LOCKED) seen ON true
),"""
_UNCHANGED = """
        AND NOT EXISTS (SELECT FROM esim WHERE NOT unchanged)"""
_RECHARGE_TYPES = ", $27::bigint[], $28::smallint[], $29::bigint[], $30::int[]"
_RECHARGE_LINE = ", recharges, plan_no, recharges_order_id, seen_version"
# The same statement may find their next plans: that of an eSIM which cannot be recharged is NULL, as is its order.
_NEXT_PLANS = f"""
        LEFT JOIN LATERAL ({NEXT_PLAN}) next_plan ON true"""
_FINDING_TYPES = ", $27::bigint[], $28::text[], $29::text[]"
_FINDING_LINE = ", recharges, kind, bases"
_FIND_NEXT_PLANS = f"""
SELECT asked.recharges AS profile_id, next_plan.*
FROM {batch("asked", tenant_id="bigint", recharges="bigint", supplier="text", kind="text", bases="text")}
CROSS JOIN LATERAL ({NEXT_PLAN}) next_plan
"""
_PLANS_FOUND = """,
    ARRAY(SELECT plan_no FROM line ORDER BY order_id) AS plan_nos,
    ARRAY(SELECT iccid FROM line ORDER BY order_id) AS iccids"""
# A known transactionId is looked up as the next one in order, which only one index can answer: while the statistics
# say that a tenant has few orders, the planner would scan all of them. The check costs an eighth of a large batch, so
# large batches leave it to the unique index, whose violation is an error in PostgreSQL's log.
_NEW = """AND NOT EXISTS (SELECT FROM placed WHERE (transaction_id, tenant_id) = (
            SELECT o.transaction_id, o.tenant_id FROM orders o
            WHERE (o.transaction_id, o.tenant_id) >= (placed.transaction_id COLLATE "C", placed.tenant_id)
            ORDER BY o.transaction_id, o.tenant_id LIMIT 1))"""
CHECKED_ORDERS = 8
_NONE: Mapping[str, int] = {}


@cache
def write_statement(
    *,
    from_stock: bool = False,
    recharging: bool = False,
    finding: bool = False,
    checked: bool = False,
    wait: bool = False,
) -> str:
    """`from_stock`: it takes codes from the stock. `recharging`: it recharges eSIMs (never both). `finding`: it finds
    their next plans itself. `checked`: it looks for known transactionIds. `wait`: it waits for wallets that another
    transaction holds."""
    free, enough, taken = (_FREE, _ENOUGH, _TAKEN) if from_stock else ("", "", "")
    return _WRITE.format(
        free=free,
        enough=enough,
        taken=taken,
        new=_NEW if checked else "",
        skip="" if wait else " SKIP LOCKED",
        moved=_MOVED_NOW if wait else _MOVED,
        esims=_ESIMS if recharging else "",
        unchanged=_UNCHANGED if recharging else "",
        recharge_types=_FINDING_TYPES if finding else _RECHARGE_TYPES if recharging else "",
        recharge_line=_FINDING_LINE if finding else _RECHARGE_LINE if recharging else "",
        next_plan=_NEXT_PLANS if finding else "",
        plans=_PLANS_FOUND if finding else "",
        recharge_item=", recharges, recharges_order_id" if recharging else "",
        recharge=", recharges, plan_no" if recharging else "",
        profile_id="first_profile_id" if recharging else "first_profile_id + n",
        each="" if recharging else ", generate_series(0, quantity - 1) AS n",
    )


class Written(NamedTuple):
    """Whether a batch was written, except the orders of some tenants: `uncovered` are those whose wallets are frozen or
    do not cover their debits, `held` those whose wallets another transaction holds."""

    done: bool
    uncovered: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()

    @property
    def whole(self) -> bool:
        return self.done and not self.uncovered and not self.held


async def write(
    session: Session, placed: Sequence[Placed], remaining: Mapping[str, int] = _NONE, *, wait: bool = False
) -> Written:
    """Writes orders, lines, profiles, debits, the stock codes they take, their ORDER_PAID events and their fulfillment
    work. Either all of them are recharges or none is. `remaining`: the number of free codes of stock packages, as the
    batch was decided on. `wait`: it waits for wallets that another transaction holds.

    Raises asyncpg.UniqueViolationError for a known transactionId in a large batch, or written at the same moment.
    """
    if session.distributed:
        return await _write_by_tenant(session, placed, remaining, wait=wait)
    places = _places(placed)
    given = [*_debit_and_order_columns(placed, places), *_line_columns(placed, places), placed[0].at]
    units = _stock_columns(placed, places)
    from_stock = bool(units or remaining)
    if from_stock:
        given += [*(units or [()] * 5), list(remaining), list(remaining.values())]
    recharging = placed[0].request.recharge is not None
    if recharging:
        given += zip(*_recharge_rows(placed), strict=True)
    checked = from_stock or len(placed) <= CHECKED_ORDERS
    statement = write_statement(from_stock=from_stock, recharging=recharging, checked=checked, wait=wait)
    (row,) = await session.fetch(statement, *given)
    return _written(row)


async def write_recharges(
    session: Session, placed: Sequence[Placed], fits: Sequence[Fit], *, wait: bool = False
) -> tuple[Written, Sequence[NextPlan | None]]:
    """The same for recharges of as many eSIMs, whose next plans it finds. `fits`: what each of them must be. Also gives
    those plans, None where an eSIM cannot be recharged: nothing is written then.

    Raises UniqueViolationError also where another recharge of an eSIM is written at the same moment.
    """
    if session.distributed:
        found = await next_plans(session, placed, fits)
        if None in found:
            return Written(False), found
        placed = [one.with_plan(plan) for one, plan in zip(placed, found, strict=True) if plan]
        return await _write_by_tenant(session, placed, _NONE, wait=wait), found
    places, esims = _places(placed), _esims(placed)
    (row,) = await session.fetch(
        write_statement(recharging=True, finding=True, checked=len(placed) <= CHECKED_ORDERS, wait=wait),
        *_debit_and_order_columns(placed, places),
        *_line_columns(placed, places),
        placed[0].at,
        esims,
        *zip(*fits, strict=True),
    )
    found = [
        None if plan_no is None else NextPlan(profile_id, plan_no, iccid=iccid)
        for profile_id, plan_no, iccid in zip(esims, row["plan_nos"], row["iccids"], strict=True)
    ]
    return _written(row), found


def _written(row: asyncpg.Record) -> Written:
    uncovered = frozenset(row["uncovered"] or ())
    return Written(row["whole"], uncovered, frozenset(row["missed"]) - uncovered)


async def next_plans(session: Session, placed: Sequence[Placed], fits: Sequence[Fit]) -> list[NextPlan | None]:
    """The next plans of the eSIMs that these recharge; None where one cannot be recharged, or is not as `fits` says."""
    esims = _esims(placed)
    rows = await session.fetch(
        _FIND_NEXT_PLANS,
        [one.request.tenant_id for one in placed],
        esims,
        [one.request.lines[0].supplier for one in placed],
        *zip(*fits, strict=True),
    )
    found = {row["profile_id"]: NextPlan(*row) for row in rows}
    return [found.get(profile_id) for profile_id in esims]


def _recharge_rows(placed: Sequence[Placed]) -> list[tuple[int, int, int, int]]:
    plans = [one.request.recharge for one in placed]
    return [(plan.profile_id, plan.plan_no, plan.order_id, plan.version) for plan in plans if plan is not None]


def _esims(placed: Sequence[Placed]) -> list[int]:
    return [one.request.recharge.profile_id for one in placed if one.request.recharge]


async def _write_by_tenant(
    session: Session, placed: Sequence[Placed], remaining: Mapping[str, int], *, wait: bool
) -> Written:
    """The same where tables are distributed by tenant, for orders of one dealer, in a transaction of its own unless the
    session is in one."""
    tenant_id = placed[0].request.tenant_id
    assert all(order.request.tenant_id == tenant_id for order in placed), "a batch is of one dealer"
    rows = _rows_of(tenant_id, placed)
    async with AsyncExitStack() as stack:
        stack.enter_context(suppress(NotWhole))
        if not session.in_transaction:
            await stack.enter_async_context(session.transaction())
        written = await write_by_tenant.write(session, rows, remaining, wait=wait)
        missed = frozenset({tenant_id})
        if written:
            return Written(True)
        return Written(True, uncovered=missed) if written is False else Written(True, held=missed)
    return Written(False)


def _rows_of(tenant_id: int, placed: Sequence[Placed]) -> write_by_tenant.Rows:
    places = {tenant_id: 1}
    orders = list(zip(*_debit_and_order_columns(placed, places)[5:], strict=True))
    lines = list(zip(*_line_columns(placed, places), strict=True))
    units: dict[str, list[int]] = {}
    for _, package_code, _, profile_id, _ in zip(*_stock_columns(placed, places), strict=True):
        units.setdefault(package_code, []).append(profile_id)
    return write_by_tenant.Rows(
        tenant_id,
        placed[0].at,
        [order[4:] for order in orders],
        [line[2:] for line in lines],
        _recharge_rows(placed),
        units,
    )


def _places(placed: Sequence[Placed]) -> dict[int, int]:
    """The place of each tenant's debit."""
    return {tenant_id: place for place, tenant_id in enumerate(sorted({one.request.tenant_id for one in placed}), 1)}


def _debit_and_order_columns(placed: Sequence[Placed], places: Mapping[int, int]) -> list[tuple[Any, ...]]:
    debits = [[place, tenant_id, 0, 0, 0] for tenant_id, place in places.items()]
    orders = []
    for order in placed:
        request = order.request
        place = places[request.tenant_id]
        debit = debits[place - 1]
        debit[2] += 1
        debit[3] += request.profile_count if request.recharge is None else 0
        debit[4] += request.amount
        orders.append(
            (
                place,
                debit[2],
                debit[4],
                request.tenant_id,
                order.order_id,
                request.transaction_id,
                request.digest,
                request.currency,
                request.amount,
                request.remark,
            )
        )
    return [*zip(*debits, strict=True), *zip(*orders, strict=True)]


def _line_columns(placed: Sequence[Placed], places: Mapping[int, int]) -> list[tuple[Any, ...]]:
    rows = []
    for order in placed:
        tenant_id, order_id, first = order.request.tenant_id, order.order_id, order.first_profile_id
        for number, line in enumerate(order.request.lines):
            rows.append(
                (
                    places[tenant_id],
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


def _stock_columns(placed: Sequence[Placed], places: Mapping[int, int]) -> list[tuple[Any, ...]]:
    """Per profile that takes a code: its wallet's place, package, tenant, profile, and its number among those of the
    package."""
    rows, numbers = [], Counter[str]()
    for order in placed:
        tenant_id, profile_id = order.request.tenant_id, order.first_profile_id
        for line in order.request.lines:
            if line.supplier == STOCK:
                for n in range(line.quantity):
                    numbers[line.package_code] += 1
                    unit = line.package_code, tenant_id, profile_id + n, numbers[line.package_code]
                    rows.append((places[tenant_id], *unit))
            profile_id += line.quantity
    return list(zip(*rows, strict=True))


_FIND_BY_TENANT = f"""
SELECT o.tenant_id, o.transaction_id, o.order_id, o.digest
FROM {batch("key", tenant_id="bigint", transaction_id="text")}
JOIN orders o ON o.tenant_id = key.tenant_id AND o.transaction_id = key.transaction_id
"""


async def find(session: Session | Connection, keys: Sequence[tuple[int, str]]) -> dict[tuple[int, str], ExistingOrder]:
    """The orders that already carry these (tenant_id, transactionId)."""
    rows = await session.fetch(
        _FIND_BY_TENANT
        if is_distributed(session)
        else f"SELECT o.* FROM {batch('key', tenant_id='bigint', transaction_id='text')} CROSS JOIN LATERAL"
        " (SELECT tenant_id, transaction_id, order_id, digest FROM orders o"
        ' WHERE (o.transaction_id, o.tenant_id) >= (key.transaction_id COLLATE "C", key.tenant_id)'
        " ORDER BY o.transaction_id, o.tenant_id LIMIT 1) o"
        " WHERE o.transaction_id = key.transaction_id AND o.tenant_id = key.tenant_id",
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
SELECT {columns_of(Order, "items", "esim", table="o")}, {columns_of(Item, "profiles", table="i")},
    {columns_of(Profile, table="p")}
FROM {batch("key", tenant_id="bigint", order_id="bigint")}
CROSS JOIN LATERAL (SELECT * FROM orders o
    WHERE o.tenant_id = key.tenant_id AND o.order_id = key.order_id OFFSET 0) o
CROSS JOIN LATERAL (SELECT * FROM order_item i
    WHERE i.tenant_id = key.tenant_id AND i.order_id = key.order_id OFFSET 0) i
CROSS JOIN LATERAL (SELECT * FROM profile p WHERE p.tenant_id = key.tenant_id
    AND p.profile_id >= i.first_profile_id AND p.profile_id < i.first_profile_id + i.quantity OFFSET 0) p
"""
_ITEM_FROM = len(fields_of(Order, "items", "esim"))
_PROFILE_FROM = _ITEM_FROM + len(fields_of(Item, "profiles"))
_PROFILE_ID, _ACTIVATION_CODE, _PLANS = map(fields_of(Profile).index, ("profile_id", "activation_code", "plans"))
_ESIM = f"""
SELECT p.tenant_id, {columns_of(Profile, table="p")} FROM {batch("key", tenant_id="bigint", profile_id="bigint")}
CROSS JOIN LATERAL (SELECT * FROM profile p
    WHERE p.tenant_id = key.tenant_id AND p.profile_id = key.profile_id OFFSET 0) p
"""
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
    orders = {key: _order(rows, data_keys) for key, rows in grouped.items()}
    return orders | await _with_esims(session, orders)


async def _with_esims(
    session: Session | Connection, orders: Mapping[tuple[int, int], Order]
) -> dict[tuple[int, int], Order]:
    """Those of these orders that recharge eSIMs, with them: an eSIM of another of the orders is not read again."""
    esims = {key: (key[0], order.recharges) for key, order in orders.items() if order.recharges is not None}
    if not esims:
        return {}
    found = {(key[0], each.profile_id): each for key, order in orders.items() for each in order.profiles}
    if missing := set(esims.values()) - found.keys():
        for row in await session.fetch(_ESIM, *columns(sorted(missing), 2)):
            values = list(row[1:])
            values[_ACTIVATION_CODE], values[_PLANS] = None, plans.read(values[_PLANS])
            esim = Profile(*values)
            found[row["tenant_id"], esim.profile_id] = esim
    return {key: msgspec.structs.replace(orders[key], esim=found.get(esim)) for key, esim in esims.items()}


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
    values[_PLANS] = plans.read(values[_PLANS])
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
