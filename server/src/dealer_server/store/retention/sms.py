"""Which SMS are old, and how do their texts go? The rows stay, so that a transactionId never sends another one."""

from collections.abc import Sequence
from datetime import datetime

from dealer_server.db.session import Session
from dealer_server.store.retention.progress import Subject

_SUBJECT = "sms_id AS id, created_at, finished_at"


async def after(session: Session, tenant_id: int, reached: int, limit: int) -> list[Subject]:
    """The next ones, by id."""
    found = await session.fetch(
        f"SELECT {_SUBJECT} FROM sms WHERE tenant_id = $1 AND sms_id > $2 ORDER BY sms_id LIMIT $3",
        tenant_id,
        reached,
        limit,
    )
    return [Subject(**row) for row in found]


async def find(session: Session, tenant_id: int, sms_ids: Sequence[int]) -> list[Subject]:
    found = await session.fetch(
        f"SELECT {_SUBJECT} FROM sms WHERE tenant_id = $1 AND sms_id = ANY($2::bigint[])", tenant_id, sms_ids
    )
    return [Subject(**row) for row in found]


async def delete_texts(session: Session, tenant_id: int, sms_ids: Sequence[int], limit: datetime) -> int:
    """Deletes the texts of those of these SMS that were finished before `limit`; how many."""
    deleted = await session.fetch(
        "UPDATE sms SET message = NULL WHERE tenant_id = $1 AND sms_id = ANY($2::bigint[]) AND finished_at < $3"
        " AND message IS NOT NULL RETURNING 1",
        tenant_id,
        sms_ids,
        limit,
    )
    return len(deleted)
