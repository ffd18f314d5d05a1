"""One worker, and every kind of receiver at once: each gets its right record, the good ones wait for none of the bad,
and what they send costs no memory."""

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
BOMB = gzip.compress(bytes(2**20)) * 1_024  # a gigabyte of nothing in a megabyte
LONGER_THAN_A_RETRY_WAITS = 600

Record = tuple[str | None, int | None, str | None, str | None]  # error, status, head of the answer, remote address


class Memory:
    """How much the process has grown since this was made, whenever somebody looked."""

    def __init__(self) -> None:
        self._before = self._most = _resident_bytes()

    def look(self) -> None:
        self._most = max(self._most, _resident_bytes())

    def has_not_grown(self) -> bool:
        self.look()
        return self._most - self._before < MOST_GROWTH_BYTES


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# What receivers do


async def drip(request: Request, writer: asyncio.StreamWriter) -> None:
    """A byte a second, until the other side hangs up."""
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
    """As much of it as the other side takes."""

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
    """What a receiver answers, what is recorded of the attempt, and what becomes of the delivery."""

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
        "accepts without a word": Kind(204, None, 204, None, "DELIVERED"),
        "fails": Kind(answer(500, body=b"oh no"), "STATUS", 500, "oh no", "RETRY"),
        "does not know it": Kind(answer(404, body=b"no such hook"), "STATUS", 404, "no such hook", "RETRY"),
        "sends elsewhere": Kind(redirect, "REDIRECT", 302, None, "RETRY"),
        "asks to wait": Kind(answer(429, "Retry-After: 20"), "STATUS", 429, None, "RETRY"),
        "hangs": Kind(hang_until_left, "TIMEOUT", None, None, "RETRY"),
        "drips": Kind(drip, "TIMEOUT", 200, None, "RETRY"),
        "sends a gigabyte": Kind(Gigabyte(), None, 200, "x" * 2_048, "DELIVERED"),
        "sends a bomb": Kind(bomb(), None, 200, kept_of_bomb, "DELIVERED"),
        "resets": Kind(reset, "RESET", None, None, "RETRY"),
    }


SLOW = ("hangs", "drips")


@dataclass(frozen=True)
class House:
    """A dealer and its receiver."""

    dealer: Dealer
    receiver: Receiver


@dataclass
class Street:
    """Houses side by side: one of each kind, one that has moved out, and some in good health."""

    stage: WebhookFixture
    kinds: Mapping[str, Kind]
    houses: Mapping[str, House]
    healthy: Sequence[House]
    gone: House
    unproven: Dealer  # behind a certificate that nobody vouches for
    elsewhere: Receiver
    memory: Memory

    async def records(self, dealer: Dealer) -> list[Record]:
        """What was recorded of each attempt that was not ours to end."""
        return [
            (row["error"], row["http_status"], row["answer_head"], row["remote_address"])
            for row in await self.stage.attempts(dealer)
            if row["error"] != "STOPPED"
        ]

    async def recorded(self, dealer: Dealer, count: int) -> None:
        """Returns once so many attempts of a dealer are."""

        async def found() -> bool:
            self.cache.look()
            return len(await self.records(dealer)) >= count

        await eventually(found)

    async def states(self, dealer: Dealer) -> set[str]:
        return {state for _, state in await self.stage.states(dealer)}

    async def gone_is_given_up(self) -> bool:
        return await self.states(self.gone.dealer) == {"FAILED", "SKIPPED"}


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[WebhookFixture]:
    """Time stands still, so that no retry comes in between."""
    async with webhook_fixture(database_url) as stage:
        stage.clock = StillClock()
        yield stage


@pytest.fixture
async def street(stage: WebhookFixture, certificate: Path) -> AsyncIterator[Street]:
    async with AsyncExitStack() as stack:

        async def houses(count: int) -> list[House]:
            receivers = await stack.enter_async_context(listening(count))
            return [House(await stage.dealer(receiver.url), receiver) for receiver in receivers]

        [elsewhere] = await stack.enter_async_context(listening(1))
        table = kinds(elsewhere.url)
        [gone], healthy = await houses(1), await houses(HEALTHY)
        by_kind = dict(zip(table, await houses(len(table)), strict=True))
        for name, kind in table.items():
            by_kind[name].receiver.answers = [kind.answers]
        gone.receiver.answers = [answer(410, body=b"moved out")]
        await stage.execute("UPDATE webhook_endpoint SET cap_in_flight = 1 WHERE tenant_id = $1", gone.dealer.tenant_id)
        server, port = await tls_server(certificate)
        stack.callback(server.close)
        unproven = await stage.dealer(f"https://127.0.0.1:{port}/hook")
        for dealer in (unproven, gone.dealer, *(house.dealer for house in by_kind.values())):
            for _ in range(ORDERS_OF_OTHERS):
                await stage.order(dealer)
        for house in healthy:
            for _ in range(ORDERS_OF_HEALTHY):
                await stage.allocate(house.dealer, await stage.order(house.dealer))
        yield Street(stage, table, by_kind, healthy, gone, unproven, elsewhere, Memory())


