"""The console's parts, joined."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dealer_server.api import routes
from dealer_server.console.app import ConsoleApp
from dealer_server.console.shared.request_context import Parts as ConsoleParts
from dealer_server.db.database import Database
from dealer_server.operations.users.password import Passwords
from dealer_server.wiring.shared import SharedParts

WARM_SECONDS = 2.0


@asynccontextmanager
async def console_app(shared: SharedParts, parts: routes.Parts) -> AsyncIterator[ConsoleApp]:
    """The console, on database connections of its own, so that pages do not delay the calls of dealers."""
    database = await Database.open(shared.settings.database_url, read_timeout_seconds=shared.settings.console_seconds)
    app = ConsoleApp(
        ConsoleParts(
            database=database,
            data_keys=shared.data_keys,
            master_keys=shared.settings.master_keys,
            links=shared.links,
            settings=shared.settings,
            catalogue=lambda: shared.cache.catalogue,
            recharges=parts.recharges,
            refunds=parts.refunds,
            voids=parts.voids,
            suspender=parts.suspender,
            sms=parts.sms,
            outbound=parts.outbound,
            callbacks=parts.callbacks,
            passwords=Passwords(),
        ),
        shared.clock.now,
    )
    warming = asyncio.create_task(_warm(app))
    try:
        yield app
    finally:
        warming.cancel()
        await database.close()


async def _warm(app: ConsoleApp) -> None:
    """After a moment, so that it does not slow the start down."""
    await asyncio.sleep(WARM_SECONDS)
    await app.warm()
