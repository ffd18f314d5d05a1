"""kill -9 of the worker around esim/topup: each recharge is applied once and paid once."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from dealer_server.failpoints import Failpoint
from faults.test_purchase_kills import KILLED, replace_times
from support.api_client import ApiClient, Service, running_service
from support.faults.purchase_kills import POINTS
from support.money.recharges import recharge
from support.money.refunds import bought
from support.patience import PATIENCE
from support.processes import environment, running
from support.rt_family import BALANCE, PRICE, TOP_UP_PRICE, Upstream, running_upstream
from support.supplier_setup import Source, fresh, hop, set_up

ESIMS = 4


@dataclass
class RechargingService:
    """A service with eSIMs of an upstream; `client` is their dealer. `esims`: those that are recharged, of `bought`."""

    upstream: Upstream
    service: Service
    client: ApiClient
    esims: list[dict[str, Any]] = field(default_factory=list)
    bought: int = 0
    placed: list[str] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return environment(self.service.settings.database_url)

    async def rows(self, sql: str) -> list[tuple[object, ...]]:
        async with self.service.database.connection() as connection:
            return [tuple(row) for row in await connection.fetch(sql)]

    async def at_work(self) -> list[tuple[object, ...]]:
        """The sessions of workers and of the service that are in a statement or a transaction."""
        return await self.rows(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'esim-dealer session' AND state <> 'idle'"
        )

    async def buy(self) -> None:
        """Other eSIMs, to be recharged from now on: one has at most a hundred plans."""
        async with running("work", env=self.env):
            self.esims = [await bought(self.client) for _ in range(ESIMS)]
        self.bought += ESIMS

    async def dies_at(self, point: Failpoint) -> None:
        """The worker is killed there while each eSIM is recharged; the leases of what it worked on end."""
        async with running("work", env=self.env, kill_at=str(point)) as work:
            for esim in self.esims:
                reply = await recharge(self.client, esim)
                assert reply.code == "000000", reply
                self.placed.append(reply.data["orderNo"])
            assert await work.ended() == KILLED, work.said
        async with asyncio.timeout(PATIENCE):
            while await self.at_work():  # what the dead worker had sent
                await asyncio.sleep(0.02)
        for table in ("order_item", "purchase", "profile_life"):
            await self.rows(f"UPDATE {table} SET due_at = now() WHERE due_at IS NOT NULL AND claim <> 0")

    async def all_is_exact(self) -> None:
        """The upstream was asked for each recharge of the dealer once, and its eSIMs hold what the dealer's do."""
        async with running("work", env=self.env), asyncio.timeout(PATIENCE):
            while await self.rows("SELECT 1 FROM orders WHERE delivery_status <> 'DELIVERED' LIMIT 1"):
                await self.rows(
                    "UPDATE purchase SET due_at = now() WHERE state IN ('UNKNOWN', 'PENDING') AND due_at > now()"
                )
                await asyncio.sleep(0.1)
        units = await self.rows("SELECT unit_key FROM purchase WHERE recharges IS NOT NULL AND state = 'DONE'")
        made = [one.transaction_id for one in self.upstream.book.recharges]
        assert sorted(made) == sorted(str(unit) for (unit,) in units) and len(made) == len(self.placed)
        assert self.upstream.book.balance == BALANCE - self.bought * PRICE - len(made) * TOP_UP_PRICE
        held = await self.rows("SELECT iccid, data_total_bytes FROM profile WHERE recharges IS NULL ORDER BY iccid")
        assert held == sorted((esim.iccid, esim.totalVolume) for esim in self.upstream.book.esims())
        assert await self.service.audit() == []


@pytest.fixture
async def recharging(postgres: str, template: str) -> AsyncIterator[RechargingService]:
    async with fresh(postgres, template) as url, running_upstream() as upstream:
        await set_up(
            url,
            [Source("rt:near", "rt_upstream", upstream.settings)],
            {"TEST-OK": [hop("rt:near", "JC016")], "TEST-TOPUP-OK": [hop("rt:near", "TOPUP_JC016", TOP_UP_PRICE)]},
        )
        async with (
            running_service(url, worker=False) as service,
            service.client(await service.tenant(balance="10000", qps=0)) as client,
        ):
            recharging = RechargingService(upstream, service, client)
            await recharging.buy()
            yield recharging


async def test_each_recharge_is_applied_once_when_the_worker_is_killed_at_any_failpoint(recharging: RechargingService):
    for point in POINTS[::2]:
        await recharging.dies_at(point)
    await recharging.all_is_exact()


@pytest.mark.soak
async def test_a_hundred_kills_around_recharges_apply_nothing_twice_and_lose_nothing(recharging: RechargingService):
    for number in range(100):
        if number == 50:
            await recharging.buy()
        point = POINTS[number % len(POINTS)]
        await recharging.dies_at(replace_times(point, random.randint(1, ESIMS)))
        if number % 10 == 9:
            await recharging.all_is_exact()
