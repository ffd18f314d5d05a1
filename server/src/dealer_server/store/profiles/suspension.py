"""Suspensions: what dealers asked for, to suspend a profile or to end that.

Write them while the profile's order is locked: then those of a profile follow each other. `claim` waits for no lock.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from dealer_server.db.arrays import columns
from dealer_server.db.by_tenant import OF_ALL
from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_values
from dealer_server.db.session import Session
from dealer_server.store.distribution.due import fetch_due

Key = tuple[int, int]
"""tenant_id, profile_id"""
Outcome = Literal["DONE", "REFUSED"]


class Seller(NamedTuple):
    """The remote supplier that a profile was bought from, and its kind."""

    code: str
    kind: str


class Act(NamedTuple):
    """suspended: whether it suspends. `outcome` and `finished_at` are None while it is under way."""

    suspension_id: int
    suspended: bool
    outcome: str | None
    finished_at: datetime | None


class Suspension(NamedTuple):
    """A claimed act. void: its profile is void by now. unit_key, sku and the references are those of its purchase."""

    tenant_id: int
    profile_id: int
    suspension_id: int
    order_id: int
    suspended: bool
    supplier: str
    claims: int
    void: bool
    iccid: str
    unit_key: str
    sku: str
    supplier_ref: str | None
    unit_ref: str | None

    @property
    def order(self) -> tuple[int, int]:
        return self.tenant_id, self.order_id


class Suspended(NamedTuple):
    """The outcome of a claimed act, or when its supplier is asked again."""

    claim: int
    suspension: Suspension
    outcome: Outcome | None
    due_at: datetime | None


async def seller(connection: Connection, key: Key) -> Seller | None:
    """None where it was not bought from a remote supplier."""
    row = await connection.fetchrow(
        "SELECT s.code, s.kind FROM profile p JOIN purchase b USING (tenant_id, profile_id, iccid)"
        " JOIN supplier s ON s.code = b.supplier WHERE p.tenant_id = $1 AND p.profile_id = $2",
        *key,
    )
    return Seller(**row) if row else None


async def latest(connection: Connection, key: Key) -> list[Act]:
    """The acts that are under way and the last one that ended, the oldest first."""
    rows = await connection.fetch(
        "(SELECT suspension_id, suspended, outcome, finished_at FROM suspension"
        "  WHERE tenant_id = $1 AND profile_id = $2 AND outcome IS NOT NULL AND outcome <> 'WITHDRAWN'"
        "  ORDER BY suspension_id DESC LIMIT 1)"
        " UNION ALL SELECT suspension_id, suspended, outcome, finished_at FROM suspension"
        "  WHERE tenant_id = $1 AND profile_id = $2 AND outcome IS NULL ORDER BY suspension_id",
        *key,
    )
    return as_values(Act, rows)


async def add(
    connection: Connection,
    profile: tuple[int, int, int],
    suspended: bool,
    supplier: str,
    outcome: Outcome | None,
    now: datetime,
) -> None:
    """Writes an act on this (tenant_id, order_id, profile_id): done, or due at once."""
    tenant_id, order_id, profile_id = profile
    await connection.execute(
        "INSERT INTO suspension (tenant_id, profile_id, order_id, suspended, supplier, created_at, due_at, outcome,"
        " finished_at) VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $7::text IS NULL THEN $6::timestamptz END, $7,"
        " CASE WHEN $7::text IS NOT NULL THEN $6::timestamptz END)",
        tenant_id,
        profile_id,
        order_id,
        suspended,
        supplier,
        now,
        outcome,
    )


async def withdraw(connection: Connection, key: Key, suspension_id: int, now: datetime) -> bool:
    """Ends an act whose supplier was never asked; whether it was one."""
    done: bool | None = await connection.fetchval(
        "UPDATE suspension SET outcome = 'WITHDRAWN', due_at = NULL, finished_at = $4"
        " WHERE tenant_id = $1 AND profile_id = $2 AND suspension_id = $3 AND claims = 0 AND outcome IS NULL"
        " RETURNING true",
        *key,
        suspension_id,
        now,
    )
    return bool(done)


_DUE = f"SELECT tenant_id FROM suspension WHERE {OF_ALL} supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $3"
_CLAIM = f"""
WITH due AS (
    SELECT tenant_id, profile_id, suspension_id FROM suspension s
    WHERE {OF_ALL} supplier = $1 AND due_at <= $2
        AND NOT EXISTS (SELECT FROM suspension earlier WHERE earlier.tenant_id = s.tenant_id
            AND earlier.profile_id = s.profile_id AND earlier.suspension_id < s.suspension_id
            AND earlier.outcome IS NULL)
    ORDER BY due_at LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    UPDATE suspension s SET due_at = $3, claim = $4, claims = claims + 1 FROM due
    WHERE s.tenant_id = due.tenant_id AND s.profile_id = due.profile_id AND s.suspension_id = due.suspension_id
    RETURNING s.*
)
SELECT t.tenant_id, t.profile_id, t.suspension_id, t.order_id, t.suspended, t.supplier, t.claims, p.cancelled AS void,
    p.iccid, b.unit_key, b.sku, b.supplier_ref, b.unit_ref
FROM taken t JOIN profile p ON p.tenant_id = t.tenant_id AND p.profile_id = t.profile_id
    JOIN purchase b ON b.tenant_id = p.tenant_id AND b.profile_id = p.profile_id AND b.iccid = p.iccid
"""


async def claim(
    session: Session, supplier: str, claim_id: int, now: datetime, until: datetime, limit: int
) -> list[Suspension]:
    """Takes a supplier's due acts until the lease ends, of each profile the oldest."""
    args = supplier, now, until, claim_id, limit
    return as_values(Suspension, await fetch_due(session, _CLAIM, args, _DUE, (supplier, now, limit), limit))


async def record(session: Session, answered: Sequence[Suspended], now: datetime) -> set[int]:
    """Records the answers whose claims still hold; their suspension_ids."""
    rows = await session.fetch(
        "UPDATE suspension s SET outcome = new.outcome, due_at = new.due_at, claim = NULL,"
        " finished_at = CASE WHEN new.outcome IS NOT NULL THEN $1::timestamptz END"
        " FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::timestamptz[])"
        " AS new(claim, tenant_id, profile_id, suspension_id, outcome, due_at)"
        " WHERE s.tenant_id = new.tenant_id AND s.profile_id = new.profile_id"
        " AND s.suspension_id = new.suspension_id AND s.claim = new.claim RETURNING s.suspension_id",
        now,
        *columns(
            [
                (one.claim, one.suspension.tenant_id, one.suspension.profile_id, one.suspension.suspension_id,
                 one.outcome, one.due_at)
                for one in answered
            ],
            6,
        ),
    )  # fmt: skip
    return {row["suspension_id"] for row in rows}
