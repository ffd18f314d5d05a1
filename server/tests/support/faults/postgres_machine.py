"""A PostgreSQL that a test stops, kills and starts, and orders that wait inside it."""

import asyncio
import os
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import psutil

from dealer_server.dev import embedded
from dealer_server.dev.embedded import Embedded
from dealer_server.store import schema
from support.api_client import ApiClient, Reply
from support.databases import database_named
from support.patience import PATIENCE


async def until(look: Callable[[], Awaitable[object]]) -> None:
    """Returns once it is so."""
    async with asyncio.timeout(PATIENCE):
        while not await look():
            await asyncio.sleep(0.01)


def order_call() -> dict:
    line = {"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}
    return {"transactionId": f"t-{secrets.token_hex(8)}", "amount": "1.80", "items": [line]}


class Watch:
    """Sees what the service's sessions wait for."""

    def __init__(self, connection: asyncpg.Connection):
        self.connection = connection

    async def somebody_waits(self, event: str = "transactionid", sessions: int = 1) -> None:
        """Returns once sessions of this database wait so: for another transaction, or for a standby (SyncRep)."""
        sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = $1 AND datname = current_database()"

        async def seen() -> bool:
            return await self.connection.fetchval(sql, event) >= sessions

        await until(seen)


@asynccontextmanager
async def connected(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    try:
        yield connection
    finally:
        await connection.close()


class Machine:
    """A PostgreSQL of our own that loses nothing when it is stopped at once."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.server: Embedded = embedded.start(folder)

    def stop_at_once(self) -> None:
        arguments = ("stop", "-s", "-w", "-m", "immediate", "-D", "postgres")
        assert self.server._programs.run("pg_ctl", *arguments, folder=self._folder, output=subprocess.DEVNULL)

    def kill(self) -> None:
        """kill -9 of the postmaster; its children see it and end."""
        pid = int((self._folder / "postgres/postmaster.pid").read_text().split()[0])
        children = psutil.Process(pid).children(recursive=True)
        os.kill(pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(children, timeout=PATIENCE)
        assert not [one for one in alive if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]

    def start(self) -> None:
        self.server.stop()  # lets the folder go
        self.server = embedded.start(self._folder)

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """A database of a test's own, migrated."""
        name = f"test_{secrets.token_hex(4)}"
        async with connected(self.server.dsn) as connection:
            await connection.execute(f"CREATE DATABASE {name}")
        url = database_named(self.server.dsn, name)
        async with connected(url) as connection:
            await schema.migrate(connection)
        yield url

    @asynccontextmanager
    async def ghost_standby(self) -> AsyncIterator[None]:
        """Every COMMIT waits for a standby that does not exist."""
        async with connected(self.server.dsn) as connection:
            await connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
            await connection.execute("SELECT pg_reload_conf()")
            try:
                yield
            finally:
                await connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
                await connection.execute("SELECT pg_reload_conf()")


async def order_in_commit(client: ApiClient, watch: Watch) -> tuple[dict, asyncio.Task[Reply]]:
    """An order that waits for the standby; those before it came before the setting was heard of."""
    while True:
        call = order_call()
        asking = asyncio.create_task(client.post("/esim/order", call))
        waiting = asyncio.create_task(watch.somebody_waits("SyncRep"))
        await asyncio.wait([asking, waiting], return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return call, asking
        waiting.cancel()
        assert (await asking).code == "000000"
