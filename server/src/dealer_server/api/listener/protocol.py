"""How do the bytes of one connection become requests, and what is refused?"""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from dealer_server.api.listener.connections import ClientConnections, Connections
from dealer_server.api.listener.limits import Counts, Deadlines, Limits
from dealer_server.api.listener.reply import REPLY, reply
from dealer_server.rules.access import access


def no_address(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Terms:
    """What all connections of one server share. `exempt`: whether an address is that of a trusted proxy, whose
    connections carry the calls of many clients."""

    deadlines: Deadlines = field(default_factory=Deadlines)
    limits: Limits = field(default_factory=Limits)
    new_trace_id: Callable[[], str] | None = None
    exempt: Callable[[str], bool] = no_address
    counts: Counts = field(default_factory=Counts)
    connections: Connections = field(default_factory=Connections)


class Malformed(Exception):
    """A request that the parser accepts and the service does not. The text goes to the client."""


# What a connection waits for from its client.
HEADERS, BODY, IDLE, LINGER, NOTHING = range(5)

STALL_PROGRESS_BYTES = 64 * 1024

# Headers that say where a request goes and where it ends. Content-Length is checked by the parser.
FRAMING_HEADERS = frozenset({b"host", b"transfer-encoding", b"expect"})


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
        self.exempt = self.authenticated = False
        self.client_connections: ClientConnections | None = None

    # Bytes in

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        self.exempt = self.authenticated = self.terms.exempt(self.peer)
        if not self.terms.connections.admit(self, self.terms.limits):
            self.terms.counts.over_connections += 1
            self.refusal = self._answer(503, "900001", "Too many open connections. Retry later.", b"retry-after: 1\r\n")
            transport.write(self.refusal)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.terms.connections.remove(self)
        super().connection_lost(exc)

    def mark_authenticated(self) -> None:
        """A call over this connection was authenticated."""
        self.authenticated = True

    def close_for_another(self) -> None:
        """Closes this idle connection so that another may stay."""
        self.terms.counts.closed_for_others += 1
        if self.transport.can_write_eof():
            self.transport.close()
        else:
            self.transport.abort()  # TLS would wait for the client's close_notify

    def close_after_answer(self) -> None:
        """The answer that is due, where one is, says that the connection is closed."""
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """A connection without a request is given time for one: a proxy connects when it has a call to pass on, and
        sends none again that it has sent."""
        if self.cycle is None and self.refusal is None:
            self.deadline = self.loop.time() + self.terms.deadlines.first
        else:
            super().shutdown()

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
        self.terms.connections.mark_busy(self)
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
        if self.terms.connections.retiring:
            self.cycle.keep_alive = False
        self.scope[REPLY] = functools.partial(reply, self.cycle)  # type: ignore[typeddict-unknown-key]
        if not self.authenticated:
            self.scope[access.AUTHENTICATED] = self.mark_authenticated  # type: ignore[typeddict-unknown-key]
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
            self.terms.connections.mark_idle(self)
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
                self.terms.connections.mark_idle(self)

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
        idle = deadlines.idle if self.authenticated else min(deadlines.idle, deadlines.unauthenticated_idle)
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
