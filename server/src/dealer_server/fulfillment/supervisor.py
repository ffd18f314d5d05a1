"""Runs the loops of every remote supplier, and finds a supplier by its code for the messages that come in.

An operator adds, changes or pauses suppliers while workers run: each worker checks every second, and starts the loops
anew of suppliers that changed. A loop that is stopped records the answers to its calls. What it put off before it knew
of the change is tried at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

import structlog

from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.sealing import DataKeys
from dealer_server.fulfillment.faults import fault_text
from dealer_server.store.suppliers import supplier as suppliers
from dealer_server.store.suppliers.supplier import Supplier
from dealer_server.suppliers import registry
from dealer_server.suppliers.contract import Remote

log = structlog.get_logger()

CHECK_SECONDS = 1.0


class SupplierLoop(Protocol):
    """Works for the supplier with this code, whenever it is woken."""

    code: str
    wake: asyncio.Event

    async def run(self) -> None: ...


class RunningSupplier:
    """One that an operator paused has no loops; messages still come in."""

    def __init__(self, supplier: Supplier, remote: Remote, loops: Sequence[SupplierLoop]):
        self.supplier = supplier
        self.remote = remote
        self.loops = loops
        self.tasks = [asyncio.create_task(loop.run()) for loop in loops]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        for ended in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                log.error("supplier_loop_broke", supplier=self.supplier.code, error=fault_text(ended))
        await self.remote.close()


class SupplierSupervisor:
    """`loops` makes what has to run for a supplier, which depends on its status."""

    def __init__(
        self, database: Database, data_keys: DataKeys, loops: Callable[[Remote, Supplier], Sequence[SupplierLoop]]
    ):
        self._database = database
        self._data_keys = data_keys
        self._loops = loops
        self._running: dict[str, RunningSupplier] = {}
        self._seen = ""

    def get(self, code: str) -> RunningSupplier | None:
        return self._running.get(code)

    def running_loops(self) -> list[SupplierLoop]:
        return [loop for running in self._running.values() for loop in running.loops]

    def wake(self) -> None:
        for loop in self.running_loops():
            loop.wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop_all)
            while True:
                try:
                    await self._check()
                except DatabaseLost:
                    pass
                except Exception as error:
                    log.error("suppliers_not_loaded", error=fault_text(error))
                await asyncio.sleep(CHECK_SECONDS)

    async def _check(self) -> None:
        async with self._database.connection() as connection:
            version = await suppliers.version(connection)
            broken = any(task.done() for running in self._running.values() for task in running.tasks)
            if version == self._seen and not broken:
                return
            stored = {supplier.code: supplier for supplier in await suppliers.load(connection, self._data_keys)}
        changed: list[str] = []
        for code, running in list(self._running.items()):
            supplier = stored.get(code)
            if supplier != running.supplier or any(task.done() for task in running.tasks):
                del self._running[code]
                await running.stop()
                if supplier is not None and supplier != running.supplier and supplier.status == "ACTIVE":
                    changed.append(code)
        if changed:
            async with self._database.connection() as connection:
                for code in changed:
                    await suppliers.make_planned_due(connection, code)
        for code, supplier in stored.items():
            if code not in self._running and (remote := _opened(supplier)) is not None:
                self._running[code] = RunningSupplier(supplier, remote, self._loops(remote, supplier))
                log.info("supplier_started", supplier=code, kind=supplier.kind, status=supplier.status)
        self._seen = version

    async def _stop_all(self) -> None:
        stopping: list[Awaitable[None]] = [running.stop() for running in self._running.values()]
        await asyncio.gather(*stopping)


def _opened(supplier: Supplier) -> Remote | None:
    try:
        return registry.make(supplier.code, supplier.kind, supplier.settings)
    except Exception as error:
        log.error("supplier_not_opened", supplier=supplier.code, error=fault_text(error))
        return None
