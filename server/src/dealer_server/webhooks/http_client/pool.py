"""Which connection does a request go out on? One that is idle since its last answer, or a new one.

A connection is kept for one URL and no other. Dealers who share a host do not share connections, so nothing that one
of them makes the host answer can be taken for an answer to another.
"""

import asyncio

from dealer_server.webhooks.http_client.connection import Connection
from dealer_server.webhooks.http_client.connector import Connector
from dealer_server.webhooks.http_client.target import Target

IDLE_SECONDS = 4.0  # less than common receivers keep a connection open, so that few requests meet a closing one
SWEEP_SECONDS = 1.0


class Pool:
    """Without a limit: the cap of attempts in flight per tenant is one."""

    def __init__(self, connector: Connector):
        self._connector = connector
        self._idle: dict[str, list[Connection]] = {}  # by URL; the one used last is taken first
        self._busy: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    async def take(self, target: Target) -> Connection:
        """The caller gives it back. Raises what Connector.open raises."""
        connection = self._idle_connection(target) or await self._connector.open(target)
        self._busy.add(connection)
        return connection

    def give_back(self, target: Target, connection: Connection) -> None:
        """Keeps the connection for the next request to the same URL, or closes it."""
        self._busy.discard(connection)
        if not connection.reusable:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(target.url, []).append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(SWEEP_SECONDS, self._close_expired, loop)

    async def close(self) -> None:
        """Closes all connections, in use or not."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in [*self._busy, *(one for idle in self._idle.values() for one in idle)]:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # in which the sockets are closed

    def _idle_connection(self, target: Target) -> Connection | None:
        idle = self._idle.get(target.url)
        if not idle:
            return None
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while idle:
            connection = idle.pop()
            if connection.reusable and connection.idle_since > oldest:
                return connection
            connection.close()
        return None

    def _close_expired(self, loop: asyncio.AbstractEventLoop) -> None:
        oldest = loop.time() - IDLE_SECONDS
        for url, idle in [*self._idle.items()]:
            kept = [one for one in idle if one.reusable and one.idle_since > oldest]
            for connection in idle:
                if connection not in kept:
                    connection.close()
            if kept:
                self._idle[url] = kept
            else:
                del self._idle[url]
        self._sweep = loop.call_later(SWEEP_SECONDS, self._close_expired, loop) if self._idle else None
