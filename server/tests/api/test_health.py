"""Is a process ready? /readyz of a serve says why not: its database is lost, older than it needs, or it is stopping."""

import asyncio

from dealer_server.db.database import Database
from dealer_server.operations.health import Health
from support.api_client import Service
from support.patience import PATIENCE


async def becomes(health: Health, reasons: list[str]) -> None:
    """Returns once these reasons are given."""
    async with asyncio.timeout(PATIENCE):
        while health.not_ready() != reasons:
            await asyncio.sleep(0.02)


async def test_a_serve_is_ready_and_says_so(service: Service):
    async with service.client(await service.tenant()) as client:
        ready = await client.http.get(f"{service.url}/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "UP"})


async def test_a_schema_that_is_older_than_needed_and_a_stop_are_reasons_and_a_newer_schema_is_none(database_url: str):
    database = await Database.open(database_url)
    health = Health(database)
    watching = asyncio.create_task(health.watch())
    try:
        async with database.connection() as connection:
            [(newest, name)] = await connection.fetch("SELECT number, name FROM migration ORDER BY number DESC LIMIT 1")
            await connection.execute("DELETE FROM migration WHERE number = $1", newest)
            says = f"schema: the database has migration {newest - 1}; this version needs {newest}"
            await becomes(health, [says])
            await connection.execute("INSERT INTO migration VALUES ($1, $2), ($3, 'later')", newest, name, newest + 1)
            await becomes(health, [])
            await connection.execute("DELETE FROM migration WHERE number = $1", newest + 1)
        health.draining = True
        assert health.not_ready() == ["draining: this process is stopping"]
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        await health.close()
        await database.close()
