"""The database of an earlier release is migrated with its data, and programs older than a schema run where they may."""

import asyncio
import gzip
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from dealer_server.operations.tenants.credentials import view_secret
from dealer_server.rules.orders import identity
from dealer_server.store import schema
from dealer_server.store.schema import Migration, NewerSchema, OlderSchema
from support.api_client import ApiClient, http_client, running_service
from support.databases import database_named
from support.patience import found

KEPT = sorted((Path(__file__).parents[1] / "support/upgrade").glob("*.sql.gz"))
ONE_ORDER = """
    SELECT app_key, transaction_id, order_id FROM orders JOIN credential USING (tenant_id)
     WHERE amount = 18000 AND order_status <> 'REFUNDED' ORDER BY order_id LIMIT 1
"""
FIRST = 39  # migrations after it say which programs they leave working, or need programs that know them


@asynccontextmanager
async def emptied(postgres: str) -> AsyncIterator[tuple[asyncpg.Connection, str]]:
    """A new database without tables."""
    name = f"upgrade_{secrets.token_hex(4)}"
    server = await asyncpg.connect(postgres)
    await server.execute(f"CREATE DATABASE {name}")
    connection = await asyncpg.connect(url := database_named(postgres, name))
    try:
        yield connection, url
    finally:
        await connection.close()
        await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await server.close()


async def fill(connection: asyncpg.Connection, rows: str) -> None:
    """Loads the rows of an earlier release, in place of those that its migrations made."""
    tables = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    await connection.execute(f"TRUNCATE {', '.join(row['relname'] for row in tables)}")
    await connection.execute("SET session_replication_role = replica")  # rows come in any order
    await connection.execute(rows)
    await connection.execute("RESET ALL")


@pytest.mark.parametrize("kept", KEPT, ids=[path.name.partition(".")[0] for path in KEPT])
async def test_the_data_of_an_earlier_release_is_migrated_and_served(postgres: str, kept: Path):
    number = int(kept.name.partition(".")[0])
    before = [migration for migration in schema.known() if migration.number <= number]
    async with emptied(postgres) as (connection, url):
        await schema.migrate(connection, before)
        await fill(connection, gzip.decompress(kept.read_bytes()).decode())
        await schema.require_current(connection, number)
        with pytest.raises(OlderSchema, match=f"lacks migration {schema.known()[len(before)].number}"):
            await schema.require_current(connection)
        ran = await schema.migrate(connection)
        assert [one.number for one in before + ran] == [one.number for one in schema.known()]
        [(app_key, transaction_id, order_id)] = await connection.fetch(ONE_ORDER)
        async with running_service(url) as service, http_client() as http:
            secret = await view_secret(service.database, service.settings.master_keys, app_key, "test")
            client = ApiClient(service.url, 0, app_key, secret, http)
            again = await client.order(transactionId=transaction_id)
            assert (again.data["orderNo"], again.data["duplicate"]) == (identity.order_no(order_id), True)
            await client.delivered((await client.order()).data["orderNo"])
            assert await service.audit() == []


def later(migration: Migration, *, number: int, compatible_from: int | None) -> Migration:
    says = f"-- Compatible from: {compatible_from}\n" if compatible_from else ""
    return migration._replace(number=number, sql=f"{says}CREATE TABLE later_{number} ()")


async def test_an_older_program_starts_on_a_schema_that_is_compatible_with_it_and_on_no_other(postgres: str):
    ours = schema.known()
    newest = ours[-1].number
    async with emptied(postgres) as (connection, _):
        grows = later(ours[-1], number=newest + 1, compatible_from=newest)
        await schema.migrate(connection, [*ours, grows])
        for at in (newest, newest + 1):
            await schema.require_current(connection, at)
            await schema.require_compatible(connection, at)
        with pytest.raises(NewerSchema, match=f"knows migration {newest};"):
            await schema.require_compatible(connection, newest - 1)
        assert await schema.migrate(connection) == [], "an older program has nothing to do"
        breaks = later(ours[-1], number=newest + 2, compatible_from=None)
        await schema.migrate(connection, [*ours, grows, breaks])
        for at in (newest, newest + 1):
            with pytest.raises(NewerSchema, match=f"needs a version that knows migration {newest + 2}"):
                await schema.require_current(connection, at)
        with pytest.raises(NewerSchema):
            await schema.migrate(connection)


async def test_a_migration_that_waits_for_a_table_lets_others_pass_and_goes_on_later(postgres: str):
    async with emptied(postgres) as (connection, url):
        ours = schema.known()
        await schema.migrate(connection)
        slow = await asyncpg.connect(url)
        try:
            holding = slow.transaction()
            await holding.start()
            await slow.execute("SELECT FROM package")
            adds = ours[-1]._replace(number=ours[-1].number + 1, sql="ALTER TABLE package ADD COLUMN later integer")
            migrating = asyncio.create_task(schema.migrate(connection, [*ours, adds]))
            reader = await asyncpg.connect(url)

            async def waits() -> bool | None:
                sql = "SELECT FROM pg_locks WHERE relation = 'package'::regclass AND NOT granted"
                return bool(await reader.fetch(sql)) or None

            await found(waits)
            await reader.execute("SELECT FROM package")  # behind the migration, which gives up
            assert not migrating.done()
            await holding.rollback()
            assert await migrating == [adds]
            await reader.close()
        finally:
            await slow.close()


def test_every_later_migration_says_which_programs_it_leaves_working():
    for migration in schema.known():
        if migration.number > FIRST:
            assert migration.sql.startswith("-- Compatible from: "), migration.name
            assert migration.compatible_from <= migration.number
