"""What does this process keep in memory, and how does it learn of changes?

It keeps dealers' access rows and the catalogue. A table counts changes and names the dealers that changed; every
process polls it a few times a second and drops those dealers. Where it cannot poll, a dealer is trusted for five
seconds more and then read again, so that a disabled dealer is refused within that time. Polling and reading a dealer
have connections of their own (docs/decisions/0018-callers-in-memory.md).
"""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import structlog

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.db.sealing import credential_context
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.operations.catalogue.load import load_catalogue
from dealer_server.rules.access import access
from dealer_server.rules.refusal import Refusal
from dealer_server.store.tenants.tenant import Access

log = structlog.get_logger(__name__)

REFRESH_SECONDS = 0.25
TRUSTED_SECONDS = 5.0  # how long a dealer is trusted after the last refresh that succeeded
REFRESH_LIMIT_SECONDS = 10.0  # also for loading a large catalogue
LOAD_LIMIT_SECONDS = 5.0  # for reading one dealer; its calls are then answered 900001
UNKNOWN_KEPT = 10_000  # AppKeys


class Caller:
    """A dealer that may call: its access row, and what is computed from it once. `read_at`: by time.monotonic().
    `from_some`: an allowlist says from where. `secret`: its AppSecret as the key of a hash, once a call came."""

    __slots__ = ("access", "allowed", "app_key", "context", "from_some", "key_allowed", "previous_context", "read_at",
                 "scopes", "secret", "tenant_id")  # fmt: skip

    def __init__(self, row: Access, read_at: float):
        self.access = row
        self.read_at = read_at
        self.tenant_id = row.tenant_id
        self.app_key = row.app_key
        self.allowed = access.networks(row.ip_allow)
        self.key_allowed = access.networks(row.key_ip_allow)
        self.from_some = bool(self.allowed or self.key_allowed)
        self.scopes = frozenset(row.scopes)
        self.secret: hmac.HMAC | None = None
        self.context = credential_context(row.tenant_id, row.app_key, row.secret_version)
        self.previous_context = credential_context(row.tenant_id, row.app_key, row.secret_version - 1)

    def refuse_address(self, address: str) -> Refusal | None:
        """101002 for an address outside the dealer's allowlist or the AppKey's."""
        return access.refuse_address(address, self.allowed) or access.refuse_key_address(address, self.key_allowed)


class Loading:
    """A dealer that is being read. `changed`: dealers that changed in the meantime; None: any may have."""

    def __init__(self) -> None:
        self.changed: set[int] | None = set()
        self.task: asyncio.Task[Caller | None] | None = None

    def note(self, tenants: Collection[int] | None) -> None:
        self.changed = None if tenants is None or self.changed is None else self.changed | set(tenants)


class Cache:
    """One per process. `catalogue`: the current catalogue. `refresh_pool` and `load_pool` serve nothing else."""

    def __init__(self, refresh_pool: Database, load_pool: Database, catalogue: Catalogue, tenant_version: int):
        self._refresh_pool = refresh_pool
        self._load_pool = load_pool
        self.catalogue = catalogue
        self._callers: dict[str, Caller] = {}
        self._unknown: dict[str, float] = {}
        self._loading: dict[str, Loading] = {}
        self._tenant_version = tenant_version
        self._refreshed_at = time.monotonic()
        self._catalogue_load: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, refresh_pool: Database, load_pool: Database | None = None) -> "Cache":
        async with refresh_pool.connection() as connection:
            changes = await store.tenant.changes(connection, 0)
            catalogue = await load_catalogue(connection)
        return cls(refresh_pool, load_pool or refresh_pool, catalogue, changes.version)

    def caller(self, app_key: str) -> Caller | None:
        """The dealer with this AppKey, if it is in memory and trusted."""
        caller = self._callers.get(app_key)
        return caller if caller is not None and self._trusted(caller.read_at) else None

    async def load_caller(self, app_key: str) -> Caller | None:
        """The dealer with this AppKey, or None. It is read once for all calls that wait for it. Raises DatabaseLost."""
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
        """Drops these dealers, None for all: the next call of each reads it again. Unknown AppKeys are dropped too, as
        they may exist by now."""
        if tenants is None:
            self._callers.clear()
        else:
            self._callers = {key: caller for key, caller in self._callers.items() if caller.tenant_id not in tenants}
        self._unknown.clear()
        for loading in self._loading.values():
            loading.note(tenants)

    async def refresh(self) -> None:
        """Drops the dealers that have changed, and begins to load the catalogue where it has. Raises DatabaseLost,
        StatementTimeout."""
        began = time.monotonic()
        async with self._refresh_pool.connection() as connection:
            changes = await store.tenant.changes(connection, self._tenant_version)
        if changes.version != self._tenant_version:
            self._tenant_version = changes.version
            self.forget(changes.tenants)
        self._refreshed_at = began
        if changes.catalogue != self.catalogue.version and self._catalogue_load is None:
            self._catalogue_load = asyncio.create_task(self._load_catalogue())

    async def watch(self) -> None:
        """Refreshes until cancelled, whatever fails: without it a disabled dealer would be let in."""
        try:
            while True:
                async with _failures_logged():
                    await self.refresh()
                await asyncio.sleep(REFRESH_SECONDS)
        finally:
            if self._catalogue_load is not None:
                self._catalogue_load.cancel()

    def _trusted(self, read_at: float) -> bool:
        return time.monotonic() - max(read_at, self._refreshed_at) <= TRUSTED_SECONDS

    async def _load_catalogue(self) -> None:
        """In a task and on a connection of its own: a slow or failing load must not delay `refresh`, which begins the
        next one."""
        try:
            async with _failures_logged(), self._refresh_pool.connection() as connection:
                self.catalogue = await load_catalogue(connection)
        finally:
            self._catalogue_load = None

    async def _load(self, app_key: str, loading: Loading) -> Caller | None:
        while True:
            loading.changed = set()
            read_at = time.monotonic()
            try:
                async with self._load_pool.connection() as connection:
                    row = await store.tenant.load_access(connection, app_key)
            except StatementTimeout as error:
                raise DatabaseLost(sent=False) from error
            if row is None:
                if loading.changed == set() and len(self._unknown) < UNKNOWN_KEPT:
                    self._unknown[app_key] = read_at
                return None
            if loading.changed is not None and row.tenant_id not in loading.changed:  # else it may be outdated
                caller = self._callers[app_key] = Caller(row, read_at)
                return caller

    def _loaded(self, app_key: str, task: asyncio.Task[Caller | None]) -> None:
        del self._loading[app_key]
        if not task.cancelled():
            task.exception()  # marks it as retrieved, where no call waits for it any more


@asynccontextmanager
async def _failures_logged() -> AsyncIterator[None]:
    """Ends what takes over REFRESH_LIMIT_SECONDS, and lets nothing fail: it is tried again."""
    try:
        async with asyncio.timeout(REFRESH_LIMIT_SECONDS):
            yield
    except (DatabaseLost, StatementTimeout, TimeoutError):
        pass
    except Exception as error:
        log.error("cache_refresh_failed", error=repr(error))
