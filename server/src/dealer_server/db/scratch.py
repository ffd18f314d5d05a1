"""A database for a moment: made beside others on a server, filled from a dump, and dropped."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import asyncpg

from dealer_server.db.connection import connect


class CannotRestore(Exception):
    """The dump is none, or pg_restore refuses it; the message is one line."""


@asynccontextmanager
async def database(server: str, *, keep: bool) -> AsyncIterator[str]:
    """The address of a new, empty database on the server of this address, of which the role may create databases.
    Raises DatabaseLost, CannotRestore."""
    name = f"backup_check_{secrets.token_hex(4)}"
    connection = await connect(server)
    try:
        try:
            await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        except asyncpg.PostgresError as error:
            raise CannotRestore(f"no scratch database can be made: {error}") from None
    finally:
        await connection.close()
    try:
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    finally:
        if not keep:
            connection = await connect(server)
            try:
                await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
            finally:
                await connection.close()


async def restore(dump: Path, address: str, jobs: int) -> None:
    """Fills an empty database from what pg_dump wrote in its custom or directory format. Raises CannotRestore."""
    if not _is_dump(dump):
        raise CannotRestore(f"{dump}: a dump by `pg_dump --format custom` or `--format directory` is expected")
    plain, password = _without_password(address)
    try:
        process = await asyncio.create_subprocess_exec(
            "pg_restore",
            "--no-owner",
            "--no-privileges",
            "--exit-on-error",
            f"--jobs={jobs}",
            f"--dbname={plain}",
            dump,
            env={**os.environ, **({"PGPASSWORD": password} if password else {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        raise CannotRestore("pg_restore is not installed; on Debian: apt-get install postgresql-client") from None
    try:
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise CannotRestore(f"pg_restore refuses {dump}: {_last_line(said)}")
    connection = await connect(address)
    try:
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


def _is_dump(dump: Path) -> bool:
    if dump.is_dir():
        return (dump / "toc.dat").is_file()
    with dump.open("rb") as opened:
        return opened.read(5) == b"PGDMP"


def _without_password(address: str) -> tuple[str, str]:
    """Programs show what they were called with; a password is handed over beside it."""
    parts = urlsplit(address)
    user, colon, rest = parts.netloc.rpartition("@")[0].partition(":")
    if not colon:
        return address, ""
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}")), unquote(rest)


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it says nothing"
