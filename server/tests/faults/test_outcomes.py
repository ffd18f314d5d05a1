"""What does a dealer know when something breaks while an order is placed?"""

import asyncio
import json
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg
import httpx2
import pytest

from dealer_server import clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.operations.orders.id_allocator import IdAllocator
from dealer_server.operations.orders.place import OrderBatcher
from dealer_server.rules.orders.order import OrderRequest, Repeated
from dealer_server.rules.orders.priced_lines import OrderLine
from support import trading
from support.api_client import PREFIX, ApiClient, Reply, Service, running_service
from support.databases import database_named
from support.faults.postgres_machine import Machine, Watch, connected, order_call, order_in_commit, until
from support.processes import environment, running
from support.trading import Trading

LANES = "application_name = 'esim-dealer session' AND datname = current_database()"

OURS = "application_name LIKE 'esim-dealer%' AND datname = current_database() AND pid <> pg_backend_pid()"
IN_COMMIT = "wait_event = 'SyncRep'"


async def count(connection: asyncpg.Connection, transaction_id: str) -> int:
    return await connection.fetchval("SELECT count(*) FROM orders WHERE transaction_id = $1", transaction_id)


async def balance(client: ApiClient) -> str:
    return (await client.post("/account/balance")).data["balance"]


# A COMMIT is never cancelled


@asynccontextmanager
async def held_wallet(database_url: str, tenant_id: int) -> AsyncIterator[Watch]:
    """Holds a wallet, so that an order stands still inside its transaction."""
    async with connected(database_url) as holder, connected(database_url) as watcher, holder.transaction():
        await holder.execute("SELECT FROM wallet WHERE tenant_id = $1 FOR UPDATE", tenant_id)
        yield Watch(watcher)


async def send_order(client: ApiClient, call: dict) -> asyncio.StreamWriter:
    """A signed order on a raw socket, sent whole; the answer is not read."""
    host, port = client.url.removeprefix("http://").split(":")
    body = json.dumps(call).encode()
    headers = {"Host": host, "Content-Length": str(len(body))} | client.headers(body)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST {PREFIX}/esim/order HTTP/1.1\r\n{head}\r\n".encode() + body)
    await writer.drain()
    return writer


async def placed_once(service: Service, client: ApiClient, call: dict) -> None:
    """The order comes to be without anyone asking again; then asking again changes nothing."""
    async with service.database.connection() as connection:
        await until(lambda: count(connection, call["transactionId"]))
    again = await client.post("/esim/order", call)
    assert (again.code, again.data["duplicate"]) == ("000000", True)
    assert await balance(client) == "998.20"
    assert await service.audit() == []


async def test_an_order_is_placed_once_when_the_client_disconnects_after_sending(service: Service, dealer: ApiClient):
    call = order_call()
    (await send_order(dealer, call)).close()
    await placed_once(service, dealer, call)


async def test_an_order_is_placed_once_when_the_client_resets_during_the_decision(service: Service, dealer: ApiClient):
    call = order_call()
    async with held_wallet(service.database.dsn, dealer.tenant_id) as watch:
        writer = await send_order(dealer, call)
        await watch.somebody_waits()
        writer.transport.abort()
    await placed_once(service, dealer, call)


async def test_an_order_is_placed_once_when_the_client_times_out(service: Service, dealer: ApiClient):
    call = order_call()
    async with held_wallet(service.database.dsn, dealer.tenant_id) as watch:
        asking = asyncio.create_task(dealer.post("/esim/order", call))
        await watch.somebody_waits()
        asking.cancel()
        await asyncio.wait([asking])
    await placed_once(service, dealer, call)


async def test_an_order_in_flight_is_answered_when_the_server_stops(service: Service, dealer: ApiClient):
    call = order_call()
    env = environment(service.database.dsn)
    async with running("serve", "--port", "0", env=env) as serve:
        here = ApiClient(await serve.ready(), dealer.tenant_id, dealer.app_key, dealer.app_secret, dealer.http)
        async with held_wallet(service.database.dsn, dealer.tenant_id) as watch:
            asking = asyncio.create_task(here.post("/esim/order", call))
            await watch.somebody_waits()
            serve.signal(signal.SIGTERM)
            await until(lambda: refuses_connections(here))
        assert (await asking).code == "000000"
        assert await serve.ended() == 0
    await placed_once(service, dealer, call)


