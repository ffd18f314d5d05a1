"""Which events have come to a receiver, which are still to be handled, and how does each order stand?

    inbox = Inbox("webhooks.sqlite")
    inbox.receive(verify(headers, raw_body, app_secret))  # stored for good: answer 200 now
    inbox.process(handle)                                 # afterwards, in a thread or process of its own

Specification 6.5 rules 2 to 4: each event once, no older snapshot over a newer one, work after the answer.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from esim_dealer.dbapi import Connection, Database, Statements, sqlite_file
from esim_dealer.decoding import decode
from esim_dealer.webhook import Event
from esim_dealer.wire.snapshot import Snapshot

log = logging.getLogger("esim_dealer")

Handle = Callable[[Event], object]

_OF_BODY = "sha256:"  # begins the delivery id of an event that came without one

SCHEMA = (
    # One row. Whoever changes it has the floor: events are numbered in the order in which they are stored.
    "CREATE TABLE IF NOT EXISTS inbox_sequence (id INTEGER PRIMARY KEY, last BIGINT NOT NULL)",
    # Each event once, with the body as it was signed.
    """CREATE TABLE IF NOT EXISTS inbox_event (
        seq BIGINT PRIMARY KEY,
        order_no VARCHAR(64) NOT NULL,
        event_type VARCHAR(64) NOT NULL,
        delivery_id VARCHAR(128) NOT NULL,
        attempt BIGINT,
        order_version BIGINT,
        is_test INTEGER NOT NULL,
        request_id VARCHAR(128) NOT NULL,
        stale INTEGER NOT NULL,
        received_ms BIGINT NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (order_no, event_type, delivery_id)
    )""",
    # Which event holds the newest snapshot of an order.
    "CREATE TABLE IF NOT EXISTS inbox_order (order_no VARCHAR(64) PRIMARY KEY, newest BIGINT NOT NULL)",
    # The events not handled yet. Somebody handles one until its lease runs out.
    """CREATE TABLE IF NOT EXISTS inbox_waiting (
        seq BIGINT PRIMARY KEY, order_no VARCHAR(64) NOT NULL, leased_until_ms BIGINT NOT NULL
    )""",
    "INSERT INTO inbox_sequence (id, last) SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM inbox_sequence)",
)


class Inbox:
    """The events of a dealer, kept in a SQLite file or in four tables `inbox_...` of any DB-API 2 database.

    `database` is the path of a SQLite file; a function that opens a connection, called when first needed and again
    after a connection broke; or an open connection that is used for nothing else, as each call commits. Connections
    must not be in autocommit mode. `paramstyle` is that of the connection's module unless given (PEP 249). The tables
    are made where they are missing.

    Threads may share an Inbox; processes make one each, of the same file or database, and none is opened before it is
    used, so a server may fork in between. Nothing is ever deleted.
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | Connection | Callable[[], Connection],
        *,
        paramstyle: str | None = None,
        lease_seconds: float = 60.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`lease_seconds`: how long one event may be worked on before it is handed to another worker as well."""
        self._database = Database(_opening(database), paramstyle)
        self._lease_ms = int(lease_seconds * 1000)
        self._now = now
        self._prepared = False
        self._preparing = threading.Lock()
        self._news = threading.Event()
        self._closed = threading.Event()

    def __enter__(self) -> "Inbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and end `keep_processing`. An event under way will be handed on again."""
        self._closed.set()
        self._news.set()
        self._database.close()

    def receive(self, event: Event) -> bool:
        """Store a verified event; it is safe on the disk when this returns, so answer 200 then.

        True: it is new. False: a repetition, of which nothing is stored. Raises the database's error where it could
        not be stored: answer 500, and the service sends it again.
        """
        self._prepare()
        with self._database.transaction() as sql:
            seq = _next_number(sql)
            if _is_known(sql, event):
                return False
            newest = _newest(sql, event.snapshot.order_no)
            _store(sql, seq, event, stale=_is_stale(event, newest), received_ms=self._now_ms())
            _keep_newest(sql, seq, event, newest)
        self._news.set()
        return True

    def process(self, handle: Handle) -> int:
        """Hand each event not handled yet to `handle`; how many it took.

        At least once each: an event is marked after `handle` has returned for it. The events of one order are handed
        on one after the other in order of arrival, also where several threads or processes process at the same time;
        those without `stale` have rising versions. An event on which `handle` raises is logged and stays for the next
        time, together with the later ones of its order; other orders go on.
        """
        self._prepare()
        taken, after = 0, 0
        blocked: set[str] = set()
        while (waiting := self._first_waiting(after)) is not None and not self._closed.is_set():
            after = waiting.seq
            if waiting.order_no in blocked:
                continue
            if self._hand_on(waiting, handle):
                taken += 1
            else:
                blocked.add(waiting.order_no)
        return taken

    def keep_processing(self, handle: Handle, *, every_seconds: float = 10.0) -> None:
        """`process` at once, after each event that this Inbox receives, and every so often; until `close`.

        The last is for events that failed before and for those that another process received. Run it in a thread:
        `Thread(target=inbox.keep_processing, args=(handle,), daemon=True).start()`.
        """
        while not self._closed.is_set():
            self._news.clear()
            try:
                self.process(handle)
            except Exception:  # the database is away for a moment
                if not self._closed.is_set():
                    log.exception("stored events could not be processed; next try in %g s", every_seconds)
            if not self._closed.is_set():
                self._news.wait(every_seconds)

    def order(self, order_no: str) -> Snapshot | None:
        """The newest snapshot of that order; None where no event of it has come."""
        self._prepare()
        with self._database.transaction() as sql:
            found = sql.rows(
                "SELECT e.body FROM inbox_order o JOIN inbox_event e ON e.seq = o.newest WHERE o.order_no = :order_no",
                order_no=order_no,
            )
        return decode(found[0][0].encode(), Snapshot) if found else None

    def last_received(self) -> datetime | None:
        """When the last new event came."""
        self._prepare()
        with self._database.transaction() as sql:
            found = sql.rows("SELECT received_ms FROM inbox_event WHERE seq = (SELECT MAX(seq) FROM inbox_event)")
        return datetime.fromtimestamp(found[0][0] / 1000, UTC) if found else None

    def _first_waiting(self, after: int) -> "_Waiting | None":
        with self._database.transaction() as sql:
            found = sql.rows(
                "SELECT seq, order_no, leased_until_ms FROM inbox_waiting"
                " WHERE seq = (SELECT MIN(seq) FROM inbox_waiting WHERE seq > :after)",
                after=after,
            )
        return _Waiting(*found[0]) if found else None

    def _hand_on(self, waiting: "_Waiting", handle: Handle) -> bool:
        """Whether the event was handled, and by us."""
        lease = self._lease(waiting)
        if lease is None:
            return False
        try:
            handle(lease.event)
        except BaseException as error:
            self._give_back(lease)
            if not isinstance(error, Exception):
                raise
            log.exception("%s was not handled and stays for the next time", lease.event.dedupe_key)
            return False
        with self._database.transaction() as sql:
            sql.change("DELETE FROM inbox_waiting WHERE seq = :seq", seq=lease.seq)
        return True

    def _lease(self, waiting: "_Waiting") -> "_Lease | None":
        """The event, ours until the lease runs out; None where another worker has it or has just handled it."""
        now_ms = self._now_ms()
        if waiting.leased_until_ms > now_ms:
            return None
        until_ms = now_ms + self._lease_ms
        with self._database.transaction() as sql:
            ours = sql.change(
                "UPDATE inbox_waiting SET leased_until_ms = :until_ms WHERE seq = :seq AND leased_until_ms <= :now_ms",
                until_ms=until_ms,
                seq=waiting.seq,
                now_ms=now_ms,
            )
            return _Lease(waiting.seq, until_ms, _event(sql, waiting.seq)) if ours else None

    def _give_back(self, lease: "_Lease") -> None:
        """End our lease, unless it ran out and the event is another's by now."""
        with self._database.transaction() as sql:
            sql.change(
                "UPDATE inbox_waiting SET leased_until_ms = 0 WHERE seq = :seq AND leased_until_ms = :until_ms",
                seq=lease.seq,
                until_ms=lease.until_ms,
            )

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _prepare(self) -> None:
        """Make the tables where they are missing."""
        with self._preparing:
            if self._prepared or self._has_tables():
                self._prepared = True
                return
            try:
                with self._database.transaction() as sql:
                    for statement in SCHEMA:
                        sql.change(statement)
            except Exception:
                if not self._has_tables():  # else another process was faster
                    raise
            self._prepared = True

    def _has_tables(self) -> bool:
        try:
            with self._database.transaction() as sql:
                return bool(sql.rows("SELECT last FROM inbox_sequence"))
        except Exception:  # "no such table" has another class in each driver
            return False


