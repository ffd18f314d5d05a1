"""Which deliveries did a dealer get, and with which results? Pages of deliveries with their attempts, newest first."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, get_args

from dealer_server.db.connection import Connection
from dealer_server.store.orders.listing import Window
from dealer_server.store.webhooks.dialects import RT
from esim_dealer.wire.vocabulary import AttemptError, ChangeHint, DeliveryState, DeliveryTrigger, EventType

MOST_COUNTED = 10_000  # counting a million rows would cost more than the page of fifty that shows the count


class Delivery(NamedTuple):
    """`next_attempt_at` is None once it is finished, and while it is WAITING for another delivery of its order."""

    tenant_id: int
    delivery_id: int
    order_id: int
    event_type: EventType
    trigger: DeliveryTrigger
    state: DeliveryState
    order_version: int
    hints: Sequence[ChangeHint] | None
    attempt_count: int
    next_attempt_at: datetime | None
    created_at: datetime


class Attempt(NamedTuple):
    tenant_id: int
    delivery_id: int
    number: int
    started_at: datetime
    duration_ms: int
    remote_address: str | None
    http_status: int | None
    error: AttemptError | None
    answer_head: str | None
    answer_fields: str | None = None  # the header of the response, of attempts that failed


class Filter(NamedTuple):
    """Deliveries that match all conditions given; created at `start` or later, and before `end`."""

    order_id: int | None = None
    event_type: str | None = None
    states: tuple[DeliveryState, ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    own_only: bool = False  # not those in the RT family's dialect
    tried: bool = False  # had an attempt that failed


class Failures(NamedTuple):
    """FAILED deliveries of one dealer and event type whose last attempts had the same result."""

    tenant_id: int
    event_type: EventType
    error: AttemptError | None
    http_status: int | None
    total: int
    oldest_at: datetime
    newest_at: datetime


TRIED = "(attempt_count > 1 OR state IN ('RETRY', 'FAILED'))"
"""A delivery that had an attempt that failed."""
_COLUMNS = (
    "tenant_id, delivery_id, order_id, event_type, trigger, state, order_version, hints, attempt_count,"
    " CASE WHEN state IN ('READY', 'RETRY') THEN due_at END AS next_attempt_at, created_at"
)


def where(filter: Filter) -> str:
    """The condition for matching rows of tenant $1, with $2 order_id, $3 event_type, $4 start and $5 end.

    States stand in it as literals, and a filter that is not given is no condition on rows: so an index can be used for
    every filter, also by a generic plan.
    """
    assert set(filter.states) <= set(get_args(DeliveryState)), "states are literals in the SQL"
    states = f" AND state IN ({', '.join(repr(state) for state in filter.states)})" if filter.states else ""
    conditions = (
        (filter.order_id, "order_id = $2", "$2::bigint IS NULL"),
        (filter.event_type, "event_type = $3", "$3::text IS NULL"),
        (filter.start, "created_at >= $4", "$4::timestamptz IS NULL"),
        (filter.end, "created_at < $5", "$5::timestamptz IS NULL"),
    )
    matching = " AND ".join(absent if value is None else given for value, given, absent in conditions)
    tried = f" AND {TRIED}" if filter.tried else ""
    own = f" AND NOT starts_with(event_type, '{RT}')" if filter.own_only else ""
    return f"tenant_id = $1{states} AND {matching}{tried}{own}"


def arguments(tenant_id: int, filter: Filter) -> tuple[object, ...]:
    return tenant_id, filter.order_id, filter.event_type, filter.start, filter.end


async def page(connection: Connection, tenant_id: int, filter: Filter, window: Window) -> list[Delivery]:
    deliveries = await connection.fetch(
        f"SELECT {_COLUMNS} FROM webhook_delivery WHERE {where(filter)} AND ($6::bigint IS NULL OR delivery_id < $6)"
        " ORDER BY delivery_id DESC LIMIT $7 OFFSET $8",
        *arguments(tenant_id, filter),
        window.after,
        window.limit,
        window.offset,
    )
    return [Delivery(**row) for row in deliveries]


# Rows of a dealer lie far apart: 10 000 of them are as many pages. Without a filter the primary key alone is read, of a
# dealer who has none in the RT family's dialect.
_COUNT_OWN = f"""
SELECT count(*) FROM (
    SELECT 1 FROM webhook_delivery
    WHERE tenant_id = $1 AND NOT EXISTS (
        SELECT FROM webhook_delivery WHERE tenant_id = $1 AND starts_with(event_type, '{RT}'))
    ORDER BY tenant_id, delivery_id LIMIT {MOST_COUNTED + 1}
) AS counted
"""


async def count(connection: Connection, tenant_id: int, filter: Filter, most: int | None = MOST_COUNTED) -> int:
    """How many match; `most` + 1 where there are more than that."""
    if filter == Filter(own_only=True) and most == MOST_COUNTED:
        own: int | None = await connection.fetchval(_COUNT_OWN, tenant_id)
        if own:
            return own
    limit = "" if most is None else f" LIMIT {most + 1}"
    matching: int | None = await connection.fetchval(
        f"SELECT count(*) FROM (SELECT 1 FROM webhook_delivery WHERE {where(filter)}{limit}) AS counted",
        *arguments(tenant_id, filter),
    )
    return matching or 0


async def find(connection: Connection, tenant_id: int, delivery_id: int) -> Delivery | None:
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id = $2",
        tenant_id,
        delivery_id,
    )
    return Delivery(**row) if row else None


async def attempts(connection: Connection, tenant_id: int, delivery_ids: Sequence[int]) -> dict[int, list[Attempt]]:
    """The attempts of each delivery that are still kept, first to last. They are kept for 30 days at least."""
    rows = await connection.fetch(
        "SELECT tenant_id, delivery_id, number, started_at, duration_ms, remote_address, http_status, error,"
        " answer_head, answer_fields FROM webhook_attempt WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[])"
        " ORDER BY delivery_id, number",
        tenant_id,
        delivery_ids,
    )
    by_delivery: dict[int, list[Attempt]] = {delivery_id: [] for delivery_id in delivery_ids}
    for row in rows:
        by_delivery[row["delivery_id"]].append(Attempt(**row))
    return by_delivery


async def last_attempts(
    connection: Connection, tenant_id: int, delivery_ids: Sequence[int], *, failed: bool = False
) -> dict[int, Attempt]:
    """The last attempt of each delivery that has one, without what was answered; `failed`: that failed."""
    rows = await connection.fetch(
        "SELECT DISTINCT ON (delivery_id) tenant_id, delivery_id, number, started_at, duration_ms, remote_address,"
        " http_status, error, NULL AS answer_head FROM webhook_attempt"
        " WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[]) AND (error IS NOT NULL OR NOT $3)"
        " ORDER BY delivery_id, number DESC",
        tenant_id,
        delivery_ids,
        failed,
    )
    return {row["delivery_id"]: Attempt(**row) for row in rows}


_FAILURES = """
SELECT d.tenant_id, d.event_type, last.error, last.http_status, count(*) AS total, min(d.created_at) AS oldest_at,
    max(d.created_at) AS newest_at
FROM webhook_delivery d LEFT JOIN LATERAL (
    SELECT error, http_status FROM webhook_attempt a WHERE a.tenant_id = d.tenant_id AND a.delivery_id = d.delivery_id
    ORDER BY number DESC LIMIT 1
) last ON true
WHERE d.state = 'FAILED' AND ($1::bigint IS NULL OR d.tenant_id = $1)
    AND ($2::timestamptz IS NULL OR d.created_at >= $2) AND ($3::timestamptz IS NULL OR d.created_at < $3)
GROUP BY d.tenant_id, d.event_type, last.error, last.http_status ORDER BY d.tenant_id, count(*) DESC
"""


async def failures(
    connection: Connection, tenant_id: int | None, start: datetime | None, end: datetime | None
) -> list[Failures]:
    """FAILED deliveries of one dealer or of all, grouped by event type and result of the last attempt."""
    return [Failures(**row) for row in await connection.fetch(_FAILURES, tenant_id, start, end)]
