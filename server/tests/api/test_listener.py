"""The listener, over raw sockets on loopback: what is read as a request, what is refused, and who is closed when."""

import asyncio
import contextlib
import json
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dealer_server import sockets
from dealer_server.api import listener
from dealer_server.api.listener import Deadlines, Limits, Listener
from dealer_server.rules.access import access
from support.patience import PATIENCE

BRISK = Deadlines(headers=0.3, body=0.3, idle=0.3, stalled=0.3, linger=0.3, shutdown=0.5, sweep=0.05)

# Calls on a new connection each until none is accepted; prints how many were neither answered nor refused.
CALL_UNTIL_REFUSED = """
import contextlib, socket, sys
cut_off = 0
with contextlib.suppress(OSError):
    while True:
        with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as client:
            answer = b""
            with contextlib.suppress(OSError):
                client.sendall(b"POST /a HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\n\\r\\n")
                answer = client.recv(4096)
            cut_off += not answer.startswith(b"HTTP/1.1 200")
print(cut_off)
"""


# A tiny application and a server around it


@dataclass
class App:
    """Answers every whole request with 200 and its path, and remembers it."""

    seen: list[tuple[str, str, bytes]] = field(default_factory=list)
    scopes: list[dict[str, Any]] = field(default_factory=list)
    entered: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/unread":
            await self.answer(send, 413, b"/unread")
            return
        body = await self.whole_body(receive)
        if body is None:
            return
        self.seen.append((scope["method"], scope["path"], body))
        self.scopes.append(scope)
        if scope["path"] == "/authenticated":
            scope[access.AUTHENTICATED]()
        if scope["path"] == "/wait":
            self.entered.set()
            await asyncio.to_thread(self.released.wait, PATIENCE)
        answer = bytes(int(body)) if scope["path"] == "/large" else scope["path"].encode()
        await self.answer(send, 200, answer)

    async def whole_body(self, receive: Any) -> bytes | None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message["body"]
            if not message["more_body"]:
                return body

    async def answer(self, send: Any, status: int, body: bytes) -> None:
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


