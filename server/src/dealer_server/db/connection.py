"""One connection to PostgreSQL: how it is opened, waited for, and asked for its time."""

import asyncio
import ssl
from typing import Any, Protocol

import asyncpg
import structlog

from dealer_server.clock import DatabaseClock
from dealer_server.db.errors import STARTING, UNREACHABLE, DatabaseLost

log = structlog.get_logger()
Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy

WAITING_SECONDS, WAITING_SAID_SECONDS = 0.5, 10.0
RECONNECT_SECONDS = 5
# A client machine that vanished holds its locks no longer than that.
ENDS_WHEN_ITS_CLIENT_IS_GONE = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


class Fetching(Protocol):
    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]: ...


async def connect(dsn: str, **options: Any) -> asyncpg.Connection:
    """A connection of the caller's own. Raises DatabaseLost."""
    try:
        return await asyncpg.connect(dsn, timeout=RECONNECT_SECONDS, command_timeout=None, **options)
    except (*UNREACHABLE, asyncpg.PostgresError) as error:
        raise DatabaseLost(sent=False) from error


async def wait_until_up(dsn: str, seconds: float) -> None:
    """Waits for a database that is still starting, for so long at most, and says so now and then. What waiting would
    not mend, such as a wrong password, is raised at once. Raises DatabaseLost."""
    clock = asyncio.get_running_loop().time
    give_up = clock() + seconds
    say = 0.0
    while True:
        try:
            await (await connect(dsn, server_settings={"application_name": "esim-dealer"})).close()
            return
        except DatabaseLost as lost:
            starting = isinstance(lost.__cause__, STARTING) and not isinstance(lost.__cause__, ssl.SSLError)
            if not starting or clock() >= give_up:
                raise
            if clock() >= say:
                log.warning("waiting_for_database", reason=repr(lost.__cause__))
                say = clock() + WAITING_SAID_SECONDS
        await asyncio.sleep(WAITING_SECONDS)


async def measure_clock(connection: Connection | Fetching, clock: DatabaseClock) -> None:
    """Sets the clock by the database's. Raises DatabaseLost."""
    sent = clock.monotonic()
    [(at,)] = await connection.fetch("SELECT clock_timestamp()")
    clock.measured(at.timestamp(), sent)
