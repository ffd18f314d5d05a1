"""Paid order lines become eSIMs (architecture, work rows)."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta

import structlog

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.sealing import DataKeys
from dealer_server.fulfillment.supplier_calls import fault_text
from dealer_server.fulfillment.supplier_queue import SupplierQueue
from dealer_server.rules.catalogue.package import Package
from dealer_server.store.orders import fulfillment as rows
from dealer_server.suppliers.contract import Supplier

log = structlog.get_logger()

UNSERVED_SECONDS = 60.0


class Fulfiller:
    """Brings paid orders their eSIMs. Each supplier has a queue of its own, so that a slow one delays no other.

    `package` finds a package by its code; `changed` is called after each commit that changed an order.
    """

    def __init__(
        self,
        database: Database,
        suppliers: Mapping[str, Supplier],
        data_keys: DataKeys,
        package: Callable[[str], Package | None],
        clock: Clock,
        changed: Callable[[], None] = lambda: None,
        refund_failed: bool = True,
    ):
        assert all(code == supplier.code for code, supplier in suppliers.items())
        self._queues = [
            SupplierQueue(supplier, database.session(), data_keys, package, clock, changed, refund_failed)
            for supplier in suppliers.values()
        ]
        self._session = database.session()
        self._clock = clock

    async def run_once(self) -> int:
        """One batch of each supplier; says how many lines there were."""
        return sum([await queue.run_once() for queue in self._queues])

    async def run(self, wake: asyncio.Event) -> None:
        """Works until cancelled, then finishes what is begun. `wake` set: there is new work."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for queue in self._queues:
                    tasks.create_task(queue.run())
                tasks.create_task(self._tell_of_unserved())
                while True:
                    await wake.wait()
                    wake.clear()
                    for queue in self._queues:
                        queue.wake.set()
        finally:
            await self.close()

    async def close(self) -> None:
        for queue in self._queues:
            await queue.close()
        await self._session.close()

    async def _tell_of_unserved(self) -> None:
        """Paid lines of a supplier that is not set up here would else wait unseen."""
        known = [queue.code for queue in self._queues]
        while True:
            since = self._clock() - timedelta(seconds=UNSERVED_SECONDS)
            try:
                unserved = await rows.unserved(self._session, known, since)
            except DatabaseLost:
                pass
            except Exception as error:
                log.error("fulfillment_failed", error=fault_text(error))
            else:
                for supplier, lines in unserved.items():
                    log.error("supplier_not_set_up", supplier=supplier, lines=lines)
            await asyncio.sleep(UNSERVED_SECONDS)
