"""SMS: each is sent once. A row is written before its supplier is asked, and stays (docs/decisions/0031-sms.md)."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import columns
from dealer_server.db.by_tenant import OF_ALL
from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_value, as_values, columns_of
from dealer_server.db.session import Session
from dealer_server.rules.lifecycle.sms import Next, Recipient
from dealer_server.store.distribution.due import fetch_due
from esim_dealer.wire.vocabulary import SmsFailReason, SmsStatus


class NewSms(NamedTuple):
    """`message` is sealed."""

    tenant_id: int
    sms_id: int
    transaction_id: str
    profile_id: int
    digest: bytes
    message: bytes
    supplier: str
    iccid: str
    status: SmsStatus
    created_at: datetime
    finished_at: datetime | None
    due_at: datetime | None


class Sms(NamedTuple):
    """One that was written. `message` is sealed; None: it is gone, because of its age."""

    sms_id: int
    transaction_id: str
    profile_id: int
    digest: bytes
    message: bytes | None
    status: SmsStatus
    fail_reason: SmsFailReason | None
    detail: str | None
    created_at: datetime
    finished_at: datetime | None


class DueSms(NamedTuple):
    """One that a worker sends now. `message` is sealed. `in_doubt`: it may have been sent before. `unit_ref`: the
    supplier's name of the eSIM."""

    tenant_id: int
    sms_id: int
    profile_id: int
    iccid: str
    message: bytes
    created_at: datetime
    claims: int
    in_doubt: bool
    unit_ref: str | None


_COLUMNS = columns_of(Sms)


async def recipient(connection: Connection, tenant_id: int, profile_id: int) -> Recipient | None:
    row = await connection.fetchrow(
        "SELECT p.profile_id, p.order_id, made.supplier, s.kind, p.iccid, p.lifecycle_status, p.plan_use_status,"
        " p.smdp_status, p.cancelled, p.superseded FROM profile p JOIN order_item i USING (tenant_id, order_id, line)"
        " LEFT JOIN profile_life l USING (tenant_id, profile_id)"
        " CROSS JOIN LATERAL (SELECT coalesce(l.supplier, i.supplier) AS supplier) made"
        " LEFT JOIN supplier s ON s.code = made.supplier WHERE p.tenant_id = $1 AND p.profile_id = $2",
        tenant_id,
        profile_id,
    )
    return as_value(Recipient, row) if row else None


async def find(connection: Connection, tenant_id: int, transaction_id: str) -> Sms | None:
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM sms WHERE tenant_id = $1 AND transaction_id = $2", tenant_id, transaction_id
    )
    return as_value(Sms, row) if row else None


async def latest_at(connection: Connection, tenant_id: int, profile_id: int) -> datetime | None:
    """When the profile's latest SMS was asked for. Lock its order first, so that none is added meanwhile."""
    return await connection.fetchval(
        "SELECT created_at FROM sms WHERE tenant_id = $1 AND profile_id = $2 ORDER BY sms_id DESC LIMIT 1",
        tenant_id,
        profile_id,
    )


async def add(connection: Connection, new: NewSms) -> bool:
    """Writes one; False if its transactionId was used before, also by a transaction that has just ended."""
    return bool(
        await connection.fetch(
            f"INSERT INTO sms ({columns_of(NewSms)}) VALUES ({', '.join(f'${at}' for at in range(1, len(new) + 1))})"
            " ON CONFLICT (tenant_id, transaction_id) DO NOTHING RETURNING 1",
            *new,
        )
    )


async def of_profile(connection: Connection, tenant_id: int, profile_id: int, limit: int) -> list[Sms]:
    """The profile's latest SMS, newest first."""
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM sms WHERE tenant_id = $1 AND profile_id = $2 ORDER BY sms_id DESC LIMIT $3",
        tenant_id,
        profile_id,
        limit,
    )
    return as_values(Sms, rows)


# in_doubt is true from here on until an answer is recorded: whoever dies after this may have sent it.
_DUE = f"SELECT tenant_id FROM sms WHERE {OF_ALL} supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $3"
_CLAIM = f"""
WITH due AS (
    SELECT tenant_id, sms_id, profile_id, in_doubt FROM sms
    WHERE {OF_ALL} supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE sms s SET due_at = $3, claim = $4, claims = claims + 1, in_doubt = true
FROM due LEFT JOIN LATERAL (
    SELECT unit_ref FROM purchase p
    WHERE p.tenant_id = due.tenant_id AND p.profile_id = due.profile_id AND p.state = 'DONE' LIMIT 1
) bought ON true
WHERE s.tenant_id = due.tenant_id AND s.sms_id = due.sms_id
RETURNING s.tenant_id, s.sms_id, s.profile_id, s.iccid, s.message, s.created_at, s.claims, due.in_doubt,
    bought.unit_ref
"""


async def claim_due(
    session: Session, supplier: str, claim: int, now: datetime, until: datetime, limit: int
) -> list[DueSms]:
    """Takes a supplier's due SMS until the lease ends, and notes that each may have been sent from now on."""
    args = supplier, now, until, claim, limit
    return as_values(DueSms, await fetch_due(session, _CLAIM, args, _DUE, (supplier, now, limit), limit))


async def record(
    session: Session, recorded: Sequence[tuple[int, int, int, Next]], now: datetime
) -> set[tuple[int, int]]:
    """Records what became of each (claim, tenant_id, sms_id) whose claim still holds; gives their (tenant_id,
    sms_id)."""
    rows = await session.fetch(
        "UPDATE sms s SET status = new.status, fail_reason = new.fail_reason, detail = new.detail, due_at = new.due_at,"
        " in_doubt = new.in_doubt, claim = NULL,"
        " finished_at = CASE WHEN new.status <> 'PENDING' THEN $1::timestamptz END"
        " FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::timestamptz[],"
        " $9::bool[]) AS new(claim, tenant_id, sms_id, status, fail_reason, detail, due_at, in_doubt)"
        " WHERE s.tenant_id = new.tenant_id AND s.sms_id = new.sms_id AND s.claim = new.claim"
        " RETURNING s.tenant_id, s.sms_id",
        now,
        *columns([(*key, *after) for *key, after in recorded], 8),
    )
    return {(row["tenant_id"], row["sms_id"]) for row in rows}
