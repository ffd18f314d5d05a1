"""Which tables does a database of this service have? Numbered plain SQL, applied once and in order."""

from importlib import resources
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.session import Session

_LOCK = 5_382_014  # one process migrates a database at a time


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


class NewerSchema(Exception):
    """The database was migrated by a newer version of this program."""


class OlderSchema(Exception):
    """The database is not migrated to this version."""


def known() -> list[Migration]:
    files = sorted(
        (file for file in resources.files(__name__).iterdir() if file.name.endswith(".sql")), key=lambda file: file.name
    )
    return [Migration(int(file.name[:4]), file.name[5:-4], file.read_text()) for file in files]


async def applied(connection: Connection) -> set[int]:
    if not await connection.fetchval("SELECT to_regclass('migration') IS NOT NULL"):
        return set()
    return {row["number"] for row in await connection.fetch("SELECT number FROM migration")}


async def pending(connection: Connection) -> list[Migration]:
    """The migrations that are not applied yet. Raises NewerSchema."""
    done = await applied(connection)
    if done and max(done) > max(migration.number for migration in known()):
        raise NewerSchema(f"the database has migration {max(done)}; this program knows only older ones: upgrade it")
    return [migration for migration in known() if migration.number not in done]


async def require_current(connection: Connection) -> None:
    """Raises OlderSchema, NewerSchema."""
    if missing := await pending(connection):
        raise OlderSchema(f"the database lacks migration {missing[0].number}: run `dealer-server migrate`")


async def require_no_older(session: Session) -> None:
    """Checks that the schema was not replaced by an older one, such as by a restore, while the process runs. A newer
    one is accepted: it comes with a rolling upgrade. Raises OlderSchema."""
    needed = known()[-1].number
    [row] = await session.fetch("SELECT coalesce(max(number), 0) AS newest FROM migration")
    if row["newest"] < needed:
        raise OlderSchema(f"the database has migration {row['newest']}; this version needs {needed}")


async def migrate(connection: Connection) -> list[Migration]:
    """Applies the pending migrations, each in its own transaction, and returns them. Several processes may call it at
    once."""
    await connection.execute("SET lock_timeout = 0")  # another process may take long to migrate
    await connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
    try:
        todo = await pending(connection)
        for migration in todo:
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute("INSERT INTO migration VALUES ($1, $2)", migration.number, migration.name)
        return todo
    finally:
        await connection.execute(f"SELECT pg_advisory_unlock({_LOCK})")
