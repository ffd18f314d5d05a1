"""A machine over lanes: whatever changes, answers, crashes and time bring, in whatever order, every dealer is told.

hypothesis plays the steps, PostgreSQL and the receivers are real. A worker dies by the line to its database being cut
after so many messages: what was sent before is still carried out, as with kill -9.
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
from dealer_server.operations.audit.check_invariants import check_invariants
from dealer_server.operations.webhooks import endpoint
from dealer_server.rules.delivery.change_hints import change_hints, comparable
from dealer_server.rules.orders import snapshot
from dealer_server.rules.refusal import StatusForbids
from dealer_server.store.webhooks import claim
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
WEBHOOK_INVARIANTS = {"A13", "A14", "A15", "A16", "A20"}  # the orders of a stage have no money behind them

Attempts = Mapping[tuple[int, int], tuple[str | None, int | None]]  # delivery_id, number: error, http_status

# What a receiver may say, and what the worker may then record; with so short a deadline any of it may come too late.
RECORDED = {
    "accept": (None, 200),
    "accept and close": (None, 200),
    "fail": ("STATUS", 500),
    "ask to wait": ("STATUS", 503),
    "gone": ("GONE", 410),
    "hang": ("TIMEOUT", None),
    "reset": ("RESET", None),
}
NEVER_HEARD = {("LOST", None), ("STOPPED", None), ("TIMEOUT", None)}  # whatever was said


class Line:
    """A worker's way to the database. `cut` ends all that is connected, as the death of the worker would."""

    def __init__(self, url: str, folder: str):
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        [far_folder], [port] = query["host"], query["port"]
        self.url = urlunsplit(parts._replace(query=urlencode({"host": folder, "port": port})))
        self._near_path, self._far_path = (str(Path(one) / f".s.PGSQL.{port}") for one in (folder, far_folder))
        self._near: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self._left: int | None = None
        self.severed = asyncio.Event()
        self.ran_out = False

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._carry, self._near_path)

    def cut_after(self, messages: int) -> None:
        """The line is cut once so many more messages have gone to the database, before the answer comes back."""
        self._left = messages

    async def cut(self) -> None:
        """Returns once PostgreSQL has ended every session at the far end: what it was doing is done or undone."""
        self._sever()
        if self._carrying:
            async with asyncio.timeout(PATIENCE):
                await asyncio.wait(self._carrying)

    def _sever(self) -> None:
        assert self._server is not None
        self._server.close()
        self.severed.set()
        for one in self._near:
            one.transport.abort()

    async def _carry(self, near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        self._near.add(near)
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
            self._near.discard(near)
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

    def __init__(self, line: Line, deliverer: Deliverer, stack: AsyncExitStack):
        self.line = line
        self.deliverer = deliverer
        self._stack = stack

    @classmethod
    async def begin(cls, stage: WebhookFixture, **options: Any) -> "Worker":
        async with AsyncExitStack() as stack:
            line = Line(stage.database.dsn, stack.enter_context(tempfile.TemporaryDirectory(prefix="line")))
            await line.open()
            stack.push_async_callback(line.cut)
            own = replace(stage, database=Database(line.url, stage.database._pool))
            deliverer = await stack.enter_async_context(own.deliverer(schedule=SCHEDULE, stop_seconds=0.5, **options))
            return cls(line, deliverer, stack.pop_all())

    async def deliver(self) -> None:
        with suppress(asyncpg.UniqueViolationError):  # another worker had the same order: its loop would try again
            await deliver_all(self.deliverer)
        await self.deliverer.settle()  # those that had nothing to say

    async def upkeep(self) -> None:
        await self.deliverer.upkeep.step()
        await self.deliverer.settle()

    async def deliver_and_die(self, messages: int) -> None:
        """Delivers, and is killed when so many messages have gone to the database; at the end of it at the latest."""
        self.line.cut_after(messages)
        delivering = asyncio.create_task(self.deliver())
        severed = asyncio.create_task(self.line.severed.wait())
        await asyncio.wait([delivering, severed], return_when=asyncio.FIRST_COMPLETED)
        await self.line.cut()
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
class House:
    """A dealer, its receiver, and what it said to each attempt."""

    dealer: Dealer
    receiver: Receiver
    to_say: deque[str] = field(default_factory=deque)
    always: str = "accept"
    said: dict[tuple[int, int], str] = field(default_factory=dict)
    under_way: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.receiver.answers = [self.answer]

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> bytes | None:
        order_id, key = request.json["orderId"], attempt_of(request)
        if order_id in self.under_way:
            self.faults.append(f"two requests of order {order_id} at a time: {key}")
        if key in self.said:
            self.faults.append(f"attempt {key} came twice")
        word = self.said[key] = self.to_say.popleft() if self.to_say else self.always
        self.under_way.add(order_id)
        try:
            return await self._act(word, request, writer)
        finally:
            self.under_way.discard(order_id)

    async def _act(self, word: str, request: Request, writer: asyncio.StreamWriter) -> bytes | None:
        if word == "hang":
            await hang_until_left(request, writer)
            return None
        if word == "reset":
            writer.transport.abort()
            return None
        return {
            "accept": OK,
            "accept and close": answer(200, "Connection: close"),
            "fail": answer(500),
            "ask to wait": answer(503, "Retry-After: 60"),
            "gone": answer(410),
        }[word]


def attempt_of(request: Request) -> tuple[int, int]:
    return int(request.headers["rt-delivery-id"]), request.number


def version_of(request: Request) -> int:
    return int(request.headers["rt-order-version"])


def said_in(request: Request) -> Snapshot:
    return msgspec.json.decode(request.body, type=Snapshot)


@dataclass
class Play:
    """Two dealers with their orders, two workers, and all that was ever true of them."""

    stage: WebhookFixture
    session: Session
    houses: Sequence[House]
    workers: list[Worker] = field(default_factory=list)
    orders: list[tuple[House, int]] = field(default_factory=list)
    with_codes: set[int] = field(default_factory=set)
    resent: Counter[int] = field(default_factory=Counter)
    frozen: dict[int, tuple[bytes, Sequence[str]]] = field(default_factory=dict)
    baselines: dict[int, int] = field(default_factory=dict)  # order_id: the highest version that was delivered

    async def begin_worker(self) -> Worker:
        return await Worker.begin(self.stage, total_seconds=DEADLINE_SECONDS)

    async def place(self, number: int) -> None:
        house = self.houses[number]
        self.orders.append((house, await self.stage.order(house.dealer)))

    async def change(self, number: int, what: str, value: int) -> None:
        """The first change of an order gives it its codes."""
        house, order_id = self.orders[number % len(self.orders)]
        stage, dealer = self.stage, house.dealer
        if order_id not in self.with_codes:
            self.with_codes.add(order_id)
            await stage.allocate(dealer, order_id)
        elif what == "usage":
            await stage.use(dealer, order_id, value)
        elif what == "state":
            await stage.change(dealer, order_id, order_status=("COMPLETED", "REFUNDING")[value % 2])
        elif what == "refund":
            await stage.change(dealer, order_id, refund_amount=value * 100, pay_status=("PAID", "REFUNDED")[value % 2])
        else:
            await stage.change(dealer, order_id, remark=f"not shown {value}")

    def hear(self, words: Sequence[str]) -> None:
        """What both receivers say to what comes next; then they accept."""
        for house in self.houses:
            house.to_say = deque(words)
            house.always = "accept"

    async def pass_time(self, seconds: float) -> None:
        """No attempt outlives its lease: it ends within 10 s, and the lease is six times that."""
        if seconds > LEASE_SECONDS / 2:
            for worker in self.workers:
                await worker.deliverer.settle()
        self.stage.clock.advance(seconds)

    async def set_again(self, number: int) -> None:
        stage, house = self.stage, self.houses[number]
        call = SetWebhook(callback_url=house.receiver.url)
        await endpoint.set_webhook(stage.database, LOOPBACK, house.dealer.tenant_id, call, stage.clock())

    async def resend(self, number: int) -> None:
        """Sends one of all deliveries again, whatever became of it, if its dealer's endpoint is enabled."""
        stage, house = self.stage, self.houses[number % 2]
        rows = await stage.deliveries(house.dealer)
        delivery_id = rows[number % len(rows)]["delivery_id"]
        call = ResendDelivery(delivery_id=str(delivery_id))
        with suppress(StatusForbids):
            await endpoint.resend(stage.database, house.dealer.tenant_id, call, stage.clock())
            self.resent[delivery_id] += 1

    async def sync(self, number: int) -> None:
        """Sends an order's snapshot as it stands."""
        house, order_id = self.orders[number % len(self.orders)]
        async with self.stage.database.transaction() as connection:
            await webhook_resend.sync(connection, house.dealer.tenant_id, [order_id], self.stage.clock())

    async def kill(self, number: int, messages: int) -> Worker:
        """The worker dies, and another takes its place; the one that died."""
        dead = self.workers[number]
        await dead.deliver_and_die(messages)
        self.workers[number] = await self.begin_worker()
        return dead

    # What must hold

    async def check(self) -> None:
        """After each step: what is frozen stays, no baseline moves back, no delivery has too many attempts."""
        for house in self.houses:
            assert house.faults == []
        rows, baselines = await self._look()
        for row in rows:
            assert row["attempt_count"] <= len(SCHEDULE) + self.resent[row["delivery_id"]]
            if row["body"] is not None:
                now = (row["body"], row["hints"])
                assert self.frozen.setdefault(row["delivery_id"], now) == now, "frozen, and changed"
            if row["event_type"] == "DELIVERY_UPDATED" and row["delivered_at"] is not None:
                version = self.baselines.get(row["order_id"], 0)
                self.baselines[row["order_id"]] = max(version, row["order_version"])
        assert baselines == self.baselines

    async def recover(self) -> None:
        """Both receivers accept, and time passes until there is nothing more to send."""
        for worker in self.workers:
            await worker.deliverer.settle()
        self.hear(())
        for number, house in enumerate(self.houses):
            if (await self.stage.endpoint(house.dealer)).state != "ACTIVE":
                await self.set_again(number)
        worker = await Worker.begin(self.stage, total_seconds=PATIENCE)
        try:
            for _ in range(20):
                await worker.upkeep()
                await worker.deliver()
                if not await self._unfinished():
                    return
                await self.pass_time(LONGER_THAN_ANY_WAIT)
            raise AssertionError(f"still not told: {await self._unfinished()}")
        finally:
            await worker.end()

    async def check_all(self, *, last_of_all: bool) -> None:
        """After recovery: every dealer knows how each of its orders stands, by events in their order.

        What was sent again by hand may be old news, the last word until the order changes again (`last_of_all`).
        """
        await self.check()
        for house in self.houses:
            attempts = {
                (row["delivery_id"], row["number"]): (row["error"], row["http_status"])
                for row in await self.stage.attempts(house.dealer)
            }
            self._attempts_are_what_was_said(house, attempts)
            await self._deliveries_keep_what_they_say(house)
            heard = defaultdict(list)
            for request in house.receiver.requests:
                assert request.verified(house.dealer.secret)
                heard[request.json["orderId"]].append(request)
            for order_id in (order_id for owner, order_id in self.orders if owner is house):
                deliveries = await self.stage.deliveries(house.dealer, order_id)
                repeated = any(self.resent[row["delivery_id"]] for row in deliveries)
                last = self._told_in_order(heard[order_id], attempts, repeated)
                self._given_up_for_a_reason(house, deliveries, attempts)
                if any(_told(row) for row in _newest(deliveries)) and (last_of_all or not repeated):
                    assert last is not None and comparable(last) == await self._stands(house.dealer, order_id)

    async def check_told(self) -> None:
        """After a change of every order and recovery: the newest of each is delivered, and the books are right."""
        for house, order_id in self.orders:
            deliveries = await self.stage.deliveries(house.dealer, order_id)
            assert any(_told(row) for row in _newest(deliveries)), [row["state"] for row in deliveries]
        for house in self.houses:
            await self._audit(house.dealer)

    def _attempts_are_what_was_said(self, house: House, attempts: Attempts) -> None:
        """Every request is recorded, as what it was or as never heard; nothing else is a success."""
        assert house.said.keys() <= attempts.keys()
        for key, (error, status) in attempts.items():
            if key not in house.said:
                assert (error, status) in NEVER_HEARD, key
                continue
            word = house.said[key]
            late = ("TIMEOUT", RECORDED[word][1])  # the head came in time, the rest did not
            assert (error, status) in {RECORDED[word], late} | NEVER_HEARD, (key, word)

    async def _deliveries_keep_what_they_say(self, house: House) -> None:
        said, hints = defaultdict(set), defaultdict(list)
        for request in house.receiver.requests:
            delivery_id, number = attempt_of(request)
            assert 1 <= number <= len(SCHEDULE) + self.resent[delivery_id]
            said[delivery_id].add((request.body, version_of(request)))
            hints[delivery_id] = request.json["changeHints"]
        assert all(len(bodies) == 1 for bodies in said.values())
        rows = {row["delivery_id"]: row for row in await self.stage.deliveries(house.dealer)}
        for delivery_id, told in hints.items():
            if not self.resent[delivery_id]:  # the last test below says why
                assert rows[delivery_id]["hints"] == told, "what is on record is what was said"

    def _told_in_order(self, requests: Sequence[Request], attempts: Attempts, repeated: bool) -> Snapshot | None:
        """First attempts come in order of version; hints are the difference to the last success, which is returned.

        Where some of the order was sent again by hand (`repeated`) that may have come between the freezing and the
        arrival of what a dead worker froze.
        """
        seen: set[int] = set()
        firsts: list[int] = []
        baseline: tuple[int, Snapshot] | None = None
        for request in requests:
            (delivery_id, number), said = attempt_of(request), said_in(request)
            if number == 1 and not self.resent[delivery_id]:
                firsts.append(version_of(request))
            if said.event_type != "DELIVERY_UPDATED":
                continue
            if delivery_id not in seen and (number == 1 or not repeated):
                seen.add(delivery_id)
                before = baseline[1] if baseline else None
                assert said.change_hints == (change_hints(before, said) or ("ORDER_SNAPSHOT_SYNC",))
            succeeded = attempts[delivery_id, number][0] is None
            if succeeded and (baseline is None or baseline[0] <= version_of(request)):
                baseline = version_of(request), said
        assert firsts == sorted(firsts)
        return baseline[1] if baseline else None

    def _given_up_for_a_reason(self, house: House, deliveries: Sequence[Mapping[str, Any]], attempts: Attempts) -> None:
        """What did not arrive failed eight times or once by hand, was answered with 410 or waited behind one that was;
        or it was an update, and nothing new or older news."""
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
                assert state == "DELIVERED" or (state == "SKIPPED" and "gone" in house.said.values())

    async def _look(self) -> tuple[Sequence[Mapping[str, Any]], dict[int, int]]:
        """All deliveries, and per order the version of what the server takes for its baseline, at one moment."""
        keys = [(house.dealer.tenant_id, order_id) for house, order_id in self.orders]
        await self.session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        rows = await self.session.fetch(
            "SELECT * FROM webhook_delivery WHERE tenant_id = ANY($1::bigint[])", [key[0] for key in keys]
        )
        found = await claim.baselines(self.session, keys)
        await self.session.execute("COMMIT")
        versions = {row["delivery_id"]: row["order_version"] for row in rows}
        return rows, {key[1]: versions[last.delivery_id] for key, last in found.items() if last.delivery_id}

    async def _unfinished(self) -> list[Mapping[str, Any]]:
        rows = [row for house in self.houses for row in await self.stage.deliveries(house.dealer)]
        return [row for row in rows if row["state"] not in FINISHED]

    async def _stands(self, dealer: Dealer, order_id: int) -> Snapshot:
        """The order as an update sent now would show it."""
        key = (dealer.tenant_id, order_id)
        found = await store.order.load(self.session, [key], self.stage.data_keys)
        event = snapshot.delivery_updated(found[key], self.stage.links)
        return comparable(msgspec.json.decode(encoder.encode(event), type=Snapshot))

    async def _audit(self, dealer: Dealer) -> None:
        stage = self.stage
        report = await check_invariants(
            stage.database, stage.master_keys, stage.data_keys, stage.clock(), tenant_id=dealer.tenant_id
        )
        assert [report[code] for code in report.violated if code in WEBHOOK_INVARIANTS] == []


def _newest(deliveries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The updates of the highest version: one, or several where it was synced."""
    updates = [row for row in deliveries if row["event_type"] == "DELIVERY_UPDATED"]
    highest = max([row["order_version"] for row in updates], default=0)
    return [row for row in updates if row["order_version"] == highest]


def _told(row: Mapping[str, Any]) -> bool:
    """An update that was delivered, or had nothing new to say."""
    return row["delivered_at"] is not None or (row["state"] == "SUPERSEDED" and row["hints"] == [])


@asynccontextmanager
async def play_on(database_url: str) -> AsyncIterator[Play]:
    async with webhook_fixture(database_url) as stage, listening(2) as receivers, AsyncExitStack() as stack:
        stage.clock = StillClock()
        session = stage.database.session()
        stack.push_async_callback(session.close)
        play = Play(stage, session, [House(await stage.dealer(receiver.url), receiver) for receiver in receivers])

        async def end_workers() -> None:
            for worker in play.workers:
                await worker.end()

        stack.push_async_callback(end_workers)
        for _ in range(2):
            play.workers.append(await play.begin_worker())
        for number in (0, 0, 1, 1):
            await play.place(number)
        yield play


# The steps


@dataclass(frozen=True)
class Place:
    """A dealer orders."""

    house: int

    async def on(self, play: Play) -> None:
        if len(play.orders) < 8:
            await play.place(self.house)


@dataclass(frozen=True)
class Change:
    order: int
    what: str
    value: int

    async def on(self, play: Play) -> None:
        await play.change(self.order, self.what, self.value)


@dataclass(frozen=True)
class Begin:
    """A worker begins to send what is due, and other things happen meanwhile."""

    worker: int
    answers: tuple[str, ...]

    async def on(self, play: Play) -> None:
        play.hear(self.answers)
        with suppress(asyncpg.UniqueViolationError):
            await play.workers[self.worker].deliverer.run_once()


@dataclass(frozen=True)
class Deliver:
    """A worker sends what is due, and what becomes due by that."""

    worker: int
    answers: tuple[str, ...]

    async def on(self, play: Play) -> None:
        play.hear(self.answers)
        await play.workers[self.worker].deliver()


@dataclass(frozen=True)
class Upkeep:
    worker: int

    async def on(self, play: Play) -> None:
        await play.workers[self.worker].upkeep()


@dataclass(frozen=True)
class Kill:
    """A worker dies while it sends, when so many messages have gone to the database."""

    worker: int
    messages: int
    answers: tuple[str, ...]

    async def on(self, play: Play) -> None:
        play.hear(self.answers)
        await play.kill(self.worker, self.messages)


@dataclass(frozen=True)
class PassTime:
    seconds: int

    async def on(self, play: Play) -> None:
        await play.pass_time(self.seconds)


@dataclass(frozen=True)
class Outage:
    """For so many rounds of retries nothing is accepted."""

    worker: int
    answer: str
    rounds: int

    async def on(self, play: Play) -> None:
        for house in play.houses:
            house.always = self.answer
        for _ in range(self.rounds):
            await play.workers[self.worker].deliver()
            await play.pass_time(LONGER_THAN_ANY_WAIT)


@dataclass(frozen=True)
class SetAgain:
    house: int

    async def on(self, play: Play) -> None:
        await play.set_again(self.house)


@dataclass(frozen=True)
class Resend:
    delivery: int

    async def on(self, play: Play) -> None:
        await play.resend(self.delivery)


@dataclass(frozen=True)
class Sync:
    order: int

    async def on(self, play: Play) -> None:
        await play.sync(self.order)


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
        st.builds(SetAgain, _PAIR),
        st.builds(Resend, st.integers(0, 99)),
        st.builds(Sync, _ORDER),
    ),
    min_size=8,
    max_size=40,
)
PROFILE = settings(deadline=None, suppress_health_check=list(HealthCheck))


async def _every_dealer_is_told(database_url: str, steps: Sequence[Any]) -> None:
    async with play_on(database_url) as play:
        for step in steps:
            await step.on(play)
            await play.check()
        await play.recover()
        await play.check_all(last_of_all=False)
        # What was given up is told of with the next change, whose hints reach back to the last success.
        for number in range(len(play.orders)):
            await play.change(number, "usage", 7)
        await play.recover()
        await play.check_all(last_of_all=True)
        await play.check_told()


@settings(PROFILE, max_examples=14)
@given(steps=_STEPS)
async def test_whatever_happens_every_dealer_is_told_how_its_orders_stand(database_url: str, steps: list[Any]):
    await _every_dealer_is_told(database_url, steps)


@pytest.mark.soak
@settings(PROFILE, max_examples=400)
@given(steps=_STEPS)
async def test_whatever_happens_for_long_every_dealer_is_told(database_url: str, steps: list[Any]):
    await _every_dealer_is_told(database_url, steps)


async def test_a_worker_that_dies_after_any_message_to_its_database_loses_nothing(database_url: str):
    """Message by message, from the first look for work to the last record."""
    async with play_on(database_url) as play:
        for messages in itertools.count(1, 2):
            await play.change(0, "usage", messages)
            dead = await play.kill(0, messages)
            await play.pass_time(LEASE_SECONDS + 1)
            await play.workers[1].upkeep()
            await play.workers[1].deliver()
            await play.check()
            if not dead.line.ran_out:
                break
        await play.recover()
        await play.check_all(last_of_all=True)
        assert messages > 20
        errors = {row["error"] for house in play.houses for row in await play.stage.attempts(house.dealer)}
        assert {None, "LOST"} <= errors, "some died before they posted or recorded, some after"


# What is not told because it says nothing new


async def test_what_was_not_acknowledged_may_have_been_taken_so_the_way_back_is_told_too(database_url: str):
    """Usage goes from 1 to 2 and back. Of 2 the dealer has heard, whatever we know of it: it must hear of 1 again."""
    async with play_on(database_url) as play:
        house, worker = play.houses[0], play.workers[0]
        for usage, words in ((0, ()), (1, ()), (2, ("hang",)), (1, ())):
            await play.change(0, "usage", usage)
            play.hear(words)
            await worker.deliver()
        await play.recover()
        assert _usage_heard_last(house, play.orders[0][1]) == 1


async def test_old_news_that_is_sent_again_is_not_the_last_word(database_url: str):
    """Usage goes from 1 to 2 and back; 2 was refused, superseded, and is now asked for again."""
    async with play_on(database_url) as play:
        house, worker = play.houses[0], play.workers[0]
        for usage, words in ((0, ()), (1, ()), (2, ("fail",)), (1, ())):
            await play.change(0, "usage", usage)
            play.hear(words)
            await worker.deliver()
        [refused] = [
            row for row in await play.stage.deliveries(house.dealer) if row["attempt_count"] and not _told(row)
        ]
        call = ResendDelivery(delivery_id=str(refused["delivery_id"]))
        await endpoint.resend(play.stage.database, house.dealer.tenant_id, call, play.stage.clock())
        await play.recover()
        assert _usage_heard_last(house, play.orders[0][1]) == 1


async def test_what_said_nothing_new_and_is_sent_again_is_on_record_with_the_hints_it_then_had(database_url: str):
    async with play_on(database_url) as play:
        house, worker = play.houses[0], play.workers[0]
        for what in ("codes", "nothing"):
            await play.change(0, what, 1)
            await worker.deliver()
        [silent] = [row for row in await play.stage.deliveries(house.dealer) if row["state"] == "SUPERSEDED"]
        call = ResendDelivery(delivery_id=str(silent["delivery_id"]))
        await endpoint.resend(play.stage.database, house.dealer.tenant_id, call, play.stage.clock())
        await worker.deliver()
        assert house.receiver.requests[-1].json["changeHints"] == ["ORDER_SNAPSHOT_SYNC"]
        [sent] = [row for row in await play.stage.deliveries(house.dealer) if row["trigger"] == "RESEND"]
        assert sent["hints"] == ["ORDER_SNAPSHOT_SYNC"]


def _usage_heard_last(house: House, order_id: int) -> int | None:
    """As a dealer knows it who takes every snapshot but those older than what it has."""
    heard = [request for request in house.receiver.requests if request.json["orderId"] == order_id]
    newest = max(heard, key=version_of)
    return newest.json["items"][0]["profiles"][0]["dataUsageBytes"]
