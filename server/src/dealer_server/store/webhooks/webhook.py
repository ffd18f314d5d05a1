"""Webhook endpoints, deliveries and attempts (docs/decisions/0006-webhook-lanes.md).

Locks are taken in this order: deliveries by (tenant_id, order_id, order_version), then endpoints by tenant_id. Whoever
decides about an order's deliveries locks all unfinished ones first and looks in a later statement, which sees what
others committed meanwhile. `claim`, `take_probe`, `skip_unfinished` and `bring_forward` never wait: they pass over what
is locked.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from dealer_server import metrics
from dealer_server.db.after_commit import after_commit
from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from esim_dealer.wire.vocabulary import ChangeHint, DeliveryState, DeliveryTrigger, EndpointState, EventType

BREAKER_FAILURES = 20  # failures in a row after which an endpoint is only probed
PROBE_INTERVAL = timedelta(minutes=1)
SPREAD = timedelta(minutes=1)
USAGE_INTERVAL = timedelta(minutes=15)
SUCCESS_NOTED = timedelta(
    seconds=1
)  # last_success_at is that exact, so that a healthy endpoint's row is rarely written

Key = tuple[int, int]  # tenant_id, and order_id or delivery_id


class Endpoint(NamedTuple):
    """Where a dealer receives webhooks, and how that fares."""

    url: str
    state: EndpointState
    consecutive_failures: int
    last_success_at: datetime | None
    updated_at: datetime


class Claimed(NamedTuple):
    """A delivery that is due, locked by the transaction that claims it. `body` is sealed; None until frozen."""

    tenant_id: int
    delivery_id: int
    order_id: int
    event_type: EventType
    trigger: DeliveryTrigger
    order_version: int
    attempt_count: int
    body: bytes | None
    url: str
    breaker_open: bool
    delivered: bool  # once before: it is sent again by hand
    since: datetime  # the change it tells of; where it was held back, the moment it may go
    profiles: int


class Frozen(NamedTuple):
    """What a delivery says from now on. `hints` joined by commas; `body` sealed, None where nothing is to be said."""

    tenant_id: int
    delivery_id: int
    order_version: int
    hints: str | None
    body: bytes | None


class Signer(NamedTuple):
    """The credential that signs a tenant's webhooks; secrets sealed."""

    tenant_id: int
    app_key: str
    secret_version: int
    sealed_secret: bytes
    previous_secret: bytes | None
    previous_until: datetime | None


class Finished(NamedTuple):
    """What became of a claimed delivery. `number` None: no attempt was made."""

    tenant_id: int
    order_id: int
    delivery_id: int
    claim: int
    state: DeliveryState
    due_at: datetime | None
    number: int | None
    started_at: datetime
    duration_ms: int
    remote_address: str | None
    http_status: int | None
    error: str | None
    answer_head: str | None


class Health(NamedTuple):
    """What a batch of attempts says of an endpoint: failures in a row, since the last success where there was one."""

    tenant_id: int
    url: str
    succeeded: bool
    failures: int
    gone: bool


class Turned(NamedTuple):
    """An endpoint whose row was written: what it was and is."""

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


class Lapsed(NamedTuple):
    """A delivery whose worker did not come back before its lease ran out."""

    tenant_id: int
    order_id: int
    delivery_id: int
    claim: int
    attempt_count: int
    lease_until: datetime
    trigger: DeliveryTrigger
    delivered: bool


# Enqueueing

UNFINISHED = "state IN ('WAITING', 'READY', 'IN_FLIGHT', 'RETRY')"

# The order matters: a delivery that comes to be while we wait here is the order's newest, so that we may still take its
# lock later, as promote does, without waiting for anyone who waits for us.
_LOCK = f"""
SELECT 1 FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id)
JOIN webhook_delivery d ON d.tenant_id = key.tenant_id AND d.order_id = key.order_id AND d.{UNFINISHED}
ORDER BY d.tenant_id, d.order_id, d.order_version, d.delivery_id FOR NO KEY UPDATE OF d
"""

