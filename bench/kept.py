"""What does it cost orders that calls are counted and refused ones kept for the console? One process does both in turn
(bench/keeping.py), while somebody's calls are refused."""

import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from itertools import cycle
from socket import create_connection
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from bench import calls
from bench.calls import Calls, Dealer
from bench.failure import Failed
from bench.measure import Load, Reading, Replay, Target

PAIRS = 8
REFUSED_A_SECOND = 100


class Pair(NamedTuple):
    """Two runs, one after the other."""

    kept: Reading
    not_kept: Reading

    def ratios(self) -> Reading:
        return {
            "orders_ratio": self.kept["per_second"] / self.not_kept["per_second"],
            "cpu_ratio": self.kept["server_us"] / self.not_kept["server_us"],
        }


def pairs(load: Load, replay: Replay, target: Target, stranger: Dealer) -> Iterator[Pair]:
    """Every other one begins without, so that drift disturbs both alike."""

    def run_after_turning(turn: bool) -> Reading:
        if turn:
            target.process.tell(signal.SIGUSR1)
        return replay.run(load, target)

    with refused(target.address, stranger):
        for _ in range(PAIRS // 2):
            kept = run_after_turning(False)
            yield Pair(kept, run_after_turning(True))
            not_kept = run_after_turning(False)
            yield Pair(run_after_turning(True), not_kept)


@contextmanager
def refused(address: str, dealer: Dealer) -> Iterator[None]:
    """Meanwhile REFUSED_A_SECOND well-signed calls are refused. Raises Failed where one is not."""
    stop, wrong = threading.Event(), []

    def run() -> None:
        try:
            while not stop.is_set():
                _refused(
                    address, calls.in_memory(Calls("/esim/query", cycle([(dealer, b'{"orderNo":"D1"}')])), 1_000), stop
                )
        except (OSError, HTTPException, Failed) as error:
            wrong.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if wrong:
        raise Failed(f"calls that were to be refused: {wrong[0]!r}")


def _refused(address: str, requests: Iterable[bytes], stop: threading.Event) -> None:
    url, begun = urlsplit(address), time.monotonic()
    with create_connection((url.hostname or "", url.port or 0)) as connection:
        for number, request in enumerate(requests, 1):
            connection.sendall(request)
            with HTTPResponse(connection) as answer:
                answer.begin()
                said = answer.read()
            if msgspec.json.decode(said)["code"] == "000000":
                raise Failed(said.decode())
            if stop.wait(max(0.0, begun + number / REFUSED_A_SECOND - time.monotonic())):
                return
