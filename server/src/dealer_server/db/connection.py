"""One connection to PostgreSQL: opens it, waits until the server is up, and reads the server's time."""

import asyncio
import ssl
from contextlib import AsyncExitStack
from typing import Any, Protocol

import asyncpg
import structlog

from dealer_server.clock import DatabaseClock
from dealer_server.db import pooler
from dealer_server.db.cluster import open_connection
from dealer_server.db.errors import STARTING, UNREACHABLE, DatabaseLost

log = structlog.get_logger()
Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy

RETRY_SECONDS, LOG_SECONDS = 0.5, 10.0
RECONNECT_SECONDS = 5
# Ends the connection of a client machine that vanished, and with it its locks, within about ten seconds.
KEEPALIVE_SETTINGS = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


class Fetching(Protocol):
    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]: ...


async def connect(dsn: str, **options: Any) -> asyncpg.Connection:
    """Opens a connection outside of any pool. Raises DatabaseLost."""
    try:
        return await open_connection(dsn, timeout=RECONNECT_SECONDS, command_timeout=None, **options)
    except (*UNREACHABLE, asyncpg.PostgresError) as error:
        raise DatabaseLost(sent=False) from error


async def wait_until_up(dsn: str, seconds: float) -> None:
    """Waits up to `seconds` for a database that is still starting, and logs it every ten seconds. Raises DatabaseLost,
    at once for a fault that waiting does not cure, such as a wrong password; UnfitPooler."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    log_at = 0.0
    while True:
        try:
            await require_fit_pooler(dsn)
            return
        except DatabaseLost as lost:
            starting = isinstance(lost.__cause__, STARTING) and not isinstance(lost.__cause__, ssl.SSLError)
            if not starting or clock() >= deadline:
                raise
            if clock() >= log_at:
                log.warning("waiting_for_database", reason=repr(lost.__cause__))
                log_at = clock() + LOG_SECONDS
        await asyncio.sleep(RETRY_SECONDS)


async def require_fit_pooler(dsn: str) -> None:
    """Where a pooler stands in front of the database it must keep what a session holds. Raises UnfitPooler,
    DatabaseLost."""
    plain = {"server_settings": {"application_name": "esim-dealer"}, "statement_cache_size": 0}
    async with AsyncExitStack() as stack:
        connection = await connect(dsn, **plain)
        stack.push_async_callback(connection.close)
        try:
            if not await pooler.is_pooled(connection):
                return
            other = await connect(dsn, **plain)
            stack.push_async_callback(other.close)
            await pooler.require_sessions(connection, other)
            limited = await connect(dsn, server_settings={"lock_timeout": "1000"})
            stack.push_async_callback(limited.close)
            await pooler.require_setting(limited, "lock_timeout", "1000")
        except UNREACHABLE as error:
            raise DatabaseLost(sent=False) from error


async def measure_clock(connection: Connection | Fetching, clock: DatabaseClock) -> None:
    """Sets the clock to the database's time. Raises DatabaseLost."""
    sent = clock.monotonic()
    [row] = await connection.fetch("SELECT clock_timestamp() AS now")
    clock.measured(row["now"].timestamp(), sent)
