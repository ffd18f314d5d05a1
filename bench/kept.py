"""What does it cost orders that calls are counted and refused ones kept for the console? One process does both in turn
(bench/keeping.py), while somebody's calls are refused."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from itertools import cycle
from socket import create_connection
from urllib.parse import urlsplit

import msgspec

from bench import calls
from bench.calls import Calls, Dealer
from bench.failure import Failed
from bench.measure import Load, Reading, Replay, Target

PAIRS = 6
REFUSED_A_SECOND = 100


def pairs(load: Load, replay: Replay, target: Target, strangers: Dealer) -> Iterator[tuple[bool, Reading]]:
    """Runs of `load` by whether all is kept; every other pair begins without, so that drift disturbs both alike."""
    keeping = True
    with refused(target.address, strangers):
        for first in [True, False] * (PAIRS // 2):
            for kept in (first, not first):
                if kept != keeping:
                    target.process.tell(signal.SIGUSR1)
                    keeping = kept
                yield kept, replay.run(load, target)
    if not keeping:
        target.process.tell(signal.SIGUSR1)


@contextmanager
def refused(address: str, dealer: Dealer) -> Iterator[None]:
    """Meanwhile so many well-signed calls a second are refused. Raises Failed where one is not."""
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
    url = urlsplit(address)
    with create_connection((url.hostname or "", url.port or 0)) as connection:
        for request in requests:
            connection.sendall(request)
            with HTTPResponse(connection) as answer:
                answer.begin()
                said = answer.read()
            if msgspec.json.decode(said)["code"] == "000000":
                raise Failed(said.decode())
            if stop.wait(1 / REFUSED_A_SECOND):
                return
