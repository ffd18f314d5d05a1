"""Which delivery of an order goes next? An order's deliveries go one at a time (docs/decisions/0006-webhook-lanes.md).

Locks are taken in this order: deliveries by (tenant_id, order_id, order_version), then endpoints by tenant_id. A
transaction that decides about an order's deliveries locks all unfinished ones first and reads them in a later
statement, which sees what others committed meanwhile. Four statements never wait and skip locked rows instead:
`claim.due_deliveries`, `circuit_breaker.take_probe`, `circuit_breaker.spread_deliveries` and `upkeep.skip_unfinished`.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from dealer_server import metrics
from dealer_server.db.after_commit import after_commit
from dealer_server.db.arrays import batch, columns
from dealer_server.db.connection import Connection
from dealer_server.db.session import Session

Key = tuple[int, int]  # tenant_id, and order_id or delivery_id

UNFINISHED = "state IN ('WAITING', 'READY', 'IN_FLIGHT', 'RETRY')"

# The order matters: a delivery inserted while this statement waits is the newest of its order, so make_next_ready may
# lock it later without waiting for a transaction that waits for this one.
_LOCK = f"""
SELECT 1 FROM {batch("key", tenant_id="bigint", order_id="bigint")} CROSS JOIN LATERAL (
    SELECT FROM webhook_delivery d WHERE d.tenant_id = key.tenant_id AND d.order_id = key.order_id AND d.{UNFINISHED}
    ORDER BY d.order_version, d.delivery_id FOR NO KEY UPDATE) d
"""


async def lock_unfinished(connection: Connection | Session, orders: Sequence[Key]) -> None:
    """Locks all unfinished deliveries of these orders, oldest change first, until the transaction ends."""
    await connection.fetch(_LOCK, *columns(sorted(set(orders)), 2))


# The next delivery of an order is the one of the oldest change that is WAITING, provided that no other is READY or
# IN_FLIGHT. A delivery in RETRY blocks only later ones of its event type; a DELIVERY_UPDATED in RETRY blocks none: the
# next update supersedes it. A resend ignores retries and goes to the front of the dealer's queue.
_MAKE_NEXT_READY = f"""
WITH next AS MATERIALIZED (
    SELECT next.*, ARRAY(SELECT d.delivery_id FROM (
            SELECT d.delivery_id, d.event_type, d.state FROM webhook_delivery d
            WHERE d.tenant_id = key.tenant_id AND d.order_id = key.order_id AND d.{UNFINISHED} OFFSET 0
        ) d WHERE next.event_type = 'DELIVERY_UPDATED' AND next.fresh AND d.event_type = 'DELIVERY_UPDATED'
            AND d.state = 'RETRY') AS failed_updates
    FROM {batch("key", tenant_id="bigint", order_id="bigint")} CROSS JOIN LATERAL (
        SELECT unfinished.* FROM (
            SELECT d.tenant_id, d.delivery_id, d.order_version, d.event_type, d.state, d.trigger, d.not_before,
                d.body IS NULL AS fresh, bool_or(d.state IN ('READY', 'IN_FLIGHT')) OVER () AS busy,
                bool_or(d.state = 'RETRY') OVER (PARTITION BY d.event_type) AS failed_before
            FROM webhook_delivery d
            WHERE d.tenant_id = key.tenant_id AND d.order_id = key.order_id AND d.{UNFINISHED}
        ) unfinished
        WHERE state = 'WAITING' AND NOT busy
            AND (event_type = 'DELIVERY_UPDATED' OR trigger = 'RESEND' OR NOT failed_before)
        ORDER BY order_version, delivery_id LIMIT 1
    ) next
), superseded AS (
    UPDATE webhook_delivery d SET state = 'SUPERSEDED', due_at = NULL, finished_at = $3
    FROM next CROSS JOIN LATERAL (
        SELECT * FROM unnest(next.failed_updates) LIMIT cardinality(next.failed_updates)) AS failed(delivery_id)
    WHERE d.tenant_id = next.tenant_id AND d.delivery_id = failed.delivery_id
    RETURNING 1
), ready AS (
    UPDATE webhook_delivery d SET state = 'READY', due_at = CASE
        WHEN next.trigger = 'RESEND' THEN least($3, (SELECT min(first.due_at) - interval '1 ms'
            FROM webhook_delivery first
            WHERE first.tenant_id = next.tenant_id AND first.state IN ('READY', 'RETRY')))
        ELSE greatest($3, next.not_before) END
    FROM next WHERE d.tenant_id = next.tenant_id AND d.delivery_id = next.delivery_id
    RETURNING 1
)
SELECT (SELECT count(*) FROM ready) AS ready, (SELECT count(*) FROM superseded) AS superseded
"""


async def make_next_ready(connection: Connection | Session, orders: Sequence[Key], now: datetime) -> int:
    """Makes the next delivery of each order READY; returns how many became so.

    The orders' unfinished deliveries must be locked.
    """
    counts = await connection.fetch(_MAKE_NEXT_READY, *columns(sorted(set(orders)), 2), now)
    after_commit(partial(metrics.webhook_superseded.inc, sum(row["superseded"] for row in counts)))
    return sum(row["ready"] for row in counts)
