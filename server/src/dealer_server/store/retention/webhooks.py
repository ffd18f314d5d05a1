"""Which deliveries and attempts are old, and how do they go? A delivery takes its attempts with it.

Nothing here waits for a worker that delivers: what is deleted was finished long ago. Only a resend may lock it
meanwhile, and the conditions are checked again once its row is free.
"""

from collections.abc import Sequence
from datetime import datetime

from dealer_server.db.session import Session
from dealer_server.rules.retention.retention import PastDelivery
from dealer_server.store.retention.progress import Subject
from dealer_server.store.webhooks.order_queue import UNFINISHED

_SUBJECT = f"delivery_id AS id, created_at, CASE WHEN NOT ({UNFINISHED}) THEN finished_at END AS finished_at"


async def after(session: Session, tenant_id: int, reached: int, limit: int) -> list[Subject]:
    """The next deliveries, by id."""
    deliveries = await session.fetch(
        f"SELECT {_SUBJECT} FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id > $2"
        " ORDER BY delivery_id LIMIT $3",
        tenant_id,
        reached,
        limit,
    )
    return [Subject(**row) for row in deliveries]


async def find(session: Session, tenant_id: int, delivery_ids: Sequence[int]) -> list[Subject]:
    deliveries = await session.fetch(
        f"SELECT {_SUBJECT} FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[])",
        tenant_id,
        delivery_ids,
    )
    return [Subject(**row) for row in deliveries]


# What earlier visits have left of an order is of a version before those that are visited now.
_OF_THE_SAME_ORDERS = f"""
SELECT past.* FROM (
    SELECT order_id, max(order_version) AS order_version FROM webhook_delivery
    WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[]) GROUP BY order_id
) visited CROSS JOIN LATERAL (
    SELECT delivery_id, order_id, event_type, order_version, attempt_count > 0 AS attempted,
        delivered_at IS NOT NULL AS delivered, CASE WHEN NOT ({UNFINISHED}) THEN finished_at END AS finished_at
    FROM webhook_delivery d WHERE d.tenant_id = $1 AND d.order_id = visited.order_id
        AND d.order_version <= visited.order_version AND d.delivery_id <= $3 OFFSET 0
) past
"""


async def of_the_same_orders(
    session: Session, tenant_id: int, delivery_ids: Sequence[int], reached: int
) -> list[PastDelivery]:
    """The deliveries that are visited, and those that earlier visits have left of their orders."""
    past = await session.fetch(_OF_THE_SAME_ORDERS, tenant_id, delivery_ids, reached)
    return [PastDelivery(**row) for row in past]


async def delete(session: Session, tenant_id: int, delivery_ids: Sequence[int], limit: datetime) -> int:
    """Deletes those of these deliveries that were finished before `limit`, with their attempts; how many."""
    deleted = await session.fetch(
        "DELETE FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[])"
        f" AND NOT ({UNFINISHED}) AND finished_at < $3 RETURNING delivery_id",
        tenant_id,
        delivery_ids,
        limit,
    )
    await session.fetch(
        "DELETE FROM webhook_attempt WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[])",
        tenant_id,
        [row["delivery_id"] for row in deleted],
    )
    return len(deleted)


async def delete_attempts(session: Session, tenant_id: int, delivery_ids: Sequence[int], limit: datetime) -> int:
    """Deletes the attempts of these deliveries; how many. One that was made meanwhile stays."""
    deleted = await session.fetch(
        "DELETE FROM webhook_attempt WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[]) AND started_at < $3"
        " RETURNING 1",
        tenant_id,
        delivery_ids,
        limit,
    )
    return len(deleted)
