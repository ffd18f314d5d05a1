"""Which address is connected to, and how long are names and idle connections kept? On uvloop too."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvloop

from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.webhooks.http_client import resolver as resolver_module
from dealer_server.webhooks.http_client.connector import Connector, interleaved
from dealer_server.webhooks.http_client.pool import Pool
from dealer_server.webhooks.http_client.resolver import Address, Resolver
from dealer_server.webhooks.http_client.target import Target, target_of
from dealer_server.webhooks.outbound import Answer, Outbound
from support.patience import PATIENCE
from support.webhook_fixture import LOOPBACK, OK, Receiver, Request, answer, listening
from support.webhooks.fake_resolver import FakeResolver

NOW = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"  # nobody listens elsewhere, unless a test does


async def post(url: str, *addresses: str, policy: Policy = LOOPBACK, **options: Any) -> Answer:
    """To the port of this URL, at these addresses."""
    named = url.replace(HERE, "dealer.example")
    async with Outbound(policy, resolver=FakeResolver([*addresses]), **options) as client, asyncio.timeout(PATIENCE):
        return await client.post(named, b"{}", {}, NOW)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


@contextlib.contextmanager
def silent(port: int) -> Iterator[None]:
    """At this port elsewhere, connections are neither accepted nor refused: the queue of the listener is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ELSEWHERE, port))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((ELSEWHERE, port))
        yield


# Which address


@pytest.mark.parametrize(
    ("addresses", "error"),
    [
        ([ELSEWHERE, HERE], None),
        (["10.0.0.1", "::ffff:10.0.0.1", HERE], None),
        (["10.0.0.1", ELSEWHERE], "CONNECT"),
        ([ELSEWHERE, "10.0.0.1"], "CONNECT"),
        ([ELSEWHERE, "127.0.0.3"], "CONNECT"),
        (["10.0.0.1", "fd00::1"], "ADDRESS_REFUSED"),
        (["10.0.0.1"], "ADDRESS_REFUSED"),
        ([], "DNS"),
    ],
)
async def test_first_address_that_answers_is_used(receiver: Receiver, addresses: list[str], error: str | None):
    assert (await post(receiver.url, *addresses)).error == error


async def test_silent_address_does_not_hold_up_the_next(receiver: Receiver):
    with silent(port_of(receiver.url)):
        got = await post(receiver.url, ELSEWHERE, HERE, connect_seconds=PATIENCE, total_seconds=PATIENCE)
    assert got.error is None and len(receiver.requests) == 1


async def test_silent_address_is_given_up(receiver: Receiver):
    with silent(port_of(receiver.url)):
        assert (await post(receiver.url, ELSEWHERE, connect_seconds=0.1)).error == "TIMEOUT"
        assert (await post(receiver.url, "10.0.0.1", ELSEWHERE, connect_seconds=0.1)).error == "TIMEOUT"


async def test_address_at_which_tls_fails_is_followed_by_the_next(certificate: Path):
    trust, context = ssl.create_default_context(cafile=str(certificate)), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    closing = await asyncio.start_server(lambda _, writer: writer.close(), HERE, 0)
    url = f"https://{HERE}:{closing.sockets[0].getsockname()[1]}/"
    async with https_receiver(context, ELSEWHERE, port_of(url)) as requests:
        got = await post(url, HERE, ELSEWHERE, trust=trust)
        assert (got.error, got.remote_address) == (None, ELSEWHERE)
        assert (await post(url, ELSEWHERE, "10.0.0.1")).error == "TLS", "this address was not refused"
        assert (await post(url, HERE, "10.0.0.1")).error == "RESET"
    assert requests == [b"{}"]
    closing.close()


def address(family: socket.AddressFamily, text: str) -> Address:
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (text, 80)


def test_families_take_turns():
    four = [address(socket.AF_INET, text) for text in ("192.0.2.1", "192.0.2.2", "192.0.2.3")]
    six = [address(socket.AF_INET6, "2001:db8::1")]
    assert interleaved([*four, *six]) == [four[0], six[0], four[1], four[2]]
    assert interleaved([*six, *four]) == [six[0], *four]


