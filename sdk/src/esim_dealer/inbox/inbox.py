"""The inbox: receives verified events, and hands each to the handler once it is stored."""

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from esim_dealer.decoding import decode
from esim_dealer.inbox import storage
from esim_dealer.inbox.dbapi import Connection, Database, sqlite_file
from esim_dealer.inbox.storage import Waiting
from esim_dealer.webhook import Event
from esim_dealer.wire.snapshot import Snapshot

log = logging.getLogger("esim_dealer")

Handle = Callable[[Event], object]


class Inbox:
    """The events of a dealer, kept in a SQLite file or in four tables `inbox_...` of any DB-API 2 database.

    `database` is the path of a SQLite file; a function that opens a connection, called when first needed and again
    after a connection broke; or an open connection that is used for nothing else, as each call commits. Connections
    must not be in autocommit mode. `paramstyle` is that of the connection's module unless given (PEP 249). The tables
    are created where they are missing.

    Threads may share an Inbox; each process creates its own, on the same file or database. A connection is opened when
    it is first needed, so a server may fork after creating the Inbox. Nothing is ever deleted.
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | Connection | Callable[[], Connection],
        *,
        paramstyle: str | None = None,
        lease_seconds: float = 60.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`lease_seconds`: how long a worker may handle one event before another worker may take it too."""
        self._database = Database(_connector(database), paramstyle)
        self._lease_ms = int(lease_seconds * 1000)
        self._now = now
        self._tables_exist = False
        self._creating_tables = threading.Lock()
        self._arrived = threading.Event()
        self._closed = threading.Event()

    def __enter__(self) -> "Inbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and end `keep_processing`. An event that is being handled is handled again."""
        self._closed.set()
        self._arrived.set()
        self._database.close()

    def receive(self, event: Event) -> bool:
        """Store a verified event; it is on the disk when this returns, so answer 200 then.

        Returns True for a new event, False for a repetition, of which nothing is stored. Raises the database's error
        where the event could not be stored: answer 500, and the service sends it again.
        """
        self._create_tables()
        with self._database.transaction() as sql:
            seq = storage.next_number(sql)
            if storage.is_known(sql, event):
                return False
            storage.store(sql, seq, event, received_ms=self._now_ms())
        self._arrived.set()
        return True

    def process(self, handle: Handle) -> int:
        """Call `handle` with each event not handled yet; returns how many were handled.

        Each event is handled at least once: it is marked after `handle` has returned for it. The events of one order
        are handled one after the other in order of arrival, also where several threads or processes call this at the
        same time; those without `stale` have rising versions. Where `handle` raises, the event is logged and tried
        again the next time, together with the later ones of its order; other orders go on.
        """
        self._create_tables()
        handled, after = 0, 0
        blocked: set[str] = set()
        while (waiting := self._first_waiting(after)) is not None and not self._closed.is_set():
            after = waiting.seq
            if waiting.order_no in blocked:
                continue
            if self._process_one(waiting, handle):
                handled += 1
            else:
                blocked.add(waiting.order_no)
        return handled

    def keep_processing(self, handle: Handle, *, every_seconds: float = 10.0) -> None:
        """`process` at once, after each event that this Inbox receives, and every `every_seconds`; until `close`.

        The interval is for events that failed before and for those that another process received. Run it in a thread:
        `Thread(target=inbox.keep_processing, args=(handle,), daemon=True).start()`.
        """
        while not self._closed.is_set():
            self._arrived.clear()
            try:
                self.process(handle)
            except Exception:  # the database is away for a moment
                if not self._closed.is_set():
                    log.exception("stored events could not be processed; next try in %g s", every_seconds)
            if not self._closed.is_set():
                self._arrived.wait(every_seconds)

    def order(self, order_no: str) -> Snapshot | None:
        """The newest snapshot of that order; None where no event of it has come."""
        self._create_tables()
        with self._database.transaction() as sql:
            body = storage.newest_body(sql, order_no)
        return None if body is None else decode(body, Snapshot)

    def last_received(self) -> datetime | None:
        """When the last new event came."""
        self._create_tables()
        with self._database.transaction() as sql:
            received_ms = storage.last_received_ms(sql)
        return None if received_ms is None else datetime.fromtimestamp(received_ms / 1000, UTC)

    def _first_waiting(self, after: int) -> Waiting | None:
        with self._database.transaction() as sql:
            return storage.first_waiting(sql, after)

    def _process_one(self, waiting: Waiting, handle: Handle) -> bool:
        """Whether this worker handled the event."""
        lease = self._lease(waiting)
        if lease is None:
            return False
        try:
            handle(lease.event)
        except BaseException as error:
            with self._database.transaction() as sql:
                storage.end_lease(sql, waiting.seq, lease.until_ms)
            if not isinstance(error, Exception):
                raise
            log.exception("%s was not handled; it is tried again the next time", lease.event.dedupe_key)
            return False
        with self._database.transaction() as sql:
            storage.mark_handled(sql, waiting.seq)
        return True

    def _lease(self, waiting: Waiting) -> "_Lease | None":
        """None where another worker has leased the event or has just handled it."""
        now_ms = self._now_ms()
        if waiting.leased_until_ms > now_ms:
            return None
        until_ms = now_ms + self._lease_ms
        with self._database.transaction() as sql:
            event = storage.lease(sql, waiting.seq, now_ms=now_ms, until_ms=until_ms)
        return None if event is None else _Lease(event, until_ms)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _create_tables(self) -> None:
        """Creates the tables where they are missing."""
        with self._creating_tables:
            if self._tables_exist or self._has_tables():
                self._tables_exist = True
                return
            try:
                with self._database.transaction() as sql:
                    storage.create_tables(sql)
            except Exception:
                if not self._has_tables():  # else another process was faster
                    raise
            self._tables_exist = True

    def _has_tables(self) -> bool:
        try:
            with self._database.transaction() as sql:
                return storage.has_tables(sql)
        except Exception:  # "no such table" has another class in each driver
            return False


class _Lease(NamedTuple):
    """An event that this worker handles, and until when no other takes it."""

    event: Event
    until_ms: int


def _connector(database: str | os.PathLike[str] | Connection | Callable[[], Connection]) -> Callable[[], Connection]:
    if isinstance(database, str | os.PathLike):
        return lambda: sqlite_file(database)
    if hasattr(database, "cursor"):  # checked first, because a connection of sqlite3 can be called too
        return lambda: database  # type: ignore[return-value]
    return database  # type: ignore[return-value]
