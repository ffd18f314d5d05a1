"""A PostgreSQL that a test stops, kills and starts, and orders that wait inside it."""

import asyncio
import os
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
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

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """SIGSTOP of every process: its kernel goes on accepting connections and bytes, and nothing answers."""
        pid = int((self._folder / "postgres/postmaster.pid").read_text().split()[0])
        postmaster = psutil.Process(pid)
        postmaster.suspend()  # so that it starts no more of them
        processes = [postmaster, *postmaster.children(recursive=True)]
        for one in processes:
            with suppress(psutil.NoSuchProcess):  # it has just ended
                one.suspend()
        try:
            yield
        finally:
            for one in processes:
                with suppress(psutil.NoSuchProcess):
                    one.resume()

    def copied(self) -> "Machine":
        """A standby of it, beside it, which has all there is and follows."""
        folder = self._folder.parent / f"standby-{secrets.token_hex(4)}"
        cluster = folder / "postgres"
        cluster.mkdir(parents=True)
        (folder / "lock").touch(mode=0o600)
        folder.chmod(0o711)
        cluster.chmod(0o700)
        programs = self.server._programs
        programs.hand_over(cluster)
        source = ("-h", str(self.server.socket_dir), "-p", "5432", "-U", "esim", "-R", "-c", "fast", "--no-sync")
        programs.must_run("pg_basebackup", "-D", str(cluster), *source, folder=folder)
        return Machine(folder)

    @asynccontextmanager
    async def standby(self) -> AsyncIterator["Machine"]:
        """Every COMMIT waits for it."""
        one = await asyncio.to_thread(self.copied)
        try:
            async with connected(self.server.dsn) as connection:
                await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                await connection.execute("SELECT pg_reload_conf()")

                async def confirms() -> bool:
                    sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                    return await connection.fetchval(sql) == 1

                await until(confirms)
            yield one
        finally:
            async with connected(self.server.dsn) as connection:
                await connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
                await connection.execute("SELECT pg_reload_conf()")
            await asyncio.to_thread(one.server.stop)

    async def promote(self) -> None:
        async with connected(self.server.dsn) as connection:
            assert await connection.fetchval("SELECT pg_promote()")

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
        async with connected(self.server.dsn) as connection, connected(self.server.dsn) as other:
            await connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
            await connection.execute("SELECT pg_reload_conf()")
            try:
                await _commits_wait(other, connection)
                yield
            finally:
                await connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
                await connection.execute("SELECT pg_reload_conf()")


async def _commits_wait(connection: asyncpg.Connection, look: asyncpg.Connection) -> None:
    """Returns once the checkpointer has heard of the setting: no COMMIT waits before that."""
    heard = False
    while not heard:
        committing = asyncio.create_task(connection.execute("SELECT pg_logical_emit_message(true, '', '')"))
        waits = asyncio.create_task(Watch(look).somebody_waits("SyncRep"))
        await asyncio.wait([committing, waits], return_when=asyncio.FIRST_COMPLETED)
        heard = waits.done()
        waits.cancel()
        if heard:
            await look.execute("SELECT pg_cancel_backend($1)", connection.get_server_pid())
        await committing


async def order_in_commit(client: ApiClient, watch: Watch) -> tuple[dict, asyncio.Task[Reply]]:
    """An order that waits for the standby."""
    call = order_call()
    asking = asyncio.create_task(client.post("/esim/order", call))
    await watch.somebody_waits("SyncRep")
    return call, asking