# Which bytes, and where to


@pytest.mark.parametrize(
    ("url", "line", "host", "where"),
    [
        ("http://dealer.example", "/", "dealer.example", (False, "dealer.example", 80)),
        ("HTTPS://Dealer.Example:443?a=%2F", "/?a=%2F", "Dealer.Example", (True, "Dealer.Example", 443)),
        ("https://dealer.example:80/x?", "/x?", "dealer.example:80", (True, "dealer.example", 80)),
        ("http://dealer.example.:08080//b/..", "//b/..", "dealer.example:8080", (False, "dealer.example.", 8080)),
        ("https://[2A00:0:0::1]:8443/", "/", "[2A00:0:0::1]:8443", (True, "2A00:0:0::1", 8443)),
        ("http://xn--bcher-kva.example:/%7e", "/%7e", "xn--bcher-kva.example", (False, "xn--bcher-kva.example", 80)),
    ],
)
def test_url_is_taken_apart(url: str, line: str, host: str, where: tuple[bool, str, int]):
    target = target_of(url, Policy())
    assert target is not None and (target.tls, target.host, target.port) == where
    assert target.request({"X": "1"}, b"{}").decode().split("\r\n") == [
        f"POST {line} HTTP/1.1",
        f"Host: {host}",
        "User-Agent: esim-dealer-webhook/1",
        "Accept-Encoding: identity",
        "Content-Length: 2",
        "X: 1",
        "",
        "{}",
    ]
    assert target.server_hostname == target.host.rstrip(".")


# How long names are kept


async def test_addresses_are_kept_for_a_while_and_taken_in_turn():
    lookups = 0

    def look_up(host: str, port: int, *_: object) -> list[Address]:
        nonlocal lookups
        lookups += 1
        return [address(socket.AF_INET, f"192.0.2.{last}") for last in (1, 2, 3)]

    kept = Resolver(look_up)
    first = [[one[4][0][-1] for one in await kept.resolve("dealer.example", 80)] for _ in range(4)]
    assert first == [["1", "2", "3"], ["2", "3", "1"], ["3", "1", "2"], ["1", "2", "3"]] and lookups == 1
    await kept.resolve("dealer.example", 8080)
    assert lookups == 2
    forgetful = Resolver(look_up, kept_seconds=0.0)
    for _ in range(3):
        await forgetful.resolve("dealer.example", 80)
    assert lookups == 5


async def test_failed_lookup_is_made_again():
    failures: list[Exception] = [socket.gaierror(-3, "Temporary failure in name resolution"), UnicodeError()]

    def look_up(*_: object) -> list[Address]:
        if failures:
            raise failures.pop()
        return [address(socket.AF_INET, HERE)]

    one = Resolver(look_up)
    for _ in range(2):
        with pytest.raises(OSError):
            await one.resolve("dealer.example", 80)
    assert len(await one.resolve("dealer.example", 80)) == 1


async def test_names_and_lookups_are_bounded():
    release = threading.Event()

    def hang(*_: object) -> list[Address]:
        release.wait(PATIENCE)
        return [address(socket.AF_INET, HERE)]

    one = Resolver(hang, seconds=PATIENCE)
    lookups = [asyncio.create_task(one.resolve(f"{n}.example", 80)) for n in range(resolver_module.MOST_LOOKUPS)]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="too many"):
        await one.resolve("dealer.example", 80)
    release.set()
    await asyncio.gather(*lookups)
    for n in range(2 * resolver_module.MOST_KEPT):
        await one.resolve(f"{n}.example", 80)
    assert len(one._kept) == resolver_module.MOST_KEPT


# How long connections are kept


