"""How do we talk to PostgreSQL: a pool for what is rare, a session of its own for each hot lane, batches for both.

A COMMIT is never cancelled: batches run in tasks of their own, which no client and no timeout can cancel.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, TypeVar

import asyncpg
import structlog

from dealer_server.clock import DatabaseClock

log = structlog.get_logger()
T = TypeVar("T")
R = TypeVar("R")
Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy

# What asyncpg raises where a connection is lost in use. It wraps errors of the socket, so that an OSError is ours.
LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError, asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError,
        asyncpg.IdleInTransactionSessionTimeoutError, asyncpg.InternalClientError)  # fmt: skip
# What may also come up while a connection is opened or closed.
UNREACHABLE = (*LOST, OSError, EOFError, TimeoutError)
# No disk, no memory, no connection left: the statement was undone, and may do later.
FULL = (asyncpg.InsufficientResourcesError,)
# Not there yet, not ready yet, or another host will lead in a moment.
STARTING = (OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError,
            asyncpg.AdminShutdownError, asyncpg.CrashShutdownError, asyncpg.TargetServerAttributeNotMatched, EOFError,
            TimeoutError)  # fmt: skip
WAITING_SECONDS, WAITING_SAID_SECONDS = 0.5, 10.0
PLANS_LIVE_SECONDS = 1.0
RECONNECT_SECONDS = 5
# A client machine that vanished holds its locks no longer than that.
_ENDS_WHEN_ITS_CLIENT_IS_GONE = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
LOCK_WAITER_SESSIONS = 4
LANE_LOCK_MS, POOL_LOCK_MS = 2_000, 10_000
SHARED_LANE_LOCK = "250ms"  # where the calls of all dealers of a process wait on one session
LANE_IDLE_IN_TRANSACTION_MS, POOL_IDLE_IN_TRANSACTION_MS = 10_000, 60_000


class DatabaseLost(Exception):
    """The database could not be reached, or was lost. `sent`: what was asked of it may have been done; otherwise surely
    nothing was."""

    def __init__(self, sent: bool):
        self.sent = sent
        super().__init__("the database was lost")


class TooSlow(Exception):
    """A statement took longer than its connection allows, or waited too long for a lock; it was undone."""


class LockTimeout(Exception):
    """Another transaction holds a lock for longer than this connection waits, or waits for ours; nothing was done."""


_after_commit: ContextVar[list[Callable[[], None]] | None] = ContextVar("after_commit", default=None)


def after_commit(act: Callable[[], None]) -> None:
    """Runs `act` once the transaction around it is committed, never if it is rolled back; outside of one, at once."""
    waiting = _after_commit.get()
    if waiting is None:
        act()
    else:
        waiting.append(act)


@contextmanager
def _committing() -> Iterator[None]:
    before, waiting = _after_commit.get(), list[Callable[[], None]]()
    _after_commit.set(waiting)
    try:
        yield
    finally:
        _after_commit.set(before)
    for act in waiting:
        act()


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


class Database:
    """One PostgreSQL database: a small pool for rare work; `session()` for hot lanes. `clock` tells its time."""

    def __init__(self, dsn: str, pool: asyncpg.Pool, look_seconds: float | None = None):
        self.dsn = dsn
        self.clock = DatabaseClock()
        self._pool = pool
        self._look_seconds = look_seconds

    @classmethod
    async def open(cls, dsn: str, *, size: int = 4, look_seconds: float | None = None) -> "Database":
        """`look_seconds`: a statement outside of transactions, which only looks, ends after so long as TooSlow; so long
        is also waited for a connection of the pool. Raises DatabaseLost."""
        settings = {
            "application_name": "esim-dealer",
            "lock_timeout": str(POOL_LOCK_MS),
            "idle_in_transaction_session_timeout": str(POOL_IDLE_IN_TRANSACTION_MS),
            **_ENDS_WHEN_ITS_CLIENT_IS_GONE,
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
            await measure(connection, database.clock)
        return database

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for single statements. Raises DatabaseLost, TooSlow."""
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
            raise TooSlow from error
        finally:
            with suppress(*UNREACHABLE):  # a lost connection cannot be reset; the pool opens another
                await self._pool.release(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Takes as long as it takes: a large file is stored whole."""
        with _committing():
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

    def session(self, **settings: str) -> "Session":
        """A connection of its own for a hot lane; `settings` are PostgreSQL's."""
        return Session(self.dsn, settings)


class Session:
    """One connection kept for a hot lane. Statements are prepared once; their plans are renewed every second, since
    plans made while tables were nearly empty would scan them for ever; a lost connection is opened anew."""

    def __init__(self, dsn: str, settings: Mapping[str, str]):
        self._dsn = dsn
        self._settings = settings
        self._connection: asyncpg.Connection | None = None
        self._prepared: dict[str, Any] = {}
        self._plans_from = 0.0
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
            raise DatabaseLost(sent=False) from error
        except LOST as error:
            self.drop()
            raise DatabaseLost(sent=True) from error

    async def execute(self, sql: str) -> None:
        """A statement without rows or parameters, such as BEGIN. Raises DatabaseLost."""
        connection = await self.open()
        try:
            await connection.execute(sql)
        except FULL as error:
            raise DatabaseLost(sent=False) from error
        except LOST as error:
            self.drop()
            raise DatabaseLost(sent=True) from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["Session"]:
        """All on one connection. Lost before COMMIT is sent, surely nothing was done."""
        with _committing():
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
            with suppress(DatabaseLost):  # then the server has rolled back
                await self.execute("ROLLBACK")
            if isinstance(error, DatabaseLost):
                raise DatabaseLost(sent=False) from error.__cause__
            raise
        else:
            await self.execute("COMMIT")
        finally:
            self._in_transaction = False

    async def open(self) -> asyncpg.Connection:
        """The connection, opened or opened anew; its plans not older than a second. Raises DatabaseLost.

        Never opened anew inside a transaction: half of it would run by itself.
        """
        now = asyncio.get_running_loop().time()
        if self._connection is None or self._connection.is_closed():
            if self._in_transaction:
                raise DatabaseLost(sent=False)
            self._connection = await self._connect()
            self._prepared = {}
            self._plans_from = now
        elif now - self._plans_from > PLANS_LIVE_SECONDS and not self._connection.is_in_transaction():
            self._plans_from = now
            try:
                await self._connection.execute("DISCARD PLANS")
            except UNREACHABLE:
                self.drop()
                return await self.open()
        return self._connection

    def drop(self) -> None:
        """Forgets a connection that is lost."""
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
                "application_name": "esim-dealer lane",
                "statement_timeout": "0",
                "lock_timeout": str(LANE_LOCK_MS),
                "idle_in_transaction_session_timeout": str(LANE_IDLE_IN_TRANSACTION_MS),
                **_ENDS_WHEN_ITS_CLIENT_IS_GONE,
                "jit": "off",
                # Every hot statement finds rows by key; a plan that scans could only come from stale statistics.
                "enable_seqscan": "off",
                "enable_hashjoin": "off",
                "enable_mergejoin": "off",
                "enable_material": "off",
                "enable_bitmapscan": "off",
                **self._settings,
            },
        )


