"""Which transaction enqueues which event? A changed order a DELIVERY_UPDATED, a credited refund a REFUND_COMPLETED.

ORDER_PAID is enqueued by the statement that writes the order (store/orders/order.py).
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.arrays import batch
from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.db.session import Session
from dealer_server.store.webhooks import enqueue_by_tenant
from dealer_server.store.webhooks.order_queue import UNFINISHED, Key, lock_unfinished, make_next_ready
from esim_dealer.wire.vocabulary import ChangeHint

USAGE_INTERVAL = timedelta(minutes=15)

# A new update is WAITING if its order has another unfinished delivery; one in RETRY counts only if it is an update too,
# which the new one supersedes. Returns the orders for which the latter is to be done, and those whose dealers also get
# events in the RT family's dialect.
# Deliveries are looked up by order and written by their primary key: a statement that joined by state would compare
# every change with the waiting updates of all dealers, as soon as the statistics say that there are few.
_ENQUEUE = f"""
WITH change AS MATERIALIZED (
    SELECT change.*, CASE WHEN only_usage THEN (
        SELECT max(CASE WHEN d.state = 'IN_FLIGHT' THEN $5 ELSE first.started_at END) + $6::interval
        FROM webhook_delivery d LEFT JOIN webhook_attempt first
            ON first.tenant_id = d.tenant_id AND first.delivery_id = d.delivery_id AND first.number = 1
        WHERE d.tenant_id = change.tenant_id AND d.order_id = change.order_id AND 'USAGE_UPDATED' = ANY(d.hints)
    ) END AS not_before, unfinished.*
    FROM {batch("change", tenant_id="bigint", order_id="bigint", version="int", only_usage="bool")}
    CROSS JOIN LATERAL (
        SELECT min(d.delivery_id) FILTER (WHERE d.event_type = 'DELIVERY_UPDATED' AND d.attempt_count = 0
                AND d.state IN ('WAITING', 'READY') AND d.trigger = 'AUTO') AS unattempted,
            bool_or(d.state <> 'RETRY') AS busy,
            bool_or(d.state = 'RETRY' AND d.event_type = 'DELIVERY_UPDATED') AS failed_before
        FROM webhook_delivery d
        WHERE d.tenant_id = change.tenant_id AND d.order_id = change.order_id AND d.{UNFINISHED}
    ) unfinished
), merged AS (
    UPDATE webhook_delivery d SET order_version = change.version,
        not_before = CASE WHEN d.not_before > $5 THEN change.not_before END,
        due_at = CASE WHEN d.state = 'READY' AND d.not_before > $5 THEN greatest($5, change.not_before)
            ELSE d.due_at END
    FROM change WHERE d.tenant_id = change.tenant_id AND d.delivery_id = change.unattempted
), added AS (
    INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, due_at, not_before, created_at,
        finished_at)
    SELECT tenant_id, order_id, 'DELIVERY_UPDATED', version, state,
        CASE WHEN state = 'READY' THEN greatest($5::timestamptz, not_before) END, not_before, $5,
        CASE WHEN state = 'SKIPPED' THEN $5 END
    FROM (
        SELECT change.*, CASE WHEN NOT EXISTS (SELECT FROM webhook_endpoint endpoint
                WHERE endpoint.tenant_id = change.tenant_id AND endpoint.state = 'ACTIVE' OFFSET 0) THEN 'SKIPPED'
            WHEN busy OR failed_before THEN 'WAITING' ELSE 'READY' END AS state
        FROM change WHERE unattempted IS NULL
    ) fresh
)
SELECT tenant_id, order_id, supersedes, in_rt FROM (
    SELECT tenant_id, order_id, coalesce(unattempted IS NULL AND failed_before AND NOT busy, false) AS supersedes,
        EXISTS (SELECT FROM webhook_endpoint endpoint WHERE endpoint.tenant_id = change.tenant_id
            AND endpoint.rt_state = 'ACTIVE' OFFSET 0) AS in_rt
    FROM change
) told WHERE supersedes OR in_rt
"""


async def order_changed(
    connection: Connection | Session,
    changes: Sequence[tuple[int, int, int]],
    now: datetime,
    only_usage: Collection[Key] = (),
    usage_interval: timedelta = USAGE_INTERVAL,
) -> Collection[Key]:
    """Enqueues one DELIVERY_UPDATED for each changed order, given as (tenant_id, order_id, version).

    Call it once in a transaction, with all its changes, after the orders' rows were locked and written. A change merges
    into the order's update that was never attempted, if there is one: a body is frozen at the first attempt and shows
    the order as it is then. Without an active endpoint the delivery is SKIPPED. For orders in `only_usage`, where only
    usage changed and no threshold was crossed (rules/lifecycle/usage.py), one update goes out per `usage_interval`.

    Gives the orders whose dealers also get events in the RT family's dialect, for store/webhooks/changes.py.
    """
    if not changes:
        return ()
    latest = {(tenant_id, order_id): version for tenant_id, order_id, version in changes}
    keys = list(latest)
    await lock_unfinished(connection, keys)
    arrays = [
        [key[0] for key in keys],
        [key[1] for key in keys],
        list(latest.values()),
        [key in only_usage for key in keys],
    ]
    if is_distributed(connection):
        told = await enqueue_by_tenant.enqueue(connection, arrays, now, usage_interval)
    else:
        told = await connection.fetch(_ENQUEUE, *arrays, now, usage_interval)
    if superseding := [(row["tenant_id"], row["order_id"]) for row in told if row["supersedes"]]:
        await make_next_ready(connection, superseding, now)
    return {(row["tenant_id"], row["order_id"]) for row in told if row["in_rt"]}


_CREDITED = f"""
WITH event AS (
    SELECT * FROM {
    batch("event", tenant_id="bigint", order_id="bigint", version="int", delivery_id="bigint", body="bytea")
}
), brought_forward AS (
    UPDATE webhook_delivery d SET not_before = NULL, due_at = CASE WHEN d.state = 'READY' THEN $7::timestamptz END
    FROM event CROSS JOIN LATERAL (
        SELECT d.delivery_id FROM webhook_delivery d
        WHERE d.tenant_id = event.tenant_id AND d.order_id = event.order_id AND d.{UNFINISHED}
            AND d.not_before > $7 AND d.state IN ('WAITING', 'READY') OFFSET 0
    ) later WHERE d.tenant_id = event.tenant_id AND d.delivery_id = later.delivery_id
)
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, delivery_id, body, hints,
    created_at, finished_at)