# Of an order's unfinished deliveries: is one in flight or about to be, does one of this lane wait for a retry?
_ENQUEUE = f"""
WITH change AS (
    SELECT change.*, CASE WHEN only_usage THEN (
        SELECT max(CASE WHEN d.state = 'IN_FLIGHT' THEN $5 ELSE first.started_at END) + $6::interval
        FROM webhook_delivery d LEFT JOIN webhook_attempt first
            ON first.tenant_id = d.tenant_id AND first.delivery_id = d.delivery_id AND first.number = 1
        WHERE d.tenant_id = change.tenant_id AND d.order_id = change.order_id AND 'USAGE_UPDATED' = ANY(d.hints)
    ) END AS not_before
    FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bool[]) AS change(tenant_id, order_id, version, only_usage)
), merged AS (
    UPDATE webhook_delivery d SET order_version = change.version,
        not_before = CASE WHEN d.not_before > $5 THEN change.not_before END,
        due_at = CASE WHEN d.state = 'READY' AND d.not_before > $5 THEN greatest($5, change.not_before)
            ELSE d.due_at END
    FROM change
    WHERE d.tenant_id = change.tenant_id AND d.order_id = change.order_id AND d.event_type = 'DELIVERY_UPDATED'
        AND d.attempt_count = 0 AND d.state IN ('WAITING', 'READY') AND d.trigger = 'AUTO'
    RETURNING d.tenant_id, d.order_id
), fresh AS (
    SELECT change.*, CASE
        WHEN endpoint.tenant_id IS NULL THEN 'SKIPPED'
        WHEN EXISTS (SELECT FROM webhook_delivery d
            WHERE d.tenant_id = change.tenant_id AND d.order_id = change.order_id AND d.{UNFINISHED}
            AND (d.state <> 'RETRY' OR d.event_type = 'DELIVERY_UPDATED') OFFSET 0) THEN 'WAITING'
        ELSE 'READY' END AS state
    FROM change LEFT JOIN webhook_endpoint endpoint
        ON endpoint.tenant_id = change.tenant_id AND endpoint.state = 'ACTIVE'
    WHERE (change.tenant_id, change.order_id) NOT IN (SELECT tenant_id, order_id FROM merged)
)
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, due_at, not_before, created_at,
    finished_at)
SELECT tenant_id, order_id, 'DELIVERY_UPDATED', version, state,
    CASE WHEN state = 'READY' THEN greatest($5::timestamptz, not_before) END, not_before, $5,
    CASE WHEN state = 'SKIPPED' THEN $5 END
FROM fresh
RETURNING tenant_id, order_id, state
"""


async def order_changed(
    connection: Connection | Session,
    changes: Sequence[tuple[int, int, int]],
    now: datetime,
    only_usage: Collection[Key] = (),
    usage_interval: timedelta = USAGE_INTERVAL,
) -> None:
    """Tells dealers of changed orders: one DELIVERY_UPDATED each of (tenant_id, order_id, version), as order it became.

    Called once in a transaction, with all its changes, after the orders' rows were locked and written. A change merges
    into the order's update that was never attempted, where there is one: that one will show the state at its freezing.
    Without an active endpoint the event is SKIPPED. Orders in `only_usage`, where nothing but usage changed and no
    mark was crossed (rules/lifecycle/usage.py), are told of once in `usage_interval`.
    """
    if not changes:
        return
    latest = {(tenant_id, order_id): version for tenant_id, order_id, version in changes}
    columns = [[key[0] for key in latest], [key[1] for key in latest]]
    await connection.fetch(_LOCK, *columns)
    patient = [key in only_usage for key in latest]
    rows = await connection.fetch(_ENQUEUE, *columns, list(latest.values()), patient, now, usage_interval)
    behind = [(row[0], row[1]) for row in rows if row[2] == "WAITING"]
    if behind:
        await promote(connection, behind, now)


