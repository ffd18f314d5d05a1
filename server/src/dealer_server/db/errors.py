"""Errors of the database, and the asyncpg errors that mean them."""

import math
import time

import asyncpg
import structlog

log = structlog.get_logger(__name__)

FULL_LOGGED_SECONDS = 60.0

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
# The server does not let this role in: its password was changed, or it may not log in any more.
LOGIN_REJECTED = (asyncpg.InvalidAuthorizationSpecificationError,)
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


class Logins:
    """How many logins of this process the server has rejected. After a change of the password connections that are open
    go on, so that only new ones tell of it."""

    rejected = 0


logins = Logins()
_full_logged_at = -math.inf


def database_full(error: asyncpg.InsufficientResourcesError) -> DatabaseLost:
    """What to raise for one of FULL. Reads may go on meanwhile, so that checks find the database up: the process logs
    `database_full`, once a minute while it lasts."""
    global _full_logged_at
    now = time.monotonic()
    if now - _full_logged_at >= FULL_LOGGED_SECONDS:
        _full_logged_at = now
        log.error("database_full", reason=str(error))
    return DatabaseLost(sent=False)


class StatementTimeout(Exception):
    """A statement exceeded the timeout of its connection, or waited too long for a lock; it was rolled back."""


class LockTimeout(Exception):
    """A lock was not granted within the timeout of this connection, or in a deadlock; nothing was done."""
