"""HTTP by hand, for tests: bytes go out as they are written, and answers are parsed strictly."""

import asyncio
import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from support.patience import PATIENCE

Headers = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True)
class Answer:
    """One answer. Header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def envelope(self) -> dict[str, Any]:
        """The body, which must be the envelope of every answer."""
        assert self.headers["content-type"] == "application/json", self
        envelope = json.loads(self.body)
        assert set(envelope) == {"code", "message", "data"} and isinstance(envelope["data"], dict), self
        assert isinstance(envelope["message"], str) and envelope["message"] and self.headers["x-trace-id"], self
        return envelope

    @property
    def code(self) -> str:
        return self.envelope["code"]

    @property
    def message(self) -> str:
        return self.envelope["message"]

    @property
    def data(self) -> dict[str, Any]:
        return self.envelope["data"]


def request(path: str | bytes, headers: Headers, body: bytes = b"", method: str = "POST", length: bool = True) -> bytes:
    """A request in HTTP/1.1. `length` False: the headers say themselves how the body ends."""
    target = path if isinstance(path, bytes) else path.encode()
    lines = [method.encode() + b" " + target + b" HTTP/1.1", b"Host: client.test"]
    lines += [
        name.encode() + b": " + (value if isinstance(value, bytes) else value.encode()) for name, value in headers
    ]
    if length:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(body: bytes, size: int = 65_536) -> bytes:
    """The body in chunks, without trailer."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(url)
    return await asyncio.open_connection(address.hostname, address.port)


async def call(url: str, raw: bytes) -> Answer:
    """Sends one request and reads its answer; the connection is closed then."""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await connect(url)
        try:
            writer.write(raw)
            return await read(reader)
        finally:
            writer.transport.abort()


async def read(reader: asyncio.StreamReader, *, to_head: bool = False) -> Answer:
    """The next answer of a connection, by its Content-Length; one to a HEAD has no body."""
    head = await reader.readuntil(b"\r\n\r\n")
    status, headers = _head(head)
    return Answer(status, headers, b"" if to_head else await reader.readexactly(int(headers["content-length"])))


async def exchange(url: str, *parts: bytes) -> list[Answer]:
    """Sends the parts, and reads answers until the service closes. A reset counts as closing."""
    received = b""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await connect(url)
        try:
            with contextlib.suppress(ConnectionError):
                for part in parts:
                    writer.write(part)
                    await writer.drain()
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(1 << 20):
                    received += data
        finally:
            writer.transport.abort()
    return answers(received)


def answers(received: bytes) -> list[Answer]:
    """All the answers in what a connection received; every byte must belong to one."""
    found = []
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        assert end, f"not an answer: {received[:200]!r}"
        status, headers = _head(head + end)
        length = int(headers["content-length"])
        assert len(rest) >= length, "half an answer"
        found.append(Answer(status, headers, rest[:length]))
        received = rest[length:]
    return found


def codes(received: Sequence[Answer]) -> list[str]:
    return [answer.code for answer in received]


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1", first
    pairs = [line.split(": ", 1) for line in lines]
    headers = {name.lower(): value for name, value in pairs}
    assert len(headers) == len(pairs), f"a header came twice: {lines}"
    return int(status), headers