@dataclass
class Served:
    """A running server, its application and its port."""

    app: App
    server: Listener
    port: int
    thread: threading.Thread

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), PATIENCE, (source, 0))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def exchange(self, *sent: bytes) -> bytes:
        """Send the parts, and read until the server closes."""
        with self.connect() as client:
            for part in sent:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # closed on us before all was sent
                    client.sendall(part)
            return read_to_end(client)

    def stop(self) -> None:
        self.app.released.set()
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@contextlib.contextmanager
def running(**settings: Any) -> Iterator[Served]:
    app, listening = App(), sockets.bind("127.0.0.1", 0)
    server = listener.server(app, **settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    served = Served(app, server, listening.getsockname()[1], thread)
    thread.start()
    try:
        yield served
    finally:
        served.stop()


@pytest.fixture(scope="module")
def shared_server() -> Iterator[Served]:
    with running(new_trace_id=lambda: "trace-1") as served:
        yield served


@pytest.fixture
def served(shared_server: Served) -> Served:
    """The server with the usual deadlines and limits, its application's memory wiped."""
    shared_server.app.seen.clear()
    shared_server.app.scopes.clear()
    return shared_server


@pytest.fixture(scope="module")
def brisk_server() -> Iterator[Served]:
    with running(deadlines=BRISK) as served:
        yield served


@pytest.fixture
def brisk(brisk_server: Served) -> Served:
    """The server whose deadlines are tenths of seconds."""
    brisk_server.app.seen.clear()
    brisk_server.app.entered.clear()
    brisk_server.app.released.clear()
    return brisk_server


def read_to_end(client: socket.socket) -> bytes:
    """All the server sends until it closes. A reset counts as closing."""
    received = []
    with contextlib.suppress(ConnectionResetError):
        while data := client.recv(1 << 20):
            received.append(data)
    return b"".join(received)


def read_answer(client: socket.socket) -> bytes:
    """One answer, by its Content-Length: the status line and the body."""
    received = b""
    while b"\r\n\r\n" not in received:
        data = client.recv(65536)
        assert data, "closed instead of answering"
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += client.recv(65536)
    assert len(body) == length, "more than one answer"
    return head.partition(b"\r\n")[0] + b" " + body


def trickle_until_closed(client: socket.socket, piece: bytes) -> bytes:
    """Send the piece again and again, a little apart, until the server closes; what it sent meanwhile."""
    received = b""
    for _ in range(int(PATIENCE / 0.02)):
        readable, _, _ = select.select([client], [], [], 0.02)
        try:
            if readable:
                data = client.recv(65536)
                if not data:
                    return received
                received += data
            client.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return received
    raise AssertionError("not closed")


def let_every_deadline_pass(brisk: Served) -> None:
    """Come back when connections opened from now on have been closed for owing their headers."""
    for _ in range(2):
        brisk.exchange()


def post(path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(path: str, chunks: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + chunks


def assert_refused(answer: bytes, code: str = "000102") -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 400 Bad Request"
    assert b"content-type: application/json" in lines
    assert b"connection: close" in lines
    envelope = json.loads(body)
    assert envelope["code"] == code and envelope["data"] == {} and envelope["message"]


# Requests as they should be


def test_requests_on_one_connection_are_answered_one_after_the_other(served: Served):
    with served.connect() as client:
        for number in range(3):
            client.sendall(post(f"/{number}", b"body"))
            assert read_answer(client) == f"HTTP/1.1 200 OK /{number}".encode()
    assert served.app.seen == [("POST", f"/{number}", b"body") for number in range(3)]


def test_pipelined_requests_are_answered_in_order(served: Served):
    last = post("/last", b"5", "Connection: close")
    answers = served.exchange(b"".join(post(f"/{number}", b"x" * number) for number in range(9)) + last)
    assert answers.count(b"HTTP/1.1 200 OK") == 10
    assert [path for _, path, _ in served.app.seen] == [f"/{number}" for number in range(9)] + ["/last"]
    assert answers.endswith(b"/last")


def test_a_request_may_come_byte_by_byte(served: Served):
    whole = chunked("/slow", b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "Connection: close")
    answer = served.exchange(*[whole[at : at + 1] for at in range(len(whole))])
    assert answer.endswith(b"/slow")
    assert served.app.seen == [("POST", "/slow", b"abcde")]


def test_a_large_body_arrives_whole_and_the_connection_goes_on(served: Served):
    body = bytes(range(256)) * 1000
    served.exchange(post("/a", body) + post("/b", b"after", "Connection: close"))
    assert served.app.seen == [("POST", "/a", body), ("POST", "/b", b"after")]


def test_expect_100_continue_is_answered_before_the_body(served: Served):
    with served.connect() as client:
        head, body = post("/a", b"hello", "Expect: 100-continue").split(b"hello")[0], b"hello"
        client.sendall(head)
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert read_answer(client) == b"HTTP/1.1 200 OK /a"


def test_a_client_that_closes_its_half_still_gets_the_answer(served: Served):
    with served.connect() as client:
        client.sendall(post("/a", b"hello"))
        client.shutdown(socket.SHUT_WR)
        assert read_to_end(client).endswith(b"/a")


def test_an_http_1_0_request_is_answered_and_the_connection_closed(served: Served):
    assert served.exchange(b"POST /old HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi").endswith(b"/old")
    assert served.app.seen == [("POST", "/old", b"hi")]


H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: AA==", "Sec-WebSocket-Version: 13")


@pytest.mark.parametrize("headers", [H2C, WEBSOCKET])
@pytest.mark.parametrize(
    "request_of", [post, lambda path, body, *headers: chunked(path, b"5\r\nhello\r\n0\r\n\r\n", *headers)]
)
def test_a_wish_to_upgrade_is_overheard_and_the_body_is_a_body(
    served: Served, headers: tuple[str, ...], request_of: Callable[..., bytes]
):
    wishes = request_of("/a", b"hello", *headers)
    answers = served.exchange(wishes, wishes + post("/b", b"", "Connection: close"))
    assert answers.count(b"HTTP/1.1 200 OK") == 3 and b"101" not in answers
    assert served.app.seen == [("POST", "/a", b"hello")] * 2 + [("POST", "/b", b"")]
    assert b"upgrade" not in dict(served.app.scopes[0]["headers"])


def test_forwarded_headers_are_not_believed(served: Served):
    spoofed = ("X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https", "Connection: close")
    served.exchange(post("/a", b"", *spoofed))
    assert served.app.scopes[0]["client"][0] == "127.0.0.1"
    assert served.app.scopes[0]["scheme"] == "http"


def test_the_server_does_not_name_itself_and_gives_the_date(served: Served):
    head = served.exchange(post("/a", b"", "Connection: close")).lower()
    assert b"\r\nserver:" not in head and b"\r\ndate:" in head


# Requests as they should not be. Each is followed by a request that must not be executed.

SMUGGLED = post("/smuggled", b"", "Connection: close")

A = b"POST /a HTTP/1.1\r\nHost: x\r\n"
MALFORMED = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http2_preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "lower_case_method": b"post /a HTTP/1.1\r\nHost: x\r\n\r\n",
    "unknown_version": b"POST /a HTTP/1.2\r\nHost: x\r\n\r\n",
    "version_2": b"POST /a HTTP/2.0\r\nHost: x\r\n\r\n",
    "version_0_9": b"GET /a\r\n\r\n",
    "version_0_9_said": b"POST /a HTTP/0.9\r\nHost: x\r\n\r\n",
    "space_in_path": b"POST /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes_in_path": "POST /é HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
    "fragment_in_path": b"POST /a#b HTTP/1.1\r\nHost: x\r\n\r\n",
    "connect": b"CONNECT a:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "connect_like_a_url": b"CONNECT httpx:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "host_missing": b"POST /a HTTP/1.1\r\n\r\n",
    "host_twice": A + b"Host: y\r\n\r\n",
    "length_and_chunked": A + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked_and_length": A + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "length_twice": A + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "lengths_differ": A + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
    "length_list": A + b"Content-Length: 5, 5\r\n\r\nhello",
    "length_plus": A + b"Content-Length: +5\r\n\r\nhello",
    "length_negative": A + b"Content-Length: -5\r\n\r\nhello",
    "length_hex": A + b"Content-Length: 0x5\r\n\r\nhello",
    "length_empty": A + b"Content-Length: \r\n\r\nhello",
    "length_overflow": A + b"Content-Length: 18446744073709551621\r\n\r\nhello",
    "coding_unknown": A + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding_identity": A + b"Transfer-Encoding: identity\r\n\r\n",
    "coding_gzip_chunked": A + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding_twice": A + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding_after_identity": A + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding_empty": A + b"Transfer-Encoding:\r\nContent-Length: 5\r\n\r\nhello",
    "coding_vertical_tab": A + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "coding_space_before_colon": A + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "coding_in_1_0": b"POST /a HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk_size_not_hex": chunked("/a", b"zz\r\n"),
    "chunk_size_prefixed": chunked("/a", b"0x1\r\nA\r\n0\r\n\r\n"),
    "chunk_size_signed": chunked("/a", b"-1\r\nA\r\n0\r\n\r\n"),
    "chunk_size_spaced": chunked("/a", b"1 \r\nA\r\n0\r\n\r\n"),
    "chunk_size_overflow": chunked("/a", b"11111111111111111\r\nA\r\n0\r\n\r\n"),
    "chunk_size_bare_lf": chunked("/a", b"1\nA\r\n0\r\n\r\n"),
    "chunk_extension_bare_lf": chunked("/a", b"1;a\nA\r\n0\r\n\r\n"),
    "chunk_longer_than_said": chunked("/a", b"1\r\nAB\r\n0\r\n\r\n"),
    "trailer": chunked("/a", b"1\r\nA\r\n0\r\nX-Signature: 00\r\n\r\n"),
    "obs_fold": A + b"X-A: y\r\n z\r\n\r\n",
    "obs_fold_first": b"POST /a HTTP/1.1\r\n Host: x\r\nX-A: y\r\n\r\n",
    "bare_lf_line": b"POST /a HTTP/1.1\nHost: x\r\n\r\n",
    "bare_lf_header": b"POST /a HTTP/1.1\r\nHost: x\nX-A: y\r\n\r\n",
    "bare_lf_end": A + b"\n",
    "bare_cr_header": b"POST /a HTTP/1.1\r\nHost: x\rX-A: y\r\n\r\n",
    "header_without_colon": A + b"Xab\r\n\r\n",
    "header_without_name": A + b": y\r\n\r\n",
    "header_name_with_bracket": A + b"X(: y\r\n\r\n",
    "header_value_with_nul": A + b"X-A: a\0b\r\n\r\n",
    "upgrade_and_both_lengths": A
    + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "upgrade_and_bad_chunk": chunked("/a", b"zz\r\n", *H2C),
}
TOO_LARGE = {
    "request_line": b"POST /" + b"a" * 8193 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "request_line_endless": b"POST /" + b"a" * 40_000,
    "header": post("/a", b"", "X-A: " + "a" * 33_000),
    "header_endless": b"POST /a HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 40_000,
    "headers_together": post("/a", b"", *[f"X-{number}: {'a' * 500}" for number in range(70)]),
    "headers_too_many": post("/a", b"", *[f"X-{number}: a" for number in range(101)]),
    "headers_and_body": post("/a", b"b" * 100_000, "X-A: " + "a" * 33_000),
}


@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_is_refused_and_what_follows_is_not_executed(served: Served, malformed: bytes):
    assert_refused(served.exchange(malformed + SMUGGLED))
    assert served.app.seen == []


@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED.keys())
def test_it_is_refused_as_well_when_it_comes_byte_by_byte(served: Served, malformed: bytes):
    assert_refused(served.exchange(*[malformed[at : at + 1] for at in range(len(malformed))], SMUGGLED))
    assert served.app.seen == []


@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED.keys())
def test_it_is_refused_after_the_answer_to_the_request_before_it(served: Served, malformed: bytes):
    answers = served.exchange(post("/first", b"1") + malformed + SMUGGLED)
    first, _, rest = answers.partition(b"/first")
    assert first.startswith(b"HTTP/1.1 200 OK")
    assert_refused(rest)
    assert [path for _, path, _ in served.app.seen] == ["/first"]


