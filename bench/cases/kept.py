"""What does it cost orders that calls are counted and refused ones kept for the console? In one long run one process
does so and does not, slice by slice (bench/support/keeping.py), while somebody's calls are refused. Each slice is
compared with the two around it, so that drift disturbs neither."""

import asyncio
import signal
import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from itertools import cycle
from socket import create_connection
from typing import NamedTuple
from urllib.parse import urlsplit

import asyncpg
import msgspec

from bench.support import calls, processes
from bench.support.calls import Calls, Dealer
from bench.support.failure import Failed
from bench.support.instance import Instance
from bench.support.measure import Load, Reading, Replay, Target

SLICE_SECONDS = 2
REFUSED_A_SECOND = 100
_BUSY = 0.5  # of the median: slices with fewer orders lie before, between and after the runs


class Slice(NamedTuple):
    """`orders` a second, and CPU of the server for one of them."""

    kept: bool
    orders: float
    server_us: float


def measure(instance: Instance, database: str, load: Load, replay: Replay, target: Target) -> Reading:
    """`load` is of orders of the hot dealer. orders_ratio, cpu_ratio: kept ÷ not kept."""
    stop = threading.Event()
    with refused(target.address, instance.dealers[-1]), ThreadPoolExecutor(1) as threads:
        watched = threads.submit(asyncio.run, _watch(instance, database, target, stop))
        try:
            reading = replay.run(load, target)
        finally:
            stop.set()
    return reading | compared(watched.result())


def compared(slices: Sequence[Slice]) -> Reading:
    """Raises Failed where there are too few."""
    usual = statistics.median(one.orders for one in slices)
    orders: list[float] = []
    cpu: list[float] = []
    for before, one, after in zip(slices, slices[1:], slices[2:], strict=False):
        if one.kept and min(before.orders, one.orders, after.orders) > _BUSY * usual:
            orders.append(2 * one.orders / (before.orders + after.orders))
            cpu.append(2 * one.server_us / (before.server_us + after.server_us))
    if not orders:
        raise Failed(f"of {len(slices)} slices none has orders beside it")
    return {"orders_ratio": statistics.mean(orders), "cpu_ratio": statistics.mean(cpu)}


async def _watch(instance: Instance, database: str, target: Target, stop: threading.Event) -> list[Slice]:
    """Turns the keeping off and on until it is told to stop; then all is kept again."""
    connection = await asyncpg.connect(instance.dsn(database))
    slices: list[Slice] = []
    kept, before = True, await _look(connection, instance.hot, target)
    while not stop.is_set() or not kept:
        await asyncio.sleep(SLICE_SECONDS)
        now = await _look(connection, instance.hot, target)
        orders, cpu, seconds = (a - b for a, b in zip(now, before, strict=True))
        slices.append(Slice(kept, orders / seconds, cpu / orders * 1e6 if orders else 0.0))
        target.process.tell(signal.SIGUSR1)
        kept, before = not kept, now
    await connection.close()
    return slices


async def _look(connection: asyncpg.Connection, dealer: Dealer, target: Target) -> tuple[float, float, float]:
    """Orders ever (each is one version of the wallet), CPU seconds of the server, the time."""
    version = await connection.fetchval("SELECT version FROM wallet WHERE tenant_id = $1", dealer.tenant_id)
    return version or 0, processes.cpu_seconds(target.process.pid), time.monotonic()


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
