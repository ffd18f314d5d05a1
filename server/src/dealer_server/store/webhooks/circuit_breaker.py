"""When does an endpoint's circuit breaker open, probe and close? (docs/decisions/0006-webhook-lanes.md, point 6)"""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.arrays import batch, columns
from dealer_server.db.session import Session
from esim_dealer.wire.vocabulary import EndpointState

BREAKER_FAILURES = 20  # failures in a row that open the breaker
PROBE_INTERVAL = timedelta(minutes=1)
SPREAD = timedelta(minutes=1)  # waiting deliveries of an endpoint that recovered go out over this time
# last_success_at is exact to this, so that the row of a healthy endpoint is rarely written.
SUCCESS_PRECISION = timedelta(seconds=1)


class EndpointResults(NamedTuple):
    """The results of a batch of attempts at one endpoint. The fields are the columns of _RECORD."""

    tenant_id: int
    url: str
    succeeded: bool
    failures: int  # in a row, since the last success of the batch if there was one
    gone: bool  # 410


class EndpointChange(NamedTuple):
    """An endpoint whose row was written, with its failures in a row before and after."""

    tenant_id: int
    state: EndpointState
    failures_before: int
    failures: int
    succeeded: bool

    @property
    def breaker_opened(self) -> bool:
        return self.failures_before < BREAKER_FAILURES <= self.failures

    @property
    def recovered(self) -> bool:
        return self.failures_before >= BREAKER_FAILURES and self.succeeded


async def take_probe(session: Session, tenant_ids: Sequence[int], now: datetime) -> set[int]:
    """Those of these tenants that may be probed now; reserves the probe, the next one is due a minute later."""
    probes = await session.fetch(
        "WITH allowed AS (SELECT tenant_id FROM webhook_endpoint WHERE tenant_id = ANY($1::bigint[])"
        " AND (probe_at IS NULL OR probe_at <= $2) FOR NO KEY UPDATE SKIP LOCKED)"
        " UPDATE webhook_endpoint e SET probe_at = $3 FROM allowed WHERE e.tenant_id = allowed.tenant_id"
        " RETURNING e.tenant_id",
        list(tenant_ids),
        now,
        now + PROBE_INTERVAL,
    )
    return {row["tenant_id"] for row in probes}


def success_counts(since: str) -> str:
    """SQL: whether a success changes the endpoint `e`; `since`: the parameter that says which one would be recent."""
    return f"(e.consecutive_failures > 0 OR e.last_success_at IS NULL OR e.last_success_at < {since})"


# A success does not close an open breaker yet: `close` does, after the waiting deliveries were spread over a minute.
_RECORD = f"""
WITH batch AS (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::bool[], $4::int[], $5::bool[])
        AS batch(tenant_id, url, succeeded, failures, gone)
), changing AS (
    SELECT e.tenant_id, e.consecutive_failures AS before, batch.succeeded, batch.gone, batch.url,
        CASE WHEN batch.succeeded AND e.consecutive_failures < {BREAKER_FAILURES} THEN batch.failures
            ELSE e.consecutive_failures + batch.failures END AS after
    FROM batch JOIN webhook_endpoint e ON e.tenant_id = batch.tenant_id
        AND ((e.url, e.state) = (batch.url, 'ACTIVE') OR (e.rt_url, e.rt_state) = (batch.url, 'ACTIVE'))
    WHERE batch.failures > 0 OR {success_counts("$7")}
    ORDER BY e.tenant_id FOR NO KEY UPDATE OF e
)
UPDATE webhook_endpoint e SET consecutive_failures = changing.after,
    last_success_at = CASE WHEN changing.succeeded THEN $6 ELSE e.last_success_at END,
    probe_at = CASE WHEN changing.before < {BREAKER_FAILURES} AND changing.after >= {BREAKER_FAILURES} THEN $8
        ELSE e.probe_at END,
    state = CASE WHEN changing.gone AND e.url = changing.url THEN 'DISABLED' ELSE e.state END,
    rt_state = CASE WHEN changing.gone AND e.rt_url = changing.url THEN 'DISABLED' ELSE e.rt_state END
FROM changing WHERE e.tenant_id = changing.tenant_id
RETURNING e.tenant_id, CASE WHEN changing.gone THEN 'DISABLED' ELSE 'ACTIVE' END AS state,
    changing.before AS failures_before, changing.after AS failures, changing.succeeded
"""


async def record(session: Session, batch: Sequence[EndpointResults], now: datetime) -> list[EndpointChange]:
    """Counts failures in a row, opens breakers, disables endpoints that are gone; returns the rows written.

    An endpoint whose URL has changed since is left alone.
    """
    changes: list[EndpointChange] = []
    for results in _once_each(batch):
        columns = [list(column) for column in zip(*results, strict=True)]
        rows = await session.fetch(_RECORD, *columns, now, now - SUCCESS_PRECISION, now + PROBE_INTERVAL)
        changes += [EndpointChange(**row) for row in rows]
    return changes


def _once_each(batch: Sequence[EndpointResults]) -> list[list[EndpointResults]]:
    """The results in lists in which each tenant stands once: one with two receivers has results of both."""
    lists: list[dict[int, EndpointResults]] = []
    for result in batch:
        free = next((found for found in lists if result.tenant_id not in found), None)
        if free is None:
            lists.append(free := {})
        free[result.tenant_id] = result
    return [list(found.values()) for found in lists]


_SPREAD = """
WITH waiting AS (
    SELECT d.tenant_id, d.delivery_id FROM webhook_delivery d
    WHERE d.tenant_id = $1 AND d.state IN ('READY', 'RETRY') AND (d.due_at <= $2 OR d.due_at > $3)
        AND d.trigger <> 'RESEND'
    LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE webhook_delivery d SET due_at = $2 + random() * ($3 - $2) FROM waiting
WHERE d.tenant_id = waiting.tenant_id AND d.delivery_id = waiting.delivery_id
RETURNING 1
"""


# The same where tables are distributed: a node draws nothing.
_WAITING = """
SELECT d.delivery_id FROM webhook_delivery d WHERE d.tenant_id = $1 AND d.state IN ('READY', 'RETRY')
    AND (d.due_at <= $2 OR d.due_at > $3) AND d.trigger <> 'RESEND' LIMIT $4
"""
_PUT_OFF = f"""
UPDATE webhook_delivery d SET due_at = new.due_at
FROM {batch("new", tenant_id="bigint", delivery_id="bigint", due_at="timestamptz")}
WHERE d.tenant_id = new.tenant_id AND d.delivery_id = new.delivery_id AND d.state IN ('READY', 'RETRY') RETURNING 1
"""


async def spread_deliveries(session: Session, tenant_id: int, now: datetime, limit: int) -> int:
    """Spreads the waiting deliveries of a recovered endpoint over the next minute; how many, at most `limit`."""
    if not session.distributed:
        return len(await session.fetch(_SPREAD, tenant_id, now, now + SPREAD, limit))
    waiting = await session.fetch(_WAITING, tenant_id, now, now + SPREAD, limit)
    drawn = [(tenant_id, row["delivery_id"], now + random.random() * SPREAD) for row in waiting]
    return len(await session.fetch(_PUT_OFF, *columns(drawn, 3))) if drawn else 0


async def close(session: Session, tenant_id: int) -> None:
    await session.fetch(
        "UPDATE webhook_endpoint SET consecutive_failures = 0, probe_at = NULL WHERE tenant_id = $1", tenant_id
    )
