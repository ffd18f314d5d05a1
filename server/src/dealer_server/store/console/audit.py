"""The audit log in pages, newest first."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.store.console.pages import LOOKED, Page


class Act(NamedTuple):
    """`detail` is JSON text."""

    audit_id: int
    at: datetime
    author: str
    source: str | None
    action: str
    tenant_id: int | None
    detail: str


class Wanted(NamedTuple):
    """All that is given must match: a part of the author or of the action, and the dealer."""

    author: str | None = None
    action: str | None = None
    tenant_id: int | None = None
    start: datetime | None = None
    end: datetime | None = None


async def page(connection: Connection, wanted: Wanted, before: int | None, size: int) -> Page[Act]:
    """Looks at LOOKED acts at most: where few match, it is short and the next one goes on."""
    rows = await connection.fetch(
        "SELECT audit_id, at, author, source, action, tenant_id, detail::text FROM ("
        " SELECT * FROM audit_log WHERE audit_id < coalesce($1, 9223372036854775807) ORDER BY audit_id DESC LIMIT $2"
        ") looked WHERE ($3::text IS NULL OR position(lower($3) IN lower(author)) > 0)"
        " AND ($4::text IS NULL OR position(lower($4) IN lower(action)) > 0)"
        " AND ($5::bigint IS NULL OR tenant_id = $5) AND ($6::timestamptz IS NULL OR at >= $6)"
        " AND ($7::timestamptz IS NULL OR at < $7) ORDER BY audit_id DESC LIMIT $8",
        *(before, LOOKED, *wanted, size + 1),
    )
    acts = [Act(*row) for row in rows]
    if len(acts) > size:
        return Page(acts[:size], acts[size - 1].audit_id)
    return Page(acts, await _reached(connection, before))


async def _reached(connection: Connection, before: int | None) -> int | None:
    """The last act that a page has looked at, where there are more."""
    return await connection.fetchval(
        "SELECT audit_id FROM audit_log WHERE audit_id < coalesce($1, 9223372036854775807)"
        " ORDER BY audit_id DESC OFFSET $2 LIMIT 1",
        before,
        LOOKED - 1,
    )
