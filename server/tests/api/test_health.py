"""Is a process ready? /readyz of a serve says why not: its database is lost, older than it needs, or it is stopping."""

import asyncio
import secrets
import signal
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest

from dealer_server.db.connection import connect
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.session import Session
from dealer_server.operations.health import Health
from support.api_client import Service
from support.patience import PATIENCE, found
from support.processes import environment, running


async def becomes(health: Health, reasons: list[str]) -> None:
    """Returns once these reasons are given."""
    async with asyncio.timeout(PATIENCE):
        while health.not_ready() != reasons:
            await asyncio.sleep(0.02)


async def test_a_serve_is_ready_and_says_so(service: Service):
    async with service.client(await service.tenant()) as client:
        ready = await client.http.get(f"{service.url}/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "UP"})


async def test_a_schema_that_is_older_than_needed_and_a_stop_are_reasons_and_a_newer_one_is_where_it_is_not_compatible(
    database_url: str,
):
    database = await Database.open(database_url)
    health = Health(database_url, database.clock)
    watching = asyncio.create_task(health.watch())
    try:
        async with database.connection() as connection:
            sql = "SELECT number, name FROM migration ORDER BY number DESC LIMIT 2"
            [(newest, name), (before, _)] = await connection.fetch(sql)
            await connection.execute("DELETE FROM migration WHERE number = $1", newest)
            says = f"schema: the database has migration {before}; this version needs {newest}"
            await becomes(health, [says])
            adds = "INSERT INTO migration (number, name, compatible_from) VALUES ($1, $2, $3)"
            await connection.execute(adds, newest, name, newest)
            await connection.execute(adds, newest + 1, "later", newest)
            await becomes(health, [])
            await connection.execute("UPDATE migration SET compatible_from = NULL WHERE number = $1", newest + 1)
            needs = f"needs a version that knows migration {newest + 1}; this one knows {newest}: upgrade it"
            await becomes(health, [f"schema: the database has migration {newest + 1}, which {needs}"])
            await connection.execute("DELETE FROM migration WHERE number = $1", newest + 1)
            await becomes(health, [])
        health.draining = True
        assert health.not_ready() == ["draining: this process is stopping"]
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        await health.close()
        await database.close()


async def test_a_process_that_is_let_in_no_more_is_not_ready_though_its_connections_work(database_url: str):
    role = f"let_in_{secrets.token_hex(4)}"
    dsn = urlunsplit(urlsplit(database_url)._replace(netloc=f"{role}@"))
    database = await Database.open(database_url)
    health, session = Health(dsn, database.clock), Session(dsn, {})
    watching = asyncio.create_task(health.watch())
    async with database.connection() as connection:
        await connection.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
        try:
            await becomes(health, [])
            assert await session.fetch("SELECT 1")
            await connection.execute(f"ALTER ROLE {role} NOLOGIN")
            with pytest.raises(DatabaseLost):
                await connect(dsn)
            await becomes(health, ["database: the connection is lost"])
            assert await session.fetch("SELECT 1")
            await connection.execute(f"ALTER ROLE {role} LOGIN")
            await becomes(health, [])
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            await session.close()
            await health.close()
            await connection.execute(f"DROP ROLE {role}")
    await database.close()


async def test_a_serve_that_drains_says_so_where_it_is_watched_until_its_last_call_is_answered(database_url: str):
    env = environment(database_url, DEALER_CONSOLE="")
    async with running("serve", "--port", "0", "--share-nothing", env=env) as serve, httpx2.AsyncClient() as http:
        address = urlsplit(await serve.ready())
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(
            b"POST /open-api/v1/health HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 100")
        serve.signal(signal.SIGTERM)

        async def draining() -> list[str] | None:
            ready = await http.get(f"{serve.monitoring}/readyz")
            return ready.json()["reasons"] if ready.status_code == 503 else None

        assert await found(draining) == ["draining: this process is stopping"]
        assert (await http.get(f"{serve.monitoring}/livez")).status_code == 200
        writer.write(b"{}")
        assert b'"code":"000109"' in await reader.read()  # its body had no type: refused, but answered
        assert await serve.ended() == 0
        writer.close()
