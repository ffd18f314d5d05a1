"""The HTTP client for receivers: answers that are wrong, slow or huge, and every way to an address that is not public.

Connections go to loopback only: names resolve through a fake resolver, and refused addresses are never connected to.
"""

import asyncio
import errno
import gzip
import socket
import ssl
import threading
import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.webhooks import outbound
from dealer_server.webhooks.http_client import connector
from dealer_server.webhooks.http_client.connector import AddressRefused
from dealer_server.webhooks.http_client.resolver import Resolver
from dealer_server.webhooks.outbound import Answer, Outbound
from support.patience import PATIENCE
from support.webhook_fixture import LOOPBACK, Receiver, Request, answer, hang, listening
from support.webhooks.fake_resolver import FakeResolver
from support.webhooks.tls_server import tls_server

NOW = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
HEADERS = {"Content-Type": "application/json", "X-Signature": "00"}


async def post(url: str, policy: Policy = LOOPBACK, **options: Any) -> Answer:
    async with Outbound(policy, **options) as client, asyncio.timeout(PATIENCE):
        return await client.post(url, b'{"a":1}', HEADERS, NOW)


# What is sent


async def test_body_and_headers_arrive_unchanged(receiver: Receiver):
    assert await post(receiver.url) == Answer(None, 200, "ok", "127.0.0.1")
    [request] = receiver.requests
    assert request.body == b'{"a":1}'
    assert set(request.headers) == {
        "host", "content-type", "content-length", "x-signature", "user-agent", "accept-encoding"
    }  # fmt: skip
    assert request.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("path", ["/a//b/../c;d?x=%2F&y=a+b", "/%7Euser/%20", "/?", "/hook?a=1&a=2"])
async def test_url_is_used_exactly_as_it_was_set(receiver: Receiver, path: str):
    root = receiver.url.removesuffix("/hook")
    assert (await post(root + path)).error is None
    assert receiver.requests[0].path == path


async def test_connections_are_kept_and_cookies_are_not(receiver: Receiver):
    receiver.answers = [answer(200, "Set-Cookie: session=1; Path=/")]
    async with Outbound(LOOPBACK) as client:
        for _ in range(5):
            await client.post(receiver.url, b"{}", HEADERS, NOW)
    assert receiver.connections == 1
    assert not any("cookie" in request.headers for request in receiver.requests)


async def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    async with listening(1) as [proxy]:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert (await post(receiver.url)).error is None
        assert proxy.requests == []


# What comes back


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (200, None), (201, None), (202, None), (204, None), (299, None),
        (300, "REDIRECT"), (304, "REDIRECT"), (400, "STATUS"), (401, "STATUS"), (404, "STATUS"), (410, "GONE"),
        (429, "STATUS"), (500, "STATUS"), (503, "STATUS"), (599, "STATUS"),
    ],
)  # fmt: skip
async def test_only_2xx_is_success(receiver: Receiver, status: int, error: str | None):
    receiver.answers = [answer(status)]
    got = await post(receiver.url)
    assert (got.error, got.status) == (error, status)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_a_failure_and_not_followed(receiver: Receiver, status: int):
    async with listening(1) as [elsewhere]:
        receiver.answers = [answer(status, f"Location: {elsewhere.url}")]
        assert (await post(receiver.url)).error == "REDIRECT"
        assert elsewhere.connections == 0


async def test_head_of_an_answer_is_stored_as_valid_text(receiver: Receiver):
    receiver.answers = [answer(500, body=b"oh \x00 \xff no" + b"x" * 5_000)]
    got = await post(receiver.url)
    assert got.head.startswith("oh \N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER} no") and len(got.head) == 2_048


