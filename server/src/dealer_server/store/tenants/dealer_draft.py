"""New dealers that are not finished: what was filled in, by field."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from dealer_server.db.connection import Connection

MOST_LISTED = 20


class Draft(NamedTuple):
    draft_id: int
    author: str
    fields: Mapping[str, str]
    updated_at: datetime

    @property
    def name(self) -> str:
        return self.fields.get("name", "")


async def create(connection: Connection, author: str, fields: Mapping[str, str], now: datetime) -> int:
    sql = "INSERT INTO dealer_draft (author, fields, updated_at) VALUES ($1, $2::text::json, $3) RETURNING draft_id"
    return await connection.fetchval(sql, author, msgspec.json.encode(fields).decode(), now) or 0


async def update(connection: Connection, draft_id: int, fields: Mapping[str, str], now: datetime) -> bool:
    """False where it is gone."""
    done = await connection.execute(
        "UPDATE dealer_draft SET fields = $2::text::json, updated_at = $3 WHERE draft_id = $1",
        draft_id,
        msgspec.json.encode(fields).decode(),
        now,
    )
    return done == "UPDATE 1"


async def delete(connection: Connection, draft_id: int) -> bool:
    """False where it was gone."""
    return await connection.execute("DELETE FROM dealer_draft WHERE draft_id = $1", draft_id) == "DELETE 1"


async def find(connection: Connection, draft_id: int) -> Draft | None:
    row = await connection.fetchrow(
        "SELECT draft_id, author, fields::text AS fields, updated_at FROM dealer_draft WHERE draft_id = $1", draft_id
    )
    return _draft(row) if row else None


async def listed(connection: Connection) -> list[Draft]:
    """The newest first."""
    rows = await connection.fetch(
        "SELECT draft_id, author, fields::text AS fields, updated_at FROM dealer_draft"
        " ORDER BY updated_at DESC LIMIT $1",
        MOST_LISTED,
    )
    return [_draft(row) for row in rows]


def _draft(row: Any) -> Draft:
    fields = msgspec.json.decode(row["fields"], type=dict[str, str])
    return Draft(row["draft_id"], row["author"], fields, row["updated_at"])