_CREDITED = f"""
WITH event AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bigint[], $5::bytea[])
        AS event(tenant_id, order_id, version, delivery_id, body)
), hurried AS (
    UPDATE webhook_delivery d SET not_before = NULL, due_at = CASE WHEN d.state = 'READY' THEN $7::timestamptz END
    FROM event WHERE d.tenant_id = event.tenant_id AND d.order_id = event.order_id AND d.{UNFINISHED}
        AND d.not_before > $7 AND d.state IN ('WAITING', 'READY')
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
    """A refund that was credited: the event that says so, with its sealed body."""

    tenant_id: int
    order_id: int
    version: int
    delivery_id: int
    body: bytes


async def refunds_credited(
    connection: Connection | Session, credits: Sequence[Credit], hints: Sequence[ChangeHint], now: datetime
) -> None:
    """Tells dealers of credited refunds: one REFUND_COMPLETED each, frozen as the credit left the order.

    Called in the credit's transaction, after `order_changed`, so that what a refund changed is told before.
    """
    if not credits:
        return
    keys = sorted({(one.tenant_id, one.order_id) for one in credits})
    await lock_unfinished(connection, keys)
    await connection.fetch(_CREDITED, *[list(column) for column in zip(*credits, strict=True)], list(hints), now)
    await promote(connection, keys, now)


async def delivery_ids(connection: Connection | Session, count: int) -> list[int]:
    """Ids for deliveries whose bodies are sealed before they are written."""
    rows = await connection.fetch(
        "SELECT nextval(pg_get_serial_sequence('webhook_delivery', 'delivery_id')) FROM generate_series(1, $1)", count
    )
    return [row[0] for row in rows]


# The next of each order: the oldest change that waits, where nothing of the order is in flight or about to be. A lane
# that waits for a retry blocks itself only, and an update not even that: it takes the place of the one that failed.
# What is sent again by hand goes whatever its lane waits for, and to the front of the dealer's queue.
_PROMOTE = f"""
WITH unfinished AS (
    SELECT d.tenant_id, d.order_id, d.delivery_id, d.order_version, d.event_type, d.state, d.trigger, d.not_before,
        d.body IS NULL AS fresh,
        bool_or(d.state IN ('READY', 'IN_FLIGHT')) OVER (PARTITION BY d.tenant_id, d.order_id) AS busy,
        bool_or(d.state = 'RETRY') OVER (PARTITION BY d.tenant_id, d.order_id, d.event_type) AS failed_before
    FROM (SELECT DISTINCT * FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id)) key
    JOIN webhook_delivery d ON d.tenant_id = key.tenant_id AND d.order_id = key.order_id AND d.{UNFINISHED}
), next AS (
    SELECT DISTINCT ON (tenant_id, order_id) * FROM unfinished
    WHERE state = 'WAITING' AND NOT busy
        AND (event_type = 'DELIVERY_UPDATED' OR trigger = 'RESEND' OR NOT failed_before)
    ORDER BY tenant_id, order_id, order_version, delivery_id
), superseded AS (
    UPDATE webhook_delivery d SET state = 'SUPERSEDED', due_at = NULL, finished_at = $3 FROM next
    WHERE next.event_type = 'DELIVERY_UPDATED' AND next.failed_before AND next.fresh
        AND d.tenant_id = next.tenant_id AND d.order_id = next.order_id AND d.{UNFINISHED}
        AND d.event_type = 'DELIVERY_UPDATED' AND d.state = 'RETRY'
    RETURNING 1
), promoted AS (
    UPDATE webhook_delivery d SET state = 'READY', due_at = CASE
        WHEN next.trigger = 'RESEND' THEN least($3, (SELECT min(first.due_at) - interval '1 ms'
            FROM webhook_delivery first
            WHERE first.tenant_id = next.tenant_id AND first.state IN ('READY', 'RETRY')))
        ELSE greatest($3, next.not_before) END
    FROM next WHERE d.tenant_id = next.tenant_id AND d.delivery_id = next.delivery_id
    RETURNING 1
)
SELECT (SELECT count(*) FROM promoted), (SELECT count(*) FROM superseded)
"""


async def promote(connection: Connection | Session, orders: Sequence[Key], now: datetime) -> int:
    """Lets the next delivery of each order go, whose unfinished ones are locked; how many went."""
    rows = await connection.fetch(_PROMOTE, [key[0] for key in orders], [key[1] for key in orders], now)
    promoted, superseded = rows[0]
    after_commit(partial(metrics.webhook_superseded.inc, superseded))
    return promoted


# Claiming

# Tenants in turn, by hopping through the index from one to the next, so that the work is bounded however many wait.
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
SELECT visited.tenant_id, CASE WHEN endpoint.state = 'ACTIVE' AND EXISTS (SELECT FROM webhook_delivery d
        WHERE d.tenant_id = visited.tenant_id AND d.state IN ('READY', 'RETRY') AND d.due_at <= $3)
    THEN CASE WHEN consecutive_failures < {BREAKER_FAILURES} THEN cap_in_flight
            WHEN probe_at IS NULL OR probe_at <= $3 THEN 1
            WHEN EXISTS (SELECT FROM webhook_delivery d WHERE d.tenant_id = visited.tenant_id AND d.state = 'READY'
                AND d.trigger = 'RESEND') THEN 1 ELSE 0 END
        - (SELECT count(*) FROM webhook_delivery d WHERE d.tenant_id = visited.tenant_id AND d.state = 'IN_FLIGHT')
    ELSE 0 END
FROM visited LEFT JOIN webhook_endpoint endpoint USING (tenant_id)
"""


