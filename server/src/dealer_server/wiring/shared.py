"""The parts that API, console and worker of one process share."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from dealer_server import store
from dealer_server.clock import DatabaseClock
from dealer_server.db.connection import wait_until_up
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.cache import LOAD_LIMIT_SECONDS, REFRESH_LIMIT_SECONDS, Cache
from dealer_server.operations.health import Health
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.settings import Settings
from dealer_server.store import schema
from dealer_server.suppliers.builtin.simulated import Simulated
from dealer_server.suppliers.builtin.stock import Stock
from dealer_server.suppliers.contract import Builtin
from dealer_server.wiring.signals import WorkSignals


class SharedParts:
    """Settings, database, data keys, cache, clock, health, install links, and the signals between loops."""

    def __init__(self, settings: Settings, database: Database, data_keys: DataKeys, cache: Cache, health: Health):
        self.settings = settings
        self.database = database
        self.data_keys = data_keys
        self.cache = cache
        self.clock = database.clock
        self.health = health
        self.links = Links(settings.base_url, settings.ios_install_url, settings.android_install_url)
        self.signals = WorkSignals()


async def database_up(settings: Settings, stop: asyncio.Event) -> bool:
    """Waits for a database that is still starting; False where `stop` was set first. Raises DatabaseLost."""
    waiting = asyncio.create_task(wait_until_up(settings.database_url, settings.database_wait_seconds))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if waiting.done():
        waiting.result()
        return True
    waiting.cancel()
    return False


@asynccontextmanager
async def opened_parts(settings: Settings) -> AsyncIterator[SharedParts]:
    """Raises OlderSchema, NewerSchema, CannotOpen where the sealing keys do not fit, DatabaseLost."""
    clock = DatabaseClock()
    async with watched(settings.database_url, clock) as health:
        database = await Database.open(settings.database_url, clock=clock)
        try:
            async with database.connection() as connection:
                await schema.require_current(connection)
                data_keys = await store.data_key.load(connection, settings.master_keys)
            async with opened_cache(settings.database_url) as cache:
                yield SharedParts(settings, database, data_keys, cache, health)
        finally:
            await database.close()


@asynccontextmanager
async def watched(dsn: str, clock: DatabaseClock) -> AsyncIterator[Health]:
    """The database is watched from the first connection on: a leader may freeze while this process starts."""
    health = Health(dsn, clock)
    watching = asyncio.create_task(health.watch())
    try:
        yield health
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        await health.close()


@asynccontextmanager
async def opened_cache(dsn: str) -> AsyncIterator[Cache]:
    """The cache of dealers and packages, on connections of its own, so that slow lists do not delay authentication.
    Raises DatabaseLost."""
    async with AsyncExitStack() as stack:
        pools = []
        for seconds in (REFRESH_LIMIT_SECONDS, LOAD_LIMIT_SECONDS):
            pools.append(await Database.open(dsn, size=2, read_timeout_seconds=seconds))
            stack.push_async_callback(pools[-1].close)
        cache = await Cache.open(*pools)
        watching = asyncio.create_task(cache.watch())
        stack.callback(watching.cancel)
        yield cache


def callback_policy(settings: Settings) -> Policy:
    production = settings.environment == "production"
    return Policy(require_https=production, allow_loopback=settings.webhook_allow_loopback and not production)


def suppliers_of(shared: SharedParts) -> Mapping[str, Builtin]:
    """The built-in suppliers by code. `simulated` makes no real eSIMs and exists in the test environment only."""
    stock = Stock()
    if shared.settings.environment == "production":
        return {stock.code: stock}
    simulated = Simulated(shared.data_keys.derive(b"simulated supplier"), shared.settings.supplier_speed)
    return {stock.code: stock, simulated.code: simulated}


def tls_pair(cert: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    return None if cert is None or key is None else (cert, key)
