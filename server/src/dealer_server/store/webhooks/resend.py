"""How is a delivery sent again, or an order's snapshot sent anew? One at a time, or many by a resend job.

Locks are taken as store/webhooks/order_queue.py says: an order's unfinished deliveries first.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from dealer_server.db.arrays import columns
from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.db.session import Session
from dealer_server.store.webhooks import log
from dealer_server.store.webhooks.dialects import any_active
from dealer_server.store.webhooks.log import Filter
from dealer_server.store.webhooks.order_queue import UNFINISHED, lock_unfinished, make_next_ready
from esim_dealer.wire.vocabulary import DeliveryState, EventType

Kind = Literal["RESEND", "SYNC"]
FINISHED: tuple[DeliveryState, ...] = ("DELIVERED", "FAILED", "SUPERSEDED", "SKIPPED")


class Job(NamedTuple):
    """An operator's resend job, for one tenant: deliveries (RESEND) or orders (SYNC)."""

    job_id: int
    tenant_id: int
    kind: Kind
    states: Sequence[DeliveryState]
    event_type: EventType | None
    start_at: datetime
    end_at: datetime
    total: int
    reached: int  # the last id done
    done: int  # how many were enqueued
    author: str
    created_at: datetime
    finished_at: datetime | None

    @property
    def filter(self) -> Filter:
        return Filter(event_type=self.event_type, states=tuple(self.states), start=self.start_at, end=self.end_at)


_COLUMNS = (
    "job_id, tenant_id, kind, states, event_type, start_at, end_at, total, reached, done, author, created_at,"
    " finished_at"
)

# A finished delivery becomes WAITING; one in RETRY becomes due at once.
_RESEND = f"""
WITH chosen AS (
    SELECT d.tenant_id, d.delivery_id FROM webhook_delivery d
    WHERE d.tenant_id = $1 AND d.delivery_id = ANY($2::bigint[]) ORDER BY d.delivery_id FOR NO KEY UPDATE
)
UPDATE webhook_delivery d SET
    state = CASE WHEN d.state IN {FINISHED} THEN 'WAITING' ELSE d.state END,
    trigger = CASE WHEN d.state IN {FINISHED} THEN 'RESEND' ELSE d.trigger END,
    due_at = CASE WHEN d.state IN ('READY', 'RETRY') THEN least(d.due_at, $3) END,
    not_before = NULL, finished_at = NULL
FROM chosen
WHERE d.tenant_id = chosen.tenant_id AND d.delivery_id = chosen.delivery_id AND d.state <> 'IN_FLIGHT'
RETURNING d.order_id
"""


async def resend(connection: Connection | Session, tenant_id: int, delivery_ids: Sequence[int], now: datetime) -> int:
    """Enqueues these deliveries once more; how many. Their endpoint may be probed at once.

    Deliveries in flight are left as they are. Call it inside a transaction.
    """
    orders = await connection.fetch(
        "SELECT DISTINCT order_id FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[])",
        tenant_id,
        delivery_ids,
    )
    await lock_unfinished(connection, [(tenant_id, row["order_id"]) for row in orders])
    resent = await connection.fetch(_RESEND, tenant_id, delivery_ids, now)
    if resent:
        await connection.fetch("UPDATE webhook_endpoint SET probe_at = NULL WHERE tenant_id = $1", tenant_id)
        order_ids = dict.fromkeys(row["order_id"] for row in resent)
        await make_next_ready(connection, [(tenant_id, order_id) for order_id in order_ids], now)
    return len(resent)


_SYNC = f"""
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, trigger, order_version, state, created_at)
SELECT o.tenant_id, o.order_id, 'DELIVERY_UPDATED', 'SYNC', o.version, 'WAITING', $3
FROM orders o WHERE o.tenant_id = $1 AND o.order_id = ANY($2::bigint[]) AND NOT EXISTS (
    SELECT FROM webhook_delivery d WHERE d.tenant_id = $1 AND d.order_id = o.order_id
        AND d.{UNFINISHED} AND d.trigger = 'SYNC' AND d.attempt_count = 0)
RETURNING order_id
"""


# The same in two steps: an INSERT that draws ids is not run at the node.
_NOT_SYNCED = f"""
SELECT o.order_id, o.version FROM orders o WHERE o.tenant_id = $1 AND o.order_id = ANY($2::bigint[]) AND NOT EXISTS (
    SELECT FROM webhook_delivery d WHERE d.tenant_id = $1 AND d.order_id = o.order_id
        AND d.{UNFINISHED} AND d.trigger = 'SYNC' AND d.attempt_count = 0)
"""
_ADD_SYNCS = """
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, trigger, order_version, state, created_at)
SELECT tenant_id, order_id, 'DELIVERY_UPDATED', 'SYNC', version, 'WAITING', $4
FROM unnest($1::bigint[], $2::bigint[], $3::int[]) AS new(tenant_id, order_id, version) RETURNING order_id
"""


async def is_running(connection: Connection, tenant_id: int) -> bool:
    """Whether a job of this dealer is not over."""
    running: bool | None = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM webhook_job WHERE tenant_id = $1 AND finished_at IS NULL)", tenant_id
    )
    return bool(running)


