"""Which facts are to be told? One row each, written with the fact."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from dealer_server.db.arrays import batch, columns
from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.rules.notices.notice import NewNotice


class Notice(NamedTuple):
    """A fact as it is told. tenant_id 0: to operators."""

    tenant_id: int
    notice_id: int
    notice_type: str
    data: dict[str, Any]
    created_at: datetime


_ADD = f"""
INSERT INTO notice (tenant_id, notice_type, fact, data, created_at)
SELECT tenant_id, notice_type, fact, data::json, $5
FROM {batch("new", tenant_id="bigint", notice_type="text", fact="text", data="text")}
WHERE NOT EXISTS (SELECT FROM notice n WHERE n.tenant_id = new.tenant_id AND n.notice_type = new.notice_type
    AND n.fact = new.fact OFFSET 0)
ON CONFLICT (tenant_id, notice_type, fact) DO NOTHING RETURNING 1
"""


async def add(connection: Connection | Session, new: Sequence[NewNotice], now: datetime) -> int:
    """Writes facts that are to be told; how many were not written before."""
    if not new:
        return 0
    rows = [(*notice[:3], msgspec.json.encode(notice.data).decode()) for notice in new]
    return len(await connection.fetch(_ADD, *columns(rows, 4), now))


async def take_new(session: Session, limit: int, now: datetime) -> list[Notice]:
    """The oldest that were not addressed yet, which they are now: of several workers one gets each."""
    rows = await session.fetch(
        "WITH new AS (SELECT tenant_id, notice_id FROM notice WHERE addressed_at IS NULL ORDER BY notice_id LIMIT $1"
        "  FOR UPDATE SKIP LOCKED)"
        " UPDATE notice n SET addressed_at = $2 FROM new"
        " WHERE n.tenant_id = new.tenant_id AND n.notice_id = new.notice_id"
        " RETURNING n.tenant_id, n.notice_id, n.notice_type, n.data::text AS data, n.created_at",
        limit,
        now,
    )
    return sorted(map(notice_of, rows), key=lambda notice: notice.notice_id)


def notice_of(row: Any) -> Notice:
    return Notice(
        row["tenant_id"], row["notice_id"], row["notice_type"], msgspec.json.decode(row["data"]), row["created_at"]
    )
