"""How far has the sweep come? A mark for each kind, a cursor for each tenant, and what was passed unfinished.

The sweep holds the row of a tenant's cursor while it deletes: of several workers one sweeps a tenant at a time.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import batch, columns
from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.rules.retention.retention import Kind


class Subject(NamedTuple):
    """What the sweep visits: a delivery, an event, or what was bought for a profile. `finished_at`: None while more may
    come of it."""

    id: int
    created_at: datetime
    finished_at: datetime | None


class Left(NamedTuple):
    """A subject that has to be visited again once `since` is past the retention."""

    id: int
    since: datetime


class Kept(NamedTuple):
    """A kind as it stands: `rows` and `size_bytes` are PostgreSQL's estimate and the size of the table with its
    indexes; `oldest_at` is that of the oldest among each tenant's first rows."""

    kind: Kind
    oldest_at: datetime | None
    rows: int
    size_bytes: int
    postponed: int
    deleted: int
    deleted_before: datetime
    swept_at: datetime | None


async def begin(session: Session, kind: Kind, limit: datetime) -> None:
    """Notes that what is older than `limit` may be missing from now on, and gives new tenants a cursor."""
    await session.fetch(
        "UPDATE retention SET deleted_before = $2 WHERE kind = $1 AND deleted_before < $2 RETURNING 1", kind, limit
    )
    await session.fetch(
        "INSERT INTO retention_cursor (kind, tenant_id, oldest_at) SELECT $1, tenant_id, created_at FROM tenant t"
        " WHERE $1 <> 'supplier_event' AND NOT EXISTS (SELECT FROM retention_cursor c WHERE c.kind = $1"
        "  AND c.tenant_id = t.tenant_id) ON CONFLICT DO NOTHING",
        kind,
    )


async def end(session: Session, kind: Kind, deleted: int, now: datetime) -> None:
    await session.fetch(
        "UPDATE retention SET swept_at = $3, deleted = deleted + $2 WHERE kind = $1", kind, deleted, now
    )


async def due_tenants(session: Session, kind: Kind, limit: datetime) -> list[int]:
    """The tenants that may have something older than `limit`."""
    due = await session.fetch(
        "SELECT tenant_id FROM retention_cursor WHERE kind = $1 AND oldest_at < $2 ORDER BY tenant_id", kind, limit
    )
    return [row["tenant_id"] for row in due]


async def lock(session: Session, kind: Kind, tenant_id: int) -> int | None:
    """The last id that was visited, locked until the transaction ends; None while another worker holds it."""
    cursors = await session.fetch(
        "SELECT reached FROM retention_cursor WHERE kind = $1 AND tenant_id = $2 FOR UPDATE SKIP LOCKED",
        kind,
        tenant_id,
    )
    return cursors[0]["reached"] if cursors else None


async def advance(session: Session, kind: Kind, tenant_id: int, reached: int, oldest_at: datetime) -> None:
    await session.fetch(
        "UPDATE retention_cursor SET reached = $3, oldest_at = $4 WHERE kind = $1 AND tenant_id = $2",
        kind,
        tenant_id,
        reached,
        oldest_at,
    )


async def postpone(session: Session, kind: Kind, tenant_id: int, left: Sequence[Left]) -> None:
    await session.fetch(
        "INSERT INTO retention_postponed (kind, tenant_id, id, since)"
        f" SELECT $1, $2, id, since FROM {batch('unfinished', 3, id='bigint', since='timestamptz')}"
        " ON CONFLICT (kind, tenant_id, id) DO UPDATE SET since = excluded.since",
        kind,
        tenant_id,
        *columns(left, 2),
    )


async def due_again(session: Session, kind: Kind, limit: datetime, count: int) -> dict[int, list[int]]:
    """The ids to be visited again, by tenant: `count` at most."""
    due: dict[int, list[int]] = {}
    for row in await session.fetch(
        "SELECT tenant_id, id FROM retention_postponed WHERE kind = $1 AND since < $2 ORDER BY since LIMIT $3",
        kind,
        limit,
        count,
    ):
        due.setdefault(row["tenant_id"], []).append(row["id"])
    return due


async def take(session: Session, kind: Kind, tenant_id: int, ids: Sequence[int]) -> None:
    """These are visited now: they wait no longer."""
    await session.fetch(
        "DELETE FROM retention_postponed WHERE kind = $1 AND tenant_id = $2 AND id = ANY($3::bigint[])",
        kind,
        tenant_id,
        ids,
    )


# Of each tenant the row with the smallest id is read, which is about its oldest.
_FIRST: dict[Kind, str] = {
    "webhook_attempt": "SELECT first.started_at AS at FROM tenant t CROSS JOIN LATERAL (SELECT started_at"
    " FROM webhook_attempt a WHERE a.tenant_id = t.tenant_id ORDER BY delivery_id, number LIMIT 1) first",
    "webhook_delivery": "SELECT first.created_at AS at FROM tenant t CROSS JOIN LATERAL (SELECT created_at"
    " FROM webhook_delivery d WHERE d.tenant_id = t.tenant_id ORDER BY delivery_id LIMIT 1) first",
    "supplier_call": "SELECT first.sent_at AS at FROM tenant t CROSS JOIN LATERAL (SELECT sent_at"
    " FROM supplier_call c WHERE c.tenant_id = t.tenant_id ORDER BY profile_id, position, number LIMIT 1) first",
    "supplier_event": "(SELECT received_at AS at FROM supplier_event ORDER BY event_id LIMIT 1)",
    "sms": "SELECT first.created_at AS at FROM tenant t CROSS JOIN LATERAL (SELECT created_at FROM sms s"
    " WHERE s.tenant_id = t.tenant_id AND message IS NOT NULL ORDER BY sms_id LIMIT 1) first",
    "notice": "SELECT first.created_at AS at FROM (SELECT 0 AS tenant_id UNION ALL SELECT tenant_id FROM tenant) t"
    " CROSS JOIN LATERAL (SELECT created_at FROM notice n WHERE n.tenant_id = t.tenant_id ORDER BY notice_id LIMIT 1)"
    " first",
    "served_call": "SELECT first.at FROM tenant CROSS JOIN LATERAL (SELECT at FROM served_call c"
    " WHERE c.tenant_id = tenant.tenant_id ORDER BY number LIMIT 1) first",
    "buyer_mail": "SELECT first.created_at AS at FROM tenant t CROSS JOIN LATERAL (SELECT created_at FROM buyer_mail m"
    " WHERE m.tenant_id = t.tenant_id ORDER BY mail_id LIMIT 1) first",
}

KINDS = tuple(_FIRST)


async def kept(connection: Connection, kind: Kind) -> Kept:
    """No big table is read whole: the number of rows is an estimate."""
    row = await connection.fetchrow(
        f"SELECT kind, (SELECT min(at) FROM ({_FIRST[kind]}) oldest) AS oldest_at,"
        " (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = kind::regclass) AS rows,"
        " pg_total_relation_size(kind::regclass) AS size_bytes,"
        " (SELECT count(*) FROM retention_postponed p WHERE p.kind = r.kind) AS postponed,"
        " deleted, deleted_before, swept_at FROM retention r WHERE kind = $1",
        kind,
    )
    assert row is not None, "the migration inserts every kind"
    return Kept(**row)