SELECT event.tenant_id, order_id, 'REFUND_COMPLETED', version,
    CASE WHEN endpoint.tenant_id IS NULL THEN 'SKIPPED' ELSE 'WAITING' END, delivery_id, body, $6, $7,
    CASE WHEN endpoint.tenant_id IS NULL THEN $7 END
FROM event LEFT JOIN webhook_endpoint endpoint
    ON endpoint.tenant_id = event.tenant_id AND endpoint.state = 'ACTIVE'
"""


class Credit(NamedTuple):
    """A credited refund: the event that reports it, with its sealed body. The fields are the columns of _CREDITED."""

    tenant_id: int
    order_id: int
    version: int
    delivery_id: int
    body: bytes


async def refunds_credited(
    connection: Connection | Session, credits: Sequence[Credit], hints: Sequence[ChangeHint], now: datetime
) -> None:
    """Enqueues one REFUND_COMPLETED for each credited refund, frozen as the credit left the order.

    Call it in the credit's transaction, after `order_changed`, so that the update of the order goes first.
    """
    if not credits:
        return
    keys = sorted({(credit.tenant_id, credit.order_id) for credit in credits})
    await lock_unfinished(connection, keys)
    await connection.fetch(_CREDITED, *[list(column) for column in zip(*credits, strict=True)], list(hints), now)
    await make_next_ready(connection, keys, now)


async def delivery_ids(connection: Connection | Session, count: int) -> list[int]:
    """Draws `count` new delivery ids, for bodies that are sealed before their rows are inserted."""
    ids = await connection.fetch(
        "SELECT nextval(pg_get_serial_sequence('webhook_delivery', 'delivery_id')) AS delivery_id"
        " FROM generate_series(1, $1)",
        count,
    )
    return [row["delivery_id"] for row in ids]
