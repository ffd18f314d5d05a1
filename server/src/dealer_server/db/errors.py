"""What can go wrong with PostgreSQL, and which of asyncpg's errors say so."""

import asyncpg

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


class DatabaseLost(Exception):
    """The database could not be reached, or was lost. `sent`: what was asked of it may have been done; otherwise surely
    nothing was."""

    def __init__(self, sent: bool):
        self.sent = sent
        super().__init__("the database was lost")


class StatementTimeout(Exception):
    """A statement took longer than its connection allows, or waited too long for a lock; it was undone."""


class LockTimeout(Exception):
    """Another transaction holds a lock for longer than this connection waits, or waits for ours; nothing was done."""
