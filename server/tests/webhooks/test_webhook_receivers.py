"""One worker and every kind of receiver at once: results are recorded rightly, no healthy receiver waits for another,
and answers do not grow the worker's memory."""

import asyncio
import gzip
import resource
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from dealer_server.operations.webhooks import endpoint as webhook
from esim_dealer.wire.calls import SetWebhook
from support.webhook_fixture import (
    LOOPBACK,
    OK,
    Answering,
    Dealer,
    Receiver,
    Request,
    StillClock,
    WebhookFixture,
    answer,
    deliver_all,
    eventually,
    hang_until_left,
    listening,
    webhook_fixture,
)
from support.webhooks.tls_server import tls_server

HEALTHY = 3
ORDERS_OF_HEALTHY = 40
ORDERS_OF_OTHERS = 12  # fewer than open a breaker
PATIENT_SECONDS = 120.0  # a deadline that no test waits for
IMPATIENT_SECONDS = 0.3
MOST_GROWTH_BYTES = 40 * 2**20
GIGABYTE = 2**30
BOMB = gzip.compress(bytes(2**20)) * 1_024  # a gigabyte of zeros in a megabyte
LONGER_THAN_THE_RETRIES = 600

Record = tuple[str | None, int | None, str | None, str | None]  # error, status, head of the answer, remote address


class MemoryGrowth:
    """How much the process has grown since this was created, at its highest measurement."""

    def __init__(self) -> None:
        self._before = self._most = _resident_bytes()

    def measure(self) -> None:
        self._most = max(self._most, _resident_bytes())

    def has_not_grown(self) -> bool:
        self.measure()
        return self._most - self._before < MOST_GROWTH_BYTES


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# What receivers do


async def drip(request: Request, writer: asyncio.StreamWriter) -> None:
    """A byte a second, until the client closes the connection."""
    assert request.connection is not None
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    left = asyncio.create_task(request.connection.read())
    while not left.done():
        writer.write(b".")
        await writer.drain()
        await asyncio.wait([left], timeout=1)


