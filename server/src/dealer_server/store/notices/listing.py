"""What the console shows of notices: the newest, and what became of each; and the mails that `dev` keeps."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

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


class Mailed(NamedTuple):
    """A mail to a user: the newest of the notices it tells of, and how many they are. `dealer`: "" for operators."""

    tenant_id: int
    delivery_id: int
    dealer: str
    name: str
    mail: str
    state: str
    attempt_count: int
    due_at: datetime | None
    problem: str | None
    created_at: datetime
    finished_at: datetime | None
    notices: int
    notice: Notice | None


class DevMail(NamedTuple):
    mail_id: int
    at: datetime
    message: bytes


async def newest(
    connection: Connection, tenant_id: int, types: Sequence[str], before: int | None, limit: int, after: int = 0
) -> list[Notice]:
    """Of these types, before this noticeId and after that one."""
    rows = await connection.fetch(
        "SELECT tenant_id, notice_id, notice_type, data::text AS data, created_at FROM notice WHERE tenant_id = $1"
        " AND notice_type = ANY($2::text[]) AND ($3::bigint IS NULL OR notice_id < $3) AND notice_id > $5"
        " ORDER BY notice_id DESC LIMIT $4",
        tenant_id,
        types,
        before,
        limit,
        after,
    )
    return [notice_of(row) for row in rows]


async def one(connection: Connection, tenant_id: int, types: Sequence[str], notice_id: int) -> Notice | None:
    """Where it is of these types."""
    row = await connection.fetchrow(
        "SELECT tenant_id, notice_id, notice_type, data::text AS data, created_at FROM notice WHERE tenant_id = $1"
        " AND notice_type = ANY($2::text[]) AND notice_id = $3",
        tenant_id,
        types,
        notice_id,
    )
    return notice_of(row) if row else None


async def outcomes(connection: Connection, tenant_id: int, notice_ids: Sequence[int]) -> list[Outcome]:
    rows = await connection.fetch(
        "SELECT c.notice_id, u.name, d.digest, d.state, d.attempt_count, d.due_at, d.problem FROM notice_content c"
        " JOIN notice_delivery d USING (tenant_id, delivery_id) LEFT JOIN console_user u USING (user_id)"
        " WHERE c.tenant_id = $1 AND c.notice_id = ANY($2::bigint[]) ORDER BY d.user_id NULLS FIRST, d.delivery_id",
        tenant_id,
        notice_ids,
    )
    return [Outcome(**row) for row in rows]


LOOKED_AT, COUNTED = 5_000, 1_000
STATES: Mapping[str, str] = {
    "FAILED": "state = 'FAILED'",
    "WAITING": "state IN ('READY', 'RETRY', 'IN_FLIGHT')",
    "DELIVERED": "state = 'DELIVERED'",
}
"""What mails may be listed by."""
_MAILED = """
SELECT d.tenant_id, d.delivery_id, coalesce(t.name, '') AS dealer, u.name, coalesce(s.mail, '') AS mail, d.state,
    d.attempt_count, d.due_at, d.problem, d.created_at, d.finished_at, c.notices, n.notice_id, n.notice_type,
    n.data::text AS data, n.created_at AS told_at
FROM (SELECT * FROM notice_delivery WHERE user_id IS NOT NULL AND {state} AND ($1::bigint IS NULL OR delivery_id < $1)
    ORDER BY delivery_id DESC LIMIT $2) d
JOIN console_user u USING (user_id) LEFT JOIN notice_setting s USING (user_id)
LEFT JOIN tenant t ON t.tenant_id = d.tenant_id
CROSS JOIN LATERAL (SELECT count(*)::int AS notices, max(notice_id) AS newest FROM notice_content c
    WHERE c.tenant_id = d.tenant_id AND c.delivery_id = d.delivery_id) c
LEFT JOIN notice n ON n.tenant_id = d.tenant_id AND n.notice_id = c.newest
WHERE ($3::text IS NULL OR position(lower($3) IN lower(u.name || ' ' || coalesce(s.mail, ''))) > 0)
    AND ($5::text IS NULL OR n.notice_type = $5)
ORDER BY d.delivery_id DESC LIMIT $4
"""


async def mailed(
    connection: Connection, state: str | None, text: str | None, notice_type: str | None, before: int | None, limit: int
) -> list[Mailed]:
    """The newest first, of the newest LOOKED_AT in one of STATES. `text`: a part of the recipient's name or address.
    `notice_type`: of the newest notice that it tells of."""
    sql = _MAILED.format(state=STATES[state] if state else "true")
    rows = await connection.fetch(sql, before, LOOKED_AT, text, limit, notice_type)
    return [_mailed(row) for row in rows]


def _mailed(row: Any) -> Mailed:
    notice = None
    if row["notice_id"] is not None:
        data = msgspec.json.decode(row["data"])
        notice = Notice(row["tenant_id"], row["notice_id"], row["notice_type"], data, row["told_at"])
    return Mailed(**{name: row[name] for name in Mailed._fields if name != "notice"}, notice=notice)


async def told(connection: Connection, notice_ids: Sequence[int]) -> dict[int, Notice]:
    """What the mails of `dev` tell of, by noticeId."""
    rows = await connection.fetch(
        "SELECT tenant_id, notice_id, notice_type, data::text AS data, created_at FROM notice"
        " WHERE notice_id = ANY($1::bigint[])",
        notice_ids,
    )
    return {row["notice_id"]: notice_of(row) for row in rows}


async def failed_mails(connection: Connection) -> int:
    """COUNTED at most."""
    some = f"SELECT FROM notice_delivery WHERE user_id IS NOT NULL AND state = 'FAILED' LIMIT {COUNTED}"
    return await connection.fetchval(f"SELECT count(*)::int FROM ({some}) d") or 0


async def send_again(connection: Connection, tenant_id: int, delivery_id: int, now: datetime) -> str | None:
    """A mail that failed is due now, as if it was new. Whom it is for; None where it did not fail."""
    return await connection.fetchval(
        "UPDATE notice_delivery d SET state = 'RETRY', due_at = $3, attempt_count = 0, finished_at = NULL"
        " FROM console_user u WHERE u.user_id = d.user_id AND d.tenant_id = $1 AND d.delivery_id = $2"
        " AND d.state = 'FAILED' RETURNING u.name",
        tenant_id,
        delivery_id,
        now,
    )


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
