"""How does one process tell others that there is work? By NOTIFY, so that they need not poll often.

A message may be lost with its connection: whoever listens polls as well.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from dealer_server.db.connection import connect
from dealer_server.db.database import Database
from dealer_server.db.errors import UNREACHABLE, DatabaseLost

CHANNEL = "esim_dealer_work"
ANSWER_SECONDS = 0.001  # before a message: the answers to the calls that it tells of go out first
INTERVAL_SECONDS = 0.02  # between two messages of a process; a worker that was told looks by itself for as long
RECONNECT_SECONDS = 1.0


class Notifier:
    """Sends topics to the processes that listen."""

    def __init__(self, database: Database):
        # A message is worth no flush of the log: commits that tell of nothing else wait for nothing.
        self._session = database.session(application_name="esim-dealer notifier", synchronous_commit="off")
        self._topics: set[str] = set()
        self._sending: asyncio.Task[None] | None = None

    def notify(self, topic: str) -> None:
        self._topics.add(topic)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def close(self) -> None:
        if self._sending is not None:
            await self._sending
        await self._session.close()

    async def _send(self) -> None:
        try:
            await asyncio.sleep(ANSWER_SECONDS)
            while self._topics:
                topics, self._topics = list(self._topics), set()
                await self._session.fetch(
                    "SELECT pg_notify($1, topic) FROM unnest($2::text[]) AS topic", CHANNEL, topics
                )
                await asyncio.sleep(INTERVAL_SECONDS)
        except DatabaseLost:
            self._topics.clear()
        finally:
            self._sending = None


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Notifier]:
    notifier = Notifier(database)
    try:
        yield notifier
    finally:
        await notifier.close()


async def listen(database: Database, notified: Callable[[str], None]) -> None:
    """Calls `notified` with each topic that another process sends, until cancelled. Connects anew when it has to."""
    while True:
        with suppress(*UNREACHABLE, DatabaseLost):
            await _listen_until_lost(database, notified)
        await asyncio.sleep(RECONNECT_SECONDS)


async def _listen_until_lost(database: Database, notified: Callable[[str], None]) -> None:
    connection = await connect(database.dsn, server_settings={"application_name": "esim-dealer listener"})
    lost = asyncio.Event()
    try:
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(CHANNEL, lambda *message: notified(str(message[3])))
        await lost.wait()
    finally:
        connection.terminate()