async def tenants_waiting(session: Session, after: int, limit: int, now: datetime) -> list[tuple[int, int]]:
    """The `limit` tenants after this one that have something to deliver, now or later, and how many each may have now.

    That is its cap of attempts in flight less what is in flight; behind an open breaker one probe a minute, and what
    is sent again by hand one by one.
    """
    return [(row[0], row[1]) for row in await session.fetch(_TENANTS, after, limit, now)]


# Of an order only the delivery that has been due longest qualifies, whoever looks, and none while one is in flight: the
# unique index webhook_one_in_flight_per_order is the last guard.
_CLAIM = f"""
SELECT due.tenant_id, due.delivery_id, due.order_id, due.event_type, due.trigger, due.order_version, due.attempt_count,
    due.body, endpoint.url, endpoint.consecutive_failures >= {BREAKER_FAILURES}, due.delivered_at IS NOT NULL,
    greatest(due.created_at, due.not_before),
    (SELECT sum(quantity) FROM order_item item WHERE item.tenant_id = due.tenant_id AND item.order_id = due.order_id)
FROM unnest($1::bigint[], $2::int[]) AS share(tenant_id, size)
JOIN webhook_endpoint endpoint ON endpoint.tenant_id = share.tenant_id AND endpoint.state = 'ACTIVE'
CROSS JOIN LATERAL (
    SELECT d.* FROM webhook_delivery d
    WHERE d.tenant_id = share.tenant_id AND d.state IN ('READY', 'RETRY') AND d.due_at <= $3
        AND NOT EXISTS (SELECT FROM webhook_delivery other
            WHERE other.tenant_id = d.tenant_id AND other.order_id = d.order_id AND other.{UNFINISHED}
            AND (other.state = 'IN_FLIGHT' OR other.state IN ('READY', 'RETRY')
                AND (other.due_at, other.delivery_id) < (d.due_at, d.delivery_id)) OFFSET 0)
    ORDER BY d.due_at, d.delivery_id LIMIT share.size FOR NO KEY UPDATE SKIP LOCKED
) due
"""


async def claim(session: Session, shares: Sequence[tuple[int, int]], now: datetime) -> list[Claimed]:
    """Due deliveries, locked until the transaction ends: of each tenant as many as its share says."""
    columns = [[share[0] for share in shares], [share[1] for share in shares]]
    return [Claimed(*row) for row in await session.fetch(_CLAIM, *columns, now)]


async def take_probe(session: Session, tenant_ids: Sequence[int], now: datetime) -> set[int]:
    """Those of these tenants that may be probed now: the next probe is a minute away."""
    rows = await session.fetch(
        "WITH allowed AS (SELECT tenant_id FROM webhook_endpoint WHERE tenant_id = ANY($1::bigint[])"
        " AND (probe_at IS NULL OR probe_at <= $2) FOR NO KEY UPDATE SKIP LOCKED)"
        " UPDATE webhook_endpoint e SET probe_at = $3 FROM allowed WHERE e.tenant_id = allowed.tenant_id"
        " RETURNING e.tenant_id",
        list(tenant_ids),
        now,
        now + PROBE_INTERVAL,
    )
    return {row[0] for row in rows}


# What was attempted after the last success and not acknowledged may have been taken all the same.
_BASELINES = """
SELECT key.tenant_id, key.order_id, last.delivery_id, last.body, EXISTS (
    SELECT FROM webhook_delivery d WHERE d.tenant_id = key.tenant_id AND d.order_id = key.order_id
        AND d.event_type = 'DELIVERY_UPDATED' AND d.order_version > coalesce(last.order_version, 0)
        AND d.attempt_count > 0 AND d.delivered_at IS NULL)
FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id) LEFT JOIN LATERAL (
    SELECT d.delivery_id, d.body, d.order_version FROM webhook_delivery d
    WHERE d.tenant_id = key.tenant_id AND d.order_id = key.order_id
        AND d.event_type = 'DELIVERY_UPDATED' AND d.delivered_at IS NOT NULL
    ORDER BY d.order_version DESC, d.delivery_id DESC LIMIT 1
) last ON true
"""


