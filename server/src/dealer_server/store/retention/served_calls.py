"""Which calls of the sample are old?"""

from collections.abc import Sequence
from datetime import datetime

from dealer_server.db.session import Session
from dealer_server.store.retention.progress import Subject

_SUBJECT = "SELECT number AS id, at AS created_at, at AS finished_at FROM served_call WHERE tenant_id = $1"


async def after(session: Session, tenant_id: int, reached: int, limit: int) -> list[Subject]:
    """The next ones, by number; of a dealer there are few."""
    found = await session.fetch(f"{_SUBJECT} AND number > $2 ORDER BY number LIMIT $3", tenant_id, reached, limit)
    return [Subject(**row) for row in found]


async def find(session: Session, tenant_id: int, numbers: Sequence[int]) -> list[Subject]:
    found = await session.fetch(f"{_SUBJECT} AND number = ANY($2::bigint[])", tenant_id, numbers)
    return [Subject(**row) for row in found]


async def delete(session: Session, tenant_id: int, numbers: Sequence[int], _: datetime) -> int:
    """How many it deleted."""
    deleted = await session.fetch(
        "DELETE FROM served_call WHERE tenant_id = $1 AND number = ANY($2::bigint[]) RETURNING 1", tenant_id, numbers
    )
    return len(deleted)