async def measure(connection: Connection | Session, clock: DatabaseClock) -> None:
    """Sets the clock by the database's. Raises DatabaseLost."""
    sent = clock.monotonic()
    [(at,)] = await connection.fetch("SELECT clock_timestamp()")
    clock.measured(at.timestamp(), sent)


class Desk(Generic[T, R]):
    """Group commit: what arrives while one batch runs forms the next one. No timer: a lone item goes at once.

    `run` answers a whole batch, in order; an answer that is an exception is raised to its own caller only, and one that
    is a future answers when it is done. Where `run` itself fails, the batch's items are run one by one, so that a
    poisonous one fails alone. A `weight` bounds batches by what they cost rather than by how many they are.
    """

    def __init__(
        self,
        run: Callable[[Sequence[T]], Awaitable[Sequence["Answer[R]"]]],
        *,
        bound: int,
        weight: Callable[[T], int] | None = None,
    ):
        self._run = run
        self._bound = bound
        self._weight = weight
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: T) -> asyncio.Future[R]:
        """A future of the item's own answer. Cancelling it cancels the waiting, never the work."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return future

    async def drain(self) -> None:
        """Returns once everything submitted is answered."""
        while self._task is not None:
            await asyncio.shield(self._task)

    @property
    def idle(self) -> bool:
        return self._task is None

    async def _work(self) -> None:
        batch: list[tuple[T, asyncio.Future[R]]] = []
        try:
            while self._waiting:
                batch = self._take()
                answers = await self._answer([item for item, _ in batch])
                for (_, future), answer in zip(batch, answers, strict=True):
                    if isinstance(answer, asyncio.Future):
                        answer.add_done_callback(partial(_pass_on, future))
                    else:
                        _settle(future, answer)
                batch = []
        finally:
            self._task = None
            # There are any only where this task itself was ended.
            for _, future in batch:
                _settle(future, DatabaseLost(sent=True))
            while self._waiting:
                _settle(self._waiting.popleft()[1], DatabaseLost(sent=False))

    def _take(self) -> list[tuple[T, asyncio.Future[R]]]:
        waiting, weight = self._waiting, self._weight
        if weight is None:
            return [waiting.popleft() for _ in range(min(len(waiting), self._bound))]
        batch, total = [waiting.popleft()], 0
        total = weight(batch[0][0])
        while waiting and total + (following := weight(waiting[0][0])) <= self._bound:
            batch.append(waiting.popleft())
            total += following
        return batch

    async def _answer(self, items: list[T]) -> Sequence["Answer[R]"]:
        try:
            answers = await self._run(items)
            assert len(answers) == len(items), "one answer per item"
            return answers
        except DatabaseLost as lost:
            return [lost] * len(items)
        except Exception as error:
            if len(items) == 1:
                return [DatabaseLost(sent=False) if isinstance(error, LockTimeout) else error]
            log.warning("batch_failed", items=len(items), error=repr(error))
            return [(await self._answer([item]))[0] for item in items]


Answer = R | Exception | asyncio.Future[R]


class LockWaiters(Generic[T, R]):
    """Items whose rows another transaction holds. They wait for the lock here, each dealer's in batches of its own, so
    that no other dealer waits with them. One dealer keeps one session busy; all share a few of them."""

    def __init__(
        self,
        database: Database,
        run: Callable[[Session, Sequence[T]], Awaitable[Sequence[Answer[R]]]],
        tenant: Callable[[T], int],
        *,
        bound: int,
    ):
        self._run = run
        self._tenant = tenant
        self._bound = bound
        self._free: asyncio.LifoQueue[Session] = asyncio.LifoQueue()
        self._sessions = [database.session() for _ in range(LOCK_WAITER_SESSIONS)]
        for one in self._sessions:
            self._free.put_nowait(one)
        self._desks: dict[int, Desk[T, R]] = {}

    def __contains__(self, tenant_id: int) -> bool:
        """Whether items of this dealer wait: then later ones had better wait behind them."""
        return tenant_id in self._desks

    def submit(self, item: T) -> asyncio.Future[R]:
        tenant_id = self._tenant(item)
        desk = self._desks.get(tenant_id)
        if desk is None:
            log.debug("lock_waited_for", tenant_id=tenant_id)
            desk = self._desks[tenant_id] = Desk(self._with_session, bound=self._bound)
        future = desk.submit(item)
        future.add_done_callback(lambda _: self._forget(tenant_id))
        return future

    async def drain(self) -> None:
        for desk in list(self._desks.values()):
            await desk.drain()

    async def close(self) -> None:
        for one in self._sessions:
            await one.close()

    def _forget(self, tenant_id: int) -> None:
        desk = self._desks.get(tenant_id)
        if desk is not None and desk.idle:
            del self._desks[tenant_id]

    async def _with_session(self, items: Sequence[T]) -> Sequence[Answer[R]]:
        session = await self._free.get()
        try:
            return await self._run(session, items)
        except LockTimeout:
            return [DatabaseLost(sent=False) for _ in items]
        finally:
            self._free.put_nowait(session)


def _settle(future: asyncio.Future[R], answer: R | Exception) -> None:
    if future.done():  # its caller has gone
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _pass_on(future: asyncio.Future[R], answered: asyncio.Future[R]) -> None:
    error = asyncio.CancelledError() if answered.cancelled() else answered.exception()
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    else:
        _settle(future, error if isinstance(error, Exception) else answered.result())


async def poll(seconds: float, look: Callable[[], Awaitable[None]]) -> None:
    """Calls `look` for ever; a lost database is waited out."""
    while True:
        try:
            await look()
        except DatabaseLost:
            await asyncio.sleep(seconds)
        await asyncio.sleep(seconds)


def columns(rows: Sequence[Sequence[object]], width: int) -> list[list[object]]:
    """Rows as one array per column, for unnest; also where there are none."""
    return [[row[column] for row in rows] for column in range(width)]