async def test_every_kind_of_receiver_gets_its_record_and_no_healthy_one_waits_for_another(street: Street):
    stage = street.stage
    async with stage.running(total_seconds=PATIENT_SECONDS, in_flight=32, stop_seconds=0.05):
        await _the_healthy_are_told_while_the_slow_still_keep_us_waiting(street)
        for name in street.kinds.keys() - set(SLOW):
            await street.recorded(street.houses[name].dealer, ORDERS_OF_OTHERS)
        await street.recorded(street.unproven, ORDERS_OF_OTHERS)
        await eventually(street.gone_is_given_up)
    async with stage.running(total_seconds=IMPATIENT_SECONDS, stop_seconds=0.05):
        for name in SLOW:
            await street.recorded(street.houses[name].dealer, ORDERS_OF_OTHERS)
    for name, kind in street.kinds.items():
        dealer = street.houses[name].dealer
        assert await street.records(dealer) == [kind.record] * ORDERS_OF_OTHERS, name
        assert await street.states(dealer) == {kind.state}, name
    assert await street.records(street.unproven) == [("TLS", None, None, None)] * ORDERS_OF_OTHERS
    assert await street.states(street.unproven) == {"RETRY"}
    assert street.memory.has_not_grown()
    await _waits_connections_and_endpoints_are_as_the_answers_say(street)
    await _all_but_the_one_that_left_are_told_in_the_end(street)


async def _the_healthy_are_told_while_the_slow_still_keep_us_waiting(street: Street) -> None:
    """By order of events: the deadline of what hangs is far away, and nothing healthy waits for it."""
    for name in SLOW:
        await street.houses[name].receiver.received(ORDERS_OF_OTHERS)
    for house in street.healthy:
        await house.receiver.received(2 * ORDERS_OF_HEALTHY)
        await street.recorded(house.dealer, 2 * ORDERS_OF_HEALTHY)
        assert await street.states(house.dealer) == {"DELIVERED"}
    for name in SLOW:
        assert street.houses[name].receiver.under_way == ORDERS_OF_OTHERS
        assert await street.stage.attempts(street.houses[name].dealer) == [], "no first attempt has ended"


async def _waits_connections_and_endpoints_are_as_the_answers_say(street: Street) -> None:
    stage = street.stage
    assert street.elsewhere.connections == 0, "a redirect is not followed"
    closing = street.houses["accepts and closes"].receiver
    assert closing.connections == len(closing.requests) == ORDERS_OF_OTHERS
    for name, least, most in (("asks to wait", 20, 20), ("fails", 4.5, 5.5)):
        for row in await stage.deliveries(street.houses[name].dealer):
            assert least <= (row["due_at"] - stage.clock()).total_seconds() <= most, name
    for name, kind in street.kinds.items():
        endpoint = await stage.endpoint(street.houses[name].dealer)
        failures = 0 if kind.error is None else ORDERS_OF_OTHERS
        assert (endpoint.state, endpoint.consecutive_failures) == ("ACTIVE", failures), name
    assert await street.records(street.gone.dealer) == [("GONE", 410, "moved out", "127.0.0.1")]
    states = [state for _, state in await stage.states(street.gone.dealer)]
    assert sorted(states) == ["FAILED"] + ["SKIPPED"] * (ORDERS_OF_OTHERS - 1)
    assert (await stage.endpoint(street.gone.dealer)).state == "DISABLED"


async def _all_but_the_one_that_left_are_told_in_the_end(street: Street) -> None:
    """Once receivers accept, the same bytes arrive; what was behind a wrong certificate, at the new URL."""
    stage, fresh = street.stage, street.healthy[0].receiver
    before = len(fresh.requests)
    call = SetWebhook(callback_url=fresh.url)
    await webhook.set_webhook(stage.database, LOOPBACK, street.unproven.tenant_id, call, stage.clock())
    for house in street.houses.values():
        house.receiver.answers = [OK]
    stage.clock.advance(LONGER_THAN_A_RETRY_WAITS)
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
    for name, house in street.houses.items():
        assert await street.states(house.dealer) == {"DELIVERED"}, name
        bodies: dict[str, set[bytes]] = defaultdict(set)
        for request in house.receiver.requests:
            assert request.verified(house.dealer.secret)
            bodies[request.headers["rt-delivery-id"]].add(request.body)
        assert len(bodies) == ORDERS_OF_OTHERS and all(len(one) == 1 for one in bodies.values()), name
    assert await street.states(street.unproven) == {"DELIVERED"}
    assert len(fresh.requests) - before == ORDERS_OF_OTHERS
    assert len(street.gone.receiver.requests) == 1


async def test_gigabytes_and_bombs_again_and_again_leave_memory_as_it_is(stage: WebhookFixture):
    flood = Gigabyte()
    async with listening(2) as receivers:
        receivers[0].answers, receivers[1].answers = [flood], [bomb()]
        dealers = [await stage.dealer(receiver.url) for receiver in receivers]
        memory = Memory()
        async with stage.deliverer() as deliverer:
            for _ in range(6):
                for dealer in dealers:
                    for _ in range(20):
                        await stage.order(dealer)
                assert await deliver_all(deliverer) == 40
                assert memory.has_not_grown()
        for dealer in dealers:
            assert {state for _, state in await stage.states(dealer)} == {"DELIVERED"}
        await eventually(lambda: _is(flood.cut_short, 120))


async def _is(found: int, wanted: int) -> bool:
    return found == wanted
