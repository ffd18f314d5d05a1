"""Does a supplier work? It is asked once a minute, for the metrics, for the console, and for purchases that wait for it
to work again."""

import asyncio
from collections.abc import Callable

import structlog

from dealer_server import metrics
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.fulfillment.faults import fault_text
from dealer_server.rules.notices import supplier_down
from dealer_server.store.notices import outbox
from dealer_server.store.suppliers import outage, supplier
from dealer_server.suppliers.contract import CALL_SECONDS, Health, Remote

log = structlog.get_logger()

CHECK_SECONDS = 60.0


class HealthMonitor:
    """Asks one remote supplier for its health, counts the answer and stores it. Logs each change; `up` is called when
    the supplier is up for the first time, or again."""

    def __init__(self, database: Database, remote: Remote, clock: Clock, up: Callable[[], None]):
        self.code = remote.code
        self.wake = asyncio.Event()
        self._database = database
        self._remote = remote
        self._clock = clock
        self._call_when_up = up
        self._up: bool | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        began = asyncio.get_running_loop().time()
        health = await self._health()
        seconds = asyncio.get_running_loop().time() - began
        metrics.supplier_called(self.code, "health", "UP" if health.up else "DOWN", seconds)
        metrics.supplier_health(self.code, health.up, health.balance, health.stock)
        if health.up != self._up:
            level = log.info if health.up else log.error
            level("supplier_up" if health.up else "supplier_down", supplier=self.code, detail=health.detail)
            self._up = health.up
            if health.up:
                self._call_when_up()
        await self._store(health)

    async def _store(self, health: Health) -> None:
        """What cannot be stored, or not now, is in the metrics all the same, and stops no purchase."""
        try:
            async with self._database.transaction() as connection:
                code, now = self.code, self._clock()
                since = await supplier.put_health(
                    connection, code, health.up, health.detail, health.balance, health.currency, now
                )
                if health.up:
                    await outage.end(connection, code, now)
                elif since is not None and since < now:  # one failed check may be a moment's fault
                    await outage.go_on(connection, code, since, health.detail)
                    await outbox.add(connection, [supplier_down.unreachable(code, health.detail, since)], now)
        except DatabaseLost:
            pass
        except Exception as error:
            log.error("supplier_health_not_written", supplier=self.code, error=fault_text(error))

    async def _health(self) -> Health:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._remote.health()
        except TimeoutError:
            return Health(False, "no answer in time")
        except Exception as error:
            return Health(False, fault_text(error))
