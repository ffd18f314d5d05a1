"""How is a dealer told of changed orders where tables are distributed by tenant?

What one statement does on plain PostgreSQL (`enqueue.py`) is a look, an update and an insert here, each at the node of
the dealer: an INSERT inside WITH would bring all nodes into the transaction. The rows are locked before, as there.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from dealer_server.db.arrays import batch, columns
from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.store.webhooks.order_queue import UNFINISHED

_LOOK = f"""
SELECT change.tenant_id, change.order_id, change.version, unfinished.*, CASE WHEN change.only_usage THEN (
        SELECT max(CASE WHEN d.state = 'IN_FLIGHT' THEN $5 ELSE first.started_at END) + $6::interval
        FROM webhook_delivery d LEFT JOIN webhook_attempt first
            ON first.tenant_id = d.tenant_id AND first.delivery_id = d.delivery_id AND first.number = 1
        WHERE d.tenant_id = change.tenant_id AND d.order_id = change.order_id AND 'USAGE_UPDATED' = ANY(d.hints)
    ) END AS not_before,
    EXISTS (SELECT FROM webhook_endpoint e WHERE e.tenant_id = change.tenant_id AND e.state = 'ACTIVE') AS active,
    EXISTS (SELECT FROM webhook_endpoint e WHERE e.tenant_id = change.tenant_id AND e.rt_state = 'ACTIVE') AS in_rt
FROM {batch("change", tenant_id="bigint", order_id="bigint", version="int", only_usage="bool")}
CROSS JOIN LATERAL (
    SELECT min(d.delivery_id) FILTER (WHERE d.event_type = 'DELIVERY_UPDATED' AND d.attempt_count = 0
            AND d.state IN ('WAITING', 'READY') AND d.trigger = 'AUTO') AS unattempted,
        coalesce(bool_or(d.state <> 'RETRY'), false) AS busy,
        coalesce(bool_or(d.state = 'RETRY' AND d.event_type = 'DELIVERY_UPDATED'), false) AS failed_before
    FROM webhook_delivery d
    WHERE d.tenant_id = change.tenant_id AND d.order_id = change.order_id AND d.{UNFINISHED}
) unfinished
"""
_MERGE = f"""
UPDATE webhook_delivery d SET order_version = change.version,
    not_before = CASE WHEN d.not_before > $5::timestamptz THEN change.not_before END,
    due_at = CASE WHEN d.state = 'READY' AND d.not_before > $5 THEN greatest($5, change.not_before) ELSE d.due_at END
FROM {batch("change", tenant_id="bigint", delivery_id="bigint", version="int", not_before="timestamptz")}
WHERE d.tenant_id = change.tenant_id AND d.delivery_id = change.delivery_id RETURNING 1
"""
_ADD = """
INSERT INTO webhook_delivery (tenant_id, delivery_id, order_id, event_type, order_version, state, due_at, not_before,
    created_at, finished_at)
SELECT w.tenant_id, fresh.delivery_id, fresh.order_id, 'DELIVERY_UPDATED', fresh.version, fresh.state,
    CASE WHEN fresh.state = 'READY' THEN greatest($7::timestamptz, fresh.not_before) END, fresh.not_before,
    $7::timestamptz, CASE WHEN fresh.state = 'SKIPPED' THEN $7::timestamptz END
FROM wallet w CROSS JOIN unnest($2::bigint[], $3::bigint[], $4::int[], $5::text[], $6::timestamptz[])
    AS fresh(delivery_id, order_id, version, state, not_before)
WHERE w.tenant_id = $1
"""
_IDS = """
SELECT nextval(pg_get_serial_sequence('webhook_delivery', 'delivery_id')) AS delivery_id FROM generate_series(1, $1)
"""


async def enqueue(
    connection: Connection | Session, arrays: Sequence[list[Any]], now: datetime, usage_interval: timedelta
) -> list[dict[str, Any]]:
    """Of each change: tenant_id, order_id, supersedes and in_rt, as `enqueue._ENQUEUE` gives them."""
    looked = [dict(row) for row in await connection.fetch(_LOOK, *arrays, now, usage_interval)]
    merged = [
        (row["tenant_id"], row["unattempted"], row["version"], row["not_before"])
        for row in looked
        if row["unattempted"] is not None
    ]
    if merged:
        await connection.fetch(_MERGE, *columns(merged, 4), now)
    fresh = [row for row in looked if row["unattempted"] is None]
    for tenant_id in sorted({row["tenant_id"] for row in fresh}):
        mine = [row for row in fresh if row["tenant_id"] == tenant_id]
        ids = [row["delivery_id"] for row in await connection.fetch(_IDS, len(mine))]
        added = [(row["order_id"], row["version"], _state(row), row["not_before"]) for row in mine]
        await connection.fetch(_ADD, tenant_id, ids, *columns(added, 4), now)
    for row in looked:
        row["supersedes"] = row["unattempted"] is None and row["failed_before"] and not row["busy"]
    return looked


def _state(row: dict[str, Any]) -> str:
    if not row["active"]:
        return "SKIPPED"
    return "WAITING" if row["busy"] or row["failed_before"] else "READY"
