"""How do bytes from strangers become requests? uvicorn behind deadlines, limits and a strict reading of HTTP/1.1.

uvicorn leaves to a front proxy what a server on the open net needs: it waits for ever for a slow client, queues any
number of pipelined requests and hands on framing that proxies are known to read differently. Here such a client is
answered 400, or closed. Nothing here knows the API; the answers it makes itself are the API's envelope.
"""

import asyncio
import contextlib
import errno
import functools
import socket
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httptools
import msgspec
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from dealer_server.api.admission import client_network

log = structlog.get_logger(__name__)

LAST_PORT = 65_535
BACKLOG = 4096  # connections that wait to be accepted; the kernel caps it (net.core.somaxconn)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds. A connection that outlives one is closed at one of the next two sweeps, never before its time."""

    headers: float = 5.0  # from a request's first byte, or from connecting, to the end of its headers
    body: float = 10.0  # from the end of the headers to the end of the body
    idle: float = 75.0  # between two requests
    stranger_idle: float = 75.0  # the same, on a connection over which nobody was authenticated
    stalled: float = 30.0  # for 64 KiB of an answer, or the rest of it, to be taken by the client
    linger: float = 2.0  # for a refused client to read the answer and hang up
    shutdown: float = 10.0  # for requests in flight when the server stops
    sweep: float = 0.5  # how often connections are looked at


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server, and one connection of it, may hold."""

    connections: int = 10_000
    per_client: int = 10_000  # connections of one IPv4 address or one IPv6 /64
    head_bytes: int = 32 * 1024
    request_line_bytes: int = 8 * 1024
    headers: int = 100
    pipelined: int = 64  # requests received before the first of them is answered


@dataclass(slots=True)
class Counts:
    """What the listener turned away since it started, for the metrics."""

    malformed: int = 0
    overdue: int = 0
    over_connections: int = 0
    closed_for_others: int = 0


class Client:
    """The connections of one address: how many, and which wait for a request, the longest first."""

    __slots__ = ("count", "idle")

    def __init__(self) -> None:
        self.count = 0
        self.idle: OrderedDict[GuardedProtocol, None] = OrderedDict()


class Room:
    """Which connections may stay. When there are too many, the one that has waited longest for a request goes: of the
    same client, or of all, those first over which nobody was authenticated."""

    def __init__(self) -> None:
        self._clients: dict[str | bytes, Client] = {}
        self._strangers: OrderedDict[GuardedProtocol, None] = OrderedDict()
        self._known: OrderedDict[GuardedProtocol, None] = OrderedDict()

    def enter(self, connection: "GuardedProtocol", limits: Limits) -> bool:
        """Counts a new connection. False where there is no room, and none could be made."""
        if not connection.exempt:
            network = client_network(connection.peer)
            client = connection.of = self._clients.setdefault(network, Client())
            client.count += 1
            if client.count > limits.per_client and not self._close_first(client.idle):
                return False
        too_many = len(connection.connections) > limits.connections
        if too_many and not (self._close_first(self._strangers) or self._close_first(self._known)):
            return False
        self.waits(connection)
        return True

    def leave(self, connection: "GuardedProtocol") -> None:
        self.busy(connection)
        if connection.of is not None:
            connection.of.count -= 1
            if not connection.of.count:
                self._clients.pop(client_network(connection.peer), None)
            connection.of = None

    def waits(self, connection: "GuardedProtocol") -> None:
        """It is its client's turn: nothing is under way."""
        (self._known if connection.known else self._strangers)[connection] = None
        if connection.of is not None:
            connection.of.idle[connection] = None

    def busy(self, connection: "GuardedProtocol") -> None:
        self._known.pop(connection, None)
        self._strangers.pop(connection, None)
        if connection.of is not None:
            connection.of.idle.pop(connection, None)

    def _close_first(self, idle: "OrderedDict[GuardedProtocol, None]") -> bool:
        if not idle:
            return False
        connection = next(iter(idle))
        self.busy(connection)
        connection.make_room()
        return True