@pytest.mark.parametrize("too_large", TOO_LARGE.values(), ids=TOO_LARGE.keys())
@pytest.mark.parametrize("piece", [1 << 20, 1000])
def test_a_head_over_its_limits_is_refused(served: Served, too_large: bytes, piece: int):
    assert_refused(served.exchange(*[too_large[at : at + piece] for at in range(0, len(too_large), piece)], SMUGGLED))
    assert served.app.seen == []


def test_a_head_within_its_limits_is_taken_even_beside_a_large_body(served: Served):
    headers = [f"X-{number}: {'a' * 300}" for number in range(90)]
    large = post("/a", b"b" * 200_000, *headers)
    answers = served.exchange(large + large + post("/b", b"", "Connection: close", *headers))
    assert answers.count(b"HTTP/1.1 200 OK") == 3


def test_a_refusal_carries_a_trace_id(served: Served):
    assert b"\r\nx-trace-id: trace-1\r\n" in served.exchange(b"nonsense\r\n\r\n")


def test_after_connection_close_nothing_more_is_executed(served: Served):
    answer = served.exchange(post("/last", b"", "Connection: close") + SMUGGLED)
    assert answer.count(b"HTTP/1.1") == 1
    assert [path for _, path, _ in served.app.seen] == ["/last"]


