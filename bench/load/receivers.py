"""The dealers' ends of the webhooks: a receiver each, all in one process of their own (sink.py)."""

import asyncio
import http.client
import sys
import time
from pathlib import Path

import msgspec

from bench.load import sink
from bench.load.sink import Received
from bench.support.failure import Failed
from bench.support.processes import Process

_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 30
_decoder = msgspec.msgpack.Decoder(list[Received])


class Receivers:
    """`urls` holds where each of them receives."""

    def __init__(self, folder: Path, count: int):
        command = [sys.executable, "-m", "bench.load.sink", str(count)]
        self._process = Process("the receivers", command, folder / "sink.log")
        control, *ports = self._process.said("ready: ").split()
        self.urls = [f"http://127.0.0.1:{port}/webhooks" for port in ports]
        self._control = http.client.HTTPConnection("127.0.0.1", int(control), timeout=_PATIENCE_SECONDS)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> "Receivers":
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        self._process.stop()

    def hang(self, number: int | None) -> None:
        """This one answers nobody from now on, the others do."""
        self._ask(f"/hang/{sink.NOBODY if number is None else number}")

    def count(self) -> int:
        return self._counts()[0]

    def hung(self) -> int:
        """How many came to the one that hangs."""
        return self._counts()[1]

    def take(self) -> list[Received]:
        """What came since the last time, in the order in which it came."""
        return _decoder.decode(self._ask("/take"))

    async def wait(self, count: int, sender: Process) -> None:
        """Returns when so many have come. Raises Failed where they do not."""
        begun, before = time.monotonic(), -1
        while (seen := self.count()) < count:
            sender.require_alive()
            if seen != before:
                begun, before = time.monotonic(), seen
            elif time.monotonic() - begun > _PATIENCE_SECONDS:
                raise Failed(f"of {count} webhooks only {seen} came; {sender.name} said: {sender.tail()}")
            await asyncio.sleep(_LOOK_SECONDS)

    def _counts(self) -> tuple[int, int]:
        return msgspec.json.decode(self._ask("/count"), type=tuple[int, int])

    def _ask(self, path: str) -> bytes:
        self._control.request("GET", path)
        return self._control.getresponse().read()
