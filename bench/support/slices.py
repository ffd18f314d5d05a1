"""What does something cost orders? In one long run a process does it and does not, slice by slice. Each slice is
compared with the two around it, so that drift disturbs neither."""

import asyncio
import signal
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import asyncpg

from bench.support import processes
from bench.support.calls import Dealer
from bench.support.failure import Failed
from bench.support.instance import Instance
from bench.support.measure import SLICE_SECONDS, Load, Reading, Replay, Target
from bench.support.processes import Process

_BUSY = 0.5  # of the median: slices with fewer orders lie before, between and after the runs


class Slice(NamedTuple):
    """`orders` a second, and CPU of the server for one of them. `on`: it was done meanwhile."""

    on: bool
    orders: float
    server_us: float


def measure(
    instance: Instance, database: str, load: Load, replay: Replay, target: Target, switched: Process
) -> Reading:
    """`load` is of orders of the hot dealer; each SIGUSR1 tells `switched` to stop, or to go on. orders_ratio,
    cpu_ratio: on ÷ off."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        watched = threads.submit(asyncio.run, _watch(instance, database, target, switched, stop))
        try:
            reading = replay.run(load, target)
        finally:
            stop.set()
    return reading | compared(watched.result())


def in_turns(readings: Sequence[Reading], names: Sequence[str]) -> Reading:
    """name_ratio: what every second run reads ÷ the mean of the two around it, the median over all of them."""
    every = [*zip(readings[::2], readings[1::2], readings[2::2], strict=False)]
    return {
        f"{name}_ratio": statistics.median(2 * one[name] / (before[name] + after[name]) for before, one, after in every)
        for name in names
    }


def compared(slices: Sequence[Slice]) -> Reading:
    """Raises Failed where there are too few."""
    usual = statistics.median(one.orders for one in slices)
    orders: list[float] = []
    cpu: list[float] = []
    for before, one, after in zip(slices, slices[1:], slices[2:], strict=False):
        if one.on and min(before.orders, one.orders, after.orders) > _BUSY * usual:
            orders.append(2 * one.orders / (before.orders + after.orders))
            cpu.append(2 * one.server_us / (before.server_us + after.server_us))
    if not orders:
        raise Failed(f"of {len(slices)} slices none has orders beside it")
    return {"orders_ratio": statistics.mean(orders), "cpu_ratio": statistics.mean(cpu)}


async def _watch(
    instance: Instance, database: str, target: Target, switched: Process, stop: threading.Event
) -> list[Slice]:
    """Turns it off and on until it is told to stop; then it is on again."""
    connection = await asyncpg.connect(instance.dsn(database))
    slices: list[Slice] = []
    on, before = True, await _look(connection, instance.hot, target)
    while not stop.is_set() or not on:
        await asyncio.sleep(SLICE_SECONDS)
        now = await _look(connection, instance.hot, target)
        orders, cpu, seconds = (a - b for a, b in zip(now, before, strict=True))
        slices.append(Slice(on, orders / seconds, cpu / orders * 1e6 if orders else 0.0))
        switched.tell(signal.SIGUSR1)
        on, before = not on, now
    await connection.close()
    return slices


async def _look(connection: asyncpg.Connection, dealer: Dealer, target: Target) -> tuple[float, float, float]:
    """Orders ever (each is one version of the wallet), CPU seconds of the server, the time."""
    version: int | None = await connection.fetchval("SELECT version FROM wallet WHERE tenant_id = $1", dealer.tenant_id)
    return version or 0, processes.cpu_seconds(target.process.pid), time.monotonic()
