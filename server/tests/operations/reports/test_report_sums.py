"""Sums of reports: orders, failures, refunds, recharges and top-ups are in them once, whoever adds them up and however
often."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dealer_server import clock
from dealer_server.operations.orders.retry import retry_order
from dealer_server.operations.reports.fold import fold_dealer, rebuild
from dealer_server.operations.suppliers.configure import set_route
from dealer_server.operations.topups.review import approve_topup
from dealer_server.operations.wallets.adjust import adjust_balance
from dealer_server.store.reports import fold
from support.api_client import ApiClient, Service, running_service
from support.faults.postgres_machine import until
from support.money.recharges import over, recharge, recharged
from support.money.refunds import bought, named, profiles, refund, settled
from support.patience import PATIENCE
from support.reports import fetch, folded, folder, kinds, sums
from support.supplier_setup import hop
from support.suppliers.purchases import PurchaseFixture, purchase_fixture

pytestmark = pytest.mark.usefixtures("exact")


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template) as one:
        yield one
        await folded(one.service.database)
        assert await one.service.audit() == []


async def traded(service: Service, dealer: ApiClient) -> None:
    """Three eSIMs, one refunded; one that fails; two recharges, one fails; a top-up; an adjustment."""
    order = await bought(dealer, quantity=3)
    await refund(dealer, order, items=named(order, {"profileId": profiles(order)[2]["profileId"]}))
    await settled(dealer, order)
    await settled(dealer, await bought(dealer, "TEST-FAIL"))
    await recharged(dealer, order)
    await over(dealer, (await recharge(dealer, order, "TEST-TOPUP-FAIL")).data)
    asked = await dealer.post("/account/topup", {"transactionId": "top", "amount": "50", "payMethod": "CARD"})
    await approve_topup(service.database, asked.data["topupNo"], "ann", clock.now)
    await adjust_balance(service.database, dealer.tenant_id, "-2.50", "paid twice", "ann", clock.now)


TRADED = {
    ("TEST-OK", "simulated", "USD"): (3, 54_000, 1, 18_000, 0, 0),
    ("TEST-FAIL", "simulated", "USD"): (1, 18_000, 1, 18_000, 0, 0),
    ("TEST-TOPUP-OK", "simulated", "USD"): (1, 12_000, 0, 0, 0, 0),
    ("TEST-TOPUP-FAIL", "simulated", "USD"): (1, 12_000, 1, 12_000, 0, 0),
}


async def test_sales_refunds_failures_and_recharges_are_in_the_sums(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    await traded(service, dealer)
    await bought(stranger)
    await folded(service.database)
    assert await sums(service.database, dealer.tenant_id) == TRADED
    assert await kinds(service.database, dealer.tenant_id) == {
        "PURCHASE": (2, -72_000),
        "RECHARGE": (2, -24_000),
        "REFUND": (3, 48_000),
        "TOPUP": (1, 500_000),
        "ADJUST": (2, 10_000_000 - 25_000),
    }
    assert await sums(service.database, stranger.tenant_id) == {
        ("TEST-OK", "simulated", "USD"): (1, 18_000, 0, 0, 0, 0)
    }


async def test_whatever_the_size_of_a_batch_the_sums_are_the_same(service: Service, dealer: ApiClient):
    await traded(service, dealer)
    async with folder(service.database, facts_at_once=1) as one:
        await one.fold()
        assert await one.fold() == 0
    assert await sums(service.database, dealer.tenant_id) == TRADED


async def test_several_that_add_at_once_add_each_fact_once(service: Service, dealer: ApiClient):
    await traded(service, dealer)
    async with folder(service.database, 2) as one, folder(service.database, 3) as two:
        await asyncio.gather(one.fold(), two.fold(), fold_dealer(service.database, dealer.tenant_id))
    assert await sums(service.database, dealer.tenant_id) == TRADED


async def test_orders_placed_meanwhile_are_in_the_sums_once(service: Service, dealer: ApiClient):
    async with folder(service.database, 3) as one:
        placing = asyncio.gather(*[dealer.order() for _ in range(40)])
        while not placing.done():
            await one.fold()
        await placing
        await one.fold()
    assert await sums(service.database, dealer.tenant_id) == {
        ("TEST-OK", "simulated", "USD"): (40, 40 * 18_000, 0, 0, 0, 0)
    }


async def test_a_rebuild_comes_to_the_same_and_goes_on_where_it_was(service: Service, dealer: ApiClient):
    await traded(service, dealer)
    await folded(service.database)
    before = await fetch(service.database, "SELECT * FROM report_day ORDER BY 1, 2, 3, 4, 5")
    assert await rebuild(service.database, clock.now, lambda left: None) >= 1
    assert await fetch(service.database, "SELECT * FROM report_day ORDER BY 1, 2, 3, 4, 5") == before
    await fetch(
        service.database,
        "INSERT INTO report_rebuild (started_at) SELECT max(rebuilt_at) FROM report_cursor",
    )
    assert await rebuild(service.database, clock.now, lambda left: None) == 0
    assert await fetch(service.database, "SELECT * FROM report_day ORDER BY 1, 2, 3, 4, 5") == before


async def test_a_rebuild_beside_orders_leaves_nothing_out(service: Service, dealer: ApiClient):
    async with folder(service.database, 2) as one:
        placing = asyncio.gather(*[dealer.order() for _ in range(30)])
        await rebuild(service.database, clock.now, lambda left: None)
        await asyncio.gather(placing, one.fold())
        await one.fold()
    assert (await sums(service.database, dealer.tenant_id))["TEST-OK", "simulated", "USD"][:2] == (30, 30 * 18_000)


async def test_the_cost_of_a_purchase_is_in_the_sums(market: PurchaseFixture):
    await market.client.delivered((await market.client.order()).data["orderNo"])
    await folded(market.service.database)
    assert await sums(market.service.database, market.client.tenant_id) == {
        ("TEST-OK", "rt:near", "USD"): (1, 18_000, 0, 0, 1, 18_000)
    }


async def test_what_another_supplier_delivered_is_its_sale_and_its_refund(market: PurchaseFixture):
    market.near.book.packages.clear()
    placed = await market.client.order()
    await folded(market.service.database)
    order = await market.client.delivered(placed.data["orderNo"])
    await folded(market.service.database)
    assert await sums(market.service.database, market.client.tenant_id) == {
        ("TEST-OK", "rt:near", "USD"): (0, 0, 0, 0, 0, 0),
        ("TEST-OK", "rt:far", "USD"): (1, 18_000, 0, 0, 1, 18_000),
    }
    await refund(market.client, order)
    await settled(market.client, order)
    await folded(market.service.database)
    assert (await sums(market.service.database, market.client.tenant_id))["TEST-OK", "rt:far", "USD"] == (
        *(1, 18_000, 1, 18_000),
        *(1, 18_000),
    )


async def test_a_line_that_an_operator_moved_stays_the_sale_of_its_first_supplier(postgres: str, template: str):
    async with purchase_fixture(postgres, template, refund_failed=False) as market:
        order = await bought(market.client, "TEST-FAIL")
        route = [hop("rt:near", "JC016")]
        await set_route(market.service.database, "TEST-FAIL", route, "test", clock.now)
        await retry_order(
            market.service.database, market.setup.keys, order["orderNo"], None, "rt:near", "ann", clock.now
        )
        await market.becomes("SELECT max(state) FROM purchase", "DONE")
        await folded(market.service.database)
        assert await sums(market.service.database, market.client.tenant_id) == {
            ("TEST-FAIL", "simulated", "USD"): (0, 0, 0, 0, 0, 0),
            ("TEST-FAIL", "rt:near", "USD"): (1, 18_000, 0, 0, 1, 18_000),
        }
        assert await market.service.audit() == []


async def test_a_worker_adds_what_is_there_by_itself(database_url: str):
    async with (
        running_service(database_url, worker=False) as service,
        service.client(await service.tenant(balance="10", qps=0)) as dealer,
    ):
        await dealer.order()
    wanted = {("TEST-OK", "simulated", "USD"): (1, 18_000, 0, 0, 0, 0)}
    async with running_service(database_url) as service, asyncio.timeout(PATIENCE):
        while await sums(service.database, dealer.tenant_id) != wanted:
            await asyncio.sleep(0.05)


@pytest.mark.skipif("not config.getoption('--cluster')", reason="one server shows a cursor with the sums it counts")
async def test_a_cursor_that_moves_after_it_was_read_adds_nothing_twice(service: Service, dealer: ApiClient):
    """As after a crash of the coordinator, when a node has yet to finish what it has prepared."""
    await bought(dealer)
    early, late = service.database.session(), service.database.session()

    async def waits() -> bool:
        async with service.database.connection() as connection:
            return await connection.fetchval(
                "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted) OR EXISTS (SELECT 1 FROM citus_lock_waits)"
            )

    async def again() -> int:
        async with late.transaction():
            return await fold.add_entries(late, 100, int(dealer.tenant_id))

    try:
        async with early.transaction():
            assert await fold.add_entries(early, 100, int(dealer.tenant_id)) == 2
            second = asyncio.create_task(again())
            await until(waits)
        assert await second == 0
    finally:
        await early.close()
        await late.close()
    await folded(service.database)
    assert await service.audit() == []