def nobody(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Terms:
    """What all connections of one server have in common. `exempt`: whether an address is a proxy's of ours, whose
    connections are many clients'."""

    deadlines: Deadlines = Deadlines()
    limits: Limits = Limits()
    new_trace_id: Callable[[], str] | None = None
    exempt: Callable[[str], bool] = nobody
    counts: Counts = field(default_factory=Counts)
    room: Room = field(default_factory=Room)


class Malformed(Exception):
    """A request that the parser would take and we do not. The text goes to the client."""


# What a connection waits for from its client.
HEADERS, BODY, IDLE, LINGER, NOTHING = range(5)

STALL_PROGRESS_BYTES = 64 * 1024

CONNECTIONS_AT_A_TIME = 500  # a microsecond each: requests should not wait while ten thousand are looked at

# Headers that say where a request goes and where it ends. Content-Length is checked by the parser.
FRAMING_HEADERS = frozenset({b"host", b"transfer-encoding", b"expect"})


Reply = Callable[[int, bytes, Sequence[bytes]], bool]
COPIED_BYTES = 16 * 1024  # a body smaller than this is cheaper copied than written apart
REPLY = "dealer.reply"  # the scope's key of a Reply
KNOWN = "dealer.known"  # the scope's key of what to call once the client was authenticated


def reply(cycle: RequestResponseCycle, status: int, head: bytes, body: Sequence[bytes]) -> bool:
    """Answers a request whole, at once; False where the application has to send it the usual way.

    `head` is header lines with content-length among them, `body` comes in parts. `send` looks through every header by
    regular expressions and writes twice; ours are known to be well-formed.
    """
    if cycle.disconnected or cycle.response_started or cycle.flow.write_paused:
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    usual = b"".join([b"%b: %b\r\n" % header for header in cycle.default_headers])
    if not cycle.keep_alive:
        usual += b"connection: close\r\n"
    if cycle.scope["method"] == "HEAD":
        body = ()
    start = b"%b%b%b\r\n" % (STATUS_LINE[status], usual, head)
    if sum(map(len, body)) < COPIED_BYTES:
        cycle.transport.write(start + b"".join(body))
    else:
        cycle.transport.writelines((start, *body))
    cycle.message_event.set()
    if not (cycle.keep_alive or cycle.more_body):
        cycle.transport.close()
    cycle.on_response()
    return True


class GuardedProtocol(HttpToolsProtocol):
    """One connection. On the path of a request the guards cost a few assignments; only the sweep reads the clock.

    A phase begins by setting `awaited` to what the client owes and `deadline` to 0; the sweep that first sees the 0
    sets the time. A client cannot begin a phase anew by sending a byte, only by completing what it owes.
    """

    def __init__(self, terms: Terms, **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self.terms = terms
        self.awaited = HEADERS
        self.deadline = 0.0
        self.refusal: bytes | None = None  # no more is read; sent when the requests before it are answered
        self.host_seen = self.chunked = self.upgrading = False
        self.chunk_bytes = 0  # of the chunk being parsed
        self.head_bytes = 0  # of earlier chunks that hold a part of this head, ...
        self.before_head_bytes = 0  # ... of which at most so many come before it
        self.unsent_bytes = 0  # what the client had yet to take at the last progress seen
        self.stalled_deadline = 0.0
        self.peer = ""
        self.exempt = self.known = False
        self.of: Client | None = None

    # Bytes in

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        self.exempt = self.known = self.terms.exempt(self.peer)
        if not self.terms.room.enter(self, self.terms.limits):
            self.terms.counts.over_connections += 1
            self.refusal = self._answer(503, "900001", "Too many open connections. Retry later.", b"retry-after: 1\r\n")
            transport.write(self.refusal)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.terms.room.leave(self)
        super().connection_lost(exc)

    def be_known(self) -> None:
        """Somebody was authenticated over this connection."""
        self.known = True

    def make_room(self) -> None:
        """Closes a connection on which nothing is under way, for another."""
        self.terms.counts.closed_for_others += 1
        if self.transport.can_write_eof():
            self.transport.close()
        else:
            self.transport.abort()  # TLS would wait for the client's goodbye

    def data_received(self, data: bytes) -> None:
        if self.refusal is not None:
            return
        self.chunk_bytes = len(data)
        try:
            self._parse(data)
            if self.awaited == HEADERS:
                self.head_bytes += len(data)
                if self.head_bytes - self.before_head_bytes > self.terms.limits.head_bytes:
                    raise Malformed("the headers are too long")
        except (httptools.HttpParserError, Malformed) as error:
            self._refuse_malformed(error)

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client that has sent its request and closed its half still gets the answer (plain TCP only)."""
        if self.awaited != NOTHING or self.scheme != "http":
            return False
        self.cycle.keep_alive = False
        return True

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # The parser takes what follows for another protocol. RFC 9110 7.8 lets a server ignore the wish, which
                # some clients utter on every first request (Java's, h2c): read the request again without it.
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.upgrading = False

    def _head_without_upgrade(self) -> bytes:
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        return b"".join([line, *headers, b"\r\n"])

    # The parser calls these

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.terms.room.busy(self)
        self.before_head_bytes = self.chunk_bytes if self.awaited in (BODY, NOTHING) else 0
        self.awaited = HEADERS
        self.deadline = 0.0
        self.head_bytes = 0
        self.host_seen = self.chunked = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.awaited != HEADERS:
            # The request is under way with this very list: a trailer would add a header after the checks.
            raise Malformed("trailer fields are not accepted")
        name = name.lower()
        if name in FRAMING_HEADERS:
            self._framing_header(name, value)
        self.headers.append((name, value))

    def _framing_header(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            if self.host_seen:
                raise Malformed("more than one Host header")
            self.host_seen = True
        elif name == b"transfer-encoding":
            if self.chunked or value.lower() != b"chunked":
                raise Malformed("the only Transfer-Encoding accepted is chunked")
            self.chunked = True
        elif value.lower() == b"100-continue":
            self.expect_100_continue = True

    def on_headers_complete(self) -> None:
        self._check_head()
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":  # cannot be read as anything else
                raise Malformed("this is no proxy")
            self.upgrading = True
            return
        super().on_headers_complete()
        self.scope[REPLY] = functools.partial(reply, self.cycle)  # type: ignore[typeddict-unknown-key]
        if not self.known:
            self.scope[KNOWN] = self.be_known  # type: ignore[typeddict-unknown-key]
        self.awaited = BODY
        self.deadline = 0.0

    def _check_head(self) -> None:
        """Everything that can be wrong with a head the parser has taken; after this the request is handed on."""
        limits = self.terms.limits
        version = self.parser.get_http_version()
        if version == "1.1":
            if not self.host_seen:
                raise Malformed("the Host header is missing")
        elif version != "1.0" or self.chunked:
            raise Malformed("HTTP/1.1 is expected")
        if len(self.url) > limits.request_line_bytes or len(self.headers) > limits.headers:
            raise Malformed("the request line is too long, or there are too many headers")
        if not self.url.startswith((b"/", b"http")) or b"#" in self.url:
            raise Malformed("the request target is not a path")
        # Head and chunk together bound the head from above: only when that is too much is it counted.
        if self.head_bytes + self.chunk_bytes > limits.head_bytes and self._counted_head_bytes() > limits.head_bytes:
            raise Malformed("the headers are too long")
        if len(self.pipeline) >= limits.pipelined:
            raise Malformed("too many requests sent before the first was answered")

    def _counted_head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def on_message_complete(self) -> None:
        if self.upgrading:
            return
        cycle = self.cycle
        self.deadline = 0.0
        if cycle.response_complete:  # answered before it was all here
            self.awaited = IDLE
            self.terms.room.waits(self)
        else:
            self.awaited = NOTHING
            cycle.more_body = False
            cycle.message_event.set()

    # Answers

    def on_response_complete(self) -> None:
        """In place of uvicorn's, which sets a timer per request and reads on while requests are queued."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle.response_complete and cycle.more_body and not cycle.keep_alive and self.refusal is None:
            self.refusal = b""  # answered before its body was here, and nothing is to follow
            self._linger()
        elif self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self.refusal is not None:
            self._send_refusal()
        else:
            self.flow.resume_reading()
            if self.awaited == NOTHING:
                self.awaited = IDLE
                self.deadline = 0.0
                self.terms.room.waits(self)

    def _refuse_malformed(self, error: Exception) -> None:
        """Answer 400 in its turn: after the requests before it, and never into the middle of an answer."""
        self.terms.counts.malformed += 1
        reason = error.__context__ if isinstance(error.__context__, Malformed) else error
        answer = self._answer(400, "000102", f"The request is not well-formed HTTP/1.1: {reason}.")
        if self.awaited != BODY:
            self._refuse(answer)
            return
        broken = self.cycle
        broken.disconnected = True  # the application must not take half a body for a whole one
        broken.message_event.set()
        if self.pipeline and self.pipeline[0][0] is broken:
            self.pipeline.popleft()
            self._refuse(answer)
        elif broken.response_started:
            self.transport.close()
        else:
            self._refuse(answer, at_once=True)

    def _refuse(self, answer: bytes, *, at_once: bool = False) -> None:
        self.refusal = answer
        if at_once or self.cycle is None or (self.cycle.response_complete and not self.pipeline):
            self._send_refusal()
        else:
            self.awaited = NOTHING  # of the client; its earlier requests are still being answered

    def _send_refusal(self) -> None:
        assert self.refusal is not None
        self.transport.write(self.refusal)
        self._linger()

    def _linger(self) -> None:
        """Closing at once with bytes unread would reset the connection, and the client would lose the answer."""
        if not self.transport.can_write_eof():  # TLS
            self.transport.close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        self.awaited = LINGER
        self.deadline = 0.0

    def _answer(self, status: int, code: str, message: str, extra: bytes = b"") -> bytes:
        body = msgspec.json.encode({"code": code, "message": message, "data": {}})
        headers = [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        if self.terms.new_trace_id is not None:
            headers.append(b"x-trace-id: %b\r\n" % self.terms.new_trace_id().encode())
        headers.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body))
        return b"".join([STATUS_LINE[status], *headers, extra, b"connection: close\r\n\r\n", body])

    # Deadlines

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stalled_deadline = 0.0

    def sweep(self, now: float) -> None:
        """Close the connection when its client is late. `now` is the loop's time."""
        if self._is_stalled(now):
            self._give_up()
        elif self.awaited == NOTHING or self.transport.is_closing():
            return
        elif self.flow.read_paused:
            self.deadline = 0.0  # it is us who do not read
        elif not self.deadline:
            self.deadline = now + self._seconds_allowed()
        elif now >= self.deadline:
            self._give_up()

    def _seconds_allowed(self) -> float:
        deadlines = self.terms.deadlines
        idle = deadlines.idle if self.known else min(deadlines.idle, deadlines.stranger_idle)
        return (deadlines.headers, deadlines.body, idle, deadlines.linger)[self.awaited]

    def _is_stalled(self, now: float) -> bool:
        unsent_bytes = self.transport.get_write_buffer_size()
        if not unsent_bytes:
            self.stalled_deadline = 0.0
            return False
        if not self.stalled_deadline or unsent_bytes <= self.unsent_bytes - STALL_PROGRESS_BYTES:
            self.unsent_bytes = unsent_bytes
            self.stalled_deadline = now + self.terms.deadlines.stalled
        return now >= self.stalled_deadline

    def _give_up(self) -> None:
        self.terms.counts.overdue += 1
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # closing would wait for the client once more
        else:
            self.transport.close()


class Listener(uvicorn.Server):
    """A uvicorn server that watches its connections, and leaves signals to its caller.

    Run it with `await listener.serve(sockets=[bind(...)])`; set `should_exit` to stop it.
    """

    def __init__(self, config: uvicorn.Config, terms: Terms) -> None:
        super().__init__(config)
        self.terms = terms
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def counts(self) -> Counts:
        return self.terms.counts

    @property
    def open_connections(self) -> int:
        return len(self.server_state.connections)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, for given sockets, with deadlines for the handshake and the goodbye of TLS."""
        await self.lifespan.startup()
        deadlines = self.terms.deadlines
        tls: dict[str, Any] = {}
        if self.config.ssl is not None:
            tls = {"ssl_handshake_timeout": deadlines.headers, "ssl_shutdown_timeout": deadlines.headers}
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(self._connection, sock=listening, ssl=self.config.ssl, backlog=BACKLOG, **tls)
            for listening in sockets or [bind(self.config.host, self.config.port)]
        ]
        self._sweeper = loop.create_task(self._sweep())
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is in flight, within the deadline; then nothing stays open."""
        await super().shutdown(sockets)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in self._connections():
            connection.transport.abort()

    def _connection(self) -> asyncio.Protocol:
        return GuardedProtocol(
            self.terms, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _connections(self) -> list[GuardedProtocol]:
        """All that are open now; closing one changes the set they are taken from."""
        return cast(list[GuardedProtocol], list(self.server_state.connections))

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.terms.deadlines.sweep)
            now = loop.time()
            for number, connection in enumerate(self._connections(), 1):
                if number % CONNECTIONS_AT_A_TIME == 0:
                    await asyncio.sleep(0)
                try:
                    connection.sweep(now)
                except Exception:  # one connection's trouble must not end the watch over the others
                    log.exception("connection_sweep_failed")
                    connection.transport.abort()


def server(
    app: Callable[..., Awaitable[None]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    deadlines: Deadlines | None = None,
    limits: Limits | None = None,
    tls: tuple[Path, Path] | None = None,
    client_ca: Path | None = None,
    log_level: str = "warning",
    new_trace_id: Callable[[], str] | None = None,
    exempt: Callable[[str], bool] = nobody,
) -> Listener:
    """A listener for `app`, not started. `tls` names the certificate's file and the key's; see `tls_context`.

    `host` and `port` count only when `serve` is given no sockets. `new_trace_id` gives the listener's own refusals an
    X-Trace-Id. `exempt`: see Terms.
    """
    terms = Terms(deadlines or Deadlines(), limits or Limits(), new_trace_id, exempt)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="auto",  # uvloop where there is one
        http=GuardedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,  # the process decides where lines go
        log_level=log_level,
        access_log=False,
        proxy_headers=False,  # it would believe X-Forwarded-For from 127.0.0.1
        server_header=False,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls_context(*tls, client_ca),
    )
    config.timeout_graceful_shutdown = terms.deadlines.shutdown  # type: ignore[assignment]
    return Listener(config, terms)


def tls_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """TLS 1.2 and later, HTTP/1.1 only. `client_ca`: callers show a certificate that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


def bind(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """A listening socket; its port is `getsockname()[1]`. Raises OSError, which names the address, when it is taken.

    Listening from here on: of two sockets bound to one port it is the second `listen` that fails.
    """
    if not 0 <= port <= LAST_PORT:  # getaddrinfo would take its last 16 bits
        raise OSError(errno.EINVAL, f"cannot listen on {host} port {port}: a port is 0 to {LAST_PORT}")
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from error
    listening.setblocking(False)
    return listening
