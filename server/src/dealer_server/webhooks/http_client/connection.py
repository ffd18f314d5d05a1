"""What happens on one connection? One request at a time, and its answer, as far as it is needed.

A receiver is not trusted: what it sends is bounded, and a connection on which anything else arrived than the answer is
closed, so that no byte of one answer becomes part of another.
"""

import asyncio

import httptools

MOST_BODY_BYTES = 16 * 1024  # of an answer that are read
MOST_ANSWER_BYTES = 64 * 1024  # with its head, the interim answers before it and the framing of its chunks
MOST_FIELDS = 128
MOST_FIELD_BYTES = 8 * 1024
MOST_FIELDS_BYTES = 48 * 1024
HEAD_BYTES = 2 * 1024  # of the body that are kept

SWITCHING_PROTOCOLS = 101


class Disconnected(Exception):
    """The connection was closed before the answer was whole."""


class Malformed(Exception):
    """The answer is not HTTP, or its head is too long."""


class Connection(asyncio.Protocol):
    """An open connection. `status`, `fields` of the header, `retry_after` and `head`, the beginning of the body, are
    those of the last answer, as far as it has arrived."""

    def __init__(self) -> None:
        self.remote_address: str | None = None
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[None] | None = None  # of the exchange under way, or else of the last one
        self._early = b""  # arrived before the first request
        self._begin()

    def _begin(self) -> None:
        self.status: int | None = None
        self.fields: list[tuple[bytes, bytes]] = []
        self.retry_after: bytes | None = None
        self.head = b""
        self.reusable = False  # the answer was whole, and nothing else arrived
        self._failure: Exception | None = None
        self._answer_bytes = self._body_bytes = self._fields = self._fields_bytes = 0
        self._framed = False  # the head says where the body ends
        self._complete = self._kept_alive = False

    async def exchange(self, request: bytes) -> None:
        """Sends a request and returns when its answer has arrived. Raises Disconnected or Malformed.

        The caller closes the connection afterwards unless it is `reusable`.
        """
        self._begin()
        if self._transport is None:
            raise Disconnected
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._transport.write(request)
        if self._early:
            loop.call_soon(self.data_received, self._early)  # not before the request has left
        await self._ended
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """At once: what was not sent is dropped, and the receiver is not waited for."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._end(Disconnected())

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.remote_address = peer[0] if peer else None
        self._parser = httptools.HttpResponseParser(self)
        # There are receivers that end lines with LF alone. Leniency to one cannot harm another: see pool.py.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def data_received(self, data: bytes) -> None:
        if self._ended is None:
            self._early += data
            if len(self._early) > MOST_ANSWER_BYTES:
                self.close()
        elif self._ended.done():
            self.close()
        else:
            self._parse(data)

    def eof_received(self) -> None:
        self._end_with_connection()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if exc is None:
            self._end_with_connection()
        self.close()
        del self._parser  # it refers to this object

    def _end_with_connection(self) -> None:
        """So ends a body whose length is not given."""
        if self.status is not None and not self._framed:
            self._end()
        self.close()

    def _end(self, failure: Exception | None = None) -> None:
        if self._ended is not None and not self._ended.done():
            self._failure = failure
            self._ended.set_result(None)

    # The answer

    def _parse(self, data: bytes) -> None:
        failed = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            failed = True
        self._answer_bytes += len(data)
        if self._complete:
            self.reusable = self._kept_alive and not failed and not self._early and self._sent()
            self._end()
        elif failed:
            self._end(Malformed())
        elif self._body_bytes >= MOST_BODY_BYTES or self._answer_bytes >= MOST_ANSWER_BYTES:
            self._end(None if self.status is not None else Malformed())

    def _sent(self) -> bool:
        """Whether all of the request has left; the receiver may answer before it has read it."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def on_message_begin(self) -> None:
        if self._complete:
            raise Malformed
        self.retry_after, self.head = None, b""  # of an interim answer
        self.fields = []
        self._fields = self._fields_bytes = self._body_bytes = 0
        self._framed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name) + len(value)
        self._fields += 1
        self._fields_bytes += size
        too_long = size > MOST_FIELD_BYTES or self._fields > MOST_FIELDS or self._fields_bytes > MOST_FIELDS_BYTES
        if too_long or b"\x00" in value:
            raise Malformed
        if self.status is not None:
            return  # a trailer
        self.fields.append((name, value))
        match name.lower():
            case b"retry-after" if self.retry_after is None:
                self.retry_after = value
            case b"content-length":
                self._framed = True
            case b"transfer-encoding":
                self._framed = value.lower().rpartition(b",")[2].strip() == b"chunked"

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == SWITCHING_PROTOCOLS or not 100 <= status < 200:
            self.status = status

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if len(self.head) < HEAD_BYTES:
            self.head += body[: HEAD_BYTES - len(self.head)]

    def on_message_complete(self) -> None:
        if self.status is not None:
            self._complete = True
            self._kept_alive = self._parser.should_keep_alive()
