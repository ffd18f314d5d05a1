"""PostgreSQL stops and starts under running processes, or starts after them: each logs it once."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from support import trading
from support.databases import database_named
from support.faults.postgres_machine import Machine
from support.processes import environment, run, running

SERVE = ("serve", "--port", "0")


async def test_a_lost_and_restored_database_is_logged_once_each(machine: Machine):
    async with machine.database() as url, trading.opened(url) as workload:
        env, made = environment(url), await workload.service.tenant(balance="100", qps=0)
        async with (
            running(*SERVE, env=env) as serve,
            running("work", env=env) as work,
            workload.service.client(made) as client,
        ):
            client = replace(client, url=await serve.ready())
            for times, stop in enumerate((machine.stop_at_once, machine.kill), 1):
                assert (await client.order()).code == "000000"
                await asyncio.to_thread(stop)
                for process in (serve, work):
                    await process.says("database_lost", times)
                assert {(await client.order()).code for _ in range(5)} == {"900001"}
                for url in (client.url, serve.monitoring, work.monitoring):
                    ready = await client.http.get(f"{url}/readyz")
                    assert (ready.status_code, ready.json()["reasons"]) == (503, ["database: the connection is lost"])
                    assert (await client.http.get(f"{url}/livez")).status_code == 200
                assert (await client.http.get(f"{client.url}/healthz")).status_code == 200
                assert (await client.http.get(f"{work.monitoring}/health")).status_code == 503
                await asyncio.to_thread(machine.start)
                for process in (serve, work):
                    await process.says("database_back", times)
                await client.delivered((await client.order()).data["orderNo"])
                for url in (client.url, serve.monitoring, work.monitoring):
                    assert (await client.http.get(f"{url}/readyz")).json() == {"status": "UP"}
            for process in (serve, work):
                process.signal(signal.SIGTERM)
                assert await process.ended() == 0
                assert "Traceback" not in process.said
                told = process.events
                assert told.pop("metrics_served", 1) == 1
                assert told == {"database_lost": 2, "database_back": 2}, process.said
        assert await workload.service.audit() == []


@asynccontextmanager
async def stopped(machine: Machine) -> AsyncIterator[None]:
    """The database runs again at the end."""
    await asyncio.to_thread(machine.stop_at_once)
    try:
        yield
    finally:
        await asyncio.to_thread(machine.start)


async def test_serve_and_worker_wait_for_a_database_that_starts_later(machine: Machine):
    async with machine.database() as url, AsyncExitStack() as stack:
        env = environment(url)
        async with stopped(machine):
            processes = []
            for command in (SERVE, ("work",), ("work",)):
                process = await stack.enter_async_context(running(*command, env=env, ready=False))
                await process.says("waiting_for_database")
                processes.append(process)
            serve, work, ended = processes
            ended.signal(signal.SIGTERM)
            assert await ended.ended() == 0
        for process in (serve, work):
            assert await process.ready()
            assert process.events["database_lost"] == 0


async def test_a_database_that_stays_down_or_refuses_the_login_is_reported_in_one_line(machine: Machine):
    async with machine.database() as url:
        refused = await run(*SERVE, env=environment(database_named(url, "nowhere")))
        assert (refused.status, len(refused.err.splitlines())) == (1, 1) and '"nowhere" does not exist' in refused.err
        async with stopped(machine):
            for command in (SERVE, ("work",)):
                late = await run(*command, env=environment(url, DEALER_DATABASE_WAIT_SECONDS="0.1", DEALER_METRICS=""))
                *waited, last = late.err.splitlines()
                assert late.status == 1 and last.startswith("dealer-server: the database cannot be reached")
                assert len(waited) <= 1 and all("waiting_for_database" in line for line in waited)