def test_a_body_that_turns_out_malformed_after_the_answer_ends_the_connection_without_a_second_answer(served: Served):
    with served.connect() as client:
        client.sendall(chunked("/unread", b"1\r\nA\r\n"))
        assert read_answer(client).startswith(b"HTTP/1.1 413 ")
        client.sendall(b"zz\r\n" + SMUGGLED)
        assert read_to_end(client) == b""
    assert served.app.seen == []


def test_more_pipelined_requests_than_allowed_are_refused(served: Served):
    answers = served.exchange(post("/a") * 3000)
    executed = answers.count(b"HTTP/1.1 200 OK")
    assert executed == len(served.app.seen) <= Limits().pipelined + 1
    assert_refused(answers[answers.rindex(b"HTTP/1.1 400") :])


# Slow clients


def test_a_client_that_sends_nothing_is_closed(brisk: Served):
    assert brisk.exchange() == b""


def test_a_client_that_trickles_its_headers_is_closed(brisk: Served):
    with brisk.connect() as client:
        client.sendall(b"POST /a HTTP/1.1\r\nHost: x\r\nX-A: ")
        assert trickle_until_closed(client, b"a") == b""


def test_a_client_that_trickles_its_body_is_closed_and_the_request_is_not_executed(brisk: Served):
    with brisk.connect() as client:
        client.sendall(post("/a", b"a" * 100_000)[:-99_000])
        assert trickle_until_closed(client, b"a") == b""
    assert brisk.app.seen == []


