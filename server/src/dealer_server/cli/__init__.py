"""What the commands of `dealer-server` share: the database of the environment, who acts, how times are read."""

import asyncio
import contextlib
import getpass
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from dealer_server import audit_context
from dealer_server.settings import Settings, SettingsError

if TYPE_CHECKING:
    from dealer_server.db.database import Database
    from dealer_server.db.sealing import DataKeys

T = TypeVar("T")
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for programs.")]
_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def run(work: Awaitable[T]) -> T:
    import uvloop

    audit_context.source.set(f"cli {getpass.getuser()}@{socket.gethostname()} pid {os.getpid()}")

    async def whole() -> T:
        return await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(whole())


@contextlib.asynccontextmanager
async def opened_database(opened: Settings) -> "AsyncIterator[Database]":
    """The database, which has this version's schema. Ctrl-C ends the command at once, without a word to PostgreSQL: a
    COMMIT that was sent is never cancelled."""
    from dealer_server.db.database import Database
    from dealer_server.store import schema

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    database = await Database.open(opened.database_url)
    try:
        async with database.connection() as connection:
            await schema.require_current(connection)
        yield database
    finally:
        await database.close()


async def opened_data_keys(database: "Database", opened: Settings) -> "DataKeys":
    """The keys that seal. Also loaded where a master key seals alone, to see that it is this database's."""
    from dealer_server.store.tenants import data_key

    async with database.connection() as connection:
        return await data_key.load(connection, opened.master_keys)


def author() -> str:
    """Who acts, for the audit log."""
    return f"cli:{os.environ.get('SUDO_USER') or getpass.getuser()}@{socket.gethostname()}"


def moment(option: str, text: str | None, now: datetime) -> datetime | None:
    """`24h` or `7d` ago, or an RFC 3339 time. Raises SettingsError."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise SettingsError(f"{option} {text!r}: a time such as 2026-11-20T08:15:30Z, or 30m, 24h, 7d for so long ago")
    return at.astimezone(UTC)
