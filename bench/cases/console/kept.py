"""What does it cost orders that calls are counted and refused ones kept for the console? One process does so and does
not, slice by slice (bench/support/keeping.py), while somebody's calls are refused."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from itertools import cycle
from socket import create_connection
from urllib.parse import urlsplit

import msgspec

from bench.support import calls, slices
from bench.support.calls import Calls, Dealer
from bench.support.failure import Failed
from bench.support.instance import Instance
from bench.support.measure import Load, Reading, Replay, Target

REFUSED_A_SECOND = 100


def measure(instance: Instance, database: str, load: Load, replay: Replay, target: Target) -> Reading:
    """`load` is of orders of the hot dealer. orders_ratio, cpu_ratio: kept ÷ not kept."""
    with refused(target.address, instance.dealers[-1]):
        return slices.measure(instance, database, load, replay, target, target.process)


@contextmanager
def refused(address: str, dealer: Dealer) -> Iterator[None]:
    """Meanwhile REFUSED_A_SECOND well-signed calls are refused. Raises Failed where one is not."""
    stop, wrong = threading.Event(), []

    def run() -> None:
        try:
            while not stop.is_set():
                refusable = Calls("/esim/query", cycle([(dealer, b'{"orderNo":"D1"}')]))
                _refused(address, calls.in_memory(refusable, 1_000), stop)
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
