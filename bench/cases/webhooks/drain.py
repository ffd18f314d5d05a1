"""How fast does one `dealer-server work` deliver what waits, and how soon what changes?"""

import asyncio
import random
import time
from collections.abc import Sequence

import msgspec

from bench.load.receivers import Receivers
from bench.load.sink import Received
from bench.support import backlog, measure
from bench.support.backlog import Key
from bench.support.calls import Dealer
from bench.support.failure import Failed
from bench.support.instance import Instance
from bench.support.measure import Reading
from bench.support.processes import Process
from dealer_server import clock
from dealer_server.db.database import Database
from esim_dealer import webhook
from esim_dealer.wire import signing

RECEIVERS = 50  # of as many dealers
HANGING = 7
RATE = 200  # orders changed a second
_QUIET_SECONDS = 1.0


class Order(msgspec.Struct, rename="camel"):
    """What a webhook's body says of which order it is of."""

    order_id: int


Committed = dict[tuple[int, int], float]
"""When the COMMIT of a change was sent, by order_id and version."""


class Drain:
    """A database whose deliveries wait, and one worker process on it."""

    def __init__(self, instance: Instance, receivers: Receivers, count: int):
        self._instance = instance
        self._receivers = receivers
        self._count = count
        self._dealers = instance.dealers[:RECEIVERS]
        self.database = instance.fresh()
        backlog.load(instance, self.database, self._dealers, receivers.urls, count)

    def __enter__(self) -> "Drain":
        self._worker: Process = self._instance.work(self.database)
        return self

    def __exit__(self, *_: object) -> None:
        self._receivers.hang(None)
        self._worker.stop()
        self._instance.drop(self.database)

    def first(self) -> tuple[Reading, list[Received]]:
        """ORDER_PAID and then DELIVERY_UPDATED of half of the orders; and what was received, for others to send."""
        return self._drain(self._count // 2 * 2)

    def changed(self) -> Reading:
        """DELIVERY_UPDATED of every order; of half of them its hints are the difference to the one before."""
        reading, _ = self._drain(self._instance.run(self.database, backlog.change_all))
        return reading

    def hanging(self) -> Reading:
        """What `first` delivers, to all receivers but one that never answers."""
        self._receivers.hang(HANGING)
        tenant_id = self._dealers[HANGING].tenant_id
        keys = self._instance.run(self.database, backlog.orders)[: self._count // 2]
        reading, _ = self._drain(sum(2 for key in keys if key[0] != tenant_id), but=tenant_id)
        if not self._receivers.hung():
            raise Failed("the receiver that hangs was never asked")
        return reading

    def latency(self, seconds: int) -> Reading:
        """From sending the COMMIT of a change to the first byte of its webhook read by its receiver."""

        async def work(opened: Database) -> tuple[Committed, Reading]:
            keys = await backlog.orders(opened)
            chosen = random.Random(1).sample(keys, min(RATE * seconds, len(keys)))
            cpu = self._cpu()
            committed = await _change_steadily(opened, chosen)
            await self._receivers.wait(len(committed), self._worker)
            await backlog.recorded(opened)
            return committed, cpu.reading(len(committed))

        self._receivers.take()
        self._instance.checkpoint()
        time.sleep(_QUIET_SECONDS)
        committed, cost = self._instance.run(self.database, work)
        received = self._received(len(committed))
        waits = [(one.at - committed[_order_and_version(one)]) * 1000 for one in received]
        per_second = (len(committed) - 1) / (max(committed.values()) - min(committed.values()))
        return {"per_second": per_second, **measure.percentiles(waits), **cost}

    def _drain(self, count: int, but: int | None = None) -> tuple[Reading, list[Received]]:
        """Lets what waits go; and what was received. Costs reach on until all is recorded."""

        async def work(opened: Database) -> tuple[float, Reading]:
            cpu, released = self._cpu(), time.monotonic()
            await backlog.release(opened)
            await self._receivers.wait(count, self._worker)
            await backlog.recorded(opened, but)
            return released, cpu.reading(count)

        self._receivers.take()
        self._instance.checkpoint()
        released, cost = self._instance.run(self.database, work)
        received = self._received(count)
        return pace(received, released) | cost, received

    def _received(self, count: int) -> list[Received]:
        received = self._receivers.take()
        _check(received, self._dealers, count)
        return received

    def _cpu(self) -> measure.Cpu:
        return measure.Cpu(self._instance, worker=self._worker.pid, receivers=self._receivers.pid)


async def _change_steadily(database: Database, keys: Sequence[Key]) -> Committed:
    committed: Committed = {}

    async def change(key: Key) -> None:
        async with database.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            [(_, order_id, version)] = await backlog.change(connection, [key], clock.now())
            committed[order_id, version] = time.monotonic()
            await transaction.commit()

    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number, key in enumerate(keys):
            early = begun + number / RATE - time.monotonic()
            if early > 0:
                await asyncio.sleep(early)
            group.create_task(change(key))
    return committed


def pace(received: Sequence[Received], since: float) -> Reading:
    """How many a second until the last one was received."""
    seconds = max(one.at for one in received) - since
    return {"per_second": len(received) / seconds, "deliveries": len(received), "seconds": seconds}


def _check(received: Sequence[Received], dealers: Sequence[Dealer], count: int) -> None:
    """Raises Failed where one does not verify, has no hint, comes twice or not in its order's order, or is missing."""
    versions: dict[int, int] = {}
    for one in received:
        dealer = dealers[one.receiver]
        event = webhook.verify(headers(one.head), one.body, dealer.secret.decode(), app_key=dealer.app_key)
        order_id, version = int(event.snapshot.order_id), event.order_version or 0
        if not event.hints:
            raise Failed(f"{event.event_type} of order {order_id} has no hints")
        if version <= versions.get(order_id, 0):
            raise Failed(f"order {order_id}: version {version} came after {versions[order_id]}")
        versions[order_id] = version
    if len(received) != count:
        raise Failed(f"{len(received)} webhooks came, not {count}")


def headers(head: bytes) -> list[tuple[str, str]]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


def _order_and_version(one: Received) -> tuple[int, int]:
    version = next(value for name, value in headers(one.head) if name == signing.ORDER_VERSION)
    return msgspec.json.decode(one.body, type=Order).order_id, int(version)
