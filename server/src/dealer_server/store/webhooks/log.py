"""What was sent to a dealer, and what came of it: pages of deliveries with their attempts, newest first."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, get_args

from dealer_server.db.connection import Connection
from dealer_server.store.orders.listing import Window
from esim_dealer.wire.vocabulary import AttemptError, ChangeHint, DeliveryState, DeliveryTrigger, EventType

COUNTED = 10_000  # counting a million rows for a page of fifty would cost more than the page


class Delivery(NamedTuple):
    """One row. `next_attempt_at` is None once it is finished, and while it waits for another of its order."""

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


class Filter(NamedTuple):
    """All that is given must match; `start` is the first moment that counts, `end` the first that does not."""

    order_id: int | None = None
    event_type: EventType | None = None
    states: tuple[DeliveryState, ...] = ()
    start: datetime | None = None
    end: datetime | None = None


class Failures(NamedTuple):
    """Deliveries of one dealer and event type that ended FAILED, and what their last attempt met."""

    tenant_id: int
    event_type: EventType
    error: AttemptError | None
    http_status: int | None
    total: int
    oldest_at: datetime
    newest_at: datetime


_COLUMNS = (
    "tenant_id, delivery_id, order_id, event_type, trigger, state, order_version, hints, attempt_count,"
    " CASE WHEN state IN ('READY', 'RETRY') THEN due_at END, created_at"
)


def where(wanted: Filter) -> str:
    """The rows of tenant $1 that match, by $2 order_id, $3 event_type, $4 start, $5 end.

    States stand there as words, and what is not asked for is no condition on rows: an index can be used whatever is
    asked for, also by a plan that was made for all.
    """
    assert set(wanted.states) <= set(get_args(DeliveryState)), "words of the vocabulary only"
    states = f" AND state IN ({', '.join(repr(state) for state in wanted.states)})" if wanted.states else ""
    conditions = (
        (wanted.order_id, "order_id = $2", "$2::bigint IS NULL"),
        (wanted.event_type, "event_type = $3", "$3::text IS NULL"),
        (wanted.start, "created_at >= $4", "$4::timestamptz IS NULL"),
        (wanted.end, "created_at < $5", "$5::timestamptz IS NULL"),
    )
    asked = " AND ".join(without if value is None else given for value, given, without in conditions)
    return f"tenant_id = $1 AND trigger <> 'TEST'{states} AND {asked}"


def arguments(tenant_id: int, wanted: Filter) -> tuple[object, ...]:
    return tenant_id, wanted.order_id, wanted.event_type, wanted.start, wanted.end


async def page(connection: Connection, tenant_id: int, wanted: Filter, window: Window) -> list[Delivery]:
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM webhook_delivery WHERE {where(wanted)} AND ($6::bigint IS NULL OR delivery_id < $6)"
        " ORDER BY delivery_id DESC LIMIT $7 OFFSET $8",
        *arguments(tenant_id, wanted),
        window.after,
        window.limit,
        window.offset,
    )
    return [Delivery(*row) for row in rows]


async def count(connection: Connection, tenant_id: int, wanted: Filter, most: int | None = COUNTED) -> int:
    """How many match; `most` + 1 where there are more than that."""
    limit = "" if most is None else f" LIMIT {most + 1}"
    found: int | None = await connection.fetchval(
        f"SELECT count(*) FROM (SELECT 1 FROM webhook_delivery WHERE {where(wanted)}{limit}) AS counted",
        *arguments(tenant_id, wanted),
    )
    return found or 0


async def find(connection: Connection, tenant_id: int, delivery_id: int) -> Delivery | None:
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id = $2 AND trigger <> 'TEST'",
        tenant_id,
        delivery_id,
    )
    return Delivery(*row) if row else None


async def attempts(connection: Connection, tenant_id: int, delivery_ids: Sequence[int]) -> dict[int, list[Attempt]]:
    """The attempts of each delivery that are still kept, first to last."""
    rows = await connection.fetch(
        "SELECT tenant_id, delivery_id, number, started_at, duration_ms, remote_address, http_status, error,"
        " answer_head FROM webhook_attempt WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[])"
        " ORDER BY delivery_id, number",
        tenant_id,
        delivery_ids,
    )
    found: dict[int, list[Attempt]] = {delivery_id: [] for delivery_id in delivery_ids}
    for row in rows:
        found[row[1]].append(Attempt(*row))
    return found


_FAILURES = """
SELECT d.tenant_id, d.event_type, last.error, last.http_status, count(*), min(d.created_at), max(d.created_at)
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
    """What ended FAILED, of one dealer or of all, grouped by what the last attempt met."""
    return [Failures(*row) for row in await connection.fetch(_FAILURES, tenant_id, start, end)]