async def reset(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


class Gigabyte:
    """A gigabyte, or as much of it as the client reads."""

    def __init__(self) -> None:
        self.cut_short = 0

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {GIGABYTE}\r\n\r\n".encode())
        try:
            for _ in range(GIGABYTE // 65_536):
                writer.write(b"x" * 65_536)
                await writer.drain()
        except ConnectionError:
            self.cut_short += 1
            raise


def bomb() -> bytes:
    return answer(200, "Content-Encoding: gzip", body=BOMB)


@dataclass(frozen=True)
class Kind:
    """What a receiver answers, what is recorded of the attempt, and the state of the delivery after it."""

    answers: bytes | int | Answering
    error: str | None
    status: int | None
    head: str | None
    state: str

    @property
    def record(self) -> Record:
        return self.error, self.status, self.head, None if self.status is None else "127.0.0.1"


def kinds(elsewhere: str) -> Mapping[str, Kind]:
    redirect = answer(302, f"Location: {elsewhere}")
    kept_of_bomb = BOMB[:2_048].decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return {
        "accepts": Kind(OK, None, 200, "ok", "DELIVERED"),
        "accepts and closes": Kind(answer(200, "Connection: close", body=b"bye"), None, 200, "bye", "DELIVERED"),
        "accepts without a body": Kind(204, None, 204, None, "DELIVERED"),
        "fails": Kind(answer(500, body=b"oh no"), "STATUS", 500, "oh no", "RETRY"),
        "answers 404": Kind(answer(404, body=b"no such hook"), "STATUS", 404, "no such hook", "RETRY"),
        "redirects": Kind(redirect, "REDIRECT", 302, None, "RETRY"),
        "asks to wait": Kind(answer(429, "Retry-After: 20"), "STATUS", 429, None, "RETRY"),
        "hangs": Kind(hang_until_left, "TIMEOUT", None, None, "RETRY"),
        "drips": Kind(drip, "TIMEOUT", 200, None, "RETRY"),
        "sends a gigabyte": Kind(Gigabyte(), None, 200, "x" * 2_048, "DELIVERED"),
        "sends a bomb": Kind(bomb(), None, 200, kept_of_bomb, "DELIVERED"),
        "resets": Kind(reset, "RESET", None, None, "RETRY"),
    }


SLOW = ("hangs", "drips")


@dataclass(frozen=True)
class Listener:
    """A dealer and its receiver."""

    dealer: Dealer
    receiver: Receiver


@dataclass
class Receivers:
    """One receiver of each kind, one that answers 410, one behind a self-signed certificate, and healthy ones."""

    webhooks: WebhookFixture
    kinds: Mapping[str, Kind]
    listeners: Mapping[str, Listener]
    healthy: Sequence[Listener]
    gone: Listener
    unproven: Dealer  # behind a self-signed certificate
    elsewhere: Receiver
    memory: MemoryGrowth

    async def records(self, dealer: Dealer) -> list[Record]:
        """The record of each attempt that the worker did not stop."""
        return [
            (row["error"], row["http_status"], row["answer_head"], row["remote_address"])
            for row in await self.webhooks.attempts(dealer)
            if row["error"] != "STOPPED"
        ]

    async def recorded(self, dealer: Dealer, count: int) -> None:
        """Returns once so many attempts of a dealer are recorded."""

        async def found() -> bool:
            self.memory.measure()
            return len(await self.records(dealer)) >= count

        await eventually(found)

    async def states(self, dealer: Dealer) -> set[str]:
        return {state for _, state in await self.webhooks.states(dealer)}

    async def gone_is_skipped(self) -> bool:
        return await self.states(self.gone.dealer) == {"FAILED", "SKIPPED"}


@pytest.fixture
async def webhooks(database_url: str) -> AsyncIterator[WebhookFixture]:
    """Time stands still, so that no retry becomes due meanwhile."""
    async with webhook_fixture(database_url) as webhooks:
        webhooks.clock = StillClock()
        yield webhooks


@pytest.fixture
async def all_kinds(webhooks: WebhookFixture, certificate: Path) -> AsyncIterator[Receivers]:
    async with AsyncExitStack() as stack:

        async def listeners(count: int) -> list[Listener]:
            receivers = await stack.enter_async_context(listening(count))
            return [Listener(await webhooks.dealer(receiver.url), receiver) for receiver in receivers]

        [elsewhere] = await stack.enter_async_context(listening(1))
        table = kinds(elsewhere.url)
        [gone], healthy = await listeners(1), await listeners(HEALTHY)
        by_kind = dict(zip(table, await listeners(len(table)), strict=True))
        for name, kind in table.items():
            by_kind[name].receiver.answers = [kind.answers]
        gone.receiver.answers = [answer(410, body=b"moved out")]
        await webhooks.execute(
            "UPDATE webhook_endpoint SET cap_in_flight = 1 WHERE tenant_id = $1", gone.dealer.tenant_id
        )
        server, port = await tls_server(certificate)
        stack.callback(server.close)
        unproven = await webhooks.dealer(f"https://127.0.0.1:{port}/hook")
        for dealer in (unproven, gone.dealer, *(listener.dealer for listener in by_kind.values())):
            for _ in range(ORDERS_OF_OTHERS):
                await webhooks.order(dealer)
        for listener in healthy:
            for _ in range(ORDERS_OF_HEALTHY):
                await webhooks.allocate(listener.dealer, await webhooks.order(listener.dealer))
        yield Receivers(webhooks, table, by_kind, healthy, gone, unproven, elsewhere, MemoryGrowth())


async def test_every_kind_of_receiver_is_recorded_and_delays_no_healthy_one(all_kinds: Receivers):
    webhooks = all_kinds.webhooks
    async with webhooks.running(total_seconds=PATIENT_SECONDS, in_flight=32, stop_seconds=0.05):
        await _healthy_ones_receive_all_while_slow_ones_hang(all_kinds)
        for name in all_kinds.kinds.keys() - set(SLOW):
            await all_kinds.recorded(all_kinds.listeners[name].dealer, ORDERS_OF_OTHERS)
        await all_kinds.recorded(all_kinds.unproven, ORDERS_OF_OTHERS)
        await eventually(all_kinds.gone_is_skipped)
    async with webhooks.running(total_seconds=IMPATIENT_SECONDS, stop_seconds=0.05):
        for name in SLOW:
            await all_kinds.recorded(all_kinds.listeners[name].dealer, ORDERS_OF_OTHERS)
    for name, kind in all_kinds.kinds.items():
        dealer = all_kinds.listeners[name].dealer
        assert await all_kinds.records(dealer) == [kind.record] * ORDERS_OF_OTHERS, name
        assert await all_kinds.states(dealer) == {kind.state}, name
    assert await all_kinds.records(all_kinds.unproven) == [("TLS", None, None, None)] * ORDERS_OF_OTHERS
    assert await all_kinds.states(all_kinds.unproven) == {"RETRY"}
    assert all_kinds.memory.has_not_grown()
    await _retries_connections_and_endpoints_match_the_answers(all_kinds)
    await _all_but_the_gone_one_receive_all_in_the_end(all_kinds)


async def _healthy_ones_receive_all_while_slow_ones_hang(all_kinds: Receivers) -> None:
    """The deadline of hanging attempts is far away, and no healthy receiver waits for it."""
    for name in SLOW:
        await all_kinds.listeners[name].receiver.received(ORDERS_OF_OTHERS)
    for listener in all_kinds.healthy:
        await listener.receiver.received(2 * ORDERS_OF_HEALTHY)
        await all_kinds.recorded(listener.dealer, 2 * ORDERS_OF_HEALTHY)
        assert await all_kinds.states(listener.dealer) == {"DELIVERED"}
    for name in SLOW:
        assert all_kinds.listeners[name].receiver.under_way == ORDERS_OF_OTHERS
        assert await all_kinds.webhooks.attempts(all_kinds.listeners[name].dealer) == [], "no first attempt has ended"


async def _retries_connections_and_endpoints_match_the_answers(all_kinds: Receivers) -> None:
    webhooks = all_kinds.webhooks
    assert all_kinds.elsewhere.connections == 0, "a redirect is not followed"
    closing = all_kinds.listeners["accepts and closes"].receiver
    assert closing.connections == len(closing.requests) == ORDERS_OF_OTHERS
    for name, least, most in (("asks to wait", 20, 20), ("fails", 4.5, 5.5)):
        for row in await webhooks.deliveries(all_kinds.listeners[name].dealer):
            assert least <= (row["due_at"] - webhooks.clock()).total_seconds() <= most, name
    for name, kind in all_kinds.kinds.items():
        endpoint = await webhooks.endpoint(all_kinds.listeners[name].dealer)
        failures = 0 if kind.error is None else ORDERS_OF_OTHERS
        assert (endpoint.state, endpoint.consecutive_failures) == ("ACTIVE", failures), name
    assert await all_kinds.records(all_kinds.gone.dealer) == [("GONE", 410, "moved out", "127.0.0.1")]
    states = [state for _, state in await webhooks.states(all_kinds.gone.dealer)]
    assert sorted(states) == ["FAILED"] + ["SKIPPED"] * (ORDERS_OF_OTHERS - 1)
    assert (await webhooks.endpoint(all_kinds.gone.dealer)).state == "DISABLED"


async def _all_but_the_gone_one_receive_all_in_the_end(all_kinds: Receivers) -> None:
    """Once receivers accept, the same bytes arrive; those of the self-signed receiver arrive at the new URL."""
    webhooks, fresh = all_kinds.webhooks, all_kinds.healthy[0].receiver
    before = len(fresh.requests)
    call = SetWebhook(callback_url=fresh.url)
    await webhook.set_webhook(webhooks.database, LOOPBACK, all_kinds.unproven.tenant_id, call, webhooks.clock())
    for listener in all_kinds.listeners.values():
        listener.receiver.answers = [OK]
    webhooks.clock.advance(LONGER_THAN_THE_RETRIES)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
    for name, listener in all_kinds.listeners.items():
        assert await all_kinds.states(listener.dealer) == {"DELIVERED"}, name
        bodies: dict[str, set[bytes]] = defaultdict(set)
        for request in listener.receiver.requests:
            assert request.verified(listener.dealer.secret)
            bodies[request.headers["rt-delivery-id"]].add(request.body)
        assert len(bodies) == ORDERS_OF_OTHERS and all(len(one) == 1 for one in bodies.values()), name
    assert await all_kinds.states(all_kinds.unproven) == {"DELIVERED"}
    assert len(fresh.requests) - before == ORDERS_OF_OTHERS
    assert len(all_kinds.gone.receiver.requests) == 1


async def test_huge_and_compressed_answers_do_not_grow_memory(webhooks: WebhookFixture):
    flood = Gigabyte()
    async with listening(2) as receivers:
        receivers[0].answers, receivers[1].answers = [flood], [bomb()]
        dealers = [await webhooks.dealer(receiver.url) for receiver in receivers]
        memory = MemoryGrowth()
        async with webhooks.deliverer() as deliverer:
            for _ in range(6):
                for dealer in dealers:
                    for _ in range(20):
                        await webhooks.order(dealer)
                assert await deliver_all(deliverer) == 40
                assert memory.has_not_grown()
        for dealer in dealers:
            assert {state for _, state in await webhooks.states(dealer)} == {"DELIVERED"}
        await eventually(lambda: _equal(flood.cut_short, 120))


async def _equal(count: int, expected: int) -> bool:
    return count == expected
