"""Which connection does a request go out on? One that is idle since its last answer, or a new one.

A connection is kept for one URL and no other. Dealers who share a host do not share connections, so nothing that one
of them makes the host answer can be taken for an answer to another.
"""

import asyncio

from dealer_server.webhooks.http_client.connection import Connection
from dealer_server.webhooks.http_client.connector import Connector
from dealer_server.webhooks.http_client.target import Target

IDLE_SECONDS = 4.0  # less than common receivers keep a connection open, so that few requests meet a closing one


class Pool:
    """Without a limit: the cap of attempts in flight per tenant is one."""

    def __init__(self, connector: Connector, idle_seconds: float = IDLE_SECONDS):
        self._connector = connector
        self._idle_seconds = idle_seconds
        self._idle: dict[str, list[Connection]] = {}  # by URL; the one used last is taken first
        self._busy: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def take(self, target: Target) -> Connection:
        """The caller gives it back. Raises what Connector.open raises."""
        connection = self._idle_connection(target) or await self._connector.open(target)
        self._busy.add(connection)
        return connection

    def give_back(self, target: Target, connection: Connection) -> None:
        """Keeps the connection for the next request to the same URL, or closes it."""
        self._busy.discard(connection)
        if self._closed or not connection.reusable:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(target.url, []).append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_seconds / 4, self._close_expired, loop)

    async def close(self) -> None:
        """Closes all connections, in use or not."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in [*self._busy, *(one for idle in self._idle.values() for one in idle)]:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # in which the sockets are closed

    def _idle_connection(self, target: Target) -> Connection | None:
        idle = self._idle.get(target.url)
        if not idle:
            return None
        now = asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if self._usable(connection, now):
                return connection
            connection.close()
        return None

    def _usable(self, connection: Connection, now: float) -> bool:
        return connection.reusable and now - connection.idle_since < self._idle_seconds

    def _close_expired(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for url, idle in [*self._idle.items()]:
            usable = []
            for connection in idle:
                if self._usable(connection, now):
                    usable.append(connection)
                else:
                    connection.close()
            if usable:
                self._idle[url] = usable
            else:
                del self._idle[url]
        self._sweep = loop.call_later(self._idle_seconds / 4, self._close_expired, loop) if self._idle else None
