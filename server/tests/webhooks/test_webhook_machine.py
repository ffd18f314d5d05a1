"""Random changes, answers, crashes and waits, in any order: every dealer receives the last state of its orders.

hypothesis chooses the steps; PostgreSQL and the receivers are real. A worker dies when its connections to the database
are cut after so many messages. As with kill -9, PostgreSQL still executes what was sent before.
"""

import asyncio
import itertools
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.session import Session
from dealer_server.operations.audit.check_invariants import Scope, check_invariants
from dealer_server.operations.webhooks import endpoint
from dealer_server.rules.orders import snapshot
from dealer_server.rules.refusal import StatusForbids
from dealer_server.rules.webhooks.change_hints import change_hints, comparable
from dealer_server.store.webhooks import resend as webhook_resend
from dealer_server.webhooks.loop import Deliverer
from esim_dealer.wire.calls import ResendDelivery, SetWebhook
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.snapshot import Snapshot
from support.webhook_fixture import (
    LOOPBACK,
    OK,
    PATIENCE,
    Dealer,
    Receiver,
    Request,
    StillClock,
    WebhookFixture,
    answer,
    deliver_all,
    hang_until_left,
    listening,
    webhook_fixture,
)

SCHEDULE = (0, 5, 30, 120, 600, 3_600, 21_600, 86_400)
DEADLINE_SECONDS = 0.1  # of an attempt, while receivers misbehave
LONGER_THAN_ANY_WAIT = 100_000
LEASE_SECONDS = 60
FINISHED = ("DELIVERED", "FAILED", "SUPERSEDED", "SKIPPED")
WEBHOOK_INVARIANTS = {"A13", "A14", "A15", "A16", "A20"}  # orders of the fixture have no ledger entries

Attempts = Mapping[tuple[int, int], tuple[str | None, int | None]]  # delivery_id, number: error, http_status

# What a receiver may do, and what the worker then records. With so short a deadline any answer may come too late.
RECORDED = {
    "accept": (None, 200),
    "accept and close": (None, 200),
    "fail": ("STATUS", 500),
    "ask to wait": ("STATUS", 503),
    "gone": ("GONE", 410),
    "hang": ("TIMEOUT", None),
    "reset": ("RESET", None),
}
NO_ANSWER_RECORDED = {("LOST", None), ("STOPPED", None), ("TIMEOUT", None)}  # whatever the receiver did


