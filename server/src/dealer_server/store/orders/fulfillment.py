"""Order lines that wait for eSIMs: claimed in batches, and scheduled again."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import batch, columns
from dealer_server.db.by_tenant import OF_ALL
from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.store.distribution.due import fetch_all, fetch_due

LineKey = tuple[int, int, int]
"""tenant_id, order_id, line"""


class Claimed(NamedTuple):
    """An order line taken for fulfillment. `pending` are its profiles that still wait for codes; `claims` counts how
    often it was claimed since its supplier last answered. `recharges`: the eSIM that it adds a plan to; `blocked`: an
    earlier recharge of that eSIM is not applied yet."""

    tenant_id: int
    order_id: int
    line: int
    package_code: str
    quantity: int
    period_num: int
    first_profile_id: int
    claims: int
    paid_at: datetime
    pending: Sequence[int]
    recharges: int | None
    recharges_order_id: int | None
    recharged_iccid: str | None
    blocked: bool

    @property
    def key(self) -> LineKey:
        return self.tenant_id, self.order_id, self.line

    @property
    def recharged_order(self) -> tuple[int, int] | None:
        return None if self.recharges_order_id is None else (self.tenant_id, self.recharges_order_id)


class Scheduled(NamedTuple):
    """When a line is due again: never, where `due_at` is None. `answered`: its claims count anew."""

    key: LineKey
    due_at: datetime | None
    answered: bool


_PAID_AND_PENDING = """(SELECT created_at FROM ledger_entry e
        WHERE e.tenant_id = i.tenant_id AND e.entry_type = 'ORDER_PAY' AND e.reference = i.order_id) AS paid_at,
    ARRAY(SELECT profile_id FROM profile p WHERE p.tenant_id = i.tenant_id
        AND p.profile_id >= i.first_profile_id AND p.profile_id < i.first_profile_id + i.quantity
        AND p.lifecycle_status = 'PENDING' AND NOT p.failed AND NOT p.held ORDER BY profile_id) AS pending,
    i.recharges, i.recharges_order_id,
    CASE WHEN i.recharges IS NOT NULL THEN (SELECT e.iccid FROM profile e
        WHERE e.tenant_id = i.tenant_id AND e.profile_id = i.recharges) END AS recharged_iccid,
    CASE WHEN i.recharges IS NULL THEN false ELSE EXISTS (SELECT FROM profile e
        JOIN profile p ON p.tenant_id = e.tenant_id AND p.profile_id = i.first_profile_id
        WHERE e.tenant_id = i.tenant_id AND e.recharges = i.recharges AND e.plan_no < p.plan_no
        AND e.lifecycle_status = 'PENDING' AND NOT e.refunded AND (NOT e.failed OR e.held) OFFSET 0) END AS blocked"""

# Of a cluster: whose lines are due.
_DUE = f"SELECT tenant_id FROM order_item WHERE {OF_ALL} supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $3"
_ANY_DUE = f"SELECT FROM order_item WHERE {OF_ALL} supplier = $1 AND due_at <= $2 LIMIT 1"

# The profiles are those of the snapshot the claim is made on; what changes until the answers are recorded is seen then.
_CLAIM = f"""
WITH due AS (
    SELECT tenant_id, order_id, line, quantity, due_at FROM order_item
    WHERE {OF_ALL} supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED
), counted AS (
    SELECT *, sum(quantity) OVER (ORDER BY due_at, tenant_id, order_id, line) - quantity AS before FROM due
)
UPDATE order_item i SET due_at = $3, claim = $4, claims = claims + 1
FROM counted WHERE before < $6
    AND i.tenant_id = counted.tenant_id AND i.order_id = counted.order_id AND i.line = counted.line
RETURNING i.tenant_id, i.order_id, i.line, i.package_code, i.quantity, i.period_num, i.first_profile_id, i.claims,
    {_PAID_AND_PENDING}
"""


async def claim(
    session: Session, supplier: str, claim_id: int, now: datetime, until: datetime, lines: int, profiles: int
) -> list[Claimed]:
    """Takes a supplier's due lines until the lease ends: at most `lines`, and no more once `profiles` are reached.

    No two workers get the same line; a line whose worker died comes due again.
    """
    args = supplier, now, until, claim_id, lines, profiles
    rows = await fetch_due(session, _CLAIM, args, _DUE, (supplier, now, lines), lines)
    return [Claimed(**row) for row in rows]


# An order that another transaction holds is left alone with its lines. Orders are locked before their lines, as
# everywhere; a line that another worker has just finished is found not to be due any more when it is locked. This
# stands in a CASE, so that lines are found by their key and not among all that are due.
_TAKE = f"""
WITH due AS (
    SELECT tenant_id, order_id, line, quantity, due_at FROM order_item
    WHERE {OF_ALL} supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $3
), counted AS MATERIALIZED (
    SELECT *, sum(quantity) OVER (ORDER BY due_at, tenant_id, order_id, line) - quantity AS before FROM due
)
SELECT i.tenant_id, i.order_id, i.line, i.package_code, i.quantity, i.period_num, i.first_profile_id,
    i.claims + 1 AS claims, {_PAID_AND_PENDING}
