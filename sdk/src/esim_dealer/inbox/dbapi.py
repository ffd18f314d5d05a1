"""How does one SQL text, its values named `:name`, run on any DB-API 2 connection (PEP 249)?"""

import contextlib
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any, Protocol

_NAME = re.compile(r":([a-z_]+)")
_BUSY_SECONDS = 30.0


class Connection(Protocol):
    """The methods of a DB-API connection that are used."""

    def cursor(self) -> Any: ...

    def commit(self) -> object: ...

    def rollback(self) -> object: ...

    def close(self) -> object: ...


def bind(text: str, values: Mapping[str, object], paramstyle: str) -> tuple[str, dict[str, object] | list[object]]:
    """The text and its values in this `paramstyle`. Raises ValueError for a style that PEP 249 does not define."""
    names = _NAME.findall(text)
    match paramstyle:
        case "named":
            return text, {name: values[name] for name in names}
        case "pyformat":
            return _NAME.sub(r"%(\1)s", text), {name: values[name] for name in names}
        case "qmark":
            return _NAME.sub("?", text), [values[name] for name in names]
        case "format":
            return _NAME.sub("%s", text), [values[name] for name in names]
        case "numeric":
            numbers = iter(range(1, len(names) + 1))
            return _NAME.sub(lambda _: f":{next(numbers)}", text), [values[name] for name in names]
    raise ValueError(f"{paramstyle!r} is no paramstyle of PEP 249")


def paramstyle_of(connection: object) -> str:
    """The `paramstyle` of the module that the connection's class is from. Raises ValueError where it has none."""
    name = type(connection).__module__
    while name:
        style = getattr(sys.modules.get(name), "paramstyle", None)
        if isinstance(style, str):
            return style
        name = name.rpartition(".")[0]
    raise ValueError(f"{type(connection).__qualname__} does not say its paramstyle: give it as paramstyle=")


def sqlite_file(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """A connection to that file, for all threads of one process; a commit is on the disk before it returns."""
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
    # Fails while another process sets it at the same moment; the file keeps the mode.
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


class Statements:
    """SQL within one transaction."""

    def __init__(self, cursor: Any, paramstyle: str) -> None:
        self._cursor = cursor
        self._paramstyle = paramstyle

    def rows(self, text: str, **values: object) -> list[dict[str, Any]]:
        """All rows that a SELECT gives, each by the names of its columns."""
        self._cursor.execute(*bind(text, values, self._paramstyle))
        names = [column[0] for column in self._cursor.description]
        return [dict(zip(names, row, strict=True)) for row in self._cursor.fetchall()]

    def change(self, text: str, **values: object) -> int:
        """Runs any other statement; returns how many rows it changed."""
        self._cursor.execute(*bind(text, values, self._paramstyle))
        return self._cursor.rowcount


class Database:
    """One connection, opened when first used and again after it broke; one transaction at a time over all threads."""

    def __init__(self, connect: Callable[[], Connection], paramstyle: str | None) -> None:
        self._connect = connect
        self._paramstyle = paramstyle
        self._connection: Connection | None = None
        self._closed = False
        self._lock = Lock()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Statements]:
        """Committed at the end of the block, rolled back where it raises."""
        with self._lock:
            connection = self._open()
            try:
                yield Statements(connection.cursor(), self._paramstyle or paramstyle_of(connection))
                connection.commit()
            except BaseException:
                self._roll_back(connection)
                raise

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def _open(self) -> Connection:
        if self._closed:
            raise ValueError("the inbox is closed")
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _roll_back(self, connection: Connection) -> None:
        """Undoes what the transaction did. A connection that cannot do even that is replaced at the next use."""
        try:
            connection.rollback()
        except Exception:
            self._connection = None
            with contextlib.suppress(Exception):
                connection.close()