class Watched:
    """A receiver that answers, does what a test says, and notices when the client closes the connection."""

    def __init__(self, receiver: Receiver, then: Callable[[asyncio.StreamWriter], None] = lambda _: None):
        self._receiver = receiver
        self._then = then
        self.go_on, self.left = asyncio.Event(), asyncio.Event()
        receiver.answers = [self._answer, answer(503, body=b"own")]

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        assert request.connection is not None
        writer.write(answer(500, body=b"first"))
        await self.go_on.wait()
        self._then(writer)
        await request.connection.read()
        self.left.set()

    async def first_and_next(self, idle_seconds: float) -> list[bytes]:
        """The bodies answered to a request, and to another once the connection is closed."""
        target = target_of(self._receiver.url, LOOPBACK)
        assert target is not None
        pool = Pool(Connector(LOOPBACK, Resolver(), None, PATIENCE), idle_seconds)
        async with asyncio.timeout(PATIENCE):
            first = await exchange(pool, target)
            self.go_on.set()
            await self.left.wait()
            heads = [first, await exchange(pool, target)]
        await pool.close()
        return heads


async def exchange(pool: Pool, target: Target) -> bytes:
    connection = await pool.take(target)
    await connection.exchange(target.request({}, b"{}"))
    pool.give_back(target, connection)
    return connection.head


async def test_idle_connection_is_closed_in_time(receiver: Receiver):
    assert await Watched(receiver).first_and_next(idle_seconds=0.05) == [b"first", b"own"]


@pytest.mark.parametrize("stray", [answer(202, body=b"second"), b"\r\n", b"H"])
async def test_answer_nobody_asked_for_closes_the_connection(receiver: Receiver, stray: bytes):
    watched = Watched(receiver, lambda writer: writer.write(stray))
    assert await watched.first_and_next(idle_seconds=2 * PATIENCE) == [b"first", b"own"]
    assert receiver.connections == 2


async def test_connection_that_the_receiver_closed_while_idle_is_not_used(receiver: Receiver):
    watched = Watched(receiver, lambda writer: writer.write_eof())
    assert await watched.first_and_next(idle_seconds=2 * PATIENCE) == [b"first", b"own"]
    assert receiver.connections == 2


# TLS, and both event loops


@contextlib.asynccontextmanager
async def https_receiver(context: ssl.SSLContext, host: str, port: int = 0) -> AsyncIterator[list[bytes]]:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                requests.append(await reader.readexactly(2))
                writer.write(OK)
        writer.close()

    server = await asyncio.start_server(serve, host, port, ssl=context)
    try:
        yield requests
    finally:
        server.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_both_event_loops_deliver(certificate: Path, loop: Any):
    """Connections are kept, with TLS and without, and closed where more comes than was asked for."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_deliver(certificate))


async def _deliver(certificate: Path) -> None:
    trust, context = ssl.create_default_context(cafile=str(certificate)), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    accepted = 0

    def count(*_: object) -> None:
        nonlocal accepted
        accepted += 1

    context.sni_callback = count
    with socket.socket() as unused:
        unused.bind((HERE, 0))
        port = unused.getsockname()[1]
    async with (
        https_receiver(context, HERE, port) as requests,
        listening(1) as [receiver],
        Outbound(LOOPBACK, resolver=FakeResolver([HERE]), trust=trust) as client,
        asyncio.timeout(PATIENCE),
    ):
        for _ in range(3):
            got = await client.post(f"https://dealer.example:{port}/", b"{}", {}, NOW)
            assert got == Answer(None, 200, "ok", HERE)
        assert len(requests) == 3 and accepted == 1
        receiver.answers = [OK, OK, OK + OK, answer(500), b"what?\r\n\r\n", answer(503, "Retry-After: 7"), OK]
        got = [await client.post(receiver.url, b"{}", {}, NOW) for _ in receiver.answers]
        assert [one.error for one in got] == [None, None, None, "STATUS", "PROTOCOL", "STATUS", None]
        assert (got[5].retry_after_seconds, receiver.connections) == (7.0, 3)
        assert (await client.post(f"https://other.example:{port}/", b"{}", {}, NOW)).error == "TLS"
        assert (await client.post(f"http://dealer.example:{port}/", b"{}", {}, NOW)).error in ("RESET", "PROTOCOL")