class Proxy:
    """A worker's proxy to the database. `cut` closes all connections, as the death of the worker does."""

    def __init__(self, url: str, folder: str):
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        [far_folder], [port] = query["host"], query["port"]
        self.url = urlunsplit(parts._replace(query=urlencode({"host": folder, "port": port})))
        self._near_path, self._far_path = (str(Path(one) / f".s.PGSQL.{port}") for one in (folder, far_folder))
        self._clients: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self._left: int | None = None
        self.severed = asyncio.Event()
        self.ran_out = False

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._carry, self._near_path)

    def cut_after(self, messages: int) -> None:
        """Cuts the connections after so many more messages to the database, before the answer is returned."""
        self._left = messages

    async def cut(self) -> None:
        """Returns once PostgreSQL has ended every session: its transactions are committed or rolled back."""
        self._sever()
        if self._carrying:
            async with asyncio.timeout(PATIENCE):
                await asyncio.wait(self._carrying)

    def _sever(self) -> None:
        assert self._server is not None
        self._server.close()
        self.severed.set()
        for one in self._clients:
            one.transport.abort()

    async def _carry(self, near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        self._clients.add(near)
        try:
            far_reader, far = await asyncio.open_unix_connection(self._far_path)
            back = asyncio.create_task(self._carry_back(far_reader, near))
            with suppress(ConnectionError):
                while not self.severed.is_set() and (data := await near_reader.read(65_536)):
                    far.write(data)
                    self._count()
            with suppress(OSError):
                far.write_eof()
            await back
            far.close()
        finally:
            self._clients.discard(near)
            self._carrying.discard(task)

    async def _carry_back(self, far_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await far_reader.read(65_536):
                if not near.transport.is_closing():
                    near.write(data)
        near.close()  # a session that is closed in good order waits for the database to hang up

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left <= 0 and not self.severed.is_set():
                self.ran_out = True
                self._sever()


class Worker:
    """A worker that may die at any message to its database."""

    def __init__(self, proxy: Proxy, deliverer: Deliverer, stack: AsyncExitStack):
        self.proxy = proxy
        self.deliverer = deliverer
        self._stack = stack

    @classmethod
    async def begin(cls, webhooks: WebhookFixture, **options: Any) -> "Worker":
        async with AsyncExitStack() as stack:
            proxy = Proxy(webhooks.database.dsn, stack.enter_context(tempfile.TemporaryDirectory(prefix="proxy")))
            await proxy.open()
            stack.push_async_callback(proxy.cut)
            own = replace(webhooks, database=Database(proxy.url, webhooks.database._pool))
            deliverer = await stack.enter_async_context(own.deliverer(schedule=SCHEDULE, stop_seconds=0.5, **options))
            return cls(proxy, deliverer, stack.pop_all())

    async def deliver(self) -> None:
        with suppress(asyncpg.UniqueViolationError):  # another worker claimed the same order; the loop would try again
            await deliver_all(self.deliverer)
        await self.deliverer.settle()  # updates that are not sent because nothing changed

    async def upkeep(self) -> None:
        await self.deliverer.upkeep.step()
        await self.deliverer.settle()

    async def deliver_and_die(self, messages: int) -> None:
        """Delivers, and is killed after so many messages to the database, at the end at the latest."""
        self.proxy.cut_after(messages)
        delivering = asyncio.create_task(self.deliver())
        severed = asyncio.create_task(self.proxy.severed.wait())
        await asyncio.wait([delivering, severed], return_when=asyncio.FIRST_COMPLETED)
        await self.proxy.cut()
        severed.cancel()
        while not delivering.done() or self.deliverer.tasks:
            delivering.cancel()
            self.deliverer.tasks.cancel()
            await asyncio.sleep(0)
        with suppress(asyncio.CancelledError, DatabaseLost):
            await delivering
        await self.end()

    async def end(self) -> None:
        await self._stack.aclose()


@dataclass
class Listener:
    """A dealer, its receiver, and its answer to each attempt."""

    dealer: Dealer
    receiver: Receiver
    next_answers: deque[str] = field(default_factory=deque)
    default_answer: str = "accept"
    answered: dict[tuple[int, int], str] = field(default_factory=dict)
    under_way: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.receiver.answers = [self.answer]

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> bytes | None:
        order_id, key = request.json["orderId"], attempt_of(request)
        if order_id in self.under_way:
            self.faults.append(f"two requests of order {order_id} at a time: {key}")
        if key in self.answered:
            self.faults.append(f"attempt {key} came twice")
        answer_name = self.answered[key] = self.next_answers.popleft() if self.next_answers else self.default_answer
        self.under_way.add(order_id)
        try:
            return await self._act(answer_name, request, writer)
        finally:
            self.under_way.discard(order_id)

    async def _act(self, answer_name: str, request: Request, writer: asyncio.StreamWriter) -> bytes | None:
        if answer_name == "hang":
            await hang_until_left(request, writer)
            return None
        if answer_name == "reset":
            writer.transport.abort()
            return None
        return {
            "accept": OK,
            "accept and close": answer(200, "Connection: close"),
            "fail": answer(500),
            "ask to wait": answer(503, "Retry-After: 60"),
            "gone": answer(410),
        }[answer_name]


def attempt_of(request: Request) -> tuple[int, int]:
    return int(request.headers["rt-delivery-id"]), request.number


def version_of(request: Request) -> int:
    return int(request.headers["rt-order-version"])


def snapshot_of(request: Request) -> Snapshot:
    return msgspec.json.decode(request.body, type=Snapshot)


@dataclass
class Scenario:
    """Two dealers with their orders, two workers, and what was observed after each step."""

    webhooks: WebhookFixture
    session: Session
    listeners: Sequence[Listener]
    workers: list[Worker] = field(default_factory=list)
    orders: list[tuple[Listener, int]] = field(default_factory=list)
    with_codes: set[int] = field(default_factory=set)
    resent: Counter[int] = field(default_factory=Counter)
    frozen: dict[int, tuple[bytes, Sequence[str]]] = field(default_factory=dict)
    baselines: dict[int, int] = field(default_factory=dict)  # order_id: the highest version that was delivered
    attempt_seconds: float = DEADLINE_SECONDS

    async def begin_worker(self) -> Worker:
        return await Worker.begin(self.webhooks, total_seconds=self.attempt_seconds)

    async def place(self, number: int) -> None:
        listener = self.listeners[number]
        self.orders.append((listener, await self.webhooks.order(listener.dealer)))

    async def change(self, number: int, what: str, value: int) -> None:
        """The first change of an order gives it its codes."""
        listener, order_id = self.orders[number % len(self.orders)]
        webhooks, dealer = self.webhooks, listener.dealer
        if order_id not in self.with_codes:
            self.with_codes.add(order_id)
            await webhooks.allocate(dealer, order_id)
        elif what == "usage":
            await webhooks.use(dealer, order_id, value)
        elif what == "state":
            await webhooks.change(dealer, order_id, order_status=("COMPLETED", "REFUNDING")[value % 2])
        elif what == "refund":
            await webhooks.change(
                dealer, order_id, refund_amount=value * 100, pay_status=("PAID", "REFUNDED")[value % 2]
            )
        else:
            await webhooks.change(dealer, order_id, remark=f"not shown {value}")

    def set_answers(self, answers: Sequence[str]) -> None:
        """Sets the next answers of both receivers; then they accept."""
        for listener in self.listeners:
            listener.next_answers = deque(answers)
            listener.default_answer = "accept"

    async def pass_time(self, seconds: float) -> None:
        """Attempts end first: none lasts longer than 10 s, a sixth of its lease."""
        if seconds > LEASE_SECONDS / 2:
            for worker in self.workers:
                await worker.deliverer.settle()
        self.webhooks.clock.advance(seconds)

    async def set_url_again(self, number: int) -> None:
        webhooks, listener = self.webhooks, self.listeners[number]
        call = SetWebhook(callback_url=listener.receiver.url)
        await endpoint.set_webhook(webhooks.database, LOOPBACK, listener.dealer.tenant_id, call, webhooks.clock())

    async def resend(self, number: int) -> None:
        """Resends one of all deliveries, in any state, if its dealer's endpoint is enabled."""
        webhooks, listener = self.webhooks, self.listeners[number % 2]
        rows = await webhooks.deliveries(listener.dealer)
        delivery_id = rows[number % len(rows)]["delivery_id"]
        call = ResendDelivery(delivery_id=str(delivery_id))
        with suppress(StatusForbids):
            await endpoint.resend(webhooks.database, listener.dealer.tenant_id, call, webhooks.clock())
            self.resent[delivery_id] += 1

    async def sync(self, number: int) -> None:
        """Sends an order's current snapshot."""
        listener, order_id = self.orders[number % len(self.orders)]
        async with self.webhooks.database.transaction() as connection:
            await webhook_resend.sync(connection, listener.dealer.tenant_id, [order_id], self.webhooks.clock())

    async def kill(self, number: int, messages: int) -> Worker:
        """Kills a worker and starts another in its place; returns the dead one."""
        dead = self.workers[number]
        await dead.deliver_and_die(messages)
        self.workers[number] = await self.begin_worker()
        return dead

    # What must hold

    async def check(self) -> None:
        """After each step: what is frozen stays, no baseline moves back, no delivery has too many attempts."""
        for listener in self.listeners:
            assert listener.faults == []
        rows, baselines = await self._observe()
        for order_id, version in self.baselines.items():
            assert baselines[order_id] >= version, "a baseline moved back"
        self.baselines = baselines
        for row in rows:
            assert row["attempt_count"] <= len(SCHEDULE) + self.resent[row["delivery_id"]]
            if row["body"] is not None:
                now = (row["body"], row["hints"])
                assert self.frozen.setdefault(row["delivery_id"], now) == now, "a frozen delivery changed"

    async def recover(self) -> None:
        """Both receivers accept, and time passes until there is nothing more to send."""
        for worker in self.workers:
            await worker.deliverer.settle()
        self.set_answers(())
        for number, listener in enumerate(self.listeners):
            if (await self.webhooks.endpoint(listener.dealer)).state != "ACTIVE":
                await self.set_url_again(number)
        worker = await Worker.begin(self.webhooks, total_seconds=PATIENCE)
        try:
            for _ in range(20):
                await worker.upkeep()
                await worker.deliver()
                if not await self._unfinished():
                    return
                await self.pass_time(LONGER_THAN_ANY_WAIT)
            raise AssertionError(f"still unfinished: {await self._unfinished()}")
        finally:
            await worker.end()

    async def check_all(self, *, changed_since: bool) -> None:
        """After recovery: every dealer has received the last state of each of its orders, by events in their order.

        After a resend the last event received may be an older one, unless the order changed since (`changed_since`).
        """
        await self.check()
        for listener in self.listeners:
            attempts = {
                (row["delivery_id"], row["number"]): (row["error"], row["http_status"])
                for row in await self.webhooks.attempts(listener.dealer)
            }
            self._attempts_match_the_answers(listener, attempts)
            await self._contents_stay_frozen(listener)
            received = defaultdict(list)
            for request in listener.receiver.requests:
                assert request.verified(listener.dealer.secret)
                received[request.json["orderId"]].append(request)
            for order_id in (order_id for owner, order_id in self.orders if owner is listener):
                deliveries = await self.webhooks.deliveries(listener.dealer, order_id)
                repeated = any(self.resent[row["delivery_id"]] for row in deliveries)
                last = self._arrived_in_order(received[order_id], attempts, repeated)
                self._undelivered_for_a_reason(listener, deliveries, attempts)
                if any(_arrived(row) for row in _newest(deliveries)) and (changed_since or not repeated):
                    assert last is not None and comparable(last) == await self._snapshot_now(listener.dealer, order_id)

    async def check_newest(self) -> None:
        """After a change of every order and recovery: the newest update of each is delivered, the audit is clean."""
        for listener, order_id in self.orders:
            deliveries = await self.webhooks.deliveries(listener.dealer, order_id)
            assert any(_arrived(row) for row in _newest(deliveries)), [row["state"] for row in deliveries]
        for listener in self.listeners:
            await self._audit(listener.dealer)

    def _attempts_match_the_answers(self, listener: Listener, attempts: Attempts) -> None:
        """Every request is recorded, with its answer or as unanswered; no other attempt is a success."""
        assert listener.answered.keys() <= attempts.keys()
        for key, (error, status) in attempts.items():
            if key not in listener.answered:
                assert (error, status) in NO_ANSWER_RECORDED, key
                continue
            answer_name = listener.answered[key]
            late = ("TIMEOUT", RECORDED[answer_name][1])  # the head came in time, the rest did not
            assert (error, status) in {RECORDED[answer_name], late} | NO_ANSWER_RECORDED, (key, answer_name)

    async def _contents_stay_frozen(self, listener: Listener) -> None:
        contents, hints = defaultdict(set), defaultdict(list)
        for request in listener.receiver.requests:
            delivery_id, number = attempt_of(request)
            assert 1 <= number <= len(SCHEDULE) + self.resent[delivery_id]
            contents[delivery_id].add((request.body, version_of(request)))
            hints[delivery_id] = request.json["changeHints"]
        assert all(len(content) == 1 for content in contents.values())
        rows = {row["delivery_id"]: row for row in await self.webhooks.deliveries(listener.dealer)}
        for delivery_id, received in hints.items():
            if not self.resent[delivery_id]:  # the last test below says why
                assert rows[delivery_id]["hints"] == received, "stored hints are those sent"

    def _arrived_in_order(self, requests: Sequence[Request], attempts: Attempts, repeated: bool) -> Snapshot | None:
        """First attempts come in order of version; hints are the difference to the last success, which is returned.

        If a delivery of the order was resent (`repeated`), the resend may have arrived between the freezing and the
        arrival of a delivery that a dead worker froze.
        """
        seen: set[int] = set()
        firsts: list[int] = []
        baseline: tuple[int, Snapshot] | None = None
        for request in requests:
            (delivery_id, number), event = attempt_of(request), snapshot_of(request)
            if number == 1 and not self.resent[delivery_id]:
                firsts.append(version_of(request))
            if event.event_type != "DELIVERY_UPDATED":
                continue
            if delivery_id not in seen and (number == 1 or not repeated):
                seen.add(delivery_id)
                before = baseline[1] if baseline else None
                assert event.change_hints == (change_hints(before, event) or ("ORDER_SNAPSHOT_SYNC",))
            succeeded = attempts[delivery_id, number][0] is None
            if succeeded and (baseline is None or baseline[0] <= version_of(request)):
                baseline = version_of(request), event
        assert firsts == sorted(firsts)
        return baseline[1] if baseline else None

    def _undelivered_for_a_reason(
        self, listener: Listener, deliveries: Sequence[Mapping[str, Any]], attempts: Attempts
    ) -> None:
        """A delivery that did not arrive failed eight times or as a resend, got 410, or waited behind one that did. Or
        it is an update without changes, or older than the newest."""
        newest = [row["delivery_id"] for row in _newest(deliveries)]
        for row in deliveries:
            state, delivery_id = row["state"], row["delivery_id"]
            if state == "FAILED":
                last = attempts[delivery_id, row["attempt_count"]]
                assert row["attempt_count"] == len(SCHEDULE) or last == ("GONE", 410) or self.resent[delivery_id]
            elif state == "SUPERSEDED":
                assert row["event_type"] == "DELIVERY_UPDATED"
                assert row["hints"] == [] or [delivery_id] != newest
            else:
                assert state == "DELIVERED" or (state == "SKIPPED" and "gone" in listener.answered.values())

    async def _observe(self) -> tuple[Sequence[Mapping[str, Any]], dict[int, int]]:
        """All deliveries, and per order the version of its baseline, in one snapshot of the database."""
        rows = await self.session.fetch(
            "SELECT * FROM webhook_delivery WHERE tenant_id = ANY($1::bigint[])",
            [listener.dealer.tenant_id for listener in self.listeners],
        )
        baselines: dict[int, int] = {}
        for row in rows:
            if row["event_type"] == "DELIVERY_UPDATED" and row["delivered_at"] is not None:
                baselines[row["order_id"]] = max(baselines.get(row["order_id"], 0), row["order_version"])
        return rows, baselines

    async def _unfinished(self) -> list[Mapping[str, Any]]:
        rows = [row for listener in self.listeners for row in await self.webhooks.deliveries(listener.dealer)]
        return [row for row in rows if row["state"] not in FINISHED]

    async def _snapshot_now(self, dealer: Dealer, order_id: int) -> Snapshot:
        """The order as an update sent now would show it."""
        key = (dealer.tenant_id, order_id)
        found = await store.order.load(self.session, [key], self.webhooks.data_keys)
        event = snapshot.delivery_updated(found[key], self.webhooks.links)
        return comparable(msgspec.json.decode(encoder.encode(event), type=Snapshot))

    async def _audit(self, dealer: Dealer) -> None:
        webhooks = self.webhooks
        report = await check_invariants(
            webhooks.database, webhooks.master_keys, webhooks.data_keys, webhooks.clock(), Scope(dealer.tenant_id)
        )
        assert [report[code] for code in report.violated if code in WEBHOOK_INVARIANTS] == []


def _newest(deliveries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The updates of the highest version: one, or several where it was synced."""
    updates = [row for row in deliveries if row["event_type"] == "DELIVERY_UPDATED"]
    highest = max([row["order_version"] for row in updates], default=0)
    return [row for row in updates if row["order_version"] == highest]


def _arrived(row: Mapping[str, Any]) -> bool:
    """An update that was delivered, or was not sent because nothing changed."""
    return row["delivered_at"] is not None or (row["state"] == "SUPERSEDED" and row["hints"] == [])


@asynccontextmanager
async def scenario_on(database_url: str, **options: Any) -> AsyncIterator[Scenario]:
    async with webhook_fixture(database_url) as webhooks, listening(2) as receivers, AsyncExitStack() as stack:
        webhooks.clock = StillClock()
        session = webhooks.database.session()
        stack.push_async_callback(session.close)
        scenario = Scenario(
            webhooks,
            session,
            [Listener(await webhooks.dealer(receiver.url), receiver) for receiver in receivers],
            **options,
        )

        async def end_workers() -> None:
            for worker in scenario.workers:
                await worker.end()

        stack.push_async_callback(end_workers)
        for _ in range(2):
            scenario.workers.append(await scenario.begin_worker())
        for number in (0, 0, 1, 1):
            await scenario.place(number)
        yield scenario


# The steps


@dataclass(frozen=True)
class Place:
    """A dealer orders."""

    listener: int

    async def on(self, scenario: Scenario) -> None:
        if len(scenario.orders) < 8:
            await scenario.place(self.listener)


@dataclass(frozen=True)
class Change:
    order: int
    what: str
    value: int

    async def on(self, scenario: Scenario) -> None:
        await scenario.change(self.order, self.what, self.value)


@dataclass(frozen=True)
class Begin:
    """A worker starts attempts, and other steps happen meanwhile."""

    worker: int
    answers: tuple[str, ...]

    async def on(self, scenario: Scenario) -> None:
        scenario.set_answers(self.answers)
        with suppress(asyncpg.UniqueViolationError):
            await scenario.workers[self.worker].deliverer.run_once()


@dataclass(frozen=True)
class Deliver:
    """A worker delivers all that is due or becomes due by it."""

    worker: int
    answers: tuple[str, ...]

    async def on(self, scenario: Scenario) -> None:
        scenario.set_answers(self.answers)
        await scenario.workers[self.worker].deliver()


@dataclass(frozen=True)
class Upkeep:
    worker: int

    async def on(self, scenario: Scenario) -> None:
        await scenario.workers[self.worker].upkeep()


@dataclass(frozen=True)
class Kill:
    """A worker dies while it delivers, after so many messages to the database."""

    worker: int
    messages: int
    answers: tuple[str, ...]

    async def on(self, scenario: Scenario) -> None:
        scenario.set_answers(self.answers)
        await scenario.kill(self.worker, self.messages)


@dataclass(frozen=True)
class PassTime:
    seconds: int

    async def on(self, scenario: Scenario) -> None:
        await scenario.pass_time(self.seconds)


@dataclass(frozen=True)
class Outage:
    """Nothing is accepted for so many rounds of retries."""

    worker: int
    answer: str
    rounds: int

    async def on(self, scenario: Scenario) -> None:
        for listener in scenario.listeners:
            listener.default_answer = self.answer
        for _ in range(self.rounds):
            await scenario.workers[self.worker].deliver()
            await scenario.pass_time(LONGER_THAN_ANY_WAIT)


@dataclass(frozen=True)
class SetUrlAgain:
    listener: int

    async def on(self, scenario: Scenario) -> None:
        await scenario.set_url_again(self.listener)


@dataclass(frozen=True)
class Resend:
    delivery: int

    async def on(self, scenario: Scenario) -> None:
        await scenario.resend(self.delivery)


@dataclass(frozen=True)
class Sync:
    order: int

    async def on(self, scenario: Scenario) -> None:
        await scenario.sync(self.order)


_PAIR = st.integers(0, 1)
_ORDER = st.integers(0, 7)
_ANSWERS = st.lists(st.sampled_from([*RECORDED, "accept", "fail"]), max_size=5).map(tuple)
_CHANGE = st.builds(
    Change, _ORDER, st.sampled_from(["usage", "usage", "state", "refund", "nothing"]), st.integers(1, 3)
)
_STEPS = st.lists(
    st.one_of(
        _CHANGE,
        _CHANGE,
        st.builds(Begin, _PAIR, _ANSWERS),
        st.builds(Deliver, _PAIR, _ANSWERS),
        st.builds(Kill, _PAIR, st.integers(1, 60), _ANSWERS),
        st.builds(PassTime, st.sampled_from([1, 6, 61, 700, LONGER_THAN_ANY_WAIT])),
        st.builds(Outage, _PAIR, st.sampled_from(["fail", "reset"]), st.integers(1, 9)),
        st.builds(Upkeep, _PAIR),
        st.builds(Place, _PAIR),
        st.builds(SetUrlAgain, _PAIR),
        st.builds(Resend, st.integers(0, 99)),
        st.builds(Sync, _ORDER),
    ),
    min_size=8,
    max_size=40,
)
PROFILE = settings(deadline=None, suppress_health_check=list(HealthCheck))


async def _run(database_url: str, steps: Sequence[Any]) -> None:
    async with scenario_on(database_url) as scenario:
        for step in steps:
            await step.on(scenario)
            await scenario.check()
        await scenario.recover()
        await scenario.check_all(changed_since=False)
        # The next change of an order reports failed updates too: its hints are the difference to the last success.
        for number in range(len(scenario.orders)):
            await scenario.change(number, "usage", 7)
        await scenario.recover()
        await scenario.check_all(changed_since=True)
        await scenario.check_newest()


@settings(PROFILE, max_examples=14)
@given(steps=_STEPS)
async def test_random_steps_deliver_the_last_state_of_every_order(database_url: str, steps: list[Any]):
    await _run(database_url, steps)


@pytest.mark.soak
@settings(PROFILE, max_examples=400)
@given(steps=_STEPS)
async def test_many_random_steps_deliver_the_last_state_of_every_order(database_url: str, steps: list[Any]):
    await _run(database_url, steps)


async def test_worker_killed_after_any_message_to_its_database_loses_nothing(database_url: str):
    """Message by message, from the first query for work to the last record."""
    async with scenario_on(database_url) as scenario:
        for messages in itertools.count(1, 2):
            await scenario.change(0, "usage", messages)
            dead = await scenario.kill(0, messages)
            await scenario.pass_time(LEASE_SECONDS + 1)
            await scenario.workers[1].upkeep()
            await scenario.workers[1].deliver()
            await scenario.check()
            if not dead.proxy.ran_out:
                break
        await scenario.recover()
        await scenario.check_all(changed_since=True)
        assert messages > 20
        errors = {
            row["error"] for listener in scenario.listeners for row in await scenario.webhooks.attempts(listener.dealer)
        }
        assert {None, "LOST"} <= errors, "some workers died before they posted or recorded, some after"


# Updates without changes


async def test_update_back_to_the_last_delivered_state_is_sent_after_an_unacknowledged_one(database_url: str):
    """Usage goes from 1 to 2 and back to 1. The dealer may have received 2, so it must receive 1 again."""
    async with scenario_on(database_url) as scenario:
        listener, worker = scenario.listeners[0], scenario.workers[0]
        for usage, answers in ((0, ()), (1, ()), (2, ("hang",)), (1, ())):
            await scenario.change(0, "usage", usage)
            scenario.set_answers(answers)
            await worker.deliver()
        await scenario.recover()
        assert _usage_received_last(listener, scenario.orders[0][1]) == 1


async def test_resent_older_update_is_not_taken_for_the_current_state(database_url: str):
    """Usage goes from 1 to 2 and back to 1. The update with 2 failed, was superseded, and is resent."""
    async with scenario_on(database_url, attempt_seconds=PATIENCE) as scenario:
        listener, worker = scenario.listeners[0], scenario.workers[0]
        for usage, answers in ((0, ()), (1, ()), (2, ("fail",)), (1, ())):
            await scenario.change(0, "usage", usage)
            scenario.set_answers(answers)
            await worker.deliver()
        [refused] = [
            row
            for row in await scenario.webhooks.deliveries(listener.dealer)
            if row["attempt_count"] and not _arrived(row)
        ]
        call = ResendDelivery(delivery_id=str(refused["delivery_id"]))
        await endpoint.resend(scenario.webhooks.database, listener.dealer.tenant_id, call, scenario.webhooks.clock())
        await scenario.recover()
        assert _usage_received_last(listener, scenario.orders[0][1]) == 1


async def test_resend_of_an_unchanged_update_stores_the_hints_it_is_sent_with(database_url: str):
    async with scenario_on(database_url, attempt_seconds=PATIENCE) as scenario:
        listener, worker = scenario.listeners[0], scenario.workers[0]
        for what in ("codes", "nothing"):
            await scenario.change(0, what, 1)
            await worker.deliver()
        [silent] = [row for row in await scenario.webhooks.deliveries(listener.dealer) if row["state"] == "SUPERSEDED"]
        call = ResendDelivery(delivery_id=str(silent["delivery_id"]))
        await endpoint.resend(scenario.webhooks.database, listener.dealer.tenant_id, call, scenario.webhooks.clock())
        await worker.deliver()
        assert listener.receiver.requests[-1].json["changeHints"] == ["ORDER_SNAPSHOT_SYNC"]
        [sent] = [row for row in await scenario.webhooks.deliveries(listener.dealer) if row["trigger"] == "RESEND"]
        assert sent["hints"] == ["ORDER_SNAPSHOT_SYNC"]


def _usage_received_last(listener: Listener, order_id: int) -> int | None:
    """As a dealer stores it, who ignores snapshots older than the one it has."""
    received = [request for request in listener.receiver.requests if request.json["orderId"] == order_id]
    newest = max(received, key=version_of)
    return newest.json["items"][0]["profiles"][0]["dataUsageBytes"]
