"""Is a supplier well? Asked once a minute, for whoever watches the metrics or the console, or waits until it is up."""

import asyncio
from collections.abc import Callable

import structlog

from dealer_server import metrics
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.fulfillment.supplier_calls import fault_text
from dealer_server.store.suppliers import supplier
from dealer_server.suppliers.contract import CALL_SECONDS, Health, Remote

log = structlog.get_logger()

LOOK_SECONDS = 60.0


class HealthMonitor:
    """Asks one Remote how it is, counts what it says and writes it down. Says in the log when that changes; `up` is
    called when it is seen up for the first time, or again."""

    def __init__(self, database: Database, remote: Remote, clock: Clock, up: Callable[[], None]):
        self.wake = asyncio.Event()
        self._database = database
        self._remote = remote
        self._clock = clock
        self._seen_up = up
        self._up: bool | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Once."""
        health = await self._asked()
        metrics.supplier_health(self._remote.code, health.up, health.balance, health.stock)
        if health.up != self._up:
            level = log.info if health.up else log.error
            level("supplier_up" if health.up else "supplier_down", supplier=self._remote.code, detail=health.detail)
            self._up = health.up
            if health.up:
                self._seen_up()
        await self._write(health)

    async def _write(self, health: Health) -> None:
        """The metrics have it too, so a lost database takes nothing from anybody; and no words or number of a stranger
        that cannot be stored end the loops of its purchases."""
        said = health.up, health.detail, health.balance, health.currency
        try:
            async with self._database.transaction() as connection:
                await supplier.put_health(connection, self._remote.code, *said, self._clock())
        except DatabaseLost:
            pass
        except Exception as error:
            log.error("supplier_health_not_written", supplier=self._remote.code, error=fault_text(error))

    async def _asked(self) -> Health:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._remote.health()
        except TimeoutError:
            return Health(False, "no answer in time")
        except Exception as error:
            return Health(False, fault_text(error))
