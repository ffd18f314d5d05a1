"""Which notices to operators are open, which are over, and what holds still of what was told?"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.db.session import Session

_FIELDS = "notice_id, notice_type, data::text AS data, created_at, ended_at"


class Told(NamedTuple):
    """A notice to operators. `ended_at`: when what it tells of was over; None while it lasts."""

    notice_id: int
    notice_type: str
    data: Mapping[str, Any]
    created_at: datetime
    ended_at: datetime | None


async def open_ones(connection: Connection | Session, types: Sequence[str], limit: int) -> list[Told]:
    """The newest first, of these types."""
    rows = await connection.fetch(
        f"SELECT {_FIELDS} FROM notice WHERE tenant_id = 0 AND ended_at IS NULL AND notice_type = ANY($1::text[])"
        " ORDER BY notice_id DESC LIMIT $2",
        types,
        limit,
    )
    return [_told(row) for row in rows]


async def ended(connection: Connection, types: Sequence[str], before: int | None, limit: int) -> list[Told]:
    """The newest first, before this noticeId."""
    rows = await connection.fetch(
        f"SELECT {_FIELDS} FROM notice WHERE tenant_id = 0 AND ended_at IS NOT NULL AND notice_type = ANY($1::text[])"
        " AND ($2::bigint IS NULL OR notice_id < $2) ORDER BY notice_id DESC LIMIT $3",
        types,
        before,
        limit,
    )
    return [_told(row) for row in rows]


def _told(row: Any) -> Told:
    return Told(
        row["notice_id"],
        row["notice_type"],
        msgspec.json.decode(row["data"]),
        row["created_at"],
        row["ended_at"],
    )


async def end(session: Session, notice_ids: Sequence[int], now: datetime) -> None:
    await session.fetch(
        "UPDATE notice SET ended_at = $2 WHERE tenant_id = 0 AND notice_id = ANY($1::bigint[]) RETURNING 1",
        notice_ids,
        now,
    )


async def failing_suppliers(session: Session, codes: Sequence[str]) -> set[str]:
    """Those of these that are down or paused."""
    rows = await session.fetch(
        "SELECT code FROM supplier LEFT JOIN supplier_health USING (code)"
        " WHERE code = ANY($1::text[]) AND (status = 'PAUSED' OR up IS false)",
        codes,
    )
    return {row["code"] for row in rows}


async def low_wallets(session: Session, tenant_ids: Sequence[int]) -> set[int]:
    """The dealers among these whose balance is as low as was told."""
    rows = await session.fetch(
        "SELECT tenant_id FROM wallet_look WHERE tenant_id = ANY($1::bigint[]) AND told > 0", tenant_ids
    )
    return {row["tenant_id"] for row in rows}


async def failing_endpoints(session: Session, tenant_ids: Sequence[int]) -> set[int]:
    """The dealers among these whose endpoint fails or is paused."""
    rows = await session.fetch(
        "SELECT tenant_id FROM webhook_endpoint WHERE tenant_id = ANY($1::bigint[])"
        " AND (state = 'DISABLED' OR state = 'ACTIVE' AND consecutive_failures > 0)",
        tenant_ids,
    )
    return {row["tenant_id"] for row in rows}
