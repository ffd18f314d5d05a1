"""`dealer-server distribute`, `cluster status`, `tenant isolate` and `dev --cluster`."""

import json
import os
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import pytest

from dealer_server.store import schema
from dealer_server.store.distribution.distribute import distribute
from dealer_server.store.orders import note
from support import databases
from support.api_client import running_service
from support.processes import Done, environment, run

on_a_cluster = pytest.mark.skipif("not config.getoption('--cluster')", reason="needs Citus: make cluster-test")
FIRST_ON_A_CLUSTER = 40  # the last migration that had no word of clusters
# Earlier releases left this table there.
ON_THE_COORDINATOR = """
    SELECT undistribute_table('buyer_mail');
    ALTER TABLE buyer_mail ALTER mail_id DROP DEFAULT;
    DROP SEQUENCE buyer_mail_mail_id_seq;
    ALTER TABLE buyer_mail ALTER mail_id ADD GENERATED ALWAYS AS IDENTITY;
    CREATE TRIGGER commit_in_two_phases AFTER INSERT OR UPDATE OR DELETE ON buyer_mail
        FOR EACH STATEMENT EXECUTE FUNCTION commit_in_two_phases();
"""
on_one_server = pytest.mark.skipif("config.getoption('--cluster')", reason="it is of a database without Citus")


async def ok(*arguments: str, env: dict[str, str]) -> str:
    done = await run(*arguments, env=env)
    assert done.status == 0 and not done.err, done
    return done.out


def refusal(done: Done) -> str:
    assert done.status == 1 and not done.out and len(done.err.splitlines()) == 1, done
    return done.err.removeprefix("dealer-server: ").strip()


@pytest.fixture
async def env(postgres: str) -> AsyncIterator[dict[str, str]]:
    """Of a migrated database that is not distributed, with two dealers."""
    name = f"cluster_{secrets.token_hex(4)}"
    env = environment(await databases.new(postgres, name))
    await ok("migrate", env=env)
    for dealer in ("first", "second"):
        await ok("tenant", "create", "--name", dealer, "--balance", "10", "--json", env=env)
    yield env
    await databases.drop(postgres, name)


