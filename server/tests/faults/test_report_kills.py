"""kill -9 of workers and of a rebuild while they add up: each fact is in the sums once."""

import asyncio

import pytest

from dealer_server.failpoints import Failpoint
from support.api_client import running_service
from support.money.refunds import bought, refund, settled
from support.patience import PATIENCE
from support.processes import environment, run, running
from support.reports import fetch, folded, sums

KILLED = -9
POINTS = (
    Failpoint("report.added"),
    Failpoint("report.added", 1, 0.0005),
    Failpoint("report.added", 1, 0.002),
    Failpoint("report.committed"),
)


async def test_a_worker_that_is_killed_adds_nothing_twice_and_leaves_nothing_out(database_url: str):
    env = environment(database_url)
    async with (
        running_service(database_url, worker=False) as service,
        service.client(await service.tenant(balance="1000", qps=0)) as dealer,
    ):
        for number, point in enumerate(POINTS, 1):
            await asyncio.gather(*[dealer.order() for _ in range(5)])
            async with running("work", env=env, kill_at=str(point)) as work:
                assert await work.ended() == KILLED, work.said
            found = await sums(service.database, dealer.tenant_id)
            assert found.get(("TEST-OK", "simulated", "USD"), (5 * (number - 1),))[0] in (5 * (number - 1), 5 * number)
            await folded(service.database)
            wanted = (5 * number, 5 * number * 18_000, 0, 0, 0, 0)
            assert await sums(service.database, dealer.tenant_id) == {("TEST-OK", "simulated", "USD"): wanted}
        assert "A28" not in await service.audit()


async def test_several_workers_add_each_fact_once(database_url: str):
    env = environment(database_url)
    async with (
        running_service(database_url, worker=False) as service,
        service.client(await service.tenant(balance="1000", qps=0)) as dealer,
        running("work", env=env),
        running("work", env=env),
    ):
        orders = [await bought(dealer) for _ in range(10)]
        for order in orders[:4]:
            await refund(dealer, order)
            await settled(dealer, order)
        wanted = {("TEST-OK", "simulated", "USD"): (10, 180_000, 4, 72_000, 0, 0)}
        async with asyncio.timeout(PATIENCE):
            while await sums(service.database, dealer.tenant_id) != wanted:
                await asyncio.sleep(0.1)
        assert await service.audit() == []


@pytest.mark.parametrize(
    "point", [Failpoint("report.emptied"), Failpoint("report.emptied", 2), Failpoint("report.added")]
)
async def test_a_rebuild_that_is_killed_is_finished_by_the_next(database_url: str, point: Failpoint):
    env = environment(database_url)
    async with (
        running_service(database_url, worker=False) as service,
        service.client(await service.tenant(balance="1000", qps=0)) as dealer,
        service.client(await service.tenant(balance="1000", qps=0)) as other,
    ):
        await asyncio.gather(*[one.order() for one in (dealer, other) for _ in range(4)])
        await folded(service.database)
        before = await fetch(service.database, "SELECT * FROM report_day ORDER BY 1, 2, 3, 4, 5")
        async with running("reports", "rebuild", env=env, kill_at=str(point), ready=False) as killed:
            assert await killed.ended() == KILLED, killed.said
        assert "A28" not in await service.audit()
        assert (await run("reports", "rebuild", env=env)).status == 0
        assert await fetch(service.database, "SELECT * FROM report_day ORDER BY 1, 2, 3, 4, 5") == before
        assert await fetch(service.database, "SELECT FROM report_rebuild") == []
