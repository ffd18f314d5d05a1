"""Errors of the database, and the asyncpg errors that mean them."""

import asyncpg

# What asyncpg raises when a connection is lost during use. asyncpg wraps errors of the socket, so that an OSError comes
# from this program.
LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError, asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError,
        asyncpg.IdleInTransactionSessionTimeoutError, asyncpg.InternalClientError)  # fmt: skip
# What it may also raise while a connection is opened or closed.
UNREACHABLE = (*LOST, OSError, EOFError, TimeoutError)
# What a server says that is not up: it starts, or is about to end.
SHUT = (asyncpg.CannotConnectNowError, asyncpg.AdminShutdownError, asyncpg.CrashShutdownError,
        asyncpg.ConnectionDoesNotExistError)  # fmt: skip
# No disk, memory or connection left: the statement was rolled back, and may succeed later.
FULL = (asyncpg.InsufficientResourcesError,)
# The server is not up or not ready yet, or another host is about to be promoted.
STARTING = (OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError,
            asyncpg.AdminShutdownError, asyncpg.CrashShutdownError, asyncpg.TargetServerAttributeNotMatched, EOFError,
            TimeoutError)  # fmt: skip


class DatabaseLost(Exception):
    """The database could not be reached, or the connection was lost. `sent`: the statement was sent and may have been
    carried out; False: certainly nothing was."""

    def __init__(self, sent: bool):
        self.sent = sent
        super().__init__("the database was lost")


class StatementTimeout(Exception):
    """A statement exceeded the timeout of its connection, or waited too long for a lock; it was rolled back."""


class LockTimeout(Exception):
    """A lock was not granted within the timeout of this connection, or in a deadlock; nothing was done."""
