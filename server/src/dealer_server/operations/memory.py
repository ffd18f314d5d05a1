"""What does this process keep in memory, and how does it learn of changes?

Dealers' access rows, their secrets sealed, and the catalogue.

A table counts changes; every process looks there a few times a second. Where it cannot look, it forgets what it knew of
dealers, so that a disabled one is never let in for longer than a second.
"""

import asyncio

import structlog

from dealer_server import store
from dealer_server.operations.shelf import Shelf
from dealer_server.rules import access
from dealer_server.store.database import Database, DatabaseLost
from dealer_server.store.tenant import Access

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.25
UNKNOWN_KEPT = 10_000


class Caller:
    """A dealer that may call: its access row, and what is parsed of it once."""

    __slots__ = ("access", "allowed", "app_key", "context", "previous_context", "tenant_id")

    def __init__(self, row: Access):
        self.access = row
        self.tenant_id = row.tenant_id
        self.app_key = row.app_key
        self.allowed = access.networks(row.ip_allow)
        context = store.sealing.credential_context
        self.context = context(row.tenant_id, row.app_key, row.secret_version)
        self.previous_context = context(row.tenant_id, row.app_key, row.secret_version - 1)


class Memory:
    """One per process. `shelf` is the catalogue as it stands."""

    def __init__(self, database: Database, shelf: Shelf):
        self._database = database
        self.shelf = shelf
        self._callers: dict[str, Caller] = {}
        self._unknown: set[str] = set()
        self._tenant_version = 0
        self._forgotten = 0

    @classmethod
    async def open(cls, database: Database) -> "Memory":
        async with database.connection() as connection:
            return cls(database, Shelf(*await store.package.load(connection)))

    def caller(self, app_key: str) -> Caller | None:
        """The dealer with this AppKey, if it is in memory."""
        return self._callers.get(app_key)

    async def load_caller(self, app_key: str) -> Caller | None:
        """The dealer with this AppKey, or None. Raises DatabaseLost."""
        if app_key in self._unknown:
            return None
        forgotten = self._forgotten
        async with self._database.connection() as connection:
            row = await store.tenant.access(connection, app_key)
        known = forgotten == self._forgotten  # else what was read may be old already
        if row is None:
            if known and len(self._unknown) < UNKNOWN_KEPT:
                self._unknown.add(app_key)
            return None
        caller = Caller(row)
        if known:
            self._callers[app_key] = caller
        return caller

    def forget(self) -> None:
        """Drops every dealer: the next call of each loads it anew."""
        self._forgotten += 1
        self._callers.clear()
        self._unknown.clear()

    async def look(self) -> None:
        """Takes in what has changed since the last look. Raises DatabaseLost."""
        async with self._database.connection() as connection:
            changes = await store.tenant.changes(connection)
            if changes["tenant"] != self._tenant_version:
                self._tenant_version = changes["tenant"]
                self.forget()
            if changes["catalogue"] != self.shelf.version:
                self.shelf = Shelf(*await store.package.load(connection))

    async def watch(self) -> None:
        """Looks for changes until cancelled. Whatever goes wrong, it looks again: who does not look lets a disabled
        dealer in."""
        while True:
            try:
                await asyncio.wait_for(self.look(), 2 * LOOK_SECONDS)
            except (DatabaseLost, TimeoutError):
                self.forget()
            except Exception as error:
                log.error("memory_look_failed", error=repr(error))
                self.forget()
            await asyncio.sleep(LOOK_SECONDS)
