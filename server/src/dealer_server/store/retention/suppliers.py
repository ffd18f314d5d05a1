"""Which calls to suppliers and messages of theirs are old, and how do they go? Purchases stay: they are money."""

from collections.abc import Sequence
from datetime import datetime

from dealer_server.db.session import Session
from dealer_server.store.retention.progress import Subject

# All that was bought for a profile is one subject; it is finished once each of its purchases is.
_BOUGHT = (
    "SELECT profile_id AS id, min(created_at) AS created_at,"
    " CASE WHEN bool_and(finished_at IS NOT NULL) THEN max(finished_at) END AS finished_at FROM purchase"
)


async def bought_after(session: Session, tenant_id: int, reached: int, limit: int) -> list[Subject]:
    """The next profiles for which something was bought, by id."""
    bought = await session.fetch(
        f"{_BOUGHT} WHERE tenant_id = $1 AND profile_id > $2 GROUP BY profile_id ORDER BY profile_id LIMIT $3",
        tenant_id,
        reached,
        limit,
    )
    return [Subject(**row) for row in bought]


async def bought_for(session: Session, tenant_id: int, profile_ids: Sequence[int]) -> list[Subject]:
    bought = await session.fetch(
        f"{_BOUGHT} WHERE tenant_id = $1 AND profile_id = ANY($2::bigint[]) GROUP BY profile_id", tenant_id, profile_ids
    )
    return [Subject(**row) for row in bought]


async def delete_calls(session: Session, tenant_id: int, profile_ids: Sequence[int], limit: datetime) -> int:
    """Deletes the calls made for these profiles; how many. One that was made meanwhile stays. IS TRUE keeps the
    planner from looking for the time in the index of a supplier's latest calls."""
    deleted = await session.fetch(
        "DELETE FROM supplier_call WHERE tenant_id = $1 AND profile_id = ANY($2::bigint[]) AND (sent_at < $3) IS TRUE"
        " RETURNING 1",
        tenant_id,
        profile_ids,
        limit,
    )
    return len(deleted)


async def events_after(session: Session, _: int, reached: int, limit: int) -> list[Subject]:
    """The next messages. Each was applied in the transaction that stored it, so each is finished."""
    events = await session.fetch(
        "SELECT event_id AS id, received_at AS created_at, received_at AS finished_at FROM supplier_event"
        " WHERE event_id > $1 ORDER BY event_id LIMIT $2",
        reached,
        limit,
    )
    return [Subject(**row) for row in events]


async def events(session: Session, _: int, event_ids: Sequence[int]) -> list[Subject]:
    events = await session.fetch(
        "SELECT event_id AS id, received_at AS created_at, received_at AS finished_at FROM supplier_event"
        " WHERE event_id = ANY($1::bigint[])",
        event_ids,
    )
    return [Subject(**row) for row in events]


async def delete_events(session: Session, _: int, event_ids: Sequence[int], limit: datetime) -> int:
    deleted = await session.fetch(
        "DELETE FROM supplier_event WHERE event_id = ANY($1::bigint[]) AND received_at < $2 RETURNING 1",
        event_ids,
        limit,
    )
    return len(deleted)
