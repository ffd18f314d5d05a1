"""What does this process keep in memory, and how does it learn of changes?

Dealers' access rows, their secrets sealed, and the catalogue.

A table counts changes and names the dealers; every process looks there a few times a second and forgets those dealers
only. Where it cannot look, what it knows of a dealer is trusted for five seconds more and then read again, so that a
disabled one is never let in for longer. Looking, and reading a dealer, wait for no other use of the database.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection

import structlog

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.db.sealing import credential_context
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.rules.access import access
from dealer_server.store.tenants.tenant import Access

log = structlog.get_logger(__name__)

REFRESH_SECONDS = 0.25
KNOWN_SECONDS = 5.0  # how long a dealer is trusted after the last look that succeeded
REFRESH_LIMIT_SECONDS = 10.0  # for one look; a large catalogue takes a while
LOAD_LIMIT_SECONDS = 5.0  # for reading one dealer; its calls are then answered 900001
UNKNOWN_KEPT = 10_000


class Caller:
    """A dealer that may call: its access row, and what is parsed of it once. `read_at`: by time.monotonic()."""

    __slots__ = ("access", "allowed", "app_key", "context", "previous_context", "read_at", "tenant_id")

    def __init__(self, row: Access, read_at: float):
        self.access = row
        self.read_at = read_at
        self.tenant_id = row.tenant_id
        self.app_key = row.app_key
        self.allowed = access.networks(row.ip_allow)
        context = credential_context
        self.context = context(row.tenant_id, row.app_key, row.secret_version)
        self.previous_context = context(row.tenant_id, row.app_key, row.secret_version - 1)


class Loading:
    """A dealer that is being read. `changed`: dealers that changed meanwhile; None: perhaps all."""

    def __init__(self) -> None:
        self.changed: set[int] | None = set()
        self.task: asyncio.Task[Caller | None] | None = None

    def note(self, tenants: Collection[int] | None) -> None:
        self.changed = None if tenants is None or self.changed is None else self.changed | set(tenants)


class Cache:
    """One per process. `catalogue` is the catalogue as it stands. `refresh_pool` and `loads`: pools that
    serve nothing else."""

    def __init__(self, refresh_pool: Database, loads: Database, catalogue: Catalogue, tenant_version: int):
        self._refresh_pool = refresh_pool
        self._loads = loads
        self.catalogue = catalogue
        self._callers: dict[str, Caller] = {}
        self._unknown: dict[str, float] = {}
        self._loading: dict[str, Loading] = {}
        self._tenant_version = tenant_version
        self._refreshed_at = time.monotonic()

    @classmethod
    async def open(cls, refresh_pool: Database, loads: Database | None = None) -> "Cache":
        async with refresh_pool.connection() as connection:
            changes = await store.tenant.changes(connection, 0)
            return cls(
                refresh_pool, loads or refresh_pool, Catalogue(*await store.package.load(connection)), changes.version
            )

    def caller(self, app_key: str) -> Caller | None:
        """The dealer with this AppKey, if it is in memory and known to be as it was."""
        caller = self._callers.get(app_key)
        return caller if caller is not None and self._trusted(caller.read_at) else None

    async def load_caller(self, app_key: str) -> Caller | None:
        """The dealer with this AppKey, or None; read once for all who ask meanwhile. Raises DatabaseLost."""
        if app_key in self._unknown and self._trusted(self._unknown[app_key]):
            return None
        loading = self._loading.get(app_key)
        if loading is None:
            loading = self._loading[app_key] = Loading()
            loading.task = asyncio.create_task(self._load(app_key, loading))
            loading.task.add_done_callback(lambda task: self._loaded(app_key, task))
        assert loading.task is not None
        return await asyncio.shield(loading.task)

    def forget(self, tenants: Collection[int] | None) -> None:
        """Drops these dealers, None for all: the next call of each reads it anew. Unknown AppKeys may be new ones."""
        if tenants is None:
            self._callers.clear()
        else:
            self._callers = {key: caller for key, caller in self._callers.items() if caller.tenant_id not in tenants}
        self._unknown.clear()
        for loading in self._loading.values():
            loading.note(tenants)

    async def refresh(self) -> None:
        """Takes in which dealers have changed since the last look. Raises DatabaseLost, TooSlow."""
        began = time.monotonic()
        async with self._refresh_pool.connection() as connection:
            changes = await store.tenant.changes(connection, self._tenant_version)
        if changes.version != self._tenant_version:
            self._tenant_version = changes.version
            self.forget(changes.tenants)
        self._refreshed_at = began

    async def refresh_catalogue(self) -> None:
        """Takes in the catalogue, if it has changed. Raises DatabaseLost, TooSlow."""
        async with self._refresh_pool.connection() as connection:
            changes = await store.tenant.changes(connection, self._tenant_version)
            if changes.catalogue != self.catalogue.version:
                self.catalogue = Catalogue(*await store.package.load(connection))

    async def watch(self) -> None:
        """Looks for changes until cancelled."""
        await asyncio.gather(_repeat(self.refresh), _repeat(self.refresh_catalogue))

    def _trusted(self, read_at: float) -> bool:
        return time.monotonic() - max(read_at, self._refreshed_at) <= KNOWN_SECONDS

    async def _load(self, app_key: str, loading: Loading) -> Caller | None:
        while True:
            loading.changed = set()
            read_at = time.monotonic()
            try:
                async with self._loads.connection() as connection:
                    row = await store.tenant.load_access(connection, app_key)
            except StatementTimeout as error:
                raise DatabaseLost(sent=False) from error
            if row is None:
                if loading.changed == set() and len(self._unknown) < UNKNOWN_KEPT:
                    self._unknown[app_key] = read_at
                return None
            if loading.changed is not None and row.tenant_id not in loading.changed:  # else it may be old already
                caller = self._callers[app_key] = Caller(row, read_at)
                return caller

    def _loaded(self, app_key: str, task: asyncio.Task[Caller | None]) -> None:
        del self._loading[app_key]
        if not task.cancelled():
            task.exception()  # whoever asked has it, unless all have gone


async def _repeat(refresh: Callable[[], Awaitable[None]]) -> None:
    """Whatever goes wrong, it refreshes again: who does not look lets a disabled dealer in."""
    while True:
        try:
            await asyncio.wait_for(refresh(), REFRESH_LIMIT_SECONDS)
        except (DatabaseLost, StatementTimeout, TimeoutError):
            pass
        except Exception as error:
            log.error("cache_refresh_failed", error=repr(error))
        await asyncio.sleep(REFRESH_SECONDS)
