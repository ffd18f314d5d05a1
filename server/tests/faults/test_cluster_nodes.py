"""A node of a cluster is killed: its dealers are told so, others go on, and all completes after its return."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import asyncpg
import pytest

from dealer_server.console import routing
from dealer_server.db.errors import DatabaseLost
from dealer_server.rules.orders import identity
from dealer_server.store.distribution import nodes
from support.api_client import ApiClient, Service, running_service
from support.browser import Browser, signed_in
from support.faults.cluster_machine import ClusterMachine, cluster_machine
from support.faults.postgres_machine import until
from support.processes import environment, run

pytestmark = pytest.mark.skipif("not config.getoption('--cluster')", reason="needs Citus: make cluster-test")
OPEN = (200, 303, 400, 404)  # 400, 404: a page that is there only with more in its address, or in `dev`
READ_FROM_ALL = {
    *("/console", "/console/dealers", "/console/orders", "/console/profiles", "/console/refunds", "/console/reports"),
    *("/console/suppliers", "/console/topups", "/console/waiting", "/console/webhooks", "/console/webhooks/endpoints"),
    *("/console/notices", "/console/mails"),  # which count incidents, as the overview does
}
"""The pages of an operator that read rows of all dealers."""
ROUNDS = int(os.environ.get("CLUSTER_ROUNDS", "3"))


@pytest.fixture(scope="module")
async def machine() -> AsyncIterator[ClusterMachine]:
    async with cluster_machine() as one:
        yield one


@pytest.fixture(scope="module")
async def service(machine: ClusterMachine) -> AsyncIterator[Service]:
    async with running_service(machine.dsn) as one:
        yield one


@pytest.fixture
async def dealers(machine: ClusterMachine, service: Service) -> AsyncIterator[dict[int, ApiClient]]:
    """A dealer of each worker node."""
    async with AsyncExitStack() as clients:
        found: dict[int, ApiClient] = {}
        while len(found) < 2:
            try:
                created = await service.tenant(balance="1000000", qps=0)
            except DatabaseLost:  # the coordinator holds connections to a node that was killed before
                await asyncio.sleep(0.1)
                continue
            node = await machine.node_of(int(created.tenant_id))
            if node not in found:
                found[node] = await clients.enter_async_context(service.client(created))
        yield found


class Buyer:
    """Orders until it is told to stop, each transactionId until an answer says what became of it."""

    def __init__(self, client: ApiClient):
        self._client = client
        self.acknowledged: dict[str, str] = {}
        self.codes: list[str] = []
        self.stop = asyncio.Event()
        self.ended = False

    async def run(self) -> None:
        try:
            await self._buy_until_stopped()
        finally:
            self.ended = True

    async def _buy_until_stopped(self) -> None:
        while not self.stop.is_set():
            transaction_id = f"t-{secrets.token_hex(8)}"
            while True:
                answer = await self._client.order(transactionId=transaction_id)
                self.codes.append(answer.code)
                if answer.code == "000000":
                    self.acknowledged[transaction_id] = answer.data["orderNo"]
                    break
                assert answer.code == "900001", (answer, self.codes[-5:])
                await asyncio.sleep(0.05)

    async def buys(self, more: int) -> None:
        """Returns once it has bought so many more."""
        wanted = len(self.acknowledged) + more

        async def bought() -> bool:
            assert not self.ended, self.codes[-10:]
            return len(self.acknowledged) >= wanted

        try:
            await until(bought)
        except TimeoutError:
            raise AssertionError(f"{len(self.acknowledged)} bought, the last answers: {self.codes[-20:]}") from None

    async def latest_is_delivered(self) -> None:
        """Returns once what it bought last is delivered."""
        assert (await self._client.delivered(list(self.acknowledged.values())[-1]))["deliveryStatus"] == "DELIVERED"

    async def is_refused(self) -> None:
        """Returns once a call is answered 900001."""
        before = len(self.codes)

        async def refused() -> bool:
            assert not self.ended, self.codes[-10:]
            return "900001" in self.codes[before:]

        await until(refused)


async def everything_is_delivered(client: ApiClient, buyer: Buyer) -> None:
    for order_no in buyer.acknowledged.values():
        assert (await client.delivered(order_no))["deliveryStatus"] == "DELIVERED"


@pytest.fixture
async def buyers(service: Service, dealers: dict[int, ApiClient]) -> AsyncIterator[dict[int, Buyer]]:
    """A buyer of each worker node, who buys throughout the test. What each was told is there, and no more."""
    buyers = {node: Buyer(client) for node, client in dealers.items()}
    running = [asyncio.create_task(buyer.run()) for buyer in buyers.values()]
    yield buyers
    for buyer in buyers.values():
        buyer.stop.set()
    await asyncio.gather(*running)
    for node, client in dealers.items():
        await everything_is_delivered(client, buyers[node])
        async with service.database.connection() as connection:
            rows = await connection.fetch("SELECT transaction_id FROM orders WHERE tenant_id = $1", client.tenant_id)
        stored = [row["transaction_id"] for row in rows]
        assert sorted(stored) == sorted(buyers[node].acknowledged)
        print(f"node {node}: {len(stored)} orders, {buyers[node].codes.count('900001')} answers of 900001")
    assert await service.audit() == []


async def answering(service: Service) -> list[int]:
    """The worker nodes that answer, as `dealer-server cluster status` shows them."""
    async with service.database.connection() as connection:
        return [node.group for node in await nodes.nodes(connection) if node.group and node.answers]


async def test_a_node_that_dies_stops_only_its_own_dealers_and_nothing_is_lost(
    machine: ClusterMachine, service: Service, buyers: dict[int, Buyer]
):
    for _ in range(ROUNDS):
        for node, other in ((1, 2), (2, 1)):
            await asyncio.to_thread(machine.kill, node)
            await buyers[node].is_refused()
            await buyers[other].buys(2)
            await buyers[other].latest_is_delivered()
            assert await answering(service) == [other]
            await asyncio.to_thread(machine.start, node)
            await buyers[node].buys(2)


async def test_a_node_that_is_away_closes_only_pages_that_read_from_it(
    machine: ClusterMachine, service: Service, dealers: dict[int, ApiClient]
):
    pages = [page for page in routing.declared_pages() if page.method == "GET" and page.template]
    pages = [page for page in pages if "{" not in page.path]
    await has_mailed_a_buyer(service, dealers[2])
    async with signed_in(service) as operator, signed_in(service, tenant_id=dealers[2].tenant_id) as dealer:
        await asyncio.to_thread(machine.kill, 1)
        try:
            closed = set[str]()
            for page in pages:
                if "op" in page.kinds and (answer := await operator.get(page.path)).status_code not in OPEN:
                    assert answer.status_code == 503 and "A machine of the database" in answer.text, page.path
                    closed.add(page.path)
            assert closed == READ_FROM_ALL
            for page in pages:
                if "dealer" in page.kinds:
                    assert await status(dealer, page.path) in OPEN, page.path
            for path in ("/console/profiles?ends=soon", "/console/profiles?status=NOT_MAILED"):
                assert await status(dealer, path) == 200, path
        finally:
            await asyncio.to_thread(machine.start, 1)
        for path in READ_FROM_ALL:
            await until(partial(is_open, operator, path))


async def has_mailed_a_buyer(service: Service, client: ApiClient) -> None:
    """Of two orders the first was mailed, so that lists say which was not."""
    order_no, _ = [(await client.order()).data["orderNo"] for _ in range(2)]
    async with service.database.connection() as connection:
        await connection.execute(
            "INSERT INTO buyer_mail (tenant_id, order_id, profile_id, language, state, created_at)"
            " VALUES ($1, $2, 1, 'en', 'DELIVERED', now())",
            client.tenant_id,
            identity.order_id(order_no),
        )


async def status(visitor: Browser, path: str) -> int:
    return (await visitor.get(path)).status_code


async def is_open(visitor: Browser, path: str) -> bool:
    return await status(visitor, path) in OPEN


async def test_a_coordinator_that_dies_loses_nothing(
    machine: ClusterMachine, service: Service, buyers: dict[int, Buyer]
):
    for _ in range(ROUNDS):
        await buyers[1].buys(2)
        await asyncio.to_thread(machine.kill, 0)
        await asyncio.to_thread(machine.start, 0)
        await buyers[1].buys(1)
        await buyers[2].buys(1)


async def test_a_dealer_gets_a_shard_of_its_own_while_it_buys(
    machine: ClusterMachine, service: Service, dealers: dict[int, ApiClient], buyers: dict[int, Buyer]
):
    await buyers[1].buys(2)
    env = environment(machine.dsn)
    done = await run("tenant", "isolate", str(dealers[1].tenant_id), env=env)
    assert done.status == 0, done
    await buyers[1].buys(2)
    await buyers[2].buys(2)


async def test_shards_move_while_their_dealers_buy(machine: ClusterMachine, service: Service, buyers: dict[int, Buyer]):
    await buyers[1].buys(2)
    connection = await asyncpg.connect(machine.dsn)
    try:
        # All of a node, and back: the rebalancer has nothing to do where shards are even.
        await connection.execute(
            "SELECT citus_drain_node(nodename, nodeport) FROM pg_dist_node WHERE groupid = 1;"
            " SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) FROM pg_dist_node"
            " WHERE groupid = 1"
        )
        await buyers[1].buys(2)
        await connection.execute("SELECT citus_rebalance_start()")
        await connection.execute("SELECT citus_rebalance_wait()")
        moved = await connection.fetchval(
            "SELECT count(*) FROM pg_dist_placement p JOIN pg_dist_shard s USING (shardid)"
            " WHERE groupid = 1 AND logicalrelid = 'wallet'::regclass"
        )
        assert moved
    finally:
        await connection.close()
    await buyers[1].buys(2)
    await buyers[2].buys(2)
