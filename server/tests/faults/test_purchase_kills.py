"""kill -9 of the worker around calls to a supplier: each eSIM is bought once and delivered."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from dealer_server.failpoints import Failpoint
from support.api_client import ApiClient, Service, running_service
from support.faults.purchase_kills import POINTS
from support.patience import PATIENCE
from support.processes import environment, running
from support.supplier_setup import fresh
from support.suppliers.purchases import routed

KILLED = -9
SUSPENSION_POINTS = [Failpoint(f"suspension.{name}") for name in ("claimed", "answered", "written", "recorded")]
LIFE_POINTS = [Failpoint("life.claimed"), Failpoint("life.asked")]
ORDERS = 4


@dataclass
class ChainedService:
    """A service whose TEST-OK and TEST-DELAY are bought at another instance; `client` is a dealer of it."""

    upstream: Service
    service: Service
    client: ApiClient
    placed: list[str] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return environment(self.service.settings.database_url)

    async def buy(self, count: int) -> None:
        for _ in range(count):
            answer = await self.client.order(random.choice(["TEST-OK", "TEST-DELAY"]))
            assert answer.code == "000000", answer
            self.placed.append(answer.data["orderNo"])

    async def rows(self, service: Service, sql: str, *args: object) -> list[tuple[object, ...]]:
        async with service.database.connection() as connection:
            return [tuple(row) for row in await connection.fetch(sql, *args)]

    async def lanes(self) -> set[object]:
        found = await self.rows(
            self.service,
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'esim-dealer session'",
        )
        return {row[0] for row in found}

    async def leases_run_out(self, dead: set[object]) -> None:
        """Ends the leases of a killed worker, once PostgreSQL has run what it had sent."""
        async with asyncio.timeout(PATIENCE):
            while await self.lanes() & dead:
                await asyncio.sleep(0.02)
        for table in ("order_item", "purchase", "profile_life", "suspension"):
            await self.rows(self.service, f"UPDATE {table} SET due_at = now() WHERE due_at IS NOT NULL AND claim <> 0")

    async def asks(self, path: str) -> None:
        """For the first eSIM bought."""
        [[profile_id]] = await self.rows(self.service, "SELECT min(profile_id) FROM profile")
        answer = await self.client.post(path, {"profileId": profile_id})
        assert answer.code == "000000", answer

    async def becomes(self, suspended: bool) -> None:
        """Both instances say that the first eSIM is suspended, or not."""
        sql = "SELECT suspended FROM profile ORDER BY profile_id LIMIT 1"
        async with asyncio.timeout(PATIENCE):
            for service in (self.service, self.upstream):
                while await self.rows(service, sql) != [(suspended,)]:
                    await asyncio.sleep(0.02)

    async def all_is_exact(self) -> None:
        """All is delivered; the upstream sold exactly the profiles that the dealers hold."""
        async with asyncio.timeout(PATIENCE):
            while await self.rows(self.service, "SELECT 1 FROM orders WHERE delivery_status <> 'DELIVERED' LIMIT 1"):
                await self.rows(
                    self.service, "UPDATE purchase SET due_at = now() WHERE state IN ('UNKNOWN', 'PENDING')"
                )
                await asyncio.sleep(0.05)
        held = await self.rows(self.service, "SELECT iccid FROM profile ORDER BY iccid")
        bought = await self.rows(self.upstream, "SELECT iccid FROM profile ORDER BY iccid")
        assert held == bought and len(held) == len(self.placed)
        assert await self.service.audit() == []
        assert await self.upstream.audit() == []


@pytest.fixture
async def workload(postgres: str, template: str) -> AsyncIterator[ChainedService]:
    async with (
        fresh(postgres, template) as upstream_url,
        fresh(postgres, template) as url,
        running_service(upstream_url) as upstream,
    ):
        await routed(url, upstream.url, await upstream.tenant(balance="10000", qps=0))
        async with (
            running_service(url, worker=False) as service,
            service.client(await service.tenant(balance="10000", qps=0)) as client,
        ):
            yield ChainedService(upstream, service, client)


async def dies_at(workload: ChainedService, point: Failpoint) -> None:
    others = await workload.lanes()
    await workload.rows(workload.service, "UPDATE profile_life SET due_at = now()")
    async with running("work", env=workload.env, kill_at=str(point)) as work:
        await workload.buy(ORDERS)
        dead = await workload.lanes() - others

        assert await work.ended() == KILLED, work.said
    await workload.leases_run_out(dead)


async def test_each_esim_is_bought_once_when_the_worker_is_killed_at_any_failpoint(workload: ChainedService):
    for point in POINTS[::3]:
        await dies_at(workload, point)
    async with running("work", env=workload.env):
        await workload.all_is_exact()
    for point in LIFE_POINTS:
        await dies_at(workload, point)
    async with running("work", env=workload.env):
        await workload.all_is_exact()


async def test_a_suspension_is_carried_out_when_the_worker_is_killed_at_any_failpoint(workload: ChainedService):
    await workload.buy(1)
    async with running("work", env=workload.env):
        await workload.all_is_exact()
    for number, point in enumerate(SUSPENSION_POINTS):
        suspended, others = number % 2 == 0, await workload.lanes()
        async with running("work", env=workload.env, kill_at=str(point)) as work:
            await workload.asks("/esim/profile/suspend" if suspended else "/esim/profile/unsuspend")
            dead = await workload.lanes() - others
            assert await work.ended() == KILLED, work.said
        await workload.leases_run_out(dead)
        async with running("work", env=workload.env):
            await workload.becomes(suspended)
    async with running("work", env=workload.env):
        await workload.all_is_exact()


@pytest.mark.soak
async def test_a_hundred_kills_around_supplier_calls_buy_nothing_twice_and_lose_nothing(workload: ChainedService):
    for number in range(100):
        point = POINTS[number % len(POINTS)]
        await dies_at(workload, replace_times(point, random.randint(1, ORDERS)))
        if number % 10 == 9:
            async with running("work", env=workload.env):
                await workload.all_is_exact()


def replace_times(point: Failpoint, times: int) -> Failpoint:
    """Only calls are many in a worker's life."""
    return point._replace(times=times) if point.name in ("purchase.sending", "purchase.answered") else point
