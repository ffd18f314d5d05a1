"""Starts PostgreSQL on a data folder, and erases one."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import quote

from dealer_server.dev.embedded import accounts, data_folder, postgres, programs
from dealer_server.dev.embedded.errors import EmbeddedError
from dealer_server.dev.embedded.programs import Programs


@dataclass(frozen=True)
class Embedded:
    """A running PostgreSQL; role and database are both named `esim`."""

    dsn: str
    data: Path
    socket_dir: Path
    _programs: Programs = field(repr=False)
    _lock: IO[str] = field(repr=False)
    _launcher: int = field(repr=False)

    def stop(self) -> None:
        """Shuts PostgreSQL down and releases the folder; open transactions are rolled back. May be repeated."""
        # A forked child inherits this object, and its atexit must not stop the parent's server.
        if self._lock.closed or os.getpid() != self._launcher:
            return
        try:
            postgres.stop(self._programs, self.data / "postgres")
        finally:
            postgres.remove_socket_folder(self.data, self.socket_dir)
            data_folder.release(self._lock)


_NONE: Mapping[str, str] = {}


def start(
    data: Path, *, fast_and_unsafe: bool = False, installed: Path | None = None, settings: Mapping[str, str] = _NONE
) -> Embedded:
    """Starts PostgreSQL on this folder, creating folder and database where they are missing.

    fast_and_unsafe gives up surviving a crash of the machine, for the test suite. `installed`: another PostgreSQL than
    the one of the wheel. `settings`: PostgreSQL's, beside our own.
    """
    data = data.expanduser().resolve()
    try:
        lock = data_folder.claim(data)
        try:
            unsafe = postgres.UNSAFE_SETTINGS if fast_and_unsafe else {}
            return _start(data, lock, installed, postgres.SETTINGS | unsafe | dict(settings), not fast_and_unsafe)
        except BaseException:
            data_folder.release(lock)
            raise
    except OSError as error:
        raise EmbeddedError(f"cannot use the data folder {data}: {error}") from error


def erase(data: Path) -> None:
    """Empties a data folder. Raises EmbeddedError where it is in use or not ours."""
    data = data.expanduser().resolve()
    if not data.exists():
        return
    try:
        lock = data_folder.claim(data)
        try:
            cluster = data / "postgres"
            if cluster.exists():
                postgres.stop(programs.find(data, accounts.server_account(cluster)), cluster)
            for path in data.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != "lock":
                    path.unlink()
        finally:
            data_folder.release(lock)
    except OSError as error:
        raise EmbeddedError(f"cannot empty the data folder {data}: {error}") from error


def _start(data: Path, lock: IO[str], other: Path | None, settings: dict[str, str], survive_crash: bool) -> Embedded:
    cluster = data / "postgres"
    account = accounts.server_account(cluster)
    if account:
        accounts.require_entry(data, account)
    installed = programs.find(data, account) if other is None else programs.at(other, account)
    if cluster.exists():
        postgres.require_version(cluster)
        postgres.stop(installed, cluster)  # a killed launcher leaves its server running
        postgres.remove_pid_files(cluster)
    else:
        postgres.create(installed, cluster, survive_crash=survive_crash)
    socket_dir = postgres.socket_folder(installed, cluster)
    try:
        postgres.launch(installed, data, socket_dir, settings)
    except BaseException:
        postgres.stop(installed, cluster)
        postgres.remove_socket_folder(data, socket_dir)
        raise
    dsn = f"postgresql://esim@/esim?host={quote(str(socket_dir))}&port={postgres.PORT}"
    return Embedded(dsn, data, socket_dir, installed, lock, os.getpid())
