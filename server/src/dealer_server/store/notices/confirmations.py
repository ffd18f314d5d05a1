"""Addresses for notices that are not confirmed yet: one of each user."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection


class Unconfirmed(NamedTuple):
    """`nonce`: what its link is derived from (operations/notices/confirm.py)."""

    user_id: int
    mail: str
    nonce: bytes
    expires_at: datetime


_UNCONFIRMED = "SELECT user_id, mail, nonce, expires_at FROM mail_confirmation WHERE"


async def put(connection: Connection, new: Unconfirmed, token_hash: bytes) -> None:
    """Instead of the one before, whose link ends."""
    await connection.execute(
        "INSERT INTO mail_confirmation (user_id, mail, nonce, expires_at, token_hash) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (user_id) DO UPDATE SET mail = excluded.mail, nonce = excluded.nonce,"
        " expires_at = excluded.expires_at, token_hash = excluded.token_hash",
        *new,
        token_hash,
    )


async def of_user(connection: Connection, user_id: int) -> Unconfirmed | None:
    row = await connection.fetchrow(f"{_UNCONFIRMED} user_id = $1", user_id)
    return Unconfirmed(**row) if row else None


async def by_token(connection: Connection, token_hash: bytes) -> Unconfirmed | None:
    row = await connection.fetchrow(f"{_UNCONFIRMED} token_hash = $1", token_hash)
    return Unconfirmed(**row) if row else None


async def remove(connection: Connection, user_id: int, nonce: bytes | None = None) -> bool:
    """False where there is none, or not this one any more."""
    done = await connection.execute(
        "DELETE FROM mail_confirmation WHERE user_id = $1 AND ($2::bytea IS NULL OR nonce = $2)", user_id, nonce
    )
    return done == "DELETE 1"
