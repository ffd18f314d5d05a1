"""A supplier's message whose sender does not wait for the end disturbs none that comes after it."""

import asyncio
from datetime import timedelta

from dealer_server import clock
from dealer_server.fulfillment.supplier_event_handler import SupplierEventHandler
from dealer_server.store.tenants import data_key
from dealer_server.suppliers.contract import Event
from support.api_client import running_service
from support.patience import PATIENCE
from support.supplier_setup import fresh

BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'supplier_event'::regclass"


def nobody() -> None:
    """Whom it would wake."""


async def test_a_sender_that_gives_up_leaves_the_session_to_its_message(postgres: str, template: str):
    async with fresh(postgres, template) as url, running_service(url, worker=False) as service:
        async with service.database.connection() as connection:
            keys = await data_key.load(connection, service.settings.master_keys)
        handler = SupplierEventHandler(service.database.session(), keys, clock.now, nobody, nobody, timedelta(0))
        async with service.database.connection() as other:
            blocking = other.transaction()
            await blocking.start()
            await other.execute("LOCK TABLE supplier_event IN EXCLUSIVE MODE")
            first = asyncio.create_task(handler.handle("rt:near", Event(b"first", "KIND"), b"{}"))
            async with asyncio.timeout(PATIENCE):
                while not await other.fetchval(BLOCKED):
                    await asyncio.sleep(0.01)
            first.cancel()
            await asyncio.wait([first])
            second = asyncio.create_task(handler.handle("rt:near", Event(b"second", "KIND"), b"{}"))
            await asyncio.sleep(0)
            await blocking.rollback()
        await second
        await handler.close()
        async with service.database.connection() as connection:
            rows = await connection.fetch("SELECT key FROM supplier_event ORDER BY event_id")
        assert [row[0] for row in rows] == [b"first", b"second"]