FROM counted CROSS JOIN LATERAL (SELECT FROM orders o
    WHERE o.tenant_id = counted.tenant_id AND o.order_id = counted.order_id FOR NO KEY UPDATE SKIP LOCKED) o
CROSS JOIN LATERAL (SELECT * FROM order_item i
    WHERE i.tenant_id = counted.tenant_id AND i.order_id = counted.order_id AND i.line = counted.line
        AND CASE WHEN i.supplier = $1 AND i.due_at <= $2 THEN true END FOR NO KEY UPDATE SKIP LOCKED) i
WHERE before < $4
"""


async def any_due(session: Session, supplier: str, now: datetime) -> bool:
    """Whether a line of this supplier is due. It costs an idle worker one statement."""
    return bool(await fetch_all(session, _ANY_DUE, supplier, now))


async def take(session: Session, supplier: str, now: datetime, lines: int, profiles: int) -> list[Claimed]:
    """A supplier's due lines, locked with their orders until the transaction ends, those of no order that another
    transaction holds: at most `lines`, and no more once `profiles` are reached."""
    rows = await fetch_due(session, _TAKE, (supplier, now, lines, profiles), _DUE, (supplier, now, lines), lines)
    return [Claimed(**row) for row in rows]


async def held(session: Session, claim_id: int, keys: Sequence[LineKey]) -> set[LineKey]:
    """Which lines are still this claim's, locked until the transaction ends. Lock their orders first."""
    rows = await session.fetch(
        f"SELECT i.* FROM {batch('key', 2, tenant_id='bigint', order_id='bigint', line='smallint')}"
        " CROSS JOIN LATERAL (SELECT tenant_id, order_id, line FROM order_item i WHERE i.tenant_id = key.tenant_id"
        " AND i.order_id = key.order_id AND i.line = key.line AND i.claim = $1 FOR NO KEY UPDATE) i",
        claim_id,
        *columns(sorted(keys), 3),
    )
    return {(row["tenant_id"], row["order_id"], row["line"]) for row in rows}


_RESCHEDULED = batch(
    "new", 2, tenant_id="bigint", order_id="bigint", line="smallint", due_at="timestamptz", answered="bool"
)


async def reschedule(session: Session, claim_id: int | None, lines: Sequence[Scheduled]) -> None:
    """Gives back held lines: says when they are due again. Leaves alone those another worker has claimed since. None
    for lines that were taken without a claim: whoever claimed one before does not hold it any more."""
    await session.fetch(
        "UPDATE order_item i SET due_at = new.due_at, claim = CASE WHEN $1::bigint IS NOT NULL THEN i.claim END,"
        " claims = CASE WHEN new.answered THEN 0 WHEN $1::bigint IS NULL THEN i.claims + 1 ELSE i.claims END"
        f" FROM {_RESCHEDULED}"
        " WHERE i.tenant_id = new.tenant_id AND i.order_id = new.order_id AND i.line = new.line"
        " AND CASE WHEN $1::bigint IS NULL OR i.claim = $1 THEN true END",  # a CASE: for the planner it is not rare
        claim_id,
        *columns([(*line.key, line.due_at, line.answered) for line in lines], 5),
    )


async def requeue(connection: Connection, key: LineKey, supplier: str, now: datetime) -> None:
    """The line is due now at this supplier, whoever has claimed it. Reports keep it at the one that it was sold for."""
    await connection.execute(
        "UPDATE order_item SET sold_supplier = CASE WHEN supplier <> $4 THEN coalesce(sold_supplier, supplier)"
        " ELSE sold_supplier END, supplier = $4, due_at = $5, claim = NULL, claims = 0"
        " WHERE tenant_id = $1 AND order_id = $2 AND line = $3",
        *key,
        supplier,
        now,
    )


async def unserved(session: Session, suppliers: Sequence[str], since: datetime) -> dict[str, int]:
    """How many lines have been due since then at suppliers other than these and those that are connected: their lines
    may have waited for a worker."""
    rows = await session.fetch(
        "SELECT i.supplier, count(*) AS lines FROM order_item i WHERE i.due_at <= $2 AND i.supplier <> ALL($1::text[])"
        " AND NOT EXISTS (SELECT FROM supplier s WHERE s.code = i.supplier) GROUP BY i.supplier",
        suppliers,
        since,
    )
    return {row["supplier"]: row["lines"] for row in rows}
