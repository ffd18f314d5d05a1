"""Who is invited to the console? A link is known by the hash of what it holds."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_values


class Invitation(NamedTuple):
    """`tenant_id` None: to the operator's console. `tenant_name`, `dealer_disabled`: of the dealer. `mailed_at`,
    `mail_problem`: of the last mail; both None where none was sent."""

    invitation_id: int
    tenant_id: int | None
    tenant_name: str | None
    dealer_disabled: bool
    address: str
    role: str
    author: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None
    withdrawn_at: datetime | None
    mailed_at: datetime | None
    mail_problem: str | None


_SELECT = (
    "SELECT i.invitation_id, i.tenant_id, t.name AS tenant_name, coalesce(t.status = 'DISABLED', false)"
    " AS dealer_disabled, i.address, i.role, i.author, i.created_at, i.expires_at, i.used_at, i.withdrawn_at,"
    " i.mailed_at, i.mail_problem FROM invitation i LEFT JOIN tenant t USING (tenant_id)"
)


async def create(
    connection: Connection,
    tenant_id: int | None,
    address: str,
    role: str,
    token_hash: bytes,
    author: str,
    now: datetime,
    expires_at: datetime,
) -> int | None:
    """None where an invitation of this address is open already."""
    return await connection.fetchval(
        "INSERT INTO invitation (tenant_id, address, role, token_hash, author, created_at, expires_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING invitation_id",
        tenant_id,
        address,
        role,
        token_hash,
        author,
        now,
        expires_at,
    )


async def by_token(connection: Connection, token_hash: bytes) -> Invitation | None:
    return await _one(connection, f"{_SELECT} WHERE i.token_hash = $1", token_hash)


async def lock_by_token(connection: Connection, token_hash: bytes) -> Invitation | None:
    """Locked until the transaction ends: of two who use a link at once, one is the first."""
    return await _one(connection, f"{_SELECT} WHERE i.token_hash = $1 FOR UPDATE OF i", token_hash)


async def lock(connection: Connection, invitation_id: int) -> Invitation | None:
    """Locked until the transaction ends."""
    return await _one(connection, f"{_SELECT} WHERE i.invitation_id = $1 FOR UPDATE OF i", invitation_id)


async def _one(connection: Connection, sql: str, key: bytes | int) -> Invitation | None:
    return next(iter(as_values(Invitation, await connection.fetch(sql, key))), None)


async def waiting(connection: Connection, tenant_id: int | None, limit: int) -> Sequence[Invitation]:
    """Those neither used nor withdrawn, of a dealer or of all; the newest first."""
    rows = await connection.fetch(
        f"{_SELECT} WHERE i.used_at IS NULL AND i.withdrawn_at IS NULL AND ($1::bigint IS NULL OR i.tenant_id = $1)"
        " ORDER BY i.invitation_id DESC LIMIT $2",
        tenant_id,
        limit,
    )
    return as_values(Invitation, rows)


async def renew(connection: Connection, invitation_id: int, token_hash: bytes, expires_at: datetime) -> None:
    """Another link in its place."""
    await connection.execute(
        "UPDATE invitation SET token_hash = $2, expires_at = $3, mailed_at = NULL, mail_problem = NULL"
        " WHERE invitation_id = $1",
        invitation_id,
        token_hash,
        expires_at,
    )


async def end(connection: Connection, invitation_id: int, *, used: bool, now: datetime) -> None:
    """It was used, or else withdrawn."""
    column = "used_at" if used else "withdrawn_at"
    await connection.execute(f"UPDATE invitation SET {column} = $2 WHERE invitation_id = $1", invitation_id, now)


async def record_mail(connection: Connection, invitation_id: int, problem: str | None, now: datetime) -> None:
    await connection.execute(
        "UPDATE invitation SET mailed_at = CASE WHEN $2::text IS NULL THEN $3::timestamptz END, mail_problem = $2"
        " WHERE invitation_id = $1",
        invitation_id,
        problem,
        now,
    )
