"""One PostgreSQL database: a small pool for rare work, sessions of their own for hot statements."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import asyncpg

from dealer_server.clock import DatabaseClock
from dealer_server.db.after_commit import committing
from dealer_server.db.connection import ENDS_WHEN_ITS_CLIENT_IS_GONE, RECONNECT_SECONDS, Connection, measure_clock
from dealer_server.db.errors import FULL, LOST, UNREACHABLE, DatabaseLost, StatementTimeout
from dealer_server.db.session import Session

T = TypeVar("T")
LOCK_MS, IDLE_IN_TRANSACTION_MS = 10_000, 60_000


class Database:
    """One PostgreSQL database: a small pool for rare work; `session()` for hot lanes. `clock` tells its time."""

    def __init__(self, dsn: str, pool: asyncpg.Pool, look_seconds: float | None = None):
        self.dsn = dsn
        self.clock = DatabaseClock()
        self._pool = pool
        self._look_seconds = look_seconds

    @classmethod
    async def open(cls, dsn: str, *, size: int = 4, look_seconds: float | None = None) -> "Database":
        """`look_seconds`: a statement outside of a transaction, which only reads, ends after that long as
        StatementTimeout; waiting for a connection of the pool takes no longer either. Raises DatabaseLost."""
        settings = {
            "application_name": "esim-dealer",
            "lock_timeout": str(LOCK_MS),
            "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
            **ENDS_WHEN_ITS_CLIENT_IS_GONE,
        }
        if look_seconds is not None:
            settings["statement_timeout"] = str(round(look_seconds * 1000))
        try:
            pool = await asyncpg.create_pool(
                dsn,
                min_size=1,
                max_size=size,
                timeout=RECONNECT_SECONDS,
                command_timeout=None,
                server_settings=settings,
            )
        except UNREACHABLE as error:
            raise DatabaseLost(sent=False) from error
        database = cls(dsn, pool, look_seconds)
        async with database.connection() as connection:
            await measure_clock(connection, database.clock)
        return database

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for single statements. Raises DatabaseLost, StatementTimeout."""
        try:
            connection = await self._pool.acquire(timeout=self._look_seconds)
        except (*UNREACHABLE, asyncpg.PostgresError) as error:  # whatever refuses a connection, nothing was asked of it
            raise DatabaseLost(sent=False) from error
        try:
            yield connection
        except FULL as error:
            raise DatabaseLost(sent=False) from error
        except LOST as error:
            raise DatabaseLost(sent=True) from error
        except (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError) as error:
            raise StatementTimeout from error
        finally:
            with suppress(*UNREACHABLE):  # a lost connection cannot be reset; the pool opens another
                await self._pool.release(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Takes as long as it takes: a large file is stored whole."""
        with committing():
            async with self.connection() as connection, connection.transaction():
                if self._look_seconds is not None:
                    await connection.execute("SET LOCAL statement_timeout = 0")
                yield connection

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """`work` in one transaction that a cancelled caller cannot cancel."""

        async def whole() -> T:
            async with self.transaction() as connection:
                return await work(connection)

        return await asyncio.shield(asyncio.ensure_future(whole()))

    def session(self, **settings: str) -> Session:
        """A connection of its own for a hot lane; `settings` are PostgreSQL's."""
        return Session(self.dsn, settings)
