"""What does the inbox store, and by which SQL? Four tables; every statement runs on any DB-API 2 database."""

from hashlib import sha256
from typing import NamedTuple

from esim_dealer.inbox.dbapi import Statements
from esim_dealer.webhook import Event

_BODY_DIGEST = "sha256:"  # begins the delivery id of an event that came without one

SCHEMA = (
    # One row. A transaction that changes it holds the lock: events are numbered in the order in which they are stored.
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
    # The event that holds the newest snapshot of an order.
    "CREATE TABLE IF NOT EXISTS inbox_order (order_no VARCHAR(64) PRIMARY KEY, newest BIGINT NOT NULL)",
    # The events not handled yet. A worker that handles one leases it.
    """CREATE TABLE IF NOT EXISTS inbox_waiting (
        seq BIGINT PRIMARY KEY, order_no VARCHAR(64) NOT NULL, leased_until_ms BIGINT NOT NULL
    )""",
    "INSERT INTO inbox_sequence (id, last) SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM inbox_sequence)",
)


class Waiting(NamedTuple):
    """An event that is not handled yet."""

    seq: int
    order_no: str
    leased_until_ms: int


class NewestSnapshot(NamedTuple):
    """The event that holds an order's newest snapshot: what decides whether another replaces it."""

    order_version: int | None
    event_type: str
    delivery_id: str


def create_tables(sql: Statements) -> None:
    for statement in SCHEMA:
        sql.change(statement)


def has_tables(sql: Statements) -> bool:
    """Raises the driver's error where they are missing."""
    return bool(sql.rows("SELECT last FROM inbox_sequence"))


def next_number(sql: Statements) -> int:
    """The next event's number. Other transactions that store an event wait from here until this one commits."""
    sql.change("UPDATE inbox_sequence SET last = last + 1")
    [sequence] = sql.rows("SELECT last FROM inbox_sequence")
    return sequence["last"]


def is_known(sql: Statements, event: Event) -> bool:
    return bool(
        sql.rows(
            "SELECT seq FROM inbox_event"
            " WHERE order_no = :order_no AND event_type = :event_type AND delivery_id = :delivery_id",
            order_no=event.snapshot.order_no,
            event_type=event.event_type,
            delivery_id=_delivery_id(event),
        )
    )


def store(sql: Statements, seq: int, event: Event, *, received_ms: int) -> None:
    """Stores a new event, to be handled, and its snapshot as the order's newest where it is."""
    order_no = event.snapshot.order_no
    newest = _newest(sql, order_no)
    sql.change(
        "INSERT INTO inbox_event (seq, order_no, event_type, delivery_id, attempt, order_version, is_test,"
        " request_id, stale, received_ms, body) VALUES (:seq, :order_no, :event_type, :delivery_id, :attempt,"
        " :order_version, :is_test, :request_id, :stale, :received_ms, :body)",
        seq=seq,
        order_no=order_no,
        event_type=event.event_type,
        delivery_id=_delivery_id(event),
        attempt=event.attempt,
        order_version=event.order_version,
        is_test=int(event.is_test),
        request_id=event.request_id,
        stale=int(_is_stale(event, newest)),
        received_ms=received_ms,
        body=event.raw_body.decode(),
    )
    sql.change(
        "INSERT INTO inbox_waiting (seq, order_no, leased_until_ms) VALUES (:seq, :order_no, 0)",
        seq=seq,
        order_no=order_no,
    )
    offered = NewestSnapshot(event.order_version, event.event_type, _delivery_id(event))
    if newest is None:
        sql.change("INSERT INTO inbox_order (order_no, newest) VALUES (:order_no, :seq)", order_no=order_no, seq=seq)
    elif _rank(offered) >= _rank(newest):
        sql.change("UPDATE inbox_order SET newest = :seq WHERE order_no = :order_no", seq=seq, order_no=order_no)