class _Waiting(NamedTuple):
    seq: int
    order_no: str
    leased_until_ms: int


class _Lease(NamedTuple):
    seq: int
    until_ms: int
    event: Event


class _Newest(NamedTuple):
    """Of the event that holds an order's newest snapshot: what decides whether another takes its place."""

    order_version: int | None
    event_type: str
    delivery_id: str


def _opening(database: str | os.PathLike[str] | Connection | Callable[[], Connection]) -> Callable[[], Connection]:
    if isinstance(database, str | os.PathLike):
        return lambda: sqlite_file(database)
    if hasattr(database, "cursor"):  # asked first, as a connection of sqlite3 can be called too
        return lambda: database  # type: ignore[return-value]
    return database  # type: ignore[return-value]


def _delivery_id(event: Event) -> str:
    """RT-Delivery-ID, the third part of the key. Where it is absent the body stands in, which repetitions repeat."""
    return event.delivery_id or _OF_BODY + sha256(event.raw_body).hexdigest()


def _is_stale(event: Event, newest: _Newest | None) -> bool:
    return newest is not None and (event.order_version or 0) < (newest.order_version or 0)


def _rank(newest: _Newest) -> tuple[int, bool, str, str]:
    """The greater of two is the newer snapshot, in whichever order they come; of equal ones the later to come.

    Of one version, ORDER_PAID is the poorer one: it has no profiles. The rest only makes the choice the same each time.
    """
    richer = newest.event_type != "ORDER_PAID"
    if newest.order_version is None:
        return 0, richer, "", ""
    return newest.order_version, richer, newest.event_type, newest.delivery_id


