"""`serve` and `work` with --processes: a parent starts, restarts, replaces and ends the processes that do the work."""

import asyncio
import os
import re
import signal
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg
import httpx2
import psutil
import pytest

from support import trading
from support.api_client import PREFIX, ApiClient
from support.patience import PATIENCE
from support.processes import Process, environment, run, running
from support.trading import Trading

SERVE = ("serve", "--port", "0", "--processes", "2")


@pytest.fixture
async def workload(database_url: str) -> AsyncIterator[Trading]:
    async with trading.opened(database_url) as one:
        yield one


@pytest.fixture
def env(database_url: str, valkey_url: str) -> dict[str, str]:
    return environment(
        database_url, DEALER_VALKEY_URL=valkey_url, DEALER_METRICS="127.0.0.1:0", DEALER_CONSOLE="127.0.0.1:0"
    )


@pytest.fixture
async def dealer(workload: Trading) -> AsyncIterator[ApiClient]:
    """Its calls share no connection."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    made = await workload.service.tenant(balance="100000", qps=0)
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE, limits=limits) as http:
        yield ApiClient("", int(made.tenant_id), made.app_key, made.app_secret, http)


async def answered_by(dealer: ApiClient, processes: int) -> None:
    """Returns once so many processes have answered; each has a trace id prefix of its own."""
    seen: set[str] = set()
    async with asyncio.timeout(PATIENCE):
        while len(seen) < processes:
            replies = await asyncio.gather(*[dealer.post("/health") for _ in range(16)])
            assert {reply.code for reply in replies} == {"000000"}
            seen |= {reply.headers["X-Trace-Id"].partition("-")[0] for reply in replies}
    assert len(seen) == processes


async def test_all_processes_answer_and_a_request_id_is_accepted_once(dealer: ApiClient, env: dict[str, str]):
    async with running(*SERVE, env=env) as serve:
        dealer.url = await serve.ready()
        await answered_by(dealer, 2)
        times_lost = serve.events["shared_admission_lost"]
        # On a stalled machine Valkey may not answer within 0.2 s: a process then decides by itself, and says so.
        while (codes := await with_one_request_id(dealer)) != ["000000"] + ["101004"] * 15:
            times_lost += 1
            assert codes == ["000000"] * 2 + ["101004"] * 14
            await serve.says("shared_admission_lost", times_lost)
            await serve.says("shared_admission_found", times_lost)
        console, *_ = re.findall(r"console_served .*:(\d+)", serve.said)
        answers = await asyncio.gather(*[dealer.http.get(f"http://127.0.0.1:{console}/console") for _ in range(16)])
        assert {answer.status_code for answer in answers} == {303}


async def with_one_request_id(dealer: ApiClient) -> list[str]:
    """The codes of sixteen calls at once."""
    used = {"RT-RequestID": str(uuid.uuid4())}
    replies = await asyncio.gather(*[dealer.post("/health", **used) for _ in range(16)])
    return sorted(reply.code for reply in replies)


async def test_each_process_may_have_a_port_of_its_own(dealer: ApiClient, env: dict[str, str]):
    async with running(*SERVE, "--port-per-process", env=env) as serve:
        urls = (await serve.ready()).split()
        assert len(urls) == 2
        for url in urls:
            await answered_by(replace(dealer, url=url), 1)


async def test_without_valkey_several_are_refused_unless_told_to_share_nothing(dealer: ApiClient, database_url: str):
    env = environment(database_url, DEALER_PROCESSES="2")
    refused = await run("serve", "--port", "0", env=env)
    assert refused.status == 1 and "DEALER_VALKEY_URL" in refused.err and "--share-nothing" in refused.err
    async with running("serve", "--port", "0", "--share-nothing", env=env) as serve:
        dealer.url = await serve.ready()
        await answered_by(dealer, 2)


async def test_a_killed_process_is_replaced_while_the_other_answers(workload: Trading, env: dict[str, str]):
    async with running(*SERVE, env=env) as serve, running("work", env=env):
        url = await serve.ready()
        async with workload.buyers.buying(url):
            for killed in sorted(serve.children):
                await workload.buyers.next_acknowledged()
                os.kill(killed, signal.SIGKILL)
                await workload.buyers.next_acknowledged()
            await serve.says("process_started", 4)
        assert serve.events["process_ended"] == len(serve.children) == 2
        await workload.all_is_well(url)


async def test_sigterm_finishes_what_is_in_flight(workload: Trading, env: dict[str, str]):
    async with running("work", env=env):
        async with running(*SERVE, env=env) as serve, workload.buyers.buying(await serve.ready()):
            for _ in range(50):
                await workload.buyers.next_acknowledged()
            serve.signal(signal.SIGTERM)
            assert await serve.ended() == 0, serve.said
        await workload.check()
        async with running(*SERVE, env=env) as serve:
            await workload.all_is_well(await serve.ready())


async def test_sighup_replaces_all_processes_and_no_call_is_lost(
    workload: Trading, dealer: ApiClient, env: dict[str, str]
):
    codes: Counter[str] = Counter()
    enough = asyncio.Event()

    async def buy(client: ApiClient) -> None:
        while not enough.is_set():
            codes[(await client.order()).code] += 1

    async with running(*SERVE, env=env) as serve, running("work", env=env), httpx2.AsyncClient(trust_env=False) as http:
        dealer.url = await serve.ready()
        before = serve.children
        async with asyncio.TaskGroup() as buying:
            for client in [dealer, replace(dealer, http=http)] * 8:
                buying.create_task(buy(client))
            serve.signal(signal.SIGHUP)
            await all_replaced(serve)
            enough.set()
        assert len(serve.children) == 2 and before.isdisjoint(serve.children)
        assert set(codes) == {"000000"}
        assert await workload.service.audit() == []


async def all_replaced(parent: Process) -> None:
    for number in (1, 2):
        await parent.says("process_replaced", number)


async def test_a_second_signal_does_not_wait(dealer: ApiClient, env: dict[str, str]):
    async with running(*SERVE, env=env) as serve:
        address = urlsplit(await serve.ready())
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        headers = {**dealer.headers(b"{}"), "Host": "test", "Content-Length": "2", "Expect": "100-continue"}
        lines = [f"POST {PREFIX}/health HTTP/1.1", *[f"{name}: {value}" for name, value in headers.items()], "", ""]
        writer.write("\r\n".join(lines).encode())
        assert b"100 Continue" in await reader.readline()  # and the body never comes
        serve.signal(signal.SIGTERM)
        await drains(serve)
        serve.signal(signal.SIGTERM)
        assert await serve.ended() == 128 + signal.SIGTERM
        writer.close()


async def drains(serve: Process) -> None:
    """Returns once one of its processes has ended: the signal has arrived."""
    async with asyncio.timeout(PATIENCE):
        while len(serve.children) > 1:
            await asyncio.sleep(0.02)


async def test_the_processes_end_when_their_parent_is_killed(env: dict[str, str]):
    async with running("work", "--processes", "2", env=env) as work:
        children = [psutil.Process(pid) for pid in work.children]
        await work.kill()
        await asyncio.to_thread(psutil.wait_procs, children, PATIENCE)
        assert not any(child.is_running() for child in children)


async def test_processes_that_cannot_start_end_the_parent_with_one_reason(env: dict[str, str]):
    refused = await run(*SERVE, env={**env, "DEALER_ENVIRONMENT": "production"})
    assert refused.status == 1
    needs_tls, ended = [line for line in refused.err.splitlines() if line.startswith("dealer-server: ")]
    assert "DEALER_TLS_CERT" in needs_tls
    assert ended == "dealer-server: process 1 ended with status 1 before it was ready"


async def test_where_new_processes_do_not_start_the_old_ones_go_on(
    workload: Trading, dealer: ApiClient, env: dict[str, str]
):
    async with running(*SERVE, env=env) as serve:
        dealer.url = await serve.ready()
        before = serve.children
        connection = await asyncpg.connect(workload.url)
        await connection.execute("INSERT INTO migration VALUES (9999, 'of tomorrow')")
        try:
            serve.signal(signal.SIGHUP)
            await serve.says("processes_not_replaced")
            assert serve.children == before
            await answered_by(dealer, 2)
            for child in before:
                os.kill(child, signal.SIGKILL)
            assert await serve.ended(2 * PATIENCE) == 1
        finally:
            await connection.execute("DELETE FROM migration WHERE number = 9999")
            await connection.close()
        assert re.search(r"dealer-server: process \d ended with status 1 before it was ready, 4 times", serve.said)


async def test_two_workers_deliver_everything_once(workload: Trading, env: dict[str, str]):
    async with running(*SERVE, env=env) as serve, running("work", "--processes", "2", env=env) as work:
        url = await serve.ready()
        ports = re.findall(r"metrics_served .*:(\d+)", work.said)
        async with httpx2.AsyncClient(trust_env=False) as http:
            for port in ports:
                answer = await http.get(f"http://127.0.0.1:{port}/metrics")
                assert "dealer_webhook_attempts_total" in answer.text
        assert len(set(ports)) == 2
        async with workload.buyers.buying(url):
            for _ in range(100):
                await workload.buyers.next_acknowledged()
            work.signal(signal.SIGHUP)
            await all_replaced(work)
        await workload.all_is_well(url)
