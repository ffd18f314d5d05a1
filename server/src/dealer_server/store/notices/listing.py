"""What the console shows of notices: the newest, and what became of each; and the mails that `dev` keeps."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.store.notices.outbox import Notice, notice_of


class Outcome(NamedTuple):
    """What became of a delivery. `name`: of the user; None: to the notice URL."""

    notice_id: int
    name: str | None
    digest: bool
    state: str
    attempt_count: int
    due_at: datetime | None
    problem: str | None


class DevMail(NamedTuple):
    mail_id: int
    at: datetime
    message: bytes


async def newest(
    connection: Connection, tenant_id: int, types: Sequence[str], before: int | None, limit: int
) -> list[Notice]:
    """Of these types, before this noticeId."""
    rows = await connection.fetch(
        "SELECT tenant_id, notice_id, notice_type, data::text AS data, created_at FROM notice WHERE tenant_id = $1"
        " AND notice_type = ANY($2::text[]) AND ($3::bigint IS NULL OR notice_id < $3) ORDER BY notice_id DESC"
        " LIMIT $4",
        tenant_id,
        types,
        before,
        limit,
    )
    return [notice_of(row) for row in rows]


async def outcomes(connection: Connection, tenant_id: int, notice_ids: Sequence[int]) -> list[Outcome]:
    rows = await connection.fetch(
        "SELECT c.notice_id, u.name, d.digest, d.state, d.attempt_count, d.due_at, d.problem FROM notice_content c"
        " JOIN notice_delivery d USING (tenant_id, delivery_id) LEFT JOIN console_user u USING (user_id)"
        " WHERE c.tenant_id = $1 AND c.notice_id = ANY($2::bigint[]) ORDER BY d.user_id NULLS FIRST, d.delivery_id",
        tenant_id,
        notice_ids,
    )
    return [Outcome(**row) for row in rows]


async def keep_mail(connection: Connection, message: bytes, most: int, now: datetime) -> None:
    """Keeps a mail, and no more than `most`."""
    await connection.execute("INSERT INTO dev_mail (at, message) VALUES ($1, $2)", now, message)
    await connection.execute(
        "DELETE FROM dev_mail WHERE mail_id <= (SELECT max(mail_id) FROM dev_mail) - $1::bigint", most
    )


async def mails(connection: Connection, limit: int) -> list[DevMail]:
    """The newest first."""
    rows = await connection.fetch("SELECT mail_id, at, message FROM dev_mail ORDER BY mail_id DESC LIMIT $1", limit)
    return [DevMail(**row) for row in rows]


async def mail(connection: Connection, mail_id: int) -> DevMail | None:
    row = await connection.fetchrow("SELECT mail_id, at, message FROM dev_mail WHERE mail_id = $1", mail_id)
    return DevMail(**row) if row else None
