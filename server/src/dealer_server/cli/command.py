"""How does a command of `dealer-server` start, and how does it end?

A command is an async function that returns nothing or its exit status. One that takes a `context` works on the database
that the environment names. Commands import the parts of the service inside the function, so that --help and a wrong
argument are answered at once.
"""

import asyncio
import contextlib
import getpass
import inspect
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from dealer_server import audit_context, settings
from dealer_server.settings import CannotStart, Settings, SettingsError

if TYPE_CHECKING:
    from dealer_server.clock import Clock
    from dealer_server.db.database import Database
    from dealer_server.db.sealing import DataKeys

AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for programs.")]


class CommandContext:
    """What a command works with: the settings, the open database, and who acts, for the audit log."""

    def __init__(self, settings: Settings, database: "Database"):
        self.settings = settings
        self.database = database
        self.author = f"cli:{os.environ.get('SUDO_USER') or user_name()}@{socket.gethostname()}"

    @property
    def clock(self) -> "Clock":
        """The database's time."""
        return self.database.clock.now

    async def data_keys(self) -> "DataKeys":
        """Raises CannotOpen where DEALER_SEALING_KEYS are not those of this database."""
        from dealer_server.store.tenants import data_key

        async with self.database.connection() as connection:
            return await data_key.load(connection, self.settings.master_keys)


Context = Annotated[CommandContext, Parameter(parse=False)]
"""Given to a command by `run`, not by the command line."""


def run(app: App) -> None:
    """Runs the command that the process's arguments name, and ends the process: with the command's exit status, or with
    one line on standard error and status 1, 2 where the command line is not understood."""
    try:
        status = _run(app)
    except KeyboardInterrupt:
        status = 130
    except Exception as error:
        message = _message(error)
        if not message:
            raise
        _print_error(error, message.partition("\n")[0])
        status = 2 if isinstance(error, CycloptsError) else 1
    sys.exit(status)


def _print_error(error: Exception, message: str) -> None:
    """With --json an object for programs."""
    if "--json" in sys.argv[1:]:
        print(json.dumps({"error": {"type": type(error).__name__, "message": message}}), file=sys.stderr)
    else:
        print(f"dealer-server: {message}", file=sys.stderr)


def user_name() -> str:
    """Who runs this: a name or, in a container whose user has none, its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        return f"uid {os.getuid()}"


def _run(app: App) -> int | None:
    command, arguments, injected = app.parse_args(exit_on_error=False, print_error=False)
    if not inspect.iscoroutinefunction(command):  # --help
        return command(*arguments.args, **arguments.kwargs)
    import uvloop

    audit_context.source.set(f"cli {user_name()}@{socket.gethostname()} pid {os.getpid()}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_execute(command, arguments, with_context="context" in injected))


async def _execute(command: Any, arguments: inspect.BoundArguments, *, with_context: bool) -> int | None:
    if not with_context:
        return await command(*arguments.args, **arguments.kwargs)
    async with _opened_context() as context:
        return await command(*arguments.args, **arguments.kwargs, context=context)


@contextlib.asynccontextmanager
async def _opened_context() -> AsyncIterator[CommandContext]:
    """The settings and the database, which has this version's schema.

    Ctrl-C then ends the process at once and sends no cancellation to PostgreSQL, so that a COMMIT under way is never
    cancelled. Raises SettingsError, DatabaseLost, OlderSchema, NewerSchema.
    """
    from dealer_server.db.database import Database
    from dealer_server.store import schema

    _use_dev_instance()
    opened = settings.read()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    database = await Database.open(opened.database_url)
    try:
        async with database.connection() as connection:
            await schema.require_current(connection)
        yield CommandContext(opened, database)
    finally:
        await database.close()


def _use_dev_instance() -> None:
    """Without settings of its own a command works on the `dealer-server dev` that runs."""
    from dealer_server.dev import instance

    if found := instance.found(os.environ):
        base_url, given = found
        os.environ.update(given)
        print(f"dealer-server: on the instance of `dealer-server dev` at {base_url}", file=sys.stderr)


def _message(error: Exception) -> str:
    """What the operator can put right, in words; "" for a defect of the service."""
    import asyncpg

    from dealer_server.db.distributed import HalfDistributed
    from dealer_server.db.errors import FULL, DatabaseLost
    from dealer_server.db.pooler import UnfitPooler
    from dealer_server.db.sealing import CannotOpen
    from dealer_server.dev.embedded import EmbeddedError
    from dealer_server.operations.errors import OperatorError
    from dealer_server.store.schema import NewerSchema, OlderSchema, TablesInUse

    ours = (SettingsError, CannotStart, OperatorError, EmbeddedError, CycloptsError)
    if isinstance(error, (*ours, NewerSchema, OlderSchema, TablesInUse, UnfitPooler, HalfDistributed)):
        return str(error)
    if isinstance(error, CannotOpen):
        return f"DEALER_SEALING_KEYS does not open this database's secrets: {error}"
    if isinstance(error, DatabaseLost) and isinstance(error.__cause__, FULL):
        return f"the database has no room: {error.__cause__}"
    if isinstance(error, DatabaseLost):
        return f"the database cannot be reached: {error.__cause__ or error}"
    if isinstance(error, (asyncpg.PostgresError, asyncpg.InterfaceError)):
        return f"the database refused: {error}"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    return ""
