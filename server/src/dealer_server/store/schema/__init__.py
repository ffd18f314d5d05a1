"""Which tables does a database of this service have? Numbered plain SQL, applied once and in order.

A program runs on a schema that is newer than it is if every migration it does not know says so
(docs/operating/upgrade.md): an old process that ends in the middle of an upgrade can start again.
"""

import asyncio
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

import asyncpg

from dealer_server.db.connection import Connection, Fetching

_LOCK = 5_382_014  # one process migrates a database at a time
_COMPATIBLE = re.compile(r"^-- Compatible from: ([0-9]+)$", re.MULTILINE)
# A migration that waits for a table makes everybody wait who comes after it, so it gives up soon and tries again.
LOCK_TIMEOUT, PAUSE_SECONDS, TRIES = "2s", 1.0, 60
# As migration 3 did: a restore that leaves out privileges gives them back to the owner of the tables.
_APPEND_ONLY = "REVOKE UPDATE, DELETE, TRUNCATE ON ledger_entry, audit_log FROM CURRENT_USER, PUBLIC"
# Also of a schema from before the column compatible_from. The newest migration that is applied, and of those that a
# program with migration $1 does not know the one that demands the most.
_STATE = """
    SELECT coalesce(max(number), 0) AS newest,
           coalesce(max(coalesce((to_jsonb(migration) ->> 'compatible_from')::int, number))
                    FILTER (WHERE number > $1), 0) AS needed
      FROM migration
"""


class Migration(NamedTuple):
    """`compatible_from`: a program works on it that knows this migration or a later one."""

    number: int
    name: str
    sql: str

    @property
    def compatible_from(self) -> int:
        declared = _COMPATIBLE.search(self.sql)
        return int(declared[1]) if declared else self.number


class NewerSchema(Exception):
    """The database was migrated by a newer version of this program, which this one cannot work with."""


class OlderSchema(Exception):
    """The database is not migrated to this version."""


class TablesInUse(Exception):
    """A migration did not get the lock of a table; what it did was rolled back."""


@cache
def known() -> Sequence[Migration]:
    """Those of this program, oldest first."""
    files = sorted(
        (file for file in resources.files(__name__).iterdir() if file.name.endswith(".sql")), key=lambda file: file.name
    )
    return tuple(Migration(int(file.name[:4]), file.name[5:-4], file.read_text()) for file in files)


async def applied(connection: Connection) -> set[int]:
    if not await connection.fetchval("SELECT to_regclass('migration') IS NOT NULL"):
        return set()
    return {row["number"] for row in await connection.fetch("SELECT number FROM migration")}


async def require_current(connection: Connection, newest: int | None = None) -> None:
    """Checks that a program works on this schema whose newest migration is `newest`; by default this program. Raises
    OlderSchema, NewerSchema."""
    ours = known()[-1].number if newest is None else newest
    done = await applied(connection)
    if missing := [
        migration.number for migration in known() if migration.number <= ours and migration.number not in done
    ]:
        raise OlderSchema(f"the database lacks migration {missing[0]}: run `dealer-server migrate`")
    await require_compatible(connection, ours)


async def require_compatible(session: Connection | Fetching, newest: int | None = None) -> None:
    """The same while a process runs: the schema may be replaced by an older one, as by a restore, and by a newer one in
    an upgrade."""
    ours = known()[-1].number if newest is None else newest
    try:
        [row] = await session.fetch(_STATE, ours)
    except asyncpg.UndefinedTableError:
        raise OlderSchema("the database lacks migrations: run `dealer-server migrate`") from None
    if row["newest"] < ours:
        raise OlderSchema(f"the database has migration {row['newest']}; this version needs {ours}")
    if row["needed"] > ours:
        raise NewerSchema(
            f"the database has migration {row['newest']}, which needs a version that knows migration {row['needed']};"
            f" this one knows {ours}: upgrade it"
        )


async def migrate(connection: Connection, migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """Applies those of the migrations that are pending, each in its own transaction, and returns them. What stands in
    the ledger and in the audit log cannot be changed afterwards, whoever restored the tables. Several processes may
    call it at once. Raises TablesInUse, NewerSchema."""
    await connection.execute("SET lock_timeout = 0")  # another process may take long to migrate
    await connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
    try:
        done = await applied(connection)
        todo = [migration for migration in migrations or known() if migration.number not in done]
        for migration in todo:
            await _apply(connection, migration)
        if await connection.fetchval("SELECT to_regclass('audit_log') IS NOT NULL"):
            await connection.execute(_APPEND_ONLY)
        await require_compatible(connection, max(migration.number for migration in migrations or known()))
        return todo
    finally:
        await connection.execute(f"SELECT pg_advisory_unlock({_LOCK})")


async def _apply(connection: Connection, migration: Migration) -> None:
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(PAUSE_SECONDS)
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO migration (number, name) VALUES ($1, $2)", migration.number, migration.name
                )
                if await _says_compatibility(connection):
                    await connection.execute(
                        "UPDATE migration SET compatible_from = $2 WHERE number = $1",
                        migration.number,
                        migration.compatible_from,
                    )
            return
        except asyncpg.LockNotAvailableError:
            continue
    raise TablesInUse(
        f"migration {migration.number} waited {TRIES} times {LOCK_TIMEOUT} for a table that somebody holds; nothing of"
        " it is done: end the long transaction (pg_stat_activity) and run `dealer-server migrate` again"
    )


async def _says_compatibility(connection: Connection) -> bool:
    """Since migration 39."""
    sql = "SELECT FROM pg_attribute WHERE attrelid = 'migration'::regclass AND attname = 'compatible_from'"
    return bool(await connection.fetch(sql))
