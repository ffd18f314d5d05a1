"""Refunds with their profiles: written, decided, settled, and credited to wallets.

Locks are taken in one order on every path: wallet, order, items, profiles, refunds
(docs/decisions/0016-lock-order.md).
"""

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Literal, NamedTuple

import asyncpg

from dealer_server.db.arrays import columns
from dealer_server.db.by_tenant import OF_ALL
from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_values, columns_of
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.rules.orders import snapshot
from dealer_server.rules.orders.model import STOCK, Order
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.refunds.refund import Part, Way
from dealer_server.store.distribution.due import fetch_all, fetch_due
from dealer_server.store.orders.save import VOID, save
from dealer_server.store.suppliers import stock
from dealer_server.store.webhooks import bodies, enqueue
from dealer_server.store.webhooks import changes as told
from esim_dealer.wire.envelope import encoder

Key = tuple[int, int]  # tenant_id, and order_id or refund_id
Status = Literal["REFUNDING", "REFUNDED", "REJECTED"]
LineStatus = Literal["PENDING", "READY", "COMPLETED", "REJECTED"]


class Refund(NamedTuple):
    """A refund as it stands, with its profiles."""

    tenant_id: int
    refund_id: int
    order_id: int
    refund_transaction_id: str | None
    scope: bytes
    status: Status
    amount: int
    credited: int
    remark: str | None
    author: str
    created_at: datetime
    settled_at: datetime | None
    lines: tuple["RefundLine", ...] = ()

    @property
    def waits_for_review(self) -> bool:
        """An operator decides about some of it."""
        return any(line.way == "REVIEW" and line.status == "PENDING" for line in self.lines)


class RefundLine(NamedTuple):
    profile_id: int
    line: int
    amount: int
    way: Way
    status: LineStatus


class NewRefund(NamedTuple):
    """A refund to be written. `due_at` is set where nothing is left to be decided, so that the worker may settle it."""

    tenant_id: int
    refund_id: int
    order_id: int
    refund_transaction_id: str | None
    scope: bytes
    status: Status
    amount: int
    remark: str | None
    author: str
    created_at: datetime
    due_at: datetime | None
    parts: Sequence[Part]


class Credit(NamedTuple):
    """The credit of a refund: entry number `version` of the wallet's ledger."""

    tenant_id: int
    refund_id: int
    amount: int
    version: int
    balance_after: int


MOST_SWEPT = 1_000
_COLUMNS = columns_of(Refund, "lines")
_of_refund = itemgetter("tenant_id", "refund_id")


async def of_orders(connection: Connection | Session, keys: Sequence[Key]) -> list[Refund]:
    """The refunds of these (tenant_id, order_id), oldest first."""
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM refund JOIN unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id)"
        " USING (tenant_id, order_id) ORDER BY tenant_id, refund_id",
        *columns(keys, 2),
    )
    return await _with_lines(connection, rows)


async def by_transaction(connection: Connection | Session, keys: Sequence[tuple[int, str]]) -> list[Refund]:
    """The refunds that carry these (tenant_id, refundTransactionId)."""
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM refund JOIN unnest($1::bigint[], $2::text[]) AS key(tenant_id, refund_transaction_id)"
        " USING (tenant_id, refund_transaction_id)",
        *columns(keys, 2),
    )
    return await _with_lines(connection, rows)


async def _with_lines(connection: Connection | Session, records: Sequence[asyncpg.Record]) -> list[Refund]:
    """The refunds of these records of _COLUMNS, with their profiles."""
    if not records:
        return []
    rows = await connection.fetch(
        f"SELECT {columns_of(RefundLine)}, tenant_id, refund_id FROM refund_line"
        " JOIN unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, refund_id) USING (tenant_id, refund_id)"
        " ORDER BY profile_id",
        *columns([_of_refund(record) for record in records], 2),
    )
    lines: dict[Key, list[RefundLine]] = {}
    for row in rows:
        line = RefundLine(
            profile_id=row["profile_id"],
            line=row["line"],
            amount=row["amount"],
            way=row["way"],
            status=row["status"],
        )
        lines.setdefault(_of_refund(row), []).append(line)
    refunds = as_values(Refund, records, lines=())
    return [refund._replace(lines=tuple(lines.get((refund.tenant_id, refund.refund_id), ()))) for refund in refunds]


