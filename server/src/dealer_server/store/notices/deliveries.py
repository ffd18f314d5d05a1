"""Mails and POSTs that tell of notices: enqueued when a notice is addressed, claimed when due, recorded once."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.store.notices.outbox import Notice, notice_of


class Claimed(NamedTuple):
    """A delivery in flight. `attempt_count` counts this attempt. user_id None: to the notice URL `url`, '' if it was
    removed. `name`, `mail`: of the user; `active`: whether the user and the dealer still are."""

    tenant_id: int
    delivery_id: int
    user_id: int | None
    digest: bool
    attempt_count: int
    url: str
    name: str
    mail: str
    active: bool


async def enqueue(session: Session, notice: Notice, user_id: int | None, now: datetime) -> None:
    """A delivery of one notice, due now. user_id None: to the notice URL."""
    await session.fetch(
        "WITH made AS (INSERT INTO notice_delivery (tenant_id, user_id, due_at, created_at) VALUES ($1, $3, $4, $4)"
        " RETURNING tenant_id, delivery_id)"
        " INSERT INTO notice_content (tenant_id, delivery_id, notice_id) SELECT tenant_id, delivery_id, $2 FROM made"
        " RETURNING 1",
        notice.tenant_id,
        notice.notice_id,
        user_id,
        now,
    )


async def collect(session: Session, notice: Notice, user_id: int, due_at: datetime, now: datetime) -> None:
    """Adds a notice to the digest that collects for a user; begins one that is due then where there is none."""
    await session.fetch(
        "WITH made AS (INSERT INTO notice_delivery AS d (tenant_id, user_id, digest, due_at, created_at)"
        "  VALUES ($1, $3, true, $4, $5) ON CONFLICT (user_id) WHERE digest AND state = 'READY'"
        "  DO UPDATE SET due_at = d.due_at RETURNING tenant_id, delivery_id)"
        " INSERT INTO notice_content (tenant_id, delivery_id, notice_id) SELECT tenant_id, delivery_id, $2 FROM made"
        " RETURNING 1",
        notice.tenant_id,
        notice.notice_id,
        user_id,
        due_at,
        now,
    )


# Of a dealer's notice URL one is in flight at a time, the one due longest, so that a slow receiver takes one place.
_CLAIM = """
WITH due AS (
    SELECT tenant_id, delivery_id FROM notice_delivery d WHERE due_at <= $1 AND (user_id IS NOT NULL OR NOT EXISTS (
        SELECT FROM notice_delivery other WHERE other.tenant_id = d.tenant_id AND other.user_id IS NULL
            AND other.due_at IS NOT NULL AND other.delivery_id <> d.delivery_id
            AND (other.state = 'IN_FLIGHT' OR (other.due_at, other.delivery_id) < (d.due_at, d.delivery_id)) OFFSET 0))
    ORDER BY due_at, delivery_id LIMIT $2 FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE notice_delivery d SET state = 'IN_FLIGHT', claim = $3, due_at = $4, attempt_count = attempt_count + 1
    FROM due WHERE d.tenant_id = due.tenant_id AND d.delivery_id = due.delivery_id
    RETURNING d.tenant_id, d.delivery_id, d.user_id, d.digest, d.attempt_count
)
SELECT c.*, coalesce(n.url, '') AS url, coalesce(u.name, '') AS name, coalesce(s.mail, '') AS mail,
    (u.user_id IS NULL OR u.status = 'ACTIVE') AND {active} AS active
FROM claimed c LEFT JOIN notice_url n ON n.tenant_id = c.tenant_id AND c.user_id IS NULL
    LEFT JOIN console_user u ON u.user_id = c.user_id LEFT JOIN notice_setting s ON s.user_id = c.user_id
    {tenant}
"""
# The statement changes tables of the coordinator, and must not read one that every node of a cluster has.
_CLAIM_OF_ANY = _CLAIM.format(active="true", tenant="")
_CLAIM = _CLAIM.format(
    active="(t.tenant_id IS NULL OR t.status = 'ACTIVE')", tenant="LEFT JOIN tenant t ON t.tenant_id = c.tenant_id"
)


async def claim(session: Session, claim_id: int, limit: int, now: datetime, until: datetime) -> list[Claimed]:
    """Takes due deliveries until the lease ends, those of expired leases among them, and counts the attempts."""
    args = now, limit, claim_id, until
    if not session.distributed:
        return [Claimed(**row) for row in await session.fetch(_CLAIM, *args)]
    rows = await session.fetch(_CLAIM_OF_ANY, *args)
    ids = [row["tenant_id"] for row in rows]
    others = await session.fetch(
        "SELECT tenant_id FROM tenant WHERE tenant_id = ANY($1::bigint[]) AND status <> 'ACTIVE'", ids
    )
    disabled = {row["tenant_id"] for row in others}
    claimed = [Claimed(**row) for row in rows]
    return [one._replace(active=one.active and one.tenant_id not in disabled) for one in claimed]


async def contents(connection: Connection, delivery: Claimed) -> list[Notice]:
    """What it tells of, the oldest first."""
    rows = await connection.fetch(
        "SELECT n.tenant_id, n.notice_id, n.notice_type, n.data::text AS data, n.created_at FROM notice_content c"
        " JOIN notice n USING (tenant_id, notice_id) WHERE c.tenant_id = $1 AND c.delivery_id = $2"
        " ORDER BY n.notice_id",
        delivery.tenant_id,
        delivery.delivery_id,
    )
    return [notice_of(row) for row in rows]


async def record(
    connection: Connection,
    delivery: Claimed,
    claim_id: int,
    state: str,
    problem: str | None,
    due_at: datetime | None,
    now: datetime,
) -> bool:
    """The outcome of a claimed delivery; False, and nothing changes, where the claim no longer holds."""
    return bool(
        await connection.fetch(
            "UPDATE notice_delivery SET state = $4, problem = $5, due_at = $6, claim = NULL,"
            " finished_at = CASE WHEN $6::timestamptz IS NULL THEN $7::timestamptz END"
            " WHERE tenant_id = $1 AND delivery_id = $2 AND claim = $3 RETURNING 1",
            delivery.tenant_id,
            delivery.delivery_id,
            claim_id,
            state,
            problem,
            due_at,
            now,
        )
    )
