"""Which mails to buyers are old? One that is still to be sent is not finished."""

from collections.abc import Sequence
from datetime import datetime

from dealer_server.db.session import Session
from dealer_server.store.retention.progress import Subject

_SUBJECT = (
    "SELECT mail_id AS id, created_at, CASE WHEN due_at IS NULL THEN created_at END AS finished_at"
    " FROM buyer_mail WHERE tenant_id = $1"
)


async def after(session: Session, tenant_id: int, reached: int, limit: int) -> list[Subject]:
    """The next ones, by id."""
    found = await session.fetch(f"{_SUBJECT} AND mail_id > $2 ORDER BY mail_id LIMIT $3", tenant_id, reached, limit)
    return [Subject(**row) for row in found]


async def find(session: Session, tenant_id: int, mail_ids: Sequence[int]) -> list[Subject]:
    found = await session.fetch(f"{_SUBJECT} AND mail_id = ANY($2::bigint[])", tenant_id, mail_ids)
    return [Subject(**row) for row in found]


async def delete(session: Session, tenant_id: int, mail_ids: Sequence[int], _: datetime) -> int:
    """How many it deleted."""
    deleted = await session.fetch(
        "DELETE FROM buyer_mail WHERE tenant_id = $1 AND mail_id = ANY($2::bigint[]) RETURNING 1", tenant_id, mail_ids
    )
    return len(deleted)