def test_a_client_that_trickles_chunks_is_closed(brisk: Served):
    with brisk.connect() as client:
        client.sendall(chunked("/a", b""))
        assert trickle_until_closed(client, b"1\r\na\r\n") == b""
    assert brisk.app.seen == []


def test_an_idle_connection_is_closed(brisk: Served):
    with brisk.connect() as client:
        client.sendall(post("/a"))
        assert read_answer(client) == b"HTTP/1.1 200 OK /a"
        assert read_to_end(client) == b""


def test_empty_lines_do_not_keep_an_idle_connection_open(brisk: Served):
    with brisk.connect() as client:
        client.sendall(post("/a"))
        read_answer(client)
        assert trickle_until_closed(client, b"\r\n") == b""


def test_a_trickled_second_request_is_closed_and_the_first_is_answered(brisk: Served):
    with brisk.connect() as client:
        client.sendall(post("/a") + b"POST /b HTTP/1.1\r\nX-A: ")
        assert trickle_until_closed(client, b"a").endswith(b"/a")
    assert [path for _, path, _ in brisk.app.seen] == ["/a"]


def test_a_body_still_trickling_after_the_answer_is_not_waited_for(brisk: Served):
    with brisk.connect() as client:
        client.sendall(post("/unread", b"a" * 100_000)[:-99_000])
        assert trickle_until_closed(client, b"a").endswith(b"/unread")


def test_a_refused_client_that_does_not_hang_up_is_closed(brisk: Served):
    with brisk.connect() as client:
        client.sendall(b"nonsense\r\n\r\n")
        assert_refused(trickle_until_closed(client, b"a" * 1000))


def test_a_slow_application_costs_its_client_nothing(brisk: Served):
    with brisk.connect() as client:
        client.sendall(post("/wait") + post("/after", b"body"))
        assert brisk.app.entered.wait(PATIENCE)
        let_every_deadline_pass(brisk)
        brisk.app.released.set()
        assert trickle_until_closed(client, b"").count(b"HTTP/1.1 200 OK") == 2
    assert [path for _, path, _ in brisk.app.seen] == ["/wait", "/after"]


LARGE = 20_000_000


def test_a_client_that_does_not_take_its_answer_is_closed(brisk: Served):
    with brisk.connect() as client:
        client.sendall(post("/large", b"%d" % LARGE))
        assert client.recv(1)
        let_every_deadline_pass(brisk)
        assert len(read_to_end(client)) < LARGE


def test_a_client_that_takes_its_answer_slowly_gets_it_whole(brisk: Served):
    with brisk.connect() as client:
        client.sendall(post("/large", b"%d" % LARGE, "Connection: close"))
        received = 0
        while data := client.recv(300_000):
            received += len(data)
            select.select([], [], [], 0.01)
        assert received > LARGE


def test_over_the_cap_the_connection_that_has_waited_longest_makes_room():
    with running(limits=Limits(connections=2)) as served, served.connect() as one, served.connect() as two:
        for client in (one, two):
            client.sendall(post("/a"))
            assert read_answer(client) == b"HTTP/1.1 200 OK /a"
        with served.connect() as third:
            third.sendall(post("/b"))
            assert read_answer(third) == b"HTTP/1.1 200 OK /b"
            assert read_to_end(one) == b""
            for client in (two, third):
                client.sendall(post("/c"))
                assert read_answer(client) == b"HTTP/1.1 200 OK /c"
        assert served.server.counts.closed_for_others == 1


