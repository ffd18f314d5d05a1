"""One PostgreSQL database: a small pool for rare statements, and sessions for frequent ones."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import asyncpg

from dealer_server.clock import DatabaseClock
from dealer_server.db import distributed
from dealer_server.db.after_commit import committing
from dealer_server.db.cluster import open_connection
from dealer_server.db.connection import KEEPALIVE_SETTINGS, RECONNECT_SECONDS, Connection, measure_clock
from dealer_server.db.errors import FULL, LOST, UNREACHABLE, DatabaseLost, StatementTimeout, database_full
from dealer_server.db.session import Session
from dealer_server.metrics import PoolSize

T = TypeVar("T")
LOCK_MS, IDLE_IN_TRANSACTION_MS = 10_000, 60_000


class Database:
    """One PostgreSQL database: a small pool for rare statements, `session()` for frequent ones. `clock` tells the
    database's time. `distributed`: its tables are distributed by tenant, as it was found when it was opened."""

    def __init__(
        self,
        dsn: str,
        pool: asyncpg.Pool,
        read_timeout_seconds: float | None = None,
        clock: DatabaseClock | None = None,
    ):
        self.dsn = dsn
        self.distributed = False
        self.clock = clock or DatabaseClock()
        self._pool = pool
        self._read_timeout_seconds = read_timeout_seconds

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        size: int = 4,
        read_timeout_seconds: float | None = None,
        clock: DatabaseClock | None = None,
    ) -> "Database":
        """`clock`: one that others go by, too. `read_timeout_seconds` limits statements outside of a transaction, which
        only read, and the wait for a connection of the pool: they raise StatementTimeout and DatabaseLost. Raises
        DatabaseLost."""
        settings = {
            "application_name": "esim-dealer",
            "lock_timeout": str(LOCK_MS),
            "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
            **KEEPALIVE_SETTINGS,
        }
        if read_timeout_seconds is not None:
            settings["statement_timeout"] = str(round(read_timeout_seconds * 1000))
        pool = await _open_pool(dsn, size, settings, asyncpg.Connection)
        database = cls(dsn, pool, read_timeout_seconds, clock)
        async with database.connection() as connection:
            await measure_clock(connection, database.clock)
            database.distributed = await distributed.was_distributed(connection)
        if database.distributed:
            await database._pool.close()
            database._pool = await _open_pool(
                dsn, size, settings | distributed.SETTINGS, distributed.DistributedConnection
            )
        return database

    @property
    def pool_size(self) -> PoolSize:
        idle = self._pool.get_idle_size()
        return PoolSize(self._pool.get_size() - idle, idle, self._pool.get_max_size())

    async def close(self) -> None:
        await self._pool.close()

    def terminate(self) -> None:
        """Closes every connection at once; what runs on one raises DatabaseLost."""
        self._pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for single statements. Raises DatabaseLost, StatementTimeout."""
        try:
            connection = await self._pool.acquire(timeout=self._read_timeout_seconds)
        except (*UNREACHABLE, asyncpg.PostgresError) as error:  # no connection, so no statement was sent
            raise DatabaseLost(sent=False) from error
        try:
            yield connection
        except FULL as error:
            raise database_full(error) from error
        except LOST as error:
            raise DatabaseLost(sent=True) from error
        except distributed.LOST as error:
            if not distributed.is_lost(error):
                raise
            raise DatabaseLost(sent=True) from error
        except (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError) as error:
            raise StatementTimeout from error
        finally:
            with suppress(*UNREACHABLE):  # a lost connection cannot be reset; the pool opens another
                await self._pool.release(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A transaction without a timeout, so that a large file can be imported whole."""
        with committing():
            async with self.connection() as connection, connection.transaction():
                if self._read_timeout_seconds is not None:
                    await connection.execute("SET LOCAL statement_timeout = 0")
                yield connection

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs `work` in one transaction, to its end even if the caller is cancelled."""

        async def run_in_transaction() -> T:
            async with self.transaction() as connection:
                return await work(connection)

        return await asyncio.shield(asyncio.ensure_future(run_in_transaction()))

    def session(self, **settings: str) -> Session:
        """A session with these PostgreSQL settings, on a connection of its own."""
        return (distributed.DistributedSession if self.distributed else Session)(self.dsn, settings)


async def _open_pool(
    dsn: str, size: int, settings: dict[str, str], connection_class: type[asyncpg.Connection]
) -> asyncpg.Pool:
    try:
        return await asyncpg.create_pool(
            dsn,
            connect=open_connection,
            connection_class=connection_class,
            min_size=1,
            max_size=size,
            timeout=RECONNECT_SECONDS,
            command_timeout=None,
            server_settings=settings,
        )
    except UNREACHABLE as error:
        raise DatabaseLost(sent=False) from error
