"""Events come twice, late, out of order, on several threads and processes: each is handled, and nothing moves back."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esim_dealer import Event, Inbox, verify
from esim_dealer.inbox.dbapi import bind

from .conftest import APP_SECRET, event_body, event_headers

ORDER = "D251231120000000001"
OTHER = "D251231120000000002"


def event(
    event_type: str = "DELIVERY_UPDATED",
    *,
    order_no: str = ORDER,
    version: int = 3,
    delivery_id: str = "w-1",
    **changes,
) -> Event:
    """A verified event whose snapshot shows its version as orderId."""
    body = event_body(event_type, orderNo=order_no, orderId=version, **changes)
    return verify(event_headers(body, delivery_id=delivery_id, version=version), body, APP_SECRET)


def bare(event_type: str = "DELIVERY_UPDATED", *, order_id: int = 1) -> Event:
    """An event from a service without the additive headers."""
    body = event_body(event_type, orderId=order_id)
    headers = event_headers(body)
    for name in ("RT-Delivery-ID", "RT-Delivery-Attempt", "RT-Order-Version"):
        del headers[name]
    return verify(headers, body, APP_SECRET)


def handled(inbox: Inbox) -> list[Event]:
    taken: list[Event] = []
    assert inbox.process(taken.append) == len(taken)
    return taken


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "inbox.sqlite"


@pytest.fixture
def inbox(file: Path):
    with Inbox(file) as inbox:
        yield inbox


# One inbox


def test_an_event_is_new_once(inbox: Inbox):
    assert inbox.receive(event())
    assert not inbox.receive(event())
    assert [each.dedupe_key for each in handled(inbox)] == [(ORDER, "DELIVERY_UPDATED", "w-1")]
    assert handled(inbox) == []


def test_two_changes_of_one_order_are_two_events(inbox: Inbox):
    assert inbox.receive(event(version=3, delivery_id="w-1"))
    assert inbox.receive(event(version=4, delivery_id="w-2"))
    assert [each.delivery_id for each in handled(inbox)] == ["w-1", "w-2"]


def test_the_handler_gets_the_event_as_it_was_verified(inbox: Inbox):
    sent = event(remark="é")
    inbox.receive(sent)
    assert handled(inbox) == [sent]


def test_an_older_snapshot_never_overwrites_a_newer_one(inbox: Inbox):
    inbox.receive(event(version=5, delivery_id="w-2"))
    inbox.receive(event(version=4, delivery_id="w-1"))
    newest = inbox.order(ORDER)
    assert newest and newest.order_id == 5
    assert [(each.order_version, each.stale) for each in handled(inbox)] == [(5, False), (4, True)]


@pytest.mark.parametrize("event_type", ["ORDER_PAID", "REFUND_COMPLETED"])
def test_a_payment_or_refund_that_comes_late_is_still_handed_on_once(inbox: Inbox, event_type: str):
    inbox.receive(event(version=5, delivery_id="w-2"))
    for _ in range(2):
        inbox.receive(event(event_type, version=1, delivery_id="w-1"))
    assert [(each.event_type, each.stale) for each in handled(inbox)] == [
        ("DELIVERY_UPDATED", False),
        (event_type, True),
    ]


def test_an_order_that_never_came_is_none(inbox: Inbox):
    assert inbox.order(ORDER) is None
    assert inbox.last_received() is None


def test_the_last_event_has_its_time(file: Path):
    with Inbox(file, now=lambda: 1_767_225_600.5) as inbox:
        inbox.receive(event())
        assert inbox.last_received().isoformat() == "2026-01-01T00:00:00.500000+00:00"


def test_a_handler_that_raises_gets_the_event_again_and_holds_up_only_its_order(inbox: Inbox):
    for version, order_no in ((1, ORDER), (2, OTHER), (3, ORDER)):
        inbox.receive(event(order_no=order_no, version=version, delivery_id=f"w-{version}"))
    seen: list[str | None] = []

    def fails_once(each: Event) -> None:
        seen.append(each.delivery_id)
        if seen == ["w-1"]:
            raise RuntimeError("the shop's database is away")

    assert inbox.process(fails_once) == 1
    assert seen == ["w-1", "w-2"]
    assert inbox.process(fails_once) == 2
    assert seen == ["w-1", "w-2", "w-1", "w-3"]


def test_an_interrupted_handler_leaves_the_event(inbox: Inbox):
    inbox.receive(event())

    def interrupted(_: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inbox.process(interrupted)
    assert len(handled(inbox)) == 1


def test_a_handler_may_ask_the_inbox(inbox: Inbox):
    inbox.receive(event(version=7))
    seen: list[Any] = []
    inbox.process(lambda each: seen.append(inbox.order(each.snapshot.order_no)))
    assert seen[0].order_id == 7


def test_without_the_additive_headers_the_body_tells_events_apart_and_the_last_one_is_newest(inbox: Inbox):
    assert inbox.receive(bare(order_id=1))
    assert not inbox.receive(bare(order_id=1))
    assert inbox.receive(bare(order_id=2))
    assert inbox.order(ORDER).order_id == 2
    assert inbox.receive(bare("ORDER_PAID", order_id=3))
    assert inbox.order(ORDER).order_id == 2
    assert [each.delivery_id for each in handled(inbox)] == [None, None, None]


def test_the_file_keeps_everything(file: Path):
    with Inbox(file) as before:
        before.receive(event())
    with Inbox(file) as after:
        assert not after.receive(event())
        assert len(handled(after)) == 1
        assert after.order(ORDER).order_id == 3


def test_the_raw_body_is_stored_as_it_was_signed(inbox: Inbox, file: Path):
    sent = event(somethingNew={"é": [1.50, None]})
    inbox.receive(sent)
    with sqlite3.connect(file) as other:
        [(body,)] = other.execute("SELECT body FROM inbox_event").fetchall()
    other.close()
    assert body.encode() == sent.raw_body


def test_what_cannot_be_stored_is_not_received(tmp_path: Path):
    inbox = Inbox(tmp_path / "no such folder" / "inbox.sqlite")
    with pytest.raises(sqlite3.OperationalError):
        inbox.receive(event())


def test_a_closed_inbox_says_so(inbox: Inbox):
    inbox.close()
    with pytest.raises(ValueError, match="closed"):
        inbox.receive(event())


def test_keep_processing_handles_what_waits_what_comes_and_what_failed(inbox: Inbox):
    inbox.receive(event(version=1, delivery_id="w-1"))
    seen: list[str | None] = []
    enough = threading.Event()

    def handle(each: Event) -> None:
        seen.append(each.delivery_id)
        if seen.count("w-2") == 2:
            enough.set()
        elif each.delivery_id == "w-2":
            raise RuntimeError("not yet")

    worker = threading.Thread(target=inbox.keep_processing, args=(handle,), kwargs={"every_seconds": 0.05})
    worker.start()
    inbox.receive(event(version=2, delivery_id="w-2"))
    assert enough.wait(10)
    inbox.close()
    worker.join(10)
    assert not worker.is_alive()
    assert seen == ["w-1", "w-2", "w-2"]


# Whatever the sequence

EVENT = st.tuples(
    st.sampled_from([ORDER, OTHER]),
    st.sampled_from(["ORDER_PAID", "DELIVERY_UPDATED", "REFUND_COMPLETED"]),
    st.integers(1, 6),
    st.sampled_from(["w-1", "w-2", "w-3"]),
)


@settings(deadline=None)
@given(st.sets(EVENT, min_size=1, max_size=8), st.data())
def test_every_permutation_and_repetition_gives_the_same_snapshot_and_handles_each_once(
    events: set, data: st.DataObject
):
    # A delivery has one version: the first one drawn for it.
    deliveries = {(order, kind, name): version for order, kind, version, name in sorted(events)}
    sent = [
        event(kind, order_no=order, version=version, delivery_id=name, transactionId=f"{kind}-{name}")
        for (order, kind, name), version in deliveries.items()
    ]
    expected = final_snapshots(sent)
    order = data.draw(st.permutations(sent + data.draw(st.lists(st.sampled_from(sent), max_size=6))))
    pauses = data.draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))
    with Inbox(":memory:") as inbox:
        taken: list[Event] = []
        for each, process_now in zip(order, pauses, strict=True):
            inbox.receive(each)
            if process_now:
                inbox.process(taken.append)
        inbox.process(taken.append)
        assert Counter(each.dedupe_key for each in taken) == Counter(each.dedupe_key for each in sent)
        assert {order_no: inbox.order(order_no) for order_no in expected} == expected
    for order_no in expected:
        fresh = [each.order_version for each in taken if each.snapshot.order_no == order_no and not each.stale]
        assert fresh == sorted(fresh)
        assert max(fresh) == max(each.order_version for each in sent if each.snapshot.order_no == order_no)


def final_snapshots(sent: list[Event]) -> dict:
    """Of each order, what is left when the events come one by one in order of version, the payment first."""
    with Inbox(":memory:") as inbox:
        for each in sorted(sent, key=lambda each: (each.order_version, each.event_type != "ORDER_PAID")):
            inbox.receive(each)
        return {each.snapshot.order_no: inbox.order(each.snapshot.order_no) for each in sent}


def test_an_order_with_unlucky_names_still_ends_at_its_highest_version(inbox: Inbox):
    for version, delivery_id in ((10, "w-a"), (9, "w-z"), (2, "w-zz")):
        inbox.receive(event(version=version, delivery_id=delivery_id))
    assert inbox.order(ORDER).order_id == 10


# Several threads


@pytest.mark.parametrize("shared", [True, False], ids=["one inbox", "an inbox each"])
def test_threads_store_and_handle_each_event_once(file: Path, shared: bool):
    events = [
        event(order_no=order_no, version=version, delivery_id=f"w-{version}")
        for version in range(1, 9)
        for order_no in (ORDER, OTHER)
    ]
    one = Inbox(file)
    stored, taken = [], []

    def work(seed: int) -> None:
        inbox = one if shared else Inbox(file)
        for each in random.Random(seed).sample(events, len(events)):
            if inbox.receive(each):
                stored.append(each.dedupe_key)
            inbox.process(taken.append)
        if not shared:
            inbox.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    one.process(taken.append)
    assert Counter(stored) == Counter(each.dedupe_key for each in events)
    assert Counter(each.dedupe_key for each in taken) == Counter(stored)
    assert one.order(ORDER).order_id == one.order(OTHER).order_id == 8
    one.close()


def test_two_workers_never_hold_events_of_one_order_at_once(file: Path):
    with Inbox(file) as first, Inbox(file) as second:
        first.receive(event(version=1, delivery_id="w-1"))
        first.receive(event(version=2, delivery_id="w-2"))
        meanwhile: list[int] = []
        first_pass: list[str | None] = []

        def handle(each: Event) -> None:
            first_pass.append(each.delivery_id)
            meanwhile.append(second.process(lambda _: None))

        assert first.process(handle) == 2
        assert (first_pass, meanwhile) == (["w-1", "w-2"], [0, 0])


def test_an_event_whose_worker_vanished_is_handed_on_when_its_lease_ran_out(file: Path):
    now = [1_767_225_600.0]
    with Inbox(file, lease_seconds=60, now=lambda: now[0]) as inbox:
        inbox.receive(event())
        [waiting] = [inbox._first_waiting(0)]
        assert waiting and inbox._lease(waiting)  # and nothing more is heard of this worker
        now[0] += 59
        assert handled(inbox) == []
        now[0] += 2
        assert len(handled(inbox)) == 1


# Several processes

WORKER = """
import sys
from sdk.tests.test_inbox import worker
worker(*sys.argv[1:])
"""


def worker(file: str, told: str, seed: str) -> None:
    """Store 20 events of two orders in random order, and write down each that is handled."""
    events = [
        event(order_no=order_no, version=version, delivery_id=f"w-{version}")
        for version in range(1, 11)
        for order_no in (ORDER, OTHER)
    ]

    def write_down(each: Event) -> None:
        with Path(told).open("a") as out:
            out.write(f"{each.snapshot.order_no} {each.order_version} {each.stale}\n")

    with Inbox(file) as inbox:
        for each in random.Random(int(seed)).sample(events, len(events)):
            inbox.receive(each)
            inbox.process(write_down)


def start(text: str, *arguments: object) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.Popen(command, cwd=root, text=True, stdout=subprocess.PIPE)


def test_processes_share_a_file(file: Path, tmp_path: Path):
    told = tmp_path / "handled"
    processes = [start(WORKER, file, told, seed) for seed in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    for process in processes:
        process.communicate()
    with Inbox(file) as inbox:
        for each in handled(inbox):  # left where each process saw the other at work
            with told.open("a") as out:
                out.write(f"{each.snapshot.order_no} {each.order_version} {each.stale}\n")
        assert inbox.order(ORDER).order_id == inbox.order(OTHER).order_id == 10
    lines = [line.split() for line in told.read_text().splitlines()]
    assert Counter((order_no, version) for order_no, version, _ in lines) == Counter(
        (order_no, str(version)) for version in range(1, 11) for order_no in (ORDER, OTHER)
    )
    for order_no in (ORDER, OTHER):
        fresh = [int(version) for name, version, stale in lines if name == order_no and stale == "False"]
        assert fresh == sorted(fresh)


KILLED = """
import sys, time
from esim_dealer import Inbox
from sdk.tests.test_inbox import event
with Inbox(sys.argv[1], lease_seconds=0.3) as inbox:
    inbox.receive(event())
    def handle(event):
        print("handling", flush=True)
        time.sleep(60)
    inbox.process(handle)
