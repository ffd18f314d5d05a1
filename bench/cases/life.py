"""The whole life of orders: bought, fulfilled, both webhooks received and verified. `serve` and `work` run."""

import asyncio
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import uvloop

from bench.cases.suite import Bench
from bench.load.buyer import Buyer
from bench.load.receiver import Receiver
from bench.support import calls, growth, measure, processes, wrk
from bench.support.calls import Dealer
from bench.support.failure import Failed
from bench.support.instance import Instance, Served
from bench.support.measure import Reading
from bench.support.processes import Process
from dealer_server.db.database import Database

RATE = 200  # orders a second
MANY_DEALERS = 100
BURST_SECONDS = 2
BURST_CONNECTIONS = 64
_PATIENCE_SECONDS = 120
_LOOK_SECONDS = 0.02
_NONE: Mapping[str, str] = {}


def _nothing() -> None: ...


def steady(
    instance: Instance, database: str, dealers: int, seconds: int, begun: Callable[[], None] = _nothing
) -> dict[str, Reading]:
    """Orders at a steady rate; from sending one to receiving its ORDER_PAID and its DELIVERY_UPDATED. `begun` is called
    when all is ready, before the first order."""
    with _Life(instance, database, begun) as life:
        return uvloop.run(life.steady(dealers, seconds))


def burst(
    instance: Instance,
    database: str,
    dealers: int,
    seconds: int,
    begun: Callable[[], None] = _nothing,
    settings: Mapping[str, str] = _NONE,
) -> tuple[Reading, Reading]:
    """Orders as fast as they are taken, for a few seconds; then until the last event is received. The second reading is
    the memory of `work` thereafter. `settings`: environment variables of both processes."""
    with _Life(instance, database, begun, settings) as life:
        return uvloop.run(life.burst(dealers, seconds))


class _Life:
    """`serve` and `work` on one database, and what they cost."""

    def __init__(
        self, instance: Instance, database: str, begun: Callable[[], None], settings: Mapping[str, str] = _NONE
    ):
        self._instance = instance
        self._database = database
        self._begun = begun
        self._settings = settings

    def __enter__(self) -> "_Life":
        self._served: Served = self._instance.serve(self._database, self._settings)
        self._worker: Process = self._instance.work(self._database, self._settings)
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.stop()
        self._served.process.stop()

    async def steady(self, dealers: int, seconds: int) -> dict[str, Reading]:
        buying = self._instance.dealers[:dealers]
        async with Receiver(buying) as receiver, self._buyer() as buyer:
            await self._subscribe(receiver, dealers)
            await self._warm_up(receiver, buying)
            requests = calls.in_memory(calls.orders(buying), RATE * seconds)
            await asyncio.to_thread(self._begun)
            cpu = self._cpu()
            await buyer.buy(requests, RATE)
            await self._all_received(receiver, len(requests))
            cost = cpu.reading(len(requests))
            receiver.verify()
        if buyer.refused:
            raise Failed(f"orders were refused: {buyer.refused[:5]}")
        return {
            kind: {"per_second": RATE, **_percentiles(buyer.sent, times), **cost}
            for kind, times in receiver.arrived.items()
        }

    async def burst(self, dealers: int, seconds: int) -> tuple[Reading, Reading]:
        buying = self._instance.dealers[:dealers]
        async with Receiver(buying) as receiver:
            await self._subscribe(receiver, dealers)
            await self._warm_up(receiver, buying)
            file = self._instance.folder / "burst"
            requests = calls.write(file, calls.orders(buying), 20_000 * seconds)
            await asyncio.to_thread(self._begun)
            before, cpu, begun = await self._placed(), self._cpu(), time.monotonic()
            await asyncio.to_thread(wrk.replay, self._served.address, requests, BURST_CONNECTIONS, seconds)
            count = await self._all_placed_received(receiver, before)
            taken = max(max(times.values()) for times in receiver.arrived.values()) - begun
            file.unlink()
            counted: Reading = {"orders": count, "seconds": taken, "repeated": receiver.repeated}
            reading = {"per_second": count / taken} | counted | cpu.reading(count)
            receiver.verify()
            return reading, processes.memory([self._worker.pid])._asdict()

    async def _subscribe(self, receiver: Receiver, dealers: int) -> None:
        urls = dict.fromkeys(self._instance.dealers[:dealers], receiver.url)
        await asyncio.to_thread(self._instance.subscribe, self._database, urls)

    def _buyer(self) -> Buyer:
        at = urlsplit(self._served.address)
        return Buyer(str(at.hostname), at.port or 0)

    async def _warm_up(self, receiver: Receiver, buying: list[Dealer]) -> None:
        """Whole lives, until statements are prepared and connections to the receiver are open."""
        requests = calls.in_memory(calls.orders(buying), RATE)
        async with self._buyer() as buyer:
            await buyer.buy(requests, RATE)
        await self._all_received(receiver, len(requests))
        receiver.verify()
        receiver.forget()

    async def _all_placed_received(self, receiver: Receiver, before: int) -> int:
        """How many orders were placed since there were `before`. Those that wrk no longer waited for are among them."""
        count, placed = 0, await self._placed() - before
        while count < placed:
            count = placed
            await self._all_received(receiver, count)
            placed = await self._placed() - before
        return count

    async def _all_received(self, receiver: Receiver, count: int) -> None:
        """Raises Failed where they do not come."""
        begun, before = time.monotonic(), -1
        while receiver.complete < count:
            await asyncio.sleep(_LOOK_SECONDS)
            if receiver.complete != before:
                begun, before = time.monotonic(), receiver.complete
            elif time.monotonic() - begun > _PATIENCE_SECONDS:
                raise Failed(f"of {count} orders only {receiver.complete} were told of; {self._worker.tail()}")

    async def _placed(self) -> int:
        database = await Database.open(self._instance.dsn(self._database))
        try:
            async with database.connection() as connection:
                return int(await connection.fetchval("SELECT sum(order_count) FROM wallet") or 0)
        finally:
            await database.close()

    def _cpu(self) -> measure.Cpu:
        return measure.Cpu(self._instance, server=self._served.process.pid, worker=self._worker.pid)


def _percentiles(sent: dict[str, float], arrived: dict[str, float]) -> Reading:
    return measure.percentiles([(arrived[transaction_id] - at) * 1000 for transaction_id, at in sent.items()])


def of(dealers: int) -> tuple[str, str]:
    """In a title, in a key."""
    return ("one dealer", "one") if dealers == 1 else (f"{dealers} dealers", "many")


def run(bench: Bench) -> None:
    """(e): from buying to both webhooks."""
    for _ in range(bench.options.runs):
        database = bench.instance.fresh()
        for event, reading in steady(bench.instance, database, 1, bench.options.seconds).items():
            bench.note(f"life.{event}", f"order → {event} received, {RATE} orders/s", reading)
        # What the dead rows of these took is free for those that follow, as it is in any database that is in use.
        before = after = growth.disk(bench.instance, database)
        for dealers in (1, MANY_DEALERS):
            whose, name = of(dealers)
            reading, held = burst(bench.instance, database, dealers, BURST_SECONDS)
            bench.note(f"life.burst.{name}", f"order → both webhooks, as fast as it goes, {whose}", reading)
            bench.note("memory.work", "memory of work, after that", held)
            after = growth.disk(bench.instance, database)
        kb = (after.bytes - before.bytes) / (after.orders - before.orders) / 1000
        bench.note("life.disk", "disk that one more order takes, with both webhooks", {"kb": kb})
        bench.instance.drop(database)
