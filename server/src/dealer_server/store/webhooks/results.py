"""How is the outcome of a claimed delivery recorded, together with its attempt?"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import batch
from dealer_server.db.session import Session
from dealer_server.store.webhooks.circuit_breaker import SUCCESS_PRECISION, success_counts
from dealer_server.store.webhooks.order_queue import UNFINISHED, Key
from esim_dealer.wire.vocabulary import AttemptError, DeliveryState


class DeliveryResult(NamedTuple):
    """The outcome of a claimed delivery. The fields are the columns of _RECORD."""

    tenant_id: int
    order_id: int
    delivery_id: int
    claim: int
    state: DeliveryState
    due_at: datetime | None
    number: int | None  # of the attempt; None if none was made
    started_at: datetime
    duration_ms: int = 0
    remote_address: str | None = None
    http_status: int | None = None
    error: AttemptError | None = None
    answer_head: str | None = None
    answer_fields: str | None = None


class Recorded(NamedTuple):
    """What was recorded: these deliveries. `waiting`: those of their orders in which others are WAITING.
    `success_counts`: the tenants whose endpoints a success changes."""

    deliveries: set[Key]
    waiting: list[Key]
    success_counts: set[int]


# Only deliveries in flight have a claim. A condition on their state as well would let the planner, whose statistics say
# that nothing is in flight, scan all of them for each result. The same holds for claim.freeze, whose rows are locked.
_RECORD = f"""
WITH finished AS (
    UPDATE webhook_delivery d SET state = result.state, due_at = result.due_at, claim = NULL,
        finished_at = CASE WHEN result.due_at IS NULL THEN $15::timestamptz END,
        delivered_at = coalesce(d.delivered_at, CASE WHEN result.state = 'DELIVERED' THEN $15 END)
    FROM {
    batch(
        "result",
        tenant_id="bigint",
        order_id="bigint",
        delivery_id="bigint",
        claim="bigint",
        state="text",
        due_at="timestamptz",
        number="int",
        started_at="timestamptz",
        duration_ms="int",
        remote_address="text",
        http_status="int",
        error="text",
        answer_head="text",
        answer_fields="text",
    )
}
    WHERE d.tenant_id = result.tenant_id AND d.delivery_id = result.delivery_id AND d.claim = result.claim
    RETURNING result.*
), recorded AS (
    INSERT INTO webhook_attempt (tenant_id, delivery_id, number, started_at, duration_ms, remote_address, http_status,
        error, answer_head, answer_fields)
    SELECT tenant_id, delivery_id, number, started_at, duration_ms, remote_address, http_status, error, answer_head,
        answer_fields
    FROM finished WHERE number IS NOT NULL
)
SELECT tenant_id, order_id, delivery_id, EXISTS (SELECT FROM webhook_delivery d WHERE d.tenant_id = finished.tenant_id
    AND d.order_id = finished.order_id AND d.{UNFINISHED} AND d.state = 'WAITING' OFFSET 0) AS others_wait,
    EXISTS (SELECT FROM webhook_endpoint e WHERE e.tenant_id = finished.tenant_id AND {success_counts("$16")} OFFSET 0)
        AS success_counts
FROM finished
"""


async def record(session: Session, results: Sequence[DeliveryResult], now: datetime) -> Recorded:
    """Records outcomes of claimed deliveries and their attempts; where a claim no longer holds nothing changes."""
    columns = [list(column) for column in zip(*results, strict=True)]
    recorded = await session.fetch(_RECORD, *columns, now, now - SUCCESS_PRECISION)
    return Recorded(
        {(row["tenant_id"], row["delivery_id"]) for row in recorded},
        [(row["tenant_id"], row["order_id"]) for row in recorded if row["others_wait"]],
        {row["tenant_id"] for row in recorded if row["success_counts"]},
    )