class Baseline(NamedTuple):
    """What a dealer was last told of an order: the DELIVERY_UPDATED of the highest version that was delivered, its body
    sealed; None where there is none. `in_doubt`: a later one was attempted, and may have been taken."""

    delivery_id: int | None
    body: bytes | None
    in_doubt: bool


async def baselines(session: Session, orders: Sequence[Key]) -> dict[Key, Baseline]:
    rows = await session.fetch(_BASELINES, [key[0] for key in orders], [key[1] for key in orders])
    return {(row[0], row[1]): Baseline(*row[2:]) for row in rows}


async def signers(session: Connection | Session, tenant_ids: Sequence[int]) -> dict[int, Signer]:
    """The credential that signs each tenant's webhooks: its newest active one."""
    rows = await session.fetch(
        "SELECT DISTINCT ON (tenant_id) tenant_id, app_key, secret_version, sealed_secret, previous_secret,"
        " previous_until FROM credential WHERE tenant_id = ANY($1::bigint[])"
        " ORDER BY tenant_id, status = 'ACTIVE' DESC, created_at DESC",
        list(tenant_ids),
    )
    return {row[0]: Signer(*row) for row in rows}


_FREEZE = """
UPDATE webhook_delivery d SET state = 'IN_FLIGHT', claim = $6, due_at = $7,
    attempt_count = attempt_count + (d.body IS NOT NULL OR frozen.body IS NOT NULL)::int,
    order_version = frozen.order_version, body = coalesce(d.body, frozen.body),
    hints = CASE WHEN d.body IS NULL THEN string_to_array(frozen.hints, ',') ELSE d.hints END
FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::bytea[])
    AS frozen(tenant_id, delivery_id, order_version, hints, body)
WHERE d.tenant_id = frozen.tenant_id AND d.delivery_id = frozen.delivery_id AND d.claim IS NULL
RETURNING 1
"""


async def freeze(session: Session, frozen: Sequence[Frozen], claim: int, lease_until: datetime) -> None:
    """Puts claimed deliveries in flight and counts the attempt; what was frozen before stays as it is.

    Raises asyncpg.UniqueViolationError where another worker has just put one of the same order in flight.
    """
    columns = [list(column) for column in zip(*frozen, strict=True)]
    rows = await session.fetch(_FREEZE, *columns, claim, lease_until)
    assert len(rows) == len(frozen), "a locked delivery changed"


async def postpone(session: Session, keys: Sequence[Key], until: datetime) -> None:
    """Sets aside claimed deliveries that we cannot prepare."""
    await session.fetch(
        "UPDATE webhook_delivery d SET due_at = $3"
        " FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, delivery_id)"
        " WHERE d.tenant_id = key.tenant_id AND d.delivery_id = key.delivery_id AND d.state IN ('READY', 'RETRY')",
        [key[0] for key in keys],
        [key[1] for key in keys],
        until,
    )


# Finishing


async def lock_unfinished(session: Connection | Session, orders: Sequence[Key]) -> None:
    """Locks all unfinished deliveries of these orders, in order, until the transaction ends."""
    await session.fetch(_LOCK, [key[0] for key in orders], [key[1] for key in orders])


