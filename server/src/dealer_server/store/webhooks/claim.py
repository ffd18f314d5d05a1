"""How are due deliveries claimed and put in flight? All of it in one transaction of the worker (webhooks/claim.py)."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import batch
from dealer_server.db.by_tenant import OF_ALL, of_all
from dealer_server.db.distributed import is_distributed
from dealer_server.db.rows import as_values, columns_of, fields_of
from dealer_server.db.session import Session
from dealer_server.store.distribution.due import fetch_all
from dealer_server.store.webhooks.circuit_breaker import BREAKER_FAILURES
from dealer_server.store.webhooks.dialects import any_active, state_of, url_of
from dealer_server.store.webhooks.order_queue import UNFINISHED, Key
from dealer_server.store.webhooks.signer import SIGNER_FIRST, Signer
from esim_dealer.wire.vocabulary import DeliveryTrigger, EventType


class WaitingTenant(NamedTuple):
    """A tenant that has deliveries READY or in RETRY; how many it may have in flight, 0 where none is due, and has. Who
    signs them, where any are due and it has a credential."""

    tenant_id: int
    cap: int
    in_flight: int
    signer: Signer | None


class TenantQuota(NamedTuple):
    """How many deliveries of a tenant may be put in flight now."""

    tenant_id: int
    quota: int


class Claimed(NamedTuple):
    """A due delivery, locked by the transaction that claims it. Of a DELIVERY_UPDATED that is not frozen also its
    baseline, the order's last update that was delivered, by version; and whether a later one is in doubt: it was
    attempted and not acknowledged, so that the dealer may have received it all the same."""

    tenant_id: int
    delivery_id: int
    order_id: int
    event_type: EventType
    trigger: DeliveryTrigger
    order_version: int
    attempt_count: int
    body: bytes | None  # sealed; None until frozen
    url: str
    breaker_open: bool
    delivered_before: bool  # then it is a resend
    deliverable_since: datetime  # when the order changed; for an update that was held back, when it may go
    profiles: int
    standard_headers: bool = False  # whether it carries those of standard-webhooks too
    baseline_id: int | None = None
    baseline_body: bytes | None = None  # sealed
    in_doubt: bool = False


class Frozen(NamedTuple):
    """The final content of a delivery. The fields are the columns of _FREEZE."""

    tenant_id: int
    delivery_id: int
    order_version: int
    hints: str | None  # joined by commas
    body: bytes | None  # sealed; None if there is nothing to send, or if it was frozen before


# The recursion jumps in the index from one tenant to the next, so its cost depends on the number of tenants and not of
# deliveries.
_TENANTS = f"""
WITH RECURSIVE visited AS (
    (SELECT tenant_id, 1 AS number FROM webhook_delivery WHERE state IN ('READY', 'RETRY') AND tenant_id > $1
        ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT following.tenant_id, number + 1 FROM visited CROSS JOIN LATERAL (
        SELECT d.tenant_id FROM webhook_delivery d WHERE d.state IN ('READY', 'RETRY')
            AND d.tenant_id > visited.tenant_id ORDER BY d.tenant_id LIMIT 1) following
    WHERE number < $2
)
SELECT waiting.tenant_id, cap, CASE WHEN cap > 0 THEN (
        SELECT count(*) FROM webhook_delivery d WHERE d.tenant_id = waiting.tenant_id AND d.state = 'IN_FLIGHT'
    ) ELSE 0 END AS in_flight, {columns_of(Signer, "tenant_id", table="signer")}
FROM (
    SELECT visited.tenant_id, CASE WHEN {any_active("endpoint")} AND EXISTS (SELECT FROM webhook_delivery d
            WHERE d.tenant_id = visited.tenant_id AND d.state IN ('READY', 'RETRY') AND d.due_at <= $3 OFFSET 0)
        THEN CASE WHEN consecutive_failures < {BREAKER_FAILURES} THEN cap_in_flight
                WHEN probe_at IS NULL OR probe_at <= $3 THEN 1
                WHEN EXISTS (SELECT FROM webhook_delivery d WHERE d.tenant_id = visited.tenant_id AND d.state = 'READY'
                    AND d.trigger = 'RESEND' OFFSET 0) THEN 1 ELSE 0 END
        ELSE 0 END AS cap
    FROM visited LEFT JOIN webhook_endpoint endpoint USING (tenant_id) OFFSET 0
) waiting LEFT JOIN LATERAL (
    SELECT * FROM credential WHERE cap > 0 AND tenant_id = waiting.tenant_id ORDER BY {SIGNER_FIRST} LIMIT 1
) signer ON true
"""
_SIGNER = fields_of(Signer, "tenant_id")


async def tenants_waiting(session: Session, after: int, limit: int, now: datetime) -> list[WaitingTenant]:
    """The next `limit` tenants after this id with deliveries due now or later.

    While a tenant's circuit breaker is open its cap is 1, and 0 between two probes unless a resend waits.
    """
    if is_distributed(session):
        return await _tenants_by_node(session, after, limit, now)
    return [
        WaitingTenant(
            row["tenant_id"],
            row["cap"],
            row["in_flight"],
            None if row["app_key"] is None else Signer(row["tenant_id"], *[row[name] for name in _SIGNER]),
        )
        for row in await session.fetch(_TENANTS, after, limit, now)
    ]


# The same where tables are distributed by tenant: who waits, what may go, and who signs, which the coordinator knows.
_VISITED = f"""
SELECT DISTINCT tenant_id FROM webhook_delivery WHERE {OF_ALL} state IN ('READY', 'RETRY') AND tenant_id > $1
ORDER BY tenant_id LIMIT $2
"""
_CAPS = f"""
SELECT endpoint.tenant_id, CASE WHEN NOT {any_active("endpoint")} OR NOT coalesce(due, false) THEN 0
        WHEN consecutive_failures < {BREAKER_FAILURES} THEN cap_in_flight
        WHEN probe_at IS NULL OR probe_at <= $2 OR coalesce(resent, false) THEN 1 ELSE 0 END AS cap, in_flight
FROM webhook_endpoint endpoint JOIN (
    SELECT tenant_id, count(*) FILTER (WHERE state = 'IN_FLIGHT') AS in_flight,
        bool_or(state IN ('READY', 'RETRY') AND due_at <= $2) AS due,
        bool_or(state = 'READY' AND trigger = 'RESEND') AS resent
    FROM webhook_delivery WHERE {OF_ALL} tenant_id = ANY($1::bigint[]) AND {UNFINISHED} GROUP BY tenant_id
) unfinished ON unfinished.tenant_id = endpoint.tenant_id
WHERE {of_all("endpoint")} endpoint.tenant_id = ANY($1::bigint[])
"""
_SIGNERS = f"""
SELECT DISTINCT ON (tenant_id) {columns_of(Signer)} FROM credential WHERE tenant_id = ANY($1::bigint[])
ORDER BY tenant_id, {SIGNER_FIRST}
"""


async def _tenants_by_node(session: Session, after: int, limit: int, now: datetime) -> list[WaitingTenant]:
    visited = sorted({row["tenant_id"] for row in await fetch_all(session, _VISITED, after, limit)})[:limit]
    if not visited:
        return []
    caps = {row["tenant_id"]: (row["cap"], row["in_flight"]) for row in await fetch_all(session, _CAPS, visited, now)}
    wanted = [tenant_id for tenant_id, (cap, _) in caps.items() if cap]
    signers = {row["tenant_id"]: Signer(**row) for row in await session.fetch(_SIGNERS, wanted)}
    return [WaitingTenant(tenant_id, *caps.get(tenant_id, (0, 0)), signers.get(tenant_id)) for tenant_id in visited]


_FRESH_UPDATE = "due.event_type = 'DELIVERY_UPDATED' AND due.body IS NULL"
# Of an order only the delivery that has been due longest qualifies, in every worker alike, and none while one is in
# flight. The unique index webhook_one_in_flight_per_order enforces the latter.
_CLAIM = f"""
SELECT due.tenant_id, due.delivery_id, due.order_id, due.event_type, due.trigger, due.order_version, due.attempt_count,
    due.body, {url_of("due", "endpoint")} AS url, endpoint.standard_headers,
    endpoint.consecutive_failures >= {BREAKER_FAILURES} AS breaker_open,
    due.delivered_at IS NOT NULL AS delivered_before, greatest(due.created_at, due.not_before) AS deliverable_since,
    (SELECT sum(quantity) FROM order_item item WHERE item.tenant_id = due.tenant_id AND item.order_id = due.order_id)
        AS profiles,
    baseline.delivery_id AS baseline_id, baseline.body AS baseline_body,
    {_FRESH_UPDATE} AND EXISTS (SELECT FROM webhook_delivery d
        WHERE d.tenant_id = due.tenant_id AND d.order_id = due.order_id AND d.event_type = 'DELIVERY_UPDATED'
        AND d.order_version > coalesce(baseline.order_version, 0) AND d.attempt_count > 0 AND d.delivered_at IS NULL
        OFFSET 0) AS in_doubt
FROM unnest($1::bigint[], $2::int[]) AS share(tenant_id, size)
JOIN webhook_endpoint endpoint ON endpoint.tenant_id = share.tenant_id AND {any_active("endpoint")}
CROSS JOIN LATERAL (
    SELECT d.* FROM webhook_delivery d
    WHERE d.tenant_id = share.tenant_id AND d.state IN ('READY', 'RETRY') AND d.due_at <= $3
        AND {state_of("d", "endpoint")} = 'ACTIVE'
        AND NOT EXISTS (SELECT FROM webhook_delivery other
            WHERE other.tenant_id = d.tenant_id AND other.order_id = d.order_id AND other.{UNFINISHED}
            AND (other.state = 'IN_FLIGHT' OR other.state IN ('READY', 'RETRY')
                AND (other.due_at, other.delivery_id) < (d.due_at, d.delivery_id)) OFFSET 0)
    ORDER BY d.due_at, d.delivery_id LIMIT share.size FOR NO KEY UPDATE SKIP LOCKED
) due LEFT JOIN LATERAL (
    SELECT d.delivery_id, d.body, d.order_version FROM webhook_delivery d
    WHERE {_FRESH_UPDATE} AND d.tenant_id = due.tenant_id AND d.order_id = due.order_id
        AND d.event_type = 'DELIVERY_UPDATED' AND d.delivered_at IS NOT NULL
    ORDER BY d.order_version DESC, d.delivery_id DESC LIMIT 1
) baseline ON true
"""


async def due_deliveries(session: Session, shares: Sequence[TenantQuota], now: datetime) -> list[Claimed]:
    """Due deliveries of these tenants, at most `quota` each, locked until the transaction ends."""
    deliveries = await session.fetch(
        _CLAIM, [share.tenant_id for share in shares], [share.quota for share in shares], now
    )
    return as_values(Claimed, deliveries)


_FREEZE = f"""
UPDATE webhook_delivery d SET state = 'IN_FLIGHT', claim = $6, due_at = $7,
    attempt_count = attempt_count + (d.body IS NOT NULL OR frozen.body IS NOT NULL)::int,
    order_version = frozen.order_version, body = coalesce(d.body, frozen.body),
    hints = CASE WHEN d.body IS NULL THEN string_to_array(frozen.hints, ',') ELSE d.hints END
FROM {batch("frozen", tenant_id="bigint", delivery_id="bigint", order_version="int", hints="text", body="bytea")}
WHERE d.tenant_id = frozen.tenant_id AND d.delivery_id = frozen.delivery_id AND d.claim IS NULL
RETURNING 1
"""


async def freeze(session: Session, frozen: Sequence[Frozen], claim: int, lease_until: datetime) -> None:
    """Puts claimed deliveries in flight and counts the attempt; a body frozen before stays as it is.

    Raises asyncpg.UniqueViolationError if another worker has just put a delivery of the same order in flight.
    """
    columns = [list(column) for column in zip(*frozen, strict=True)]
    updated = await session.fetch(_FREEZE, *columns, claim, lease_until)
    assert len(updated) == len(frozen), "a locked delivery changed"


async def postpone(session: Session, deliveries: Sequence[Key], until: datetime) -> None:
    """Makes claimed deliveries that cannot be prepared due later."""
    await session.fetch(
        "UPDATE webhook_delivery d SET due_at = $3"
        f" FROM {batch('key', tenant_id='bigint', delivery_id='bigint')}"
        " WHERE d.tenant_id = key.tenant_id AND d.delivery_id = key.delivery_id AND d.state IN ('READY', 'RETRY')",
        [key[0] for key in deliveries],
        [key[1] for key in deliveries],
        until,
    )
