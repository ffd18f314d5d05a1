"""A connection of its own for frequent statements, which are prepared once."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from dealer_server.db.after_commit import committing
from dealer_server.db.connection import KEEPALIVE_SETTINGS, connect
from dealer_server.db.errors import FULL, LOST, UNREACHABLE, DatabaseLost, LockTimeout, database_full

PLANS_LIVE_SECONDS = 10.0
PLANS_USES = 50  # before they are discarded for the first time in a busy session
PLANS_USES_GROWTH = 4
LOCK_MS, IDLE_IN_TRANSACTION_MS = 2_000, 10_000
SHARED_LOCK_TIMEOUT = "250ms"  # for a session on which the calls of all dealers of a process wait


class Session:
    """One connection for frequent statements, each of which is prepared once. Plans are discarded every ten seconds: a
    plan made while a table was nearly empty would scan it for ever. They are discarded sooner where they are used more
    than four times as often as those before: after a rest orders come, and such a table grows. A lost connection is
    replaced by a new one. `distributed`: the tables are distributed by tenant (db/distributed.py)."""

    distributed = False

    def __init__(self, dsn: str, settings: Mapping[str, str]):
        self._dsn = dsn
        self._settings = settings
        self._connection: asyncpg.Connection | None = None
        self._prepared: dict[str, Any] = {}
        self._plans_from = 0.0
        self._plans_uses, self._plans_bound = 0, PLANS_USES
        self._in_transaction = False

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """The rows of one statement. Raises DatabaseLost, LockTimeout."""
        connection = await self.open()
        try:
            statement = self._prepared.get(sql)
            if statement is None:
                statement = self._prepared[sql] = await connection.prepare(sql)
            return await statement.fetch(*args)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            raise LockTimeout from error
        except FULL as error:
            raise database_full(error) from error
        except LOST as error:
            self._lost(error)
            raise DatabaseLost(sent=True) from error

    @property
    def in_transaction(self) -> bool:
        return self._in_transaction

    @property
    def statements(self) -> list[str]:
        """The statements prepared on this connection."""
        return list(self._prepared)

    async def execute(self, sql: str) -> None:
        """Runs a statement without rows or parameters, such as BEGIN. Raises DatabaseLost."""
        connection = await self.open()
        try:
            await connection.execute(sql)
        except FULL as error:
            raise database_full(error) from error
        except LOST as error:
            self._lost(error)
            raise DatabaseLost(sent=True) from error

    def _lost(self, error: BaseException) -> None:
        """What becomes of the connection on which a statement was lost."""
        self.drop()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["Session"]:
        """A transaction. Raises DatabaseLost; with `sent` False if the connection was lost before COMMIT was sent."""
        with committing():
            async with self._begun():
                yield self

    @asynccontextmanager
    async def _begun(self) -> AsyncIterator[None]:
        await self.open()
        self._in_transaction = True
        try:
            await self.execute("BEGIN")
            yield
        except BaseException as error:
            with suppress(DatabaseLost):  # then the server rolls back by itself
                await self.execute("ROLLBACK")
            if isinstance(error, DatabaseLost):
                raise DatabaseLost(sent=False) from error.__cause__
            raise
        else:
            await self.execute("COMMIT")
        finally:
            self._in_transaction = False

    async def open(self) -> asyncpg.Connection:
        """The connection, opened if there is none, with plans that are not old. Raises DatabaseLost.

        Inside a transaction a lost connection is not replaced: the rest of the transaction would run on its own.
        """
        now = asyncio.get_running_loop().time()
        if self._connection is None or self._connection.is_closed():
            if self._in_transaction:
                raise DatabaseLost(sent=False)
            self._connection = await self._connect()
            self._prepared = {}
            self._renew_plans(now)
        elif self._plans_are_old(now) and not self._connection.is_in_transaction():
            self._renew_plans(now)
            try:
                await self._connection.execute("DISCARD PLANS")
            except UNREACHABLE:
                self.drop()
                return await self.open()
        return self._connection

    def _plans_are_old(self, now: float) -> bool:
        self._plans_uses += 1
        return self._plans_uses > self._plans_bound or now - self._plans_from > PLANS_LIVE_SECONDS

    def _renew_plans(self, now: float) -> None:
        self._plans_from = now
        self._plans_bound = max(PLANS_USES, PLANS_USES_GROWTH * self._plans_uses)
        self._plans_uses = 0

    def drop(self) -> None:
        """Discards a lost connection; the next statement opens another."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _connect(self) -> asyncpg.Connection:
        return await connect(
            self._dsn,
            server_settings={
                "application_name": "esim-dealer session",
                "statement_timeout": "0",
                "lock_timeout": str(LOCK_MS),
                "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
                **KEEPALIVE_SETTINGS,
                "jit": "off",
                # Planning takes as long as running a small batch, and the plan is the same for every batch.
                "plan_cache_mode": "force_generic_plan",
                # Every statement here finds rows by key: only stale statistics could suggest a scan.
                "enable_seqscan": "off",
                "enable_hashjoin": "off",
                "enable_mergejoin": "off",
                "enable_material": "off",
                "enable_bitmapscan": "off",
                **self._settings,
            },
        )
