"""What is different where a pooler, such as PgBouncer, stands between this process and PostgreSQL?

It refuses the settings of a session as parameters of the connection: they are made by a statement once the connection
is open. That is right where the pooler gives a client one server connection for as long as it stays. One that changes
server connections in between loses settings, LISTEN, locks and prepared statements (docs/decisions/0057-poolers.md).
"""

from collections.abc import Mapping
from typing import Any

import asyncpg

_REFUSAL = "unsupported startup parameter"
_PID = "SELECT pg_backend_pid()"


class UnfitPooler(Exception):
    """The pooler's configuration does not fit the service; the message is one line for the operator."""


class PooledConnection(asyncpg.Connection):
    """A pool of this process that takes it back leaves its settings as they are."""

    def get_reset_query(self) -> str:
        return super().get_reset_query().replace("RESET ALL;", "")


def is_refusal(error: asyncpg.PostgresError) -> bool:
    return _REFUSAL in str(error)


async def open_pooled(dsn: str, server_settings: Mapping[str, str], **options: Any) -> asyncpg.Connection:
    """As asyncpg.connect, with the settings, which are the service's own constants, made by a statement."""
    options["connection_class"] = PooledConnection
    connection = await asyncpg.connect(dsn, **options)
    try:
        await connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in server_settings.items()))
    except BaseException:
        connection.terminate()
        raise
    return connection


async def is_pooled(connection: asyncpg.Connection) -> bool:
    """A pooler names another process than the one that runs the statement."""
    return await connection.fetchval(_PID) != connection.get_server_pid()


async def require_sessions(connection: asyncpg.Connection, other: asyncpg.Connection) -> None:
    """Two connections through a pooler that keep no prepared statement: each must have its own server connection.
    Raises UnfitPooler."""
    try:
        own = await connection.fetchval(_PID)
        async with other.transaction():
            given_away = await other.fetchval(_PID) == own
    except asyncpg.InvalidSQLStatementNameError:  # prepared on one server connection, run on another
        given_away = True
    if given_away:
        raise UnfitPooler(
            "DATABASE_URL goes through a pooler that changes server connections between transactions: name PostgreSQL"
            " itself there, or set pool_mode = session for this database"
        )


async def require_setting(connection: asyncpg.Connection, name: str, value: str) -> None:
    """Raises UnfitPooler."""
    if await connection.fetchval("SELECT setting FROM pg_settings WHERE name = $1", name) != value:
        raise UnfitPooler(
            f"the pooler of DATABASE_URL drops the setting {name}: take it out of ignore_startup_parameters"
        )
