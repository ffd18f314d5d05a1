"""The console's parts, joined."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dealer_server.api import routes
from dealer_server.console.app import ConsoleApp
from dealer_server.console.shared.request_context import Parts as ConsoleParts
from dealer_server.db.database import Database
from dealer_server.db.reads import Reads
from dealer_server.notices.invitation import InvitationMailer
from dealer_server.operations.users.password import Passwords
from dealer_server.settings import CannotStart
from dealer_server.wiring.shared import SharedParts

WARM_SECONDS = 2.0


@asynccontextmanager
async def console_app(shared: SharedParts, parts: routes.Parts) -> AsyncIterator[ConsoleApp]:
    """The console, on database connections of its own, so that pages do not delay the calls of dealers."""
    database = await Database.open(shared.settings.database_url, read_timeout_seconds=shared.settings.console_seconds)
    settings = shared.settings
    reads = Reads(
        "console",
        database,
        settings.read_database_url,
        bound_seconds=settings.read_lag_seconds,
        read_timeout_seconds=settings.console_seconds,
    )
    app = ConsoleApp(
        ConsoleParts(
            database=database,
            reads=reads,
            data_keys=shared.data_keys,
            master_keys=shared.settings.master_keys,
            links=shared.links,
            settings=settings,
            catalogue=lambda: shared.cache.catalogue,
            orders=parts.orders,
            recharges=parts.recharges,
            refunds=parts.refunds,
            voids=parts.voids,
            suspender=parts.suspender,
            sms=parts.sms,
            outbound=parts.outbound,
            callbacks=parts.callbacks,
            passwords=Passwords(),
            invitations=_invitations(shared, database),
        ),
        shared.clock.now,
    )
    warming = asyncio.create_task(_warm(app))
    try:
        async with reads.running():
            yield app
    finally:
        warming.cancel()
        await database.close()


def _invitations(shared: SharedParts, database: Database) -> InvitationMailer:
    """Raises CannotStart."""
    try:
        return InvitationMailer.open(shared.settings, database, shared.clock.now)
    except OSError as error:  # ssl.SSLError is one
        raise CannotStart(f"DEALER_SMTP_CA: {error.strerror or error}") from None


async def _warm(app: ConsoleApp) -> None:
    """After a moment, so that it does not slow the start down."""
    await asyncio.sleep(WARM_SECONDS)
    await app.warm()
