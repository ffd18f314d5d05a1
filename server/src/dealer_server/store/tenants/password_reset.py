"""Links by which users who forgot their passwords choose others: one of each user."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection


class PasswordReset(NamedTuple):
    """`nonce`: what its link is derived from (operations/users/password_reset.py)."""

    user_id: int
    nonce: bytes
    expires_at: datetime


_RESET = "SELECT user_id, nonce, expires_at FROM password_reset WHERE"


async def put(connection: Connection, new: PasswordReset, token_hash: bytes) -> None:
    """Instead of the one before, whose link ends."""
    await connection.execute(
        "INSERT INTO password_reset (user_id, nonce, expires_at, token_hash) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (user_id) DO UPDATE SET nonce = excluded.nonce, expires_at = excluded.expires_at,"
        " token_hash = excluded.token_hash",
        *new,
        token_hash,
    )


async def of_user(connection: Connection, user_id: int) -> PasswordReset | None:
    row = await connection.fetchrow(f"{_RESET} user_id = $1", user_id)
    return PasswordReset(**row) if row else None


async def by_token(connection: Connection, token_hash: bytes) -> PasswordReset | None:
    row = await connection.fetchrow(f"{_RESET} token_hash = $1", token_hash)
    return PasswordReset(**row) if row else None