def test_where_all_connections_are_at_work_one_more_is_told_so_and_closed():
    with running(limits=Limits(connections=1)) as served, served.connect() as one:
        one.sendall(post("/wait"))
        assert served.app.entered.wait(PATIENCE)
        answer = served.exchange()
        assert answer.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1\r\n" in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "900001"
        served.app.released.set()
        assert read_answer(one) == b"HTTP/1.1 200 OK /wait"
        assert served.server.counts.over_connections == 1


def test_one_address_has_its_share_of_the_connections_and_others_find_room():
    limits = Limits(connections=400, per_client=100)
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(running(limits=limits))
        neighbour = stack.enter_context(served.connect("127.0.0.2"))
        neighbour.sendall(post("/a"))
        assert read_answer(neighbour) == b"HTTP/1.1 200 OK /a"
        kept = []
        for _ in range(300):
            kept.append(stack.enter_context(served.connect()))
            kept[-1].sendall(post("/b"))
            assert read_answer(kept[-1]) == b"HTTP/1.1 200 OK /b"
        assert [read_to_end(client) for client in kept[:200]] == [b""] * 200
        for client in (kept[200], kept[-1], neighbour):
            client.sendall(post("/c"))
            assert read_answer(client) == b"HTTP/1.1 200 OK /c"
        assert served.server.open_connections == 101


def test_a_trusted_proxy_has_as_many_connections_as_it_likes():
    exempt = "127.0.0.1".__eq__
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(running(limits=Limits(per_client=2), exempt=exempt))
        clients = [stack.enter_context(served.connect()) for _ in range(20)]
        for client in clients:
            client.sendall(post("/a"))
            assert read_answer(client) == b"HTTP/1.1 200 OK /a"
        assert served.server.counts.closed_for_others == 0


def test_unauthenticated_connections_are_closed_before_authenticated_ones():
    with (
        running(limits=Limits(connections=2)) as served,
        served.connect() as authenticated,
        served.connect() as unauthenticated,
    ):
        for client, path in ((authenticated, b"/authenticated"), (unauthenticated, b"/a")):
            client.sendall(post(path.decode()))
            assert read_answer(client) == b"HTTP/1.1 200 OK " + path
        with served.connect() as third:
            assert read_to_end(unauthenticated) == b""
            for client in (authenticated, third):
                client.sendall(post("/c"))
                assert read_answer(client) == b"HTTP/1.1 200 OK /c"


def test_a_connection_over_which_nobody_was_authenticated_waits_for_a_shorter_time():
    deadlines = Deadlines(idle=60, unauthenticated_idle=0.2, sweep=0.05)
    with running(deadlines=deadlines) as served, served.connect() as authenticated, served.connect() as unauthenticated:
        for client, path in ((authenticated, b"/authenticated"), (unauthenticated, b"/a")):
            client.sendall(post(path.decode()))
            assert read_answer(client) == b"HTTP/1.1 200 OK " + path
        assert read_to_end(unauthenticated) == b""
        authenticated.sendall(post("/c"))
        assert read_answer(authenticated) == b"HTTP/1.1 200 OK /c"


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


def test_tls_serves_refuses_and_closes_like_plain_tcp(certificate: tuple[Path, Path]):
    trusting = ssl.create_default_context(cafile=certificate[0])
    with running(deadlines=BRISK, tls=certificate) as served:

        def connect() -> ssl.SSLSocket:
            return trusting.wrap_socket(served.connect(), server_hostname="localhost")

        with connect() as client:
            assert client.version() in {"TLSv1.2", "TLSv1.3"}
            client.sendall(post("/a"))
            assert read_answer(client) == b"HTTP/1.1 200 OK /a"
            assert served.app.scopes[0]["scheme"] == "https"
            assert read_to_end(client) == b""
        with connect() as client:
            client.sendall(b"nonsense\r\n\r\n")
            assert_refused(read_to_end(client))
        assert served.exchange() == b""  # no handshake


