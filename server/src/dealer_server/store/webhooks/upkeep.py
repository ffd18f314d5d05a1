"""Which deliveries need care? Those with expired leases, and those of endpoints that are not active."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.by_tenant import OF_ALL, of_all
from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.store.distribution.due import fetch_all, fetch_due
from dealer_server.store.webhooks.dialects import state_of
from dealer_server.store.webhooks.order_queue import UNFINISHED
from esim_dealer.wire.vocabulary import DeliveryTrigger


class ExpiredLease(NamedTuple):
    """A delivery in flight that its worker did not record before the lease expired."""

    tenant_id: int
    order_id: int
    delivery_id: int
    claim: int
    attempt_count: int
    lease_until: datetime
    trigger: DeliveryTrigger
    delivered_before: bool  # then it is a resend


async def expired_leases(session: Session, now: datetime, limit: int) -> list[ExpiredLease]:
    leases = await fetch_all(
        session,
        "SELECT tenant_id, order_id, delivery_id, claim, attempt_count, due_at AS lease_until, trigger,"
        " delivered_at IS NOT NULL AS delivered_before FROM webhook_delivery"
        f" WHERE {OF_ALL} state = 'IN_FLIGHT' AND due_at <= $1 LIMIT $2",
        now,
        limit,
    )
    return [ExpiredLease(**row) for row in leases]


# Deliveries for a receiver that was removed are skipped with its removal: of those of the RT family's dialect only a
# disabled one is looked for, as few dealers have any.
_SKIP = f"""
WITH pending AS (
    SELECT d.tenant_id, d.delivery_id FROM webhook_endpoint e CROSS JOIN LATERAL (
        SELECT * FROM webhook_delivery d
        WHERE d.tenant_id = e.tenant_id AND d.{UNFINISHED} AND d.state <> 'IN_FLIGHT'
            AND {state_of("d", "e")} <> 'ACTIVE'
        LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
    ) d
    WHERE {of_all("e")}
        CASE WHEN $3::bigint IS NULL THEN e.state <> 'ACTIVE' OR e.rt_state = 'DISABLED' ELSE e.tenant_id = $3 END
    LIMIT $2
)
UPDATE webhook_delivery d SET state = CASE WHEN d.delivered_at IS NULL THEN 'SKIPPED' ELSE 'DELIVERED' END,
    due_at = NULL, finished_at = $1 FROM pending
WHERE d.tenant_id = pending.tenant_id AND d.delivery_id = pending.delivery_id
RETURNING 1
"""


_NOT_ACTIVE = f"""
SELECT tenant_id FROM webhook_endpoint e WHERE {OF_ALL}
    CASE WHEN $1::bigint IS NULL THEN e.state <> 'ACTIVE' OR e.rt_state = 'DISABLED' ELSE e.tenant_id = $1 END
"""


async def skip_unfinished(
    session: Connection | Session, now: datetime, limit: int, tenant_id: int | None = None
) -> int:
    """Skips the deliveries that wait for endpoints (or one tenant's) that are not active; how many, at most `limit`."""
    args = now, limit, tenant_id
    return len(await fetch_due(session, _SKIP, args, _NOT_ACTIVE, (tenant_id,), limit))
