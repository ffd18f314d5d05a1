"""One process tells others that there is work; who listens connects anew when it has to."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dealer_server.db import notifications
from dealer_server.db.database import Database
from support.patience import PATIENCE


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = await Database.open(database_url)
    yield database
    await database.close()


async def test_a_topic_reaches_who_listens_also_after_its_connection_was_lost(database: Database):
    topics: asyncio.Queue[str] = asyncio.Queue()
    listening = asyncio.create_task(notifications.listen(database, topics.put_nowait))
    async with notifications.opened(database) as notifier, asyncio.timeout(PATIENCE):
        assert await _told(notifier, topics) == "order"
        await database.run(
            lambda connection: connection.fetch(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'esim-dealer listener'"
            )
        )
        while not topics.empty():
            topics.get_nowait()
        assert await _told(notifier, topics) == "order"
    listening.cancel()
    await asyncio.wait([listening])


async def test_topics_that_come_together_are_told_together(database: Database):
    topics: asyncio.Queue[str] = asyncio.Queue()
    listening = asyncio.create_task(notifications.listen(database, topics.put_nowait))
    async with notifications.opened(database) as notifier, asyncio.timeout(PATIENCE):
        await _told(notifier, topics)
        for topic in ("refund", "order", "refund", "order"):
            notifier.notify(topic)
        heard = set[str]()
        while heard != {"order", "refund"}:
            heard.add(await topics.get())
    listening.cancel()
    await asyncio.wait([listening])


async def _told(notifier: notifications.Notifier, topics: asyncio.Queue[str]) -> str:
    """The next topic. It is sent until somebody listens."""
    while topics.empty():
        notifier.notify("order")
        await asyncio.sleep(0.02)
    return topics.get_nowait()