async def refuses_connections(client: ApiClient) -> bool:
    host, port = client.url.removeprefix("http://").split(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return True
    writer.close()
    return False


async def test_cancelling_the_wait_for_a_decision_leaves_the_order_placed(service: Service, dealer: ApiClient):
    numbers = service.database.session()
    batcher = OrderBatcher(service.database, IdAllocator(numbers, clock.now), clock.now)
    line = OrderLine("TEST-OK", 1, 1, 18_000, "simulated")
    wanted = OrderRequest(
        dealer.tenant_id, f"t-{secrets.token_hex(8)}", secrets.token_bytes(16), "USD", 18_000, (line,)
    )
    async with held_wallet(service.database.dsn, dealer.tenant_id) as watch:
        waiting = batcher.submit(wanted)
        await watch.somebody_waits()
        waiting.cancel()
    await batcher.drain()
    assert isinstance(await batcher.submit(wanted), Repeated)
    await batcher.close()
    await numbers.close()


async def test_a_cancelled_change_of_terms_is_still_made(service: Service, dealer: ApiClient):
    async with held_wallet(service.database.dsn, dealer.tenant_id) as watch:
        changing = asyncio.create_task(service.change(dealer.tenant_id, balance="7"))
        await watch.somebody_waits()
        changing.cancel()
        await asyncio.wait([changing])

    async def changed() -> bool:
        return await balance(dealer) == "7.00"

    await until(changed)
    assert await service.audit() == []


# A lost connection


async def test_a_transaction_never_continues_on_another_connection(service: Service):
    session = service.database.session()
    with pytest.raises(DatabaseLost) as lost:
        async with session.transaction():
            await end_session(service.database, await session.open())
            await session.fetch("UPDATE id_block SET next = next + 1 WHERE kind = 'order' RETURNING next")
    assert not lost.value.sent
    with pytest.raises(DatabaseLost) as lost:
        async with session.transaction():
            await session.fetch("UPDATE id_block SET next = next + 1 WHERE kind = 'order' RETURNING next")
            await end_session(service.database, await session.open())
    assert not lost.value.sent, "COMMIT was not sent, so surely nothing was done"
    async with session.transaction():
        assert await session.fetch("SELECT 1")
    await session.close()


async def end_session(database: Database, victim: asyncpg.Connection) -> None:
    """Its server process ends, and its connection is seen to be closed."""
    async with database.connection() as connection:
        await connection.execute("SELECT pg_terminate_backend($1, 10000)", victim.get_server_pid())

    async def closed() -> bool:
        return victim.is_closed()

    await until(closed)


async def test_ending_all_sessions_twenty_times_under_load_loses_nothing(own_database: Trading):
    workload = own_database
    async with running_service(workload.url) as service:
        async with workload.buyers.buying(service.url):
            for _ in range(20):
                await workload.buyers.next_acknowledged()
                await workload.rows(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
                await workload.buyers.next_acknowledged()
        assert {str(reply.data) for reply in workload.buyers.replies} <= {"{}", "{'outcome': 'UNKNOWN'}"}
        await workload.leases_run_out()
        await workload.all_is_well(service.url)


@pytest.fixture
async def own_database(postgres: str, template: str) -> AsyncIterator[Trading]:
    """A database of its own, so that nobody else's sessions are ended."""
    name = f"ground_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    await connection.close()
    async with trading.opened(database_named(postgres, name)) as one:
        yield one


# PostgreSQL itself


async def test_an_order_is_invisible_and_unacknowledged_until_the_standby_has_it(machine: Machine):
    async with (
        machine.database() as url,
        connected(url) as look,
        running_service(url, worker=False) as service,
        running_service(url, worker=False) as second,
        service.client(await service.tenant(balance="1000", qps=0)) as client,
    ):
        async with machine.ghost_standby():
            call, asking = await order_in_commit(client, Watch(look))
            asking.cancel()  # the dealer's deadline
            await asyncio.wait([asking])
            assert await count(look, call["transactionId"]) == 0
            missing = await client.post("/esim/query", {"transactionId": call["transactionId"]})
            assert missing.code == "310272"
            again = asyncio.create_task(replace(client, url=second.url).post("/esim/order", call))
            await Watch(look).somebody_waits()
            assert await count(look, call["transactionId"]) == 0 and not again.done()
        await exactly_one(await again, client, call, look, service)


async def test_an_order_with_an_interrupted_commit_is_acknowledged_when_the_standby_has_it(machine: Machine):
    """PostgreSQL shows such a commit, though the standby has not got it: neither look-up nor repeat may speak of it."""
    async with (
        machine.database() as url,
        connected(url) as look,
        running_service(url, worker=False) as service,
        running_service(url, worker=False) as second,
        service.client(await service.tenant(balance="1000", qps=0)) as client,
    ):
        async with machine.ghost_standby():
            call, asking = await order_in_commit(client, Watch(look))
            await look.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {LANES} AND {IN_COMMIT}")
            await until(lambda: count(look, call["transactionId"]))
            await Watch(look).somebody_waits("SyncRep")
            again = asyncio.create_task(replace(client, url=second.url).post("/esim/order", call))
            await Watch(look).somebody_waits("SyncRep", 2)
            assert not asking.done() and not again.done()
        assert {(reply.code, reply.data["duplicate"]) for reply in (await asking, await again)} == {
            ("000000", False),
            ("000000", True),
        }
        await exactly_one(await again, client, call, look, service)


async def test_an_order_waiting_for_the_standby_survives_a_kill_of_serve(machine: Machine):
    async with machine.database() as url, connected(url) as look, trading.opened(url) as workload:
        client, env = workload.buyers.clients[0], environment(url)
        async with machine.ghost_standby():
            async with running("serve", "--port", "0", env=env) as serve:
                client.url = await serve.ready()
                call, asking = await order_in_commit(client, Watch(look))
                await serve.kill()
                with pytest.raises(httpx2.TransportError):
                    await asking
            assert await count(look, call["transactionId"]) == 0
            async with running("serve", "--port", "0", env=env) as serve:
                client.url = await serve.ready()
                again = asyncio.create_task(client.post("/esim/order", call))
                await Watch(look).somebody_waits()
                assert await count(look, call["transactionId"]) == 0 and not again.done()
                await serve.kill()
                with pytest.raises(httpx2.TransportError):
                    await again
        async with running("serve", "--port", "0", env=env) as serve:
            client.url = await serve.ready()
            await exactly_one(await client.post("/esim/order", call), client, call, look, workload.service)


async def exactly_one(reply: Reply, client: ApiClient, call: dict, look: asyncpg.Connection, service: Service) -> None:
    assert (reply.code, reply.data["duplicate"]) == ("000000", True)
    assert (await client.post("/esim/order", call)).data["orderNo"] == reply.data["orderNo"]
    assert await count(look, call["transactionId"]) == 1
    assert await service.audit() == []


async def test_immediate_stops_of_postgresql_under_load_lose_nothing(machine: Machine):
    await _survives_stops(machine, 2)


@pytest.mark.soak
async def test_twenty_immediate_stops_of_postgresql_under_load_lose_nothing(machine: Machine):
    await _survives_stops(machine, 20)


async def _survives_stops(machine: Machine, times: int) -> None:
    async with machine.database() as url, trading.opened(url) as workload:
        env = environment(workload.url)
        async with running("serve", "--port", "0", env=env) as serve, running("work", env=env) as work:
            url = await serve.ready()
            async with workload.buyers.buying(url):
                for number in range(times):
                    await workload.buyers.next_acknowledged()
                    await asyncio.to_thread(machine.kill if number % 2 else machine.stop_at_once)
                    await asyncio.to_thread(machine.start)
                    await workload.buyers.next_acknowledged()
                    await workload.check()
            assert workload.buyers.replies and serve.lives and work.lives
            await workload.leases_run_out()
            await workload.all_is_well(url)
