"""Sending again what was sent, or was not: one delivery, one order's snapshot, or many of them by a job.

Locks are taken as store/webhooks/webhook.py says: an order's unfinished deliveries first.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.store.webhooks import log, webhook
from dealer_server.store.webhooks.log import Filter
from esim_dealer.wire.vocabulary import DeliveryState, EventType

Kind = Literal["RESEND", "SYNC"]
FINISHED: tuple[DeliveryState, ...] = ("DELIVERED", "FAILED", "SUPERSEDED", "SKIPPED")


class Job(NamedTuple):
    """An operator's order to send many again. `reached` is the last id done; `done` counts what went again."""

    job_id: int
    tenant_id: int
    kind: Kind
    states: Sequence[DeliveryState]
    event_type: EventType | None
    start_at: datetime
    end_at: datetime
    total: int
    reached: int
    done: int
    author: str
    created_at: datetime
    finished_at: datetime | None

    @property
    def chosen(self) -> Filter:
        return Filter(None, self.event_type, tuple(self.states), self.start_at, self.end_at)


_COLUMNS = (
    "job_id, tenant_id, kind, states, event_type, start_at, end_at, total, reached, done, author, created_at,"
    " finished_at"
)

# One that is finished waits for its turn again; one that waits for a retry goes at once, and may probe its endpoint.
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
    """Lets these deliveries go once more, as soon as nothing of their order is in flight; how many do.

    What is in flight goes anyway. Called inside a transaction.
    """
    orders = await connection.fetch(
        "SELECT DISTINCT order_id FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[])",
        tenant_id,
        delivery_ids,
    )
    await webhook.lock_unfinished(connection, [(tenant_id, row[0]) for row in orders])
    again = [(tenant_id, row[0]) for row in await connection.fetch(_RESEND, tenant_id, delivery_ids, now)]
    if again:
        await connection.fetch("UPDATE webhook_endpoint SET probe_at = NULL WHERE tenant_id = $1", tenant_id)
        await webhook.promote(connection, list(dict.fromkeys(again)), now)
    return len(again)


_SYNC = f"""
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, trigger, order_version, state, created_at)
SELECT o.tenant_id, o.order_id, 'DELIVERY_UPDATED', 'SYNC', o.version, 'WAITING', $3
FROM orders o WHERE o.tenant_id = $1 AND o.order_id = ANY($2::bigint[]) AND NOT EXISTS (
    SELECT FROM webhook_delivery d WHERE d.tenant_id = o.tenant_id AND d.order_id = o.order_id
        AND d.{webhook.UNFINISHED} AND d.trigger = 'SYNC' AND d.attempt_count = 0)
RETURNING order_id
"""


async def sync(connection: Connection | Session, tenant_id: int, order_ids: Sequence[int], now: datetime) -> int:
    """Sends the snapshot of each order as it stands, with what it changes against the last success, or
    ORDER_SNAPSHOT_SYNC; how many go. Called inside a transaction."""
    await webhook.lock_unfinished(connection, [(tenant_id, order_id) for order_id in order_ids])
    going = [row[0] for row in await connection.fetch(_SYNC, tenant_id, order_ids, now)]
    if going:
        await webhook.promote(connection, [(tenant_id, order_id) for order_id in going], now)
    return len(going)


# Jobs


async def add_job(connection: Connection, job: Job) -> int:
    """Writes a job down; its id. `job_id`, `reached`, `done` and `finished_at` are not looked at."""
    job_id: int | None = await connection.fetchval(
        "INSERT INTO webhook_job (tenant_id, kind, states, event_type, start_at, end_at, total, author, created_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING job_id",
        *(job.tenant_id, job.kind, list(job.states), job.event_type, job.start_at, job.end_at),
        *(job.total, job.author, job.created_at),
    )
    assert job_id is not None, "a row was written"
    return job_id


async def jobs(connection: Connection, limit: int) -> list[Job]:
    """The newest first."""
    rows = await connection.fetch(f"SELECT {_COLUMNS} FROM webhook_job ORDER BY job_id DESC LIMIT $1", limit)
    return [Job(*row) for row in rows]


async def job(connection: Connection, job_id: int) -> Job | None:
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM webhook_job WHERE job_id = $1", job_id)
    return Job(*row) if row else None


async def running(session: Session) -> list[int]:
    """The jobs still to be done, oldest first: of each tenant the first one."""
    rows = await session.fetch(
        "SELECT min(job_id) FROM webhook_job WHERE finished_at IS NULL GROUP BY tenant_id ORDER BY 1"
    )
    return [row[0] for row in rows]


async def take(session: Session, job_id: int) -> Job | None:
    """A job to go on with, locked until the transaction ends; None while another worker has it, or once it is done."""
    rows = await session.fetch(
        f"SELECT {_COLUMNS} FROM webhook_job WHERE job_id = $1 AND finished_at IS NULL FOR UPDATE SKIP LOCKED", job_id
    )
    return Job(*rows[0]) if rows else None


async def room(session: Session, tenant_id: int) -> int:
    """How many may be sent again now: half of the tenant's cap, less what is on its way. 0 without an endpoint."""
    rows = await session.fetch(
        "SELECT greatest(cap_in_flight / 2, 1) - (SELECT count(*) FROM webhook_delivery d"
        f" WHERE d.tenant_id = e.tenant_id AND d.{webhook.UNFINISHED} AND d.trigger IN ('RESEND', 'SYNC')"
        "   AND d.state <> 'RETRY')"
        " FROM webhook_endpoint e WHERE tenant_id = $1 AND state = 'ACTIVE'",
        tenant_id,
    )
    return max(rows[0][0], 0) if rows else 0


async def next_deliveries(session: Session, one: Job, limit: int) -> list[int]:
    """The ids that follow in a RESEND job. Deliveries made after it began are none of its business."""
    chosen = one.chosen
    rows = await session.fetch(
        f"SELECT delivery_id FROM webhook_delivery WHERE {log.where(chosen)} AND delivery_id > $6"
        " AND created_at <= $7 ORDER BY delivery_id LIMIT $8",
        *log.arguments(one.tenant_id, chosen),
        one.reached,
        one.created_at,
        limit,
    )
    return [row[0] for row in rows]


async def next_orders(session: Session, one: Job, first: int, end: int, limit: int) -> list[int]:
    """The ids that follow in a SYNC job, of the orders from `first` to before `end`."""
    rows = await session.fetch(
        "SELECT order_id FROM orders WHERE tenant_id = $1 AND order_id >= $2 AND order_id < $3 AND order_id > $4"
        " ORDER BY order_id LIMIT $5",
        one.tenant_id,
        first,
        end,
        one.reached,
        limit,
    )
    return [row[0] for row in rows]


async def count_orders(connection: Connection, tenant_id: int, first: int, end: int) -> int:
    found: int | None = await connection.fetchval(
        "SELECT count(*) FROM orders WHERE tenant_id = $1 AND order_id >= $2 AND order_id < $3", tenant_id, first, end
    )
    return found or 0


async def advance(session: Session, job_id: int, reached: int, sent: int) -> None:
    await session.fetch(
        "UPDATE webhook_job SET reached = $2, done = done + $3 WHERE job_id = $1", job_id, reached, sent
    )


async def end(connection: Connection | Session, job_id: int, now: datetime) -> None:
    """Done, or stopped by the operator."""
    await connection.fetch(
        "UPDATE webhook_job SET finished_at = coalesce(finished_at, $2) WHERE job_id = $1", job_id, now
    )