"""


def test_a_process_killed_while_handling_loses_nothing(file: Path):
    killed = start(KILLED, file)
    assert killed.stdout and killed.stdout.readline() == "handling\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    with Inbox(file) as inbox:
        assert not inbox.receive(event())
        deadline = time.monotonic() + 10
        while not (taken := handled(inbox)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [each.delivery_id for each in taken] == ["w-1"]


# Other databases


class Adapter:
    """sqlite3 as a driver of another paramstyle would offer it."""

    def __init__(self, paramstyle: str) -> None:
        self.paramstyle = paramstyle
        self.connection = sqlite3.connect(":memory:", check_same_thread=False)
        self.commit, self.rollback, self.close = (
            self.connection.commit,
            self.connection.rollback,
            self.connection.close,
        )

    def cursor(self) -> "AdaptedCursor":
        return AdaptedCursor(self.connection.cursor(), self.paramstyle)


class AdaptedCursor:
    def __init__(self, cursor: sqlite3.Cursor, paramstyle: str) -> None:
        self._cursor = cursor
        self._paramstyle = paramstyle

    def execute(self, text: str, values: Any) -> None:
        match self._paramstyle:
            case "format":
                self._cursor.execute(text.replace("%s", "?"), values)
            case "pyformat":
                assert isinstance(values, dict)
                self._cursor.execute(text % {name: f":{name}" for name in values}, values)
            case "numeric":
                for number in range(len(values), 0, -1):
                    text = text.replace(f":{number}", f"?{number}")
                self._cursor.execute(text, values)
            case _:
                self._cursor.execute(text, values)

    def fetchall(self) -> list:
        return self._cursor.fetchall()

    @property
    def description(self) -> Any:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount


def store_and_handle(inbox: Inbox) -> None:
    assert inbox.receive(event(version=4, delivery_id="w-2", remark="é"))
    assert inbox.receive(event("ORDER_PAID", version=1, delivery_id="w-1"))
    assert not inbox.receive(event("ORDER_PAID", version=1, delivery_id="w-1"))
    assert [(each.event_type, each.stale) for each in handled(inbox)] == [
        ("DELIVERY_UPDATED", False),
        ("ORDER_PAID", True),
    ]
    assert handled(inbox) == []
    assert inbox.order(ORDER).order_id == 4


@pytest.mark.parametrize("paramstyle", ["qmark", "numeric", "named", "format", "pyformat"])
def test_any_paramstyle_will_do(paramstyle: str):
    assert bind("", {}, paramstyle)[0] == ""
    with Inbox(Adapter(paramstyle), paramstyle=paramstyle) as inbox:
        store_and_handle(inbox)


def test_an_open_connection_will_do(file: Path):
    with Inbox(sqlite3.connect(file, check_same_thread=False)) as inbox:
        store_and_handle(inbox)


def test_a_function_that_opens_connections_will_do(file: Path):
    with Inbox(lambda: sqlite3.connect(file, check_same_thread=False)) as inbox:
        store_and_handle(inbox)


def test_postgresql_will_do():
    """Runs where psycopg is installed and ESIM_DEALER_TEST_POSTGRES names a database to be used."""
    psycopg = pytest.importorskip("psycopg")
    where = os.environ.get("ESIM_DEALER_TEST_POSTGRES")
    if not where:
        pytest.skip("ESIM_DEALER_TEST_POSTGRES is not set")

    def connect() -> Any:
        return psycopg.connect(where)

    with connect() as connection:
        connection.execute("DROP TABLE IF EXISTS inbox_sequence, inbox_event, inbox_order, inbox_waiting")
    with Inbox(connect) as inbox:
        store_and_handle(inbox)