async def dealers(env: dict[str, str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in (await ok("tenant", "list", "--json", env=env)).splitlines()]


@on_one_server
async def test_a_database_without_citus_is_left_alone(env: dict[str, str]):
    assert refusal(await run("distribute", env=env)).startswith("this PostgreSQL has no Citus: CREATE EXTENSION citus")
    for command in (("cluster", "status"), ("tenant", "isolate", "10001")):
        assert refusal(await run(*command, env=env)) == "this database is not distributed: dealer-server distribute"


async def test_dev_without_citus_says_how_to_get_it():
    done = await run("dev", "--cluster", "--port", "0", env=dict(environment("")) | {"HOME": os.environ["HOME"]})
    assert "deploy/citus/build.sh" in refusal(done)


@on_a_cluster
async def test_a_dry_run_changes_nothing(env: dict[str, str]):
    said = await ok("distribute", "--dry-run", env=env)
    assert "orders: distribute by tenant_id" in said and said.endswith("steps would be done\n")
    assert (
        refusal(await run("cluster", "status", env=env)) == "this database is not distributed: dealer-server distribute"
    )


@on_a_cluster
@pytest.mark.parametrize("interrupted_after", [1, 8, 20, 60])
async def test_a_filled_database_is_distributed_also_after_an_interruption(env: dict[str, str], interrupted_after: int):
    before = await dealers(env)
    connection = await asyncpg.connect(env["DATABASE_URL"])
    done = 0
    async for _ in distribute(connection, 4):
        done += 1
        if done > interrupted_after:
            break
    await connection.close()
    if interrupted_after < 60:
        assert "distribute" in refusal(await run("work", env=env))
    assert (await ok("distribute", "--shards", "4", env=env)).endswith("the database is distributed\n")
    assert await ok("distribute", "--shards", "4", env=env) == "0 steps done: the database is distributed\n"
    assert await dealers(env) == before
    await ok("audit", env=env)


@on_a_cluster
async def test_a_distributed_database_takes_later_migrations(postgres: str):
    name = f"cluster_{secrets.token_hex(4)}"
    env = environment(await databases.new(postgres, name))
    connection = await asyncpg.connect(env["DATABASE_URL"])
    await schema.migrate(connection, [one for one in schema.known() if one.number <= FIRST_ON_A_CLUSTER])
    async for _ in distribute(connection, 4):
        pass
    await connection.execute(ON_THE_COORDINATOR)
    await connection.close()
    await ok("migrate", env=env)
    assert "buyer_mail: distribute by tenant_id" in await ok("distribute", env=env)
    assert await ok("distribute", env=env) == "0 steps done: the database is distributed\n"
    async with (
        running_service(env["DATABASE_URL"]) as service,
        service.client(await service.tenant(balance="10")) as dealer,
    ):
        order = await dealer.delivered((await dealer.order()).data["orderNo"])
        async with service.database.connection() as connection:
            written = note.Note("ann", "seen", datetime(2026, 11, 20, tzinfo=UTC))
            await note.add(connection, dealer.tenant_id, int(order["orderId"]), written)
        assert await service.audit() == []
    await databases.drop(postgres, name)


@on_a_cluster
async def test_a_node_that_came_later_gets_the_time_limits_of_the_others(env: dict[str, str]):
    await ok("distribute", "--shards", "4", env=env)
    connection = await asyncpg.connect(env["DATABASE_URL"])
    name = await connection.fetchval("SELECT current_database()")
    await connection.fetch(
        "SELECT run_command_on_workers($1)",
        f"DO $$ BEGIN SET LOCAL citus.enable_ddl_propagation = off; ALTER DATABASE {name} RESET lock_timeout; END $$",
    )
    await connection.close()
    assert (await ok("distribute", env=env)).endswith("1 steps done: the database is distributed\n")
    connection = await asyncpg.connect(env["DATABASE_URL"])
    limits = await connection.fetch("SELECT result FROM run_command_on_workers('SHOW lock_timeout')")
    await connection.close()
    assert [row["result"] for row in limits] == ["2s", "2s"]
    assert await ok("distribute", env=env) == "0 steps done: the database is distributed\n"


@on_a_cluster
async def test_the_status_names_every_node_and_a_dealer_gets_a_shard_of_its_own(env: dict[str, str]):
    await ok("distribute", "--shards", "4", env=env)
    status = json.loads(await ok("cluster", "status", "--json", env=env))
    assert [node["answers"] for node in status["nodes"]] == [True, True, True]
    assert sum(node["dealers"] for node in status["nodes"]) == 2 and status["preparedTransactions"] == 0
    before = await dealers(env)
    tenant_id = str(before[0]["tenantId"])
    assert "of its own" in await ok("tenant", "isolate", tenant_id, env=env)
    assert await dealers(env) == before
    assert refusal(await run("tenant", "isolate", "1", env=env)) == "there is no dealer 1"
    await ok("audit", env=env)


@on_a_cluster
async def test_an_audit_finds_what_is_wrong_at_a_node_and_at_the_coordinator(env: dict[str, str]):
    await ok("distribute", "--shards", "4", env=env)
    tenant_id = (await dealers(env))[1]["tenantId"]
    connection = await asyncpg.connect(env["DATABASE_URL"])
    await connection.execute("UPDATE wallet SET balance = balance + 1 WHERE tenant_id = $1", int(str(tenant_id)))
    await connection.execute("INSERT INTO wallet_day VALUES ($1, current_date, 'TOPUP', 1, 1)", int(str(tenant_id)))
    await connection.close()
    done = await run("audit", "--json", env=env)
    violated = [one["code"] for one in json.loads(done.out)["invariants"] if one["violations"]]
    assert done.status == 2 and violated == ["A1", "A28"], done
