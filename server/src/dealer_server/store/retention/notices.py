"""Which notices are old, and how do they go? With the mails and POSTs that told of them."""

from collections.abc import Sequence
from datetime import datetime

from dealer_server.db.session import Session
from dealer_server.store.retention.progress import Subject

# Finished once nothing that tells of it is under way.
_SUBJECT = (
    "SELECT notice_id AS id, created_at, CASE WHEN addressed_at IS NOT NULL AND NOT EXISTS ("
    "SELECT FROM notice_content c JOIN notice_delivery d USING (tenant_id, delivery_id)"
    " WHERE c.tenant_id = n.tenant_id AND c.notice_id = n.notice_id AND d.due_at IS NOT NULL OFFSET 0)"
    " THEN created_at END AS finished_at FROM notice n WHERE tenant_id = $1"
)


async def after(session: Session, tenant_id: int, reached: int, limit: int) -> list[Subject]:
    """The next ones, by id."""
    found = await session.fetch(f"{_SUBJECT} AND notice_id > $2 ORDER BY notice_id LIMIT $3", tenant_id, reached, limit)
    return [Subject(**row) for row in found]


async def find(session: Session, tenant_id: int, notice_ids: Sequence[int]) -> list[Subject]:
    found = await session.fetch(f"{_SUBJECT} AND notice_id = ANY($2::bigint[])", tenant_id, notice_ids)
    return [Subject(**row) for row in found]


async def delete(session: Session, tenant_id: int, notice_ids: Sequence[int], _: datetime) -> int:
    """Deletes these notices and what told of them; how many notices."""
    await session.fetch(
        "DELETE FROM notice_delivery d USING (SELECT DISTINCT delivery_id FROM notice_content WHERE tenant_id = $1"
        " AND notice_id = ANY($2::bigint[])) told WHERE d.tenant_id = $1 AND d.delivery_id = told.delivery_id"
        " RETURNING 1",
        tenant_id,
        notice_ids,
    )
    deleted = await session.fetch(
        "DELETE FROM notice WHERE tenant_id = $1 AND notice_id = ANY($2::bigint[]) RETURNING 1", tenant_id, notice_ids
    )
    return len(deleted)
