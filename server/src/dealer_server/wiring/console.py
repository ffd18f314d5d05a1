"""The console's parts, joined."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dealer_server.api import routes
from dealer_server.console.app import ConsoleApp
from dealer_server.console.shared.request_context import Parts as ConsoleParts
from dealer_server.db.database import Database
from dealer_server.operations.users.password import Passwords
from dealer_server.wiring.base import Base

WARM_SECONDS = 2.0


@asynccontextmanager
async def console_app(base: Base, parts: routes.Parts) -> AsyncIterator[ConsoleApp]:
    """The console, on connections of its own: however many look at pages, calls of dealers do not wait for them."""
    database = await Database.open(base.settings.database_url, read_timeout_seconds=base.settings.console_seconds)
    app = ConsoleApp(
        ConsoleParts(
            database=database,
            data_keys=base.data_keys,
            master_keys=base.settings.master_keys,
            links=base.links,
            settings=base.settings,
            refunds=parts.refunds,
            voids=parts.voids,
            outbound=parts.outbound,
            callbacks=parts.callbacks,
            passwords=Passwords(),
        ),
        base.clock.now,
    )
    warming = asyncio.create_task(_warm(app))
    try:
        yield app
    finally:
        warming.cancel()
        await database.close()


async def _warm(app: ConsoleApp) -> None:
    """A little later, so that starting does not take longer for it."""
    await asyncio.sleep(WARM_SECONDS)
    await app.warm()