# A claim stands on deliveries in flight only. Naming their state too would let the planner, whose statistics say that
# nothing is in flight, walk through them once for each result; so it is with _FREEZE, whose rows are locked by then.
_FINISH = f"""
WITH finished AS (
    UPDATE webhook_delivery d SET state = result.state, due_at = result.due_at, claim = NULL,
        finished_at = CASE WHEN result.due_at IS NULL THEN $14::timestamptz END,
        delivered_at = coalesce(d.delivered_at, CASE WHEN result.state = 'DELIVERED' THEN $14 END)
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::timestamptz[], $7::int[],
        $8::timestamptz[], $9::int[], $10::text[], $11::int[], $12::text[], $13::text[])
        AS result(tenant_id, order_id, delivery_id, claim, state, due_at, number, started_at, duration_ms,
            remote_address, http_status, error, answer_head)
    WHERE d.tenant_id = result.tenant_id AND d.delivery_id = result.delivery_id AND d.claim = result.claim
    RETURNING result.*
), recorded AS (
    INSERT INTO webhook_attempt (tenant_id, delivery_id, number, started_at, duration_ms, remote_address, http_status,
        error, answer_head)
    SELECT tenant_id, delivery_id, number, started_at, duration_ms, remote_address, http_status, error, answer_head
    FROM finished WHERE number IS NOT NULL
)
SELECT tenant_id, order_id, delivery_id, EXISTS (SELECT FROM webhook_delivery d WHERE d.tenant_id = finished.tenant_id
    AND d.order_id = finished.order_id AND d.{UNFINISHED} AND d.state = 'WAITING') FROM finished
"""


async def finish(session: Session, results: Sequence[Finished], now: datetime) -> tuple[set[Key], list[Key]]:
    """Records what became of claimed deliveries, and their attempts; a claim that no longer holds changes nothing.

    Returns the deliveries recorded, and the orders of theirs in which others wait to be promoted.
    """
    columns = [list(column) for column in zip(*results, strict=True)]
    rows = await session.fetch(_FINISH, *columns, now)
    return {(row[0], row[2]) for row in rows}, [(row[0], row[1]) for row in rows if row[3]]


# A success behind an open breaker does not close it yet: close_breaker does, once what waits is spread over a minute.
_ENDPOINTS = f"""
WITH batch AS (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::bool[], $4::int[], $5::bool[])
        AS batch(tenant_id, url, succeeded, failures, gone)
), changing AS (
    SELECT e.tenant_id, e.consecutive_failures AS before, batch.succeeded, batch.gone,
        CASE WHEN batch.succeeded AND e.consecutive_failures < {BREAKER_FAILURES} THEN batch.failures
            ELSE e.consecutive_failures + batch.failures END AS after
    FROM batch JOIN webhook_endpoint e ON e.tenant_id = batch.tenant_id AND e.url = batch.url AND e.state = 'ACTIVE'
    WHERE batch.failures > 0 OR e.consecutive_failures > 0 OR e.last_success_at IS NULL OR e.last_success_at < $7
    ORDER BY e.tenant_id FOR NO KEY UPDATE OF e
)
UPDATE webhook_endpoint e SET consecutive_failures = changing.after,
    last_success_at = CASE WHEN changing.succeeded THEN $6 ELSE e.last_success_at END,
    probe_at = CASE WHEN changing.before < {BREAKER_FAILURES} AND changing.after >= {BREAKER_FAILURES} THEN $8
        ELSE e.probe_at END,
    state = CASE WHEN changing.gone THEN 'DISABLED' ELSE e.state END
FROM changing WHERE e.tenant_id = changing.tenant_id
RETURNING e.tenant_id, e.state, changing.before, changing.after, changing.succeeded
"""


async def note_health(session: Session, batch: Sequence[Health], now: datetime) -> list[Turned]:
    """Counts failures in a row, opens breakers, disables what is gone; the rows that were written.

    An endpoint that has another URL by now is left alone.
    """
    columns = [list(column) for column in zip(*batch, strict=True)]
    rows = await session.fetch(_ENDPOINTS, *columns, now, now - SUCCESS_NOTED, now + PROBE_INTERVAL)
    return [Turned(*row) for row in rows]


async def close_breaker(session: Session, tenant_id: int) -> None:
    await session.fetch(
        "UPDATE webhook_endpoint SET consecutive_failures = 0, probe_at = NULL WHERE tenant_id = $1", tenant_id
    )


# Upkeep


async def lapsed(session: Session, now: datetime, limit: int) -> list[Lapsed]:
    """Deliveries in flight whose lease has run out."""
    rows = await session.fetch(
        "SELECT tenant_id, order_id, delivery_id, claim, attempt_count, due_at, trigger, delivered_at IS NOT NULL"
        " FROM webhook_delivery"
        " WHERE state = 'IN_FLIGHT' AND due_at <= $1 LIMIT $2",
        now,
        limit,
    )
    return [Lapsed(*row) for row in rows]


