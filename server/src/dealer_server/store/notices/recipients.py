"""Who wants to be told of what, and where?"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.rules.notices.notice import Recipient


class Setting(NamedTuple):
    """What a user wants to be mailed. `mail`: '' for the name, where that is an address; `off`: types of notices."""

    mail: str = ""
    digest: bool = False
    off: Sequence[str] = ()


async def users(session: Session | Connection, tenant_ids: Sequence[int]) -> list[Recipient]:
    """The active users of these dealers; 0: the operators."""
    rows = await session.fetch(
        "SELECT u.user_id, coalesce(u.tenant_id, 0) AS tenant_id, u.name,"
        " CASE WHEN u.tenant_id IS NULL THEN 'op:' ELSE 'dealer:' END || u.role AS full_role,"
        " coalesce(s.mail, '') AS mail, coalesce(s.digest, false) AS digest, coalesce(s.off, '{}') AS off"
        " FROM console_user u LEFT JOIN notice_setting s USING (user_id) LEFT JOIN tenant t USING (tenant_id)"
        " WHERE (u.tenant_id = ANY($1::bigint[]) OR u.tenant_id IS NULL AND 0 = ANY($1::bigint[]))"
        " AND u.status = 'ACTIVE' AND (t.status IS NULL OR t.status = 'ACTIVE') ORDER BY u.user_id",
        tenant_ids,
    )
    return [Recipient(**row) for row in rows]


async def setting(connection: Connection, user_id: int) -> Setting:
    row = await connection.fetchrow("SELECT mail, digest, off FROM notice_setting WHERE user_id = $1", user_id)
    return Setting(**row) if row else Setting()


async def put_setting(connection: Connection, user_id: int, wanted: Setting) -> None:
    await connection.execute(
        "INSERT INTO notice_setting (user_id, mail, digest, off) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (user_id) DO UPDATE SET mail = excluded.mail, digest = excluded.digest, off = excluded.off",
        user_id,
        *wanted,
    )


async def url(connection: Connection, tenant_id: int) -> str:
    """A dealer's notice URL; '' where there is none."""
    return await connection.fetchval("SELECT url FROM notice_url WHERE tenant_id = $1", tenant_id) or ""


async def urls(session: Session, tenant_ids: Sequence[int]) -> dict[int, str]:
    """The notice URLs of those of these dealers that have one."""
    rows = await session.fetch("SELECT tenant_id, url FROM notice_url WHERE tenant_id = ANY($1::bigint[])", tenant_ids)
    return {row["tenant_id"]: row["url"] for row in rows}


async def put_url(connection: Connection, tenant_id: int, url: str, now: datetime) -> None:
    """'' removes it."""
    if url:
        await connection.execute(
            "INSERT INTO notice_url VALUES ($1, $2, $3) ON CONFLICT (tenant_id)"
            " DO UPDATE SET url = $2, updated_at = $3",
            tenant_id,
            url,
            now,
        )
    else:
        await connection.execute("DELETE FROM notice_url WHERE tenant_id = $1", tenant_id)
