"""Fulfills the order lines of every built-in supplier."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta

import structlog

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.sealing import DataKeys
from dealer_server.fulfillment.builtin.lines import BuiltinLines
from dealer_server.fulfillment.engine import Context
from dealer_server.fulfillment.faults import fault_text
from dealer_server.rules.catalogue.package import Package
from dealer_server.store.orders import fulfillment as lines
from dealer_server.suppliers.contract import Builtin

log = structlog.get_logger()

UNSERVED_SECONDS = 60.0


class Fulfiller:
    """One engine for each supplier, so that a slow one delays no other.

    `package` finds a package by its code; `changed` is called after each commit that changed an order, `settle` after
    each that left a refund or a void to be settled.
    """

    def __init__(
        self,
        database: Database,
        suppliers: Mapping[str, Builtin],
        data_keys: DataKeys,
        package: Callable[[str], Package | None],
        clock: Clock,
        changed: Callable[[], None] = lambda: None,
        refund_failed: bool = True,
        settle: Callable[[], None] = lambda: None,
    ):
        assert all(code == supplier.code for code, supplier in suppliers.items())
        self.engines = [
            BuiltinLines(
                supplier, Context(database.session(), data_keys, package, clock, changed, refund_failed, settle)
            )
            for supplier in suppliers.values()
        ]
        self._session = database.session()
        self._clock = clock

    async def run_once(self) -> int:
        """One batch of each supplier; how many lines there were."""
        return sum([await engine.run_once() for engine in self.engines])

    def wake(self, supplier: str = "") -> None:
        """There are new lines of this supplier, or of any."""
        for engine in self.engines:
            if supplier in ("", engine.code):
                engine.lines_placed()

    async def run(self) -> None:
        """Works until cancelled, then finishes what is begun."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for engine in self.engines:
                    tasks.create_task(engine.run())
                tasks.create_task(self._log_unserved())
        finally:
            await self.close()

    async def close(self) -> None:
        for engine in self.engines:
            await engine.close()
        await self._session.close()

    async def _log_unserved(self) -> None:
        """Paid lines of a supplier that is not set up here would else wait unseen."""
        known = [engine.code for engine in self.engines]
        while True:
            since = self._clock() - timedelta(seconds=UNSERVED_SECONDS)
            try:
                unserved = await lines.unserved(self._session, known, since)
            except DatabaseLost:
                pass
            except Exception as error:
                log.error("fulfillment_failed", error=fault_text(error))
            else:
                for supplier, count in unserved.items():
                    log.error("supplier_not_set_up", supplier=supplier, lines=count)
            await asyncio.sleep(UNSERVED_SECONDS)