_SKIP = f"""
WITH pending AS (
    SELECT d.tenant_id, d.delivery_id FROM webhook_endpoint e CROSS JOIN LATERAL (
        SELECT * FROM webhook_delivery d
        WHERE d.tenant_id = e.tenant_id AND d.{UNFINISHED} AND d.state <> 'IN_FLIGHT'
        LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
    ) d
    WHERE e.state <> 'ACTIVE' AND ($3::bigint IS NULL OR e.tenant_id = $3)
    LIMIT $2
)
UPDATE webhook_delivery d SET state = CASE WHEN d.delivered_at IS NULL THEN 'SKIPPED' ELSE 'DELIVERED' END,
    due_at = NULL, finished_at = $1 FROM pending
WHERE d.tenant_id = pending.tenant_id AND d.delivery_id = pending.delivery_id
RETURNING 1
"""


async def skip_unfinished(
    session: Connection | Session, now: datetime, limit: int, tenant_id: int | None = None
) -> int:
    """Gives up what waits for endpoints (or one tenant's) that are not active; how many, `limit` at most."""
    return len(await session.fetch(_SKIP, now, limit, tenant_id))


_BRING_FORWARD = """
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


async def bring_forward(session: Session, tenant_id: int, now: datetime, limit: int) -> int:
    """Spreads what waits for a recovered endpoint over the next minute; how many, `limit` at most."""
    return len(await session.fetch(_BRING_FORWARD, tenant_id, now, now + SPREAD, limit))


async def forget_attempts(session: Session, before: datetime, limit: int) -> int:
    """Deletes attempts begun before; how many, `limit` at most. The deliveries stay: they hold the lanes' baselines."""
    rows = await session.fetch(
        "DELETE FROM webhook_attempt WHERE ctid = ANY(ARRAY(SELECT ctid FROM webhook_attempt WHERE started_at < $1"
        " LIMIT $2)) RETURNING 1",
        before,
        limit,
    )
    return len(rows)


# Endpoints


async def endpoint(connection: Connection, tenant_id: int) -> Endpoint | None:
    row = await connection.fetchrow(
        "SELECT url, state, consecutive_failures, last_success_at, updated_at FROM webhook_endpoint"
        " WHERE tenant_id = $1",
        tenant_id,
    )
    return Endpoint(*row) if row else None


async def set_endpoint(connection: Connection, tenant_id: int, url: str, now: datetime) -> None:
    """Puts a URL in place, enabled and with a clean record; '' removes it."""
    await connection.execute(
        "INSERT INTO webhook_endpoint AS e (tenant_id, url, state, updated_at) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (tenant_id) DO UPDATE SET url = excluded.url, state = excluded.state,"
        " updated_at = excluded.updated_at, consecutive_failures = 0, probe_at = NULL,"
        " last_success_at = CASE WHEN e.url = excluded.url THEN e.last_success_at END",
        tenant_id,
        url,
        "ACTIVE" if url else "NOT_SET",
        now,
    )


# Watching

_GAUGES = f"""
SELECT (SELECT coalesce(max(extract(epoch FROM $1 - due.due_at)), 0)::float FROM webhook_endpoint e CROSS JOIN LATERAL (
        SELECT d.due_at FROM webhook_delivery d WHERE d.tenant_id = e.tenant_id AND d.state IN ('READY', 'RETRY')
            AND d.due_at <= $1 ORDER BY d.due_at LIMIT 1) due
        WHERE e.state = 'ACTIVE' AND e.consecutive_failures < {BREAKER_FAILURES}) AS oldest_due_seconds,
    (SELECT count(*) FROM webhook_endpoint WHERE state = 'ACTIVE' AND consecutive_failures >= {BREAKER_FAILURES})
        AS breakers_open,
    (SELECT count(*) FROM webhook_endpoint WHERE state = 'DISABLED') AS endpoints_disabled,
    (SELECT count(*) FROM webhook_delivery WHERE state = 'IN_FLIGHT') AS in_flight,
    (SELECT count(*) FROM webhook_delivery WHERE state = 'FAILED') AS failed,
    (SELECT count(*) FROM webhook_job WHERE finished_at IS NULL) AS jobs_running
"""


async def gauges(connection: Connection, now: datetime) -> dict[str, float]:
    """How the whole of it fares, by the names of metrics.py."""
    row = await connection.fetchrow(_GAUGES, now)
    assert row is not None
    return dict(row)