async def sync(connection: Connection | Session, tenant_id: int, order_ids: Sequence[int], now: datetime) -> int:
    """Enqueues a snapshot of each order as it is when sent; how many.

    Its hints are the difference to the last snapshot delivered, or ORDER_SNAPSHOT_SYNC if there is none. An order whose
    sync was not attempted yet gets no second one. Call it inside a transaction.
    """
    await lock_unfinished(connection, [(tenant_id, order_id) for order_id in order_ids])
    if is_distributed(connection):
        found = await connection.fetch(_NOT_SYNCED, tenant_id, order_ids)
        rows = [(tenant_id, row["order_id"], row["version"]) for row in found]
        added = await connection.fetch(_ADD_SYNCS, *columns(rows, 3), now)
    else:
        added = await connection.fetch(_SYNC, tenant_id, order_ids, now)
    synced = [(tenant_id, row["order_id"]) for row in added]
    if synced:
        await make_next_ready(connection, synced, now)
    return len(synced)


# Jobs


async def add_job(connection: Connection, job: Job) -> int:
    """Inserts a job and returns its id. `job_id`, `reached`, `done` and `finished_at` are ignored."""
    job_id: int | None = await connection.fetchval(
        "INSERT INTO webhook_job (tenant_id, kind, states, event_type, start_at, end_at, total, author, created_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING job_id",
        job.tenant_id,
        job.kind,
        list(job.states),
        job.event_type,
        job.start_at,
        job.end_at,
        job.total,
        job.author,
        job.created_at,
    )
    assert job_id is not None, "INSERT returns the row it inserts"
    return job_id


async def jobs(connection: Connection, limit: int) -> list[Job]:
    """The newest first."""
    newest = await connection.fetch(f"SELECT {_COLUMNS} FROM webhook_job ORDER BY job_id DESC LIMIT $1", limit)
    return [Job(**row) for row in newest]


async def job(connection: Connection, job_id: int) -> Job | None:
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM webhook_job WHERE job_id = $1", job_id)
    return Job(**row) if row else None


async def unfinished_jobs(session: Session) -> list[int]:
    """The oldest unfinished job of each tenant, oldest first."""
    unfinished = await session.fetch(
        "SELECT min(job_id) AS job_id FROM webhook_job WHERE finished_at IS NULL GROUP BY tenant_id ORDER BY 1"
    )
    return [row["job_id"] for row in unfinished]


async def lock_job(session: Session, job_id: int) -> Job | None:
    """An unfinished job, locked until the transaction ends; None if it is finished or another worker has it locked."""
    rows = await session.fetch(
        f"SELECT {_COLUMNS} FROM webhook_job WHERE job_id = $1 AND finished_at IS NULL FOR UPDATE SKIP LOCKED", job_id
    )
    return Job(**rows[0]) if rows else None


async def capacity(session: Session, tenant_id: int) -> int:
    """How many resends may be enqueued now: half of the tenant's cap less those unfinished; 0 without an endpoint."""
    rows = await session.fetch(
        "SELECT greatest(cap_in_flight / 2, 1) - (SELECT count(*) FROM webhook_delivery d"
        f" WHERE d.tenant_id = e.tenant_id AND d.{UNFINISHED} AND d.trigger IN ('RESEND', 'SYNC')"
        "   AND d.state <> 'RETRY') AS capacity"
        f" FROM webhook_endpoint e WHERE tenant_id = $1 AND {any_active('e')}",
        tenant_id,
    )
    return max(rows[0]["capacity"], 0) if rows else 0


async def next_deliveries(session: Session, job: Job, limit: int) -> list[int]:
    """The next ids of a RESEND job, without deliveries enqueued after it was created."""
    rows = await session.fetch(
        f"SELECT delivery_id FROM webhook_delivery WHERE {log.where(job.filter)} AND delivery_id > $6"
        " AND created_at <= $7 ORDER BY delivery_id LIMIT $8",
        *log.arguments(job.tenant_id, job.filter),
        job.reached,
        job.created_at,
        limit,
    )
    return [row["delivery_id"] for row in rows]


async def next_orders(session: Session, job: Job, first: int, end: int, limit: int) -> list[int]:
    """The next ids of a SYNC job among the orders from `first` to before `end`."""
    rows = await session.fetch(
        "SELECT order_id FROM orders WHERE tenant_id = $1 AND order_id >= $2 AND order_id < $3 AND order_id > $4"
        " ORDER BY order_id LIMIT $5",
        job.tenant_id,
        first,
        end,
        job.reached,
        limit,
    )
    return [row["order_id"] for row in rows]


async def count_orders(connection: Connection, tenant_id: int, first: int, end: int) -> int:
    count: int | None = await connection.fetchval(
        "SELECT count(*) FROM orders WHERE tenant_id = $1 AND order_id >= $2 AND order_id < $3", tenant_id, first, end
    )
    return count or 0


async def advance_job(session: Session, job_id: int, reached: int, sent: int) -> None:
    await session.fetch(
        "UPDATE webhook_job SET reached = $2, done = done + $3 WHERE job_id = $1", job_id, reached, sent
    )


async def finish_job(connection: Connection | Session, job_id: int, now: datetime) -> None:
    """The job is done, or an operator stopped it."""
    await connection.fetch(
        "UPDATE webhook_job SET finished_at = coalesce(finished_at, $2) WHERE job_id = $1", job_id, now
    )