async def test_endless_answer_is_cut_off_and_costs_no_memory(receiver: Receiver):
    ended = asyncio.Event()

    async def flood(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        try:
            while True:
                writer.write(bytes(65_536))
                await writer.drain()
        except ConnectionError:
            ended.set()
            raise

    receiver.answers = [flood]
    tracemalloc.start()
    got = await post(receiver.url)
    async with asyncio.timeout(PATIENCE):
        await ended.wait()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert got.error is None and len(got.head) == 2_048
    assert peak < 8 * 2**20


async def test_compressed_answer_is_not_decompressed(receiver: Receiver):
    bomb = gzip.compress(bytes(64 * 2**20))
    receiver.answers = [answer(200, "Content-Encoding: gzip", body=bomb)]
    tracemalloc.start()
    got = await post(receiver.url)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert got.error is None and got.head.startswith("\x1f")
    assert peak < 8 * 2**20


async def test_endless_headers_end_the_attempt(receiver: Receiver):
    async def flood(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-More: yes, please\r\n" * 1_000)
            await writer.drain()

    receiver.answers = [flood]
    assert (await post(receiver.url)).error in ("PROTOCOL", "RESET")


@pytest.mark.parametrize("nonsense", [b"what?\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n"])
async def test_answer_that_is_not_http_is_a_protocol_error(receiver: Receiver, nonsense: bytes):
    receiver.answers = [nonsense]
    assert (await post(receiver.url)).error == "PROTOCOL"


async def test_attempt_at_a_hanging_receiver_ends_at_the_deadline(receiver: Receiver):
    receiver.answers = [hang]
    begun = time.monotonic()
    assert (await post(receiver.url, total_seconds=0.2)).error == "TIMEOUT"
    assert time.monotonic() - begun < 1.0


async def test_attempt_at_a_slow_receiver_ends_at_the_same_deadline(receiver: Receiver):
    async def drip(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.02)

    receiver.answers = [drip]
    begun = time.monotonic()
    got = await post(receiver.url, total_seconds=0.2)
    assert (got.error, got.status, got.remote_address) == ("TIMEOUT", 200, "127.0.0.1")
    assert time.monotonic() - begun < 1.0


async def test_connection_closed_without_an_answer_is_a_reset(receiver: Receiver):
    async def close(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.close()

    receiver.answers = [close]
    assert (await post(receiver.url)).error == "RESET"


async def test_answer_that_ends_early_is_a_reset(receiver: Receiver):
    async def half(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        writer.close()

    receiver.answers = [half]
    got = await post(receiver.url)
    assert (got.error, got.status) == ("RESET", 200)


async def test_closed_port_is_a_connect_failure():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        assert (await post(url)).error == "CONNECT"


async def test_lack_of_sockets_is_an_internal_failure(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    def none_left(policy: Policy, address: tuple[Any, ...]) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(connector, "checked_socket", none_left)
    assert (await post(receiver.url)).error == "INTERNAL"


# Names and addresses


async def test_name_that_resolves_to_a_private_address_is_refused_on_connect():
    resolver = FakeResolver(["10.1.2.3"])
    assert (await post("http://dealer.example:8080/", Policy(), resolver=resolver)).error == "ADDRESS_REFUSED"
    assert resolver.lookups == 1


async def test_loopback_by_name_is_refused_unless_allowed(receiver: Receiver):
    url = receiver.url.replace("127.0.0.1", "dealer.example")
    assert (await post(url, Policy(), resolver=FakeResolver(["127.0.0.1"]))).error == "ADDRESS_REFUSED"
    assert receiver.connections == 0
    assert (await post(url, LOOPBACK, resolver=FakeResolver(["127.0.0.1"]))).error is None
    assert receiver.requests[0].headers["host"] == url.removeprefix("http://").removesuffix("/hook")


async def test_refused_addresses_of_a_name_are_not_tried():
    private = ["10.0.0.1", "169.254.169.254", "::1", "fd00::1"]
    got = await post("http://dealer.example:8080/", Policy(), resolver=FakeResolver(private))
    assert got.error == "ADDRESS_REFUSED"


async def test_allowed_address_is_used_beside_a_refused_one(receiver: Receiver):
    url = receiver.url.replace("127.0.0.1", "dealer.example")
    assert (await post(url, LOOPBACK, resolver=FakeResolver(["10.0.0.1", "127.0.0.1"]))).error is None


async def test_name_is_checked_on_each_connection(receiver: Receiver):
    """Rebinding: allowed the first time, private the second."""
    receiver.answers = [answer(200, "Connection: close")]
    url = receiver.url.replace("127.0.0.1", "dealer.example")
    resolver = FakeResolver(["127.0.0.1"], ["10.0.0.1"])
    async with Outbound(LOOPBACK, resolver=resolver) as client:
        first = await client.post(url, b"{}", HEADERS, NOW)
        second = await client.post(url, b"{}", HEADERS, NOW)
    assert (first.error, second.error) == (None, "ADDRESS_REFUSED")
    assert resolver.lookups == 2


@pytest.mark.parametrize("host", ["0x7f000001", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "[::1]"])
async def test_disguised_numeric_hosts_are_refused(host: str):
    assert (await post(f"http://{host}:8080/", Policy())).error == "ADDRESS_REFUSED"


@pytest.mark.parametrize("address", ["10.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "dealer.example", "localhost"])
def test_no_socket_is_created_for_a_non_public_address_or_a_name(address: str):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with pytest.raises(AddressRefused):
        connector.checked_socket(LOOPBACK, (family, socket.SOCK_STREAM, 6, "", (address, 80)))


async def test_unresolvable_name_is_a_dns_failure():
    def unknown(*_: object) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    assert (await post("http://dealer.example/", resolver=Resolver(unknown))).error == "DNS"


async def test_hanging_lookup_delays_its_own_name_only(receiver: Receiver):
    release, asked = threading.Event(), []

    def lookup(host: str, port: int, *_: object) -> list[Any]:
        asked.append(host)
        if host == "hanging.example":
            release.wait(PATIENCE)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async with Outbound(LOOPBACK, resolver=Resolver(lookup, seconds=0.1)) as client:
        hanging, healthy = (receiver.url.replace("127.0.0.1", name) for name in ("hanging.example", "dealer.example"))
        many = [client.post(hanging, b"{}", HEADERS, NOW) for _ in range(10)]
        answers = await asyncio.gather(*many, client.post(healthy, b"{}", HEADERS, NOW))
        assert [one.error for one in answers] == ["DNS"] * 10 + [None]
        assert asked.count("hanging.example") == 1, "one thread, however many wait"
        release.set()


async def test_real_resolver_resolves_and_fails(receiver: Receiver):
    assert (await post(receiver.url.replace("127.0.0.1", "localhost"))).error is None


# TLS


async def test_self_signed_certificate_is_refused(certificate: Path):
    server, port = await tls_server(certificate)
    resolver = FakeResolver(["127.0.0.1"])
    assert (await post(f"https://dealer.example:{port}/", resolver=resolver)).error == "TLS"
    server.close()


async def test_certificate_is_verified_against_the_host_name(certificate: Path):
    server, port = await tls_server(certificate)
    trust = ssl.create_default_context(cafile=str(certificate))
    for name, word in (("dealer.example", None), ("other.example", "TLS")):
        got = await post(f"https://{name}:{port}/", resolver=FakeResolver(["127.0.0.1"]), trust=trust)
        assert got.error == word
    server.close()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_tls_before_1_2_is_refused(certificate: Path):
    server, port = await tls_server(certificate, ssl.TLSVersion.TLSv1_1)
    trust = ssl.create_default_context(cafile=str(certificate))
    got = await post(f"https://dealer.example:{port}/", resolver=FakeResolver(["127.0.0.1"]), trust=trust)
    assert got.error in ("TLS", "RESET") and got.status is None
    assert connector.verifying().minimum_version >= ssl.TLSVersion.TLSv1_2
    server.close()


async def test_plain_http_on_an_https_url_is_a_tls_failure(receiver: Receiver):
    assert (await post(receiver.url.replace("http://", "https://"), connect_seconds=0.5)).error in ("TLS", "TIMEOUT")


# Retry-After


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None), ("20", 20.0), ("0", 0.0), ("-5", None), ("1.5", None), ("soon", None), ("", None),
        ("9" * 30, None), ("２０", None),
        ("Fri, 20 Nov 2026 08:17:30 GMT", 120.0), ("Fri, 20 Nov 2026 08:00:00 GMT", 0.0),
        ("Fri, 99 Nov 2026 08:00:00 GMT", None), (f"Fri, 20 Nov {10**30} 08:00:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None):
    assert outbound.retry_after_seconds(value, NOW) == seconds