async def add(session: Connection | Session, new: Sequence[NewRefund]) -> None:
    """Writes refunds with their profiles, all COMPLETED where the refund is REFUNDED at once. Raises
    UniqueViolationError."""
    await session.fetch(
        "INSERT INTO refund (tenant_id, refund_id, order_id, refund_transaction_id, scope, status, amount, credited,"
        " remark, author, created_at, settled_at, due_at)"
        " SELECT tenant_id, refund_id, order_id, refund_transaction_id, scope, status, amount,"
        "  CASE WHEN status = 'REFUNDED' THEN amount ELSE 0 END, remark, author, created_at,"
        "  CASE WHEN status = 'REFUNDED' THEN created_at END, due_at"
        " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bytea[], $6::text[], $7::bigint[],"
        "  $8::text[], $9::text[], $10::timestamptz[], $11::timestamptz[])"
        " AS new(tenant_id, refund_id, order_id, refund_transaction_id, scope, status, amount, remark, author,"
        "  created_at, due_at)",
        *columns(new, 11),
    )
    lines = [
        (
            *(refund.tenant_id, refund.refund_id, part.profile_id, part.line, part.amount, part.way),
            "COMPLETED" if refund.status == "REFUNDED" else "READY" if part.way == "AT_ONCE" else "PENDING",
        )
        for refund in new
        for part in refund.parts
    ]
    await session.fetch(
        "INSERT INTO refund_line (tenant_id, refund_id, profile_id, line, amount, way, status)"
        " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::text[],"
        " $7::text[])",
        *columns(lines, 7),
    )


async def pay_back(session: Connection | Session, credits: Sequence[Credit], now: datetime) -> None:
    """Credits locked wallets, with one ledger entry per refund. Raises UniqueViolationError for a refund that was
    credited before."""
    wallets = len({credit.tenant_id for credit in credits})
    [row] = await session.fetch(
        "WITH credit AS ("
        " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])"
        "  AS credit(tenant_id, refund_id, amount, version, balance_after)"
        "), moved AS ("
        " UPDATE wallet SET balance = wallet.balance + total.amount, version = total.version, updated_at = $6"
        " FROM (SELECT tenant_id, sum(amount)::bigint AS amount, max(version) AS version, count(*) AS entries"
        "  FROM credit GROUP BY tenant_id) total"
        " WHERE wallet.tenant_id = total.tenant_id AND wallet.version = total.version - total.entries"
        " RETURNING 1"
        "), entries AS ("
        " INSERT INTO ledger_entry (tenant_id, version, entry_type, reference, amount, balance_after, created_at)"
        " SELECT tenant_id, version, 'REFUND', refund_id, amount, balance_after, $6 FROM credit"
        ") SELECT count(*) AS moved FROM moved",
        *columns(credits, 5),
        now,
    )
    assert row["moved"] == wallets, "a locked wallet has another version"


async def decide_lines(
    session: Connection | Session, decided: Sequence[tuple[int, int, int, bool, str | None]], now: datetime
) -> int:
    """Decides lines: (tenant_id, refund_id, profile_id, whether it is refunded, reason if not). A refund without
    undecided lines becomes due. Returns how many of the lines were PENDING."""
    if not decided:
        return 0
    await _lock(session, sorted({(tenant_id, refund_id) for tenant_id, refund_id, *_ in decided}))
    rows = await session.fetch(
        "UPDATE refund_line l SET status = CASE WHEN new.yes THEN 'READY' ELSE 'REJECTED' END, reason = new.reason"
        " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bool[], $5::text[])"
        " AS new(tenant_id, refund_id, profile_id, yes, reason)"
        " WHERE l.tenant_id = new.tenant_id AND l.refund_id = new.refund_id AND l.profile_id = new.profile_id"
        " AND l.status = 'PENDING' RETURNING l.tenant_id, l.refund_id",
        *columns(decided, 5),
    )
    refunds = sorted({_of_refund(row) for row in rows})
    if refunds:
        await session.fetch(
            "UPDATE refund r SET due_at = $3 FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, refund_id)"
            " WHERE r.tenant_id = key.tenant_id AND r.refund_id = key.refund_id AND r.status = 'REFUNDING'"
            " AND NOT EXISTS (SELECT FROM refund_line l WHERE l.tenant_id = r.tenant_id AND l.refund_id = r.refund_id"
            "  AND l.status = 'PENDING')",
            *columns(refunds, 2),
            now,
        )
    return len(rows)