# Statements


def _next_number(sql: Statements) -> int:
    """The next event's number. Others that store wait from here until we commit."""
    sql.change("UPDATE inbox_sequence SET last = last + 1")
    return sql.rows("SELECT last FROM inbox_sequence")[0][0]


def _is_known(sql: Statements, event: Event) -> bool:
    return bool(
        sql.rows(
            "SELECT seq FROM inbox_event"
            " WHERE order_no = :order_no AND event_type = :event_type AND delivery_id = :delivery_id",
            order_no=event.snapshot.order_no,
            event_type=event.event_type,
            delivery_id=_delivery_id(event),
        )
    )


def _newest(sql: Statements, order_no: str) -> _Newest | None:
    found = sql.rows(
        "SELECT e.order_version, e.event_type, e.delivery_id"
        " FROM inbox_order o JOIN inbox_event e ON e.seq = o.newest WHERE o.order_no = :order_no",
        order_no=order_no,
    )
    return _Newest(*found[0]) if found else None


def _store(sql: Statements, seq: int, event: Event, *, stale: bool, received_ms: int) -> None:
    """Store the event, waiting to be handled."""
    sql.change(
        "INSERT INTO inbox_event (seq, order_no, event_type, delivery_id, attempt, order_version, is_test,"
        " request_id, stale, received_ms, body) VALUES (:seq, :order_no, :event_type, :delivery_id, :attempt,"
        " :order_version, :is_test, :request_id, :stale, :received_ms, :body)",
        seq=seq,
        order_no=event.snapshot.order_no,
        event_type=event.event_type,
        delivery_id=_delivery_id(event),
        attempt=event.attempt,
        order_version=event.order_version,
        is_test=int(event.is_test),
        request_id=event.request_id,
        stale=int(stale),
        received_ms=received_ms,
        body=event.raw_body.decode(),
    )
    sql.change(
        "INSERT INTO inbox_waiting (seq, order_no, leased_until_ms) VALUES (:seq, :order_no, 0)",
        seq=seq,
        order_no=event.snapshot.order_no,
    )


def _keep_newest(sql: Statements, seq: int, event: Event, newest: _Newest | None) -> None:
    """Let the event's snapshot take the place of the order's newest one, if it is newer."""
    order_no = event.snapshot.order_no
    if newest is None:
        sql.change("INSERT INTO inbox_order (order_no, newest) VALUES (:order_no, :seq)", order_no=order_no, seq=seq)
    elif _rank(_Newest(event.order_version, event.event_type, _delivery_id(event))) >= _rank(newest):
        sql.change("UPDATE inbox_order SET newest = :seq WHERE order_no = :order_no", seq=seq, order_no=order_no)


def _event(sql: Statements, seq: int) -> Event:
    [(body, delivery_id, attempt, order_version, is_test, request_id, stale)] = sql.rows(
        "SELECT body, delivery_id, attempt, order_version, is_test, request_id, stale"
        " FROM inbox_event WHERE seq = :seq",
        seq=seq,
    )
    return Event.read(
        body.encode(),
        delivery_id=None if delivery_id.startswith(_OF_BODY) else delivery_id,
        attempt=attempt,
        order_version=order_version,
        is_test=bool(is_test),
        request_id=request_id,
        stale=bool(stale),
    )