def test_tls_below_1_2_is_not_spoken(certificate: tuple[Path, Path]):
    assert listener.tls_context(*certificate).minimum_version == ssl.TLSVersion.TLSv1_2


# Starting and stopping


def test_a_port_in_use_is_an_oserror_that_names_it():
    with sockets.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port}"):
            sockets.bind("127.0.0.1", port)


def test_a_request_in_flight_is_finished_before_the_server_stops():
    with running() as served, served.connect() as client, served.connect() as idle:
        idle.sendall(post("/a"))
        read_answer(idle)
        client.sendall(post("/wait"))
        assert served.app.entered.wait(PATIENCE)
        served.server.should_exit = True
        assert read_to_end(idle) == b""
        with pytest.raises(ConnectionRefusedError):
            served.connect()
        served.app.released.set()
        assert read_to_end(client).endswith(b"/wait")
        served.thread.join(PATIENCE)
        assert not served.thread.is_alive()


def test_a_call_that_a_new_connection_sends_while_the_server_stops_is_answered():
    with running() as served, served.connect() as fresh, served.connect() as silent:
        while served.server.open_connections < 2:
            time.sleep(0.001)
        served.server.should_exit = True
        with pytest.raises((ConnectionRefusedError, ConnectionResetError)):
            while True:
                served.connect().close()
        fresh.sendall(post("/a"))
        answer = read_to_end(fresh)
        assert b"connection: close" in answer and answer.endswith(b"/a")
        assert read_to_end(silent) == b""


def test_calls_on_new_connections_are_answered_or_refused_while_the_server_stops_and_not_cut_off():
    stops, cut_off = 20, 0
    for _ in range(stops):
        with running() as served:
            call = [sys.executable, "-c", CALL_UNTIL_REFUSED, str(served.port)]
            calling = [subprocess.Popen(call, stdout=subprocess.PIPE) for _ in range(3)]
            while len(served.app.seen) < 100:
                time.sleep(0.001)
            served.server.should_exit = True
            cut_off += sum(int(process.communicate(timeout=PATIENCE)[0]) for process in calling)
    # Some microseconds are left between the last look and the close, more where something else gets the core: up to 3
    # calls in 20 stops of a busy machine. Without the last look there are more than 20.
    assert cut_off <= stops // 2


async def test_a_retiring_server_answers_on_open_connections_once_more_and_says_that_it_closes_them():
    listening = sockets.bind("127.0.0.1", 0)
    app = App()
    server = listener.server(app)
    serving = asyncio.create_task(server.serve(sockets=[listening.dup()]))
    idle, fresh, waiting = [await asyncio.open_connection(*listening.getsockname()) for _ in range(3)]
    idle[1].write(post("/a"))
    assert b"connection: close" not in await idle[0].readuntil(b"/a")
    waiting[1].write(post("/wait"))
    await asyncio.to_thread(app.entered.wait, PATIENCE)
    retiring = asyncio.create_task(server.retire())
    await asyncio.sleep(0)
    for reader, writer in (idle, fresh):
        writer.write(post("/b"))
        assert b"connection: close" in (answer := await reader.read()) and answer.endswith(b"/b")
    assert not retiring.done()
    app.released.set()
    assert b"connection: close" in await waiting[0].read()
    await retiring
    _, queued = await asyncio.open_connection(*listening.getsockname())  # for another process that has this socket
    assert server.open_connections == 0
    server.should_exit = True
    await serving
    for writer in (idle[1], fresh[1], waiting[1], queued):
        writer.close()
    listening.close()


def test_a_request_that_never_ends_does_not_keep_the_server_from_stopping():
    with running(deadlines=Deadlines(shutdown=0.2)) as served, served.connect() as client:
        client.sendall(post("/wait"))
        assert served.app.entered.wait(PATIENCE)
        served.server.should_exit = True
        assert b"/wait" not in read_to_end(client)


async def test_the_caller_keeps_its_signals():
    listening = sockets.bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    server = listener.server(App())
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post("/a", b"", "Connection: close"))
    assert (await reader.read()).endswith(b"/a")
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    writer.close()
    server.should_exit = True
    await serving