async def _lock(session: Connection | Session, refunds: Sequence[Key]) -> None:
    """Locks refunds, in the order of their keys, until the transaction ends. Otherwise two transactions that decide the
    last two lines would each see the other line PENDING, and neither would make the refund due."""
    await session.fetch(
        "SELECT 1 FROM refund JOIN unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, refund_id)"
        " USING (tenant_id, refund_id) ORDER BY tenant_id, refund_id FOR NO KEY UPDATE OF refund",
        *columns(refunds, 2),
    )


# Settling refunds that are due


class Due(NamedTuple):
    """A refund without undecided lines. `failures`: how often settling it failed."""

    tenant_id: int
    order_id: int
    refund_id: int
    failures: int


async def due(session: Session, now: datetime, limit: int) -> list[Due]:
    """The refunds that may be settled now, the longest due first."""
    rows = await fetch_all(
        session,
        "SELECT tenant_id, order_id, refund_id, settle_failures AS failures FROM refund"
        f" WHERE {OF_ALL} status = 'REFUNDING' AND due_at <= $1 ORDER BY due_at LIMIT $2",
        now,
        limit,
    )
    return as_values(Due, rows)


async def postpone(session: Session, refund: Due, until: datetime, now: datetime) -> None:
    """Makes a refund that could not be settled due again later, unless it was settled meanwhile."""
    await session.fetch(
        "UPDATE refund SET settle_failures = settle_failures + 1, due_at = $3"
        " WHERE tenant_id = $1 AND refund_id = $2 AND status = 'REFUNDING' AND due_at <= $4",
        refund.tenant_id,
        refund.refund_id,
        until,
        now,
    )


_UNDECIDED = f"SELECT tenant_id FROM refund WHERE {OF_ALL} status = 'REFUNDING' AND due_at IS NULL"
_SWEEP = f"""
WITH left_over AS (
    SELECT tenant_id, refund_id FROM refund r WHERE {OF_ALL} status = 'REFUNDING' AND due_at IS NULL
        AND NOT EXISTS (SELECT FROM refund_line l WHERE l.tenant_id = r.tenant_id AND l.refund_id = r.refund_id
            AND l.status = 'PENDING') FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE refund r SET due_at = $1 FROM left_over
WHERE r.tenant_id = left_over.tenant_id AND r.refund_id = left_over.refund_id RETURNING r.tenant_id, r.refund_id
"""


async def sweep(session: Session, now: datetime) -> list[Key]:
    """Makes refunds due that have no undecided lines and yet are not due; returns their (tenant_id, refund_id).

    A refund that another transaction has locked is left alone.
    """
    rows = await fetch_due(session, _SWEEP, (now,), _UNDECIDED, (), MOST_SWEPT)
    return [_of_refund(row) for row in rows]


async def lock_due(session: Session, keys: Sequence[Key], now: datetime) -> list[Refund]:
    """Locks those of these (tenant_id, refund_id) that are still due, until the transaction ends."""
    rows = await session.fetch(
        f"SELECT {_COLUMNS} FROM refund JOIN unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, refund_id)"
        " USING (tenant_id, refund_id) WHERE status = 'REFUNDING' AND due_at <= $3"
        " ORDER BY tenant_id, refund_id FOR NO KEY UPDATE OF refund",
        *columns(keys, 2),
        now,
    )
    return await _with_lines(session, rows)


