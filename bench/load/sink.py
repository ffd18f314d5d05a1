"""Many receivers in one process, as cheap as Python makes them: each takes webhooks, keeps them and says 200.

Run as a program: `python -m bench.load.sink COUNT`. Says `ready: CONTROL PORT PORT …`. The bench asks at CONTROL for
`/count` (how many were kept, how many hang), `/take` (what was kept, which is forgotten then) and `/hang/NUMBER`: that
receiver answers nobody from now on.
"""

import asyncio
import gc
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

import msgspec
import uvloop

NOBODY = -1
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)

Answer = Callable[[float, bytes, bytes], bytes]
"""What to say to a request: when its first byte was read, its head and its body."""


class Received(NamedTuple):
    """A webhook. `at`: when its first byte was read, by the clock that time.monotonic() reads in every process."""

    at: float
    receiver: int
    head: bytes
    body: bytes


class Sink:
    def __init__(self) -> None:
        self._kept: list[Received] = []
        self._hanging = NOBODY
        self._hung = 0

    def receive(self, receiver: int, at: float, head: bytes, body: bytes) -> bytes:
        if receiver == self._hanging:
            self._hung += 1
            return b""
        self._kept.append(Received(at, receiver, head, body))
        return OK

    def control(self, at: float, head: bytes, body: bytes) -> bytes:
        path = head.split(b" ", 2)[1].decode()
        if path == "/take":
            kept, self._kept = self._kept, []
            return _answer(msgspec.msgpack.encode(kept))
        if path.startswith("/hang/"):
            self._hanging, self._hung = int(path.removeprefix("/hang/")), 0
        return _answer(msgspec.json.encode((len(self._kept), self._hung)))


class HttpConnection(asyncio.Protocol):
    """HTTP/1.1 with Content-Length, which is all that our clients and those of the others speak."""

    transport: asyncio.Transport

    def __init__(self, answer: Answer):
        self._answer = answer
        self._held = b""
        self._at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._held:
            self._held += data
        else:
            self._at, self._held = time.monotonic(), data
        while self._held:
            end = self._held.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self._held, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._held) < whole:
                return
            request, self._held = self._held[:whole], self._held[whole:]
            answer = self._answer(self._at, request[:end], request[end + 4 :])
            if answer:
                self.transport.write(answer)


def _answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def _serve(count: int) -> None:
    sink = Sink()
    answers: list[Answer] = [sink.control, *(partial(sink.receive, number) for number in range(count))]
    ports = [str(await _listen(answer)) for answer in answers]
    print("ready:", *ports, flush=True)
    await asyncio.Event().wait()


async def _listen(answer: Answer) -> int:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HttpConnection(answer), "127.0.0.1", 0, backlog=1024)
    return server.sockets[0].getsockname()[1]


def main() -> None:
    gc.disable()  # what is kept is no cycle, and looking through it would cost more than receiving it
    uvloop.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