def newest_body(sql: Statements, order_no: str) -> bytes | None:
    """The newest snapshot of an order, as it was signed."""
    bodies = sql.rows(
        "SELECT e.body AS body FROM inbox_order o JOIN inbox_event e ON e.seq = o.newest WHERE o.order_no = :order_no",
        order_no=order_no,
    )
    return bodies[0]["body"].encode() if bodies else None


def last_received_ms(sql: Statements) -> int | None:
    """When the last new event came, in milliseconds since the epoch."""
    events = sql.rows("SELECT received_ms FROM inbox_event WHERE seq = (SELECT MAX(seq) FROM inbox_event)")
    return events[0]["received_ms"] if events else None


def first_waiting(sql: Statements, after: int) -> Waiting | None:
    """The first event not handled yet whose number is greater than `after`."""
    events = sql.rows(
        "SELECT seq, order_no, leased_until_ms FROM inbox_waiting"
        " WHERE seq = (SELECT MIN(seq) FROM inbox_waiting WHERE seq > :after)",
        after=after,
    )
    return Waiting(**events[0]) if events else None


def lease(sql: Statements, seq: int, *, now_ms: int, until_ms: int) -> Event | None:
    """The event, leased until then; None where another worker has leased or handled it."""
    leased = sql.change(
        "UPDATE inbox_waiting SET leased_until_ms = :until_ms WHERE seq = :seq AND leased_until_ms <= :now_ms",
        until_ms=until_ms,
        seq=seq,
        now_ms=now_ms,
    )
    return _event(sql, seq) if leased else None


def end_lease(sql: Statements, seq: int, until_ms: int) -> None:
    """Ends this lease, unless it ran out and another worker has leased the event since."""
    sql.change(
        "UPDATE inbox_waiting SET leased_until_ms = 0 WHERE seq = :seq AND leased_until_ms = :until_ms",
        seq=seq,
        until_ms=until_ms,
    )


def mark_handled(sql: Statements, seq: int) -> None:
    sql.change("DELETE FROM inbox_waiting WHERE seq = :seq", seq=seq)


def _newest(sql: Statements, order_no: str) -> NewestSnapshot | None:
    events = sql.rows(
        "SELECT e.order_version AS order_version, e.event_type AS event_type, e.delivery_id AS delivery_id"
        " FROM inbox_order o JOIN inbox_event e ON e.seq = o.newest WHERE o.order_no = :order_no",
        order_no=order_no,
    )
    return NewestSnapshot(**events[0]) if events else None


def _event(sql: Statements, seq: int) -> Event:
    [stored] = sql.rows(
        "SELECT body, delivery_id, attempt, order_version, is_test, request_id, stale"
        " FROM inbox_event WHERE seq = :seq",
        seq=seq,
    )
    delivery_id = stored["delivery_id"]
    return Event.read(
        stored["body"].encode(),
        delivery_id=None if delivery_id.startswith(_BODY_DIGEST) else delivery_id,
        attempt=stored["attempt"],
        order_version=stored["order_version"],
        is_test=bool(stored["is_test"]),
        request_id=stored["request_id"],
        stale=bool(stored["stale"]),
    )


def _delivery_id(event: Event) -> str:
    """RT-Delivery-ID, the third part of the key; where it is absent a digest of the body, which repetitions repeat."""
    return event.delivery_id or _BODY_DIGEST + sha256(event.raw_body).hexdigest()


def _is_stale(event: Event, newest: NewestSnapshot | None) -> bool:
    return newest is not None and (event.order_version or 0) < (newest.order_version or 0)


def _rank(newest: NewestSnapshot) -> tuple[int, bool, str, str]:
    """The greater of two is the newer snapshot, in whichever order they come; of equal ones the later to come.

    Of one version, ORDER_PAID has less to say: it has no profiles. The rest only makes the choice the same each time.
    """
    has_profiles = newest.event_type != "ORDER_PAID"
    if newest.order_version is None:
        return 0, has_profiles, "", ""
    return newest.order_version, has_profiles, newest.event_type, newest.delivery_id