async def mark_settled(session: Session, settled: Sequence[tuple[int, int, int, bool]], now: datetime) -> None:
    """Settles (tenant_id, refund_id, credited, whether any line is READY): REFUNDED or REJECTED."""
    await session.fetch(
        "WITH settled AS (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bool[])"
        "  AS settled(tenant_id, refund_id, credited, given)"
        "), lines AS ("
        " UPDATE refund_line l SET status = 'COMPLETED' FROM settled"
        " WHERE l.tenant_id = settled.tenant_id AND l.refund_id = settled.refund_id AND l.status = 'READY')"
        " UPDATE refund r SET status = CASE WHEN given THEN 'REFUNDED' ELSE 'REJECTED' END,"
        " credited = settled.credited, settled_at = $5, due_at = NULL"
        " FROM settled WHERE r.tenant_id = settled.tenant_id AND r.refund_id = settled.refund_id",
        *columns(settled, 4),
        now,
    )


async def settle(
    session: Session,
    changes: Sequence[tuple[Order, Order]],
    credits: Sequence[Credit],
    credited: Sequence[tuple[int, Order]],
    data_keys: DataKeys,
    links: Links,
    now: datetime,
) -> None:
    """Writes the orders that refunds changed, the credits, and their events: one REFUND_COMPLETED for each credited
    refund (refund id, order after the credit), after the DELIVERY_UPDATED of the order; another one of the order of an
    eSIM that has lost a plan.

    A refund that is only accepted changes nothing that webhooks tell (specification 6.1).
    """
    await save(session, changes, VOID)
    await give_back_stock(session, changes)
    if not credits:
        return
    await pay_back(session, credits, now)
    stored = {(before.tenant_id, before.order_id): before for before, _ in changes}
    latest = {(order.tenant_id, order.order_id): order for _, order in credited}
    latest |= {(after.tenant_id, after.order_id): after for before, after in changes if _lost_a_plan(before, after)}
    await told.tell(session, [(stored[key], order) for key, order in latest.items()], data_keys, now)
    ids = await enqueue.delivery_ids(session, len(credited))
    events = []
    for delivery_id, (_, order) in zip(ids, credited, strict=True):
        body = encoder.encode(snapshot.refund_completed(order, links))
        sealed = bodies.seal(data_keys, body, order.tenant_id, delivery_id)
        events.append(enqueue.Credit(order.tenant_id, order.order_id, order.version, delivery_id, sealed))
    await enqueue.refunds_credited(session, events, snapshot.REFUND_HINTS, now)


def _lost_a_plan(before: Order, after: Order) -> bool:
    """Whether an eSIM of the order has a plan that was refunded by this change."""
    return any(
        plan.cancelled and plan not in old.plans
        for old, new in zip(before.profiles, after.profiles, strict=True)
        for plan in new.plans
    )


async def give_back_stock(session: Connection | Session, changes: Sequence[tuple[Order, Order]]) -> None:
    """Frees the stock codes of profiles that became void before their codes were shown."""
    freed = [
        (after.tenant_id, profile.profile_id)
        for before, after in changes
        for old, new in zip(before.items, after.items, strict=True)
        if new.supplier == STOCK
        for was, profile in zip(old.profiles, new.profiles, strict=True)
        if profile.iccid is None and profile.cancelled and not was.cancelled
    ]
    if freed:
        await stock.release(session, freed)


# The operator


async def by_id(connection: Connection, refund_id: int) -> Refund | None:
    """A refund of any tenant: refund_ids are unique over all."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM refund WHERE refund_id = $1", refund_id)
    return (await _with_lines(connection, [row]))[0] if row else None


async def currency(connection: Connection, tenant_id: int, order_id: int) -> str:
    """Of the order, so of its refunds."""
    row = await connection.fetchrow(
        "SELECT currency FROM orders WHERE tenant_id = $1 AND order_id = $2", tenant_id, order_id
    )
    assert row is not None, "a refund has an order"
    return row["currency"]


async def listed(connection: Connection, tenant_id: int | None, status: str | None, limit: int) -> list[Refund]:
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM refund WHERE ($1::bigint IS NULL OR tenant_id = $1)"
        " AND ($2::text IS NULL OR status = $2) ORDER BY refund_id DESC LIMIT $3",
        tenant_id,
        status,
        limit,
    )
    return await _with_lines(connection, rows)
