"""What of the price a purchase must leave: a supplier that would leave less is not asked, and the order says so."""

from collections.abc import AsyncIterator

import pytest

from dealer_server import clock
from dealer_server.operations.suppliers.configure import set_route
from support.money.recharges import balance, recharge
from support.supplier_setup import hop
from support.suppliers.purchases import PurchaseFixture, purchase_fixture

REASON = "SELECT reason FROM purchase ORDER BY position LIMIT 1"


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    """A service whose purchases leave a tenth of the price."""
    async with purchase_fixture(postgres, template, margin_floor_basis_points=1_000) as one:
        yield one
        assert await one.service.audit() == []


async def route(market: PurchaseFixture, near: int, far: int, floor: int | None = None) -> None:
    for one, cost in ((market.near, near), (market.far, far)):
        one.book.packages["JC016"]["price"] = cost
    hops = [hop("rt:near", "JC016", near), hop("rt:far", "JC016", far)]
    await set_route(market.service.database, "TEST-OK", hops, "test", clock.now, floor=floor)


async def test_a_supplier_below_the_floor_is_skipped_and_told_why(market: PurchaseFixture):
    await route(market, near=16_300, far=16_200)
    order = await market.client.delivered((await market.client.order()).data["orderNo"])
    assert order["deliveryStatus"] == "DELIVERED"
    assert await market.states() == [("rt:near", "REJECTED"), ("rt:far", "DONE")]
    assert (market.sold(), market.near.calls_of("esim/order")) == ((0, 1), [])
    why = "the cost 1.63 USD leaves 9.44 % of the price 1.80 USD; the margin floor is 10 %"
    assert (await market.rows(REASON)) == [(f"NOT_ALLOWED: {why}",)]
    assert (await market.rows("SELECT outcome FROM supplier_call ORDER BY position"))[0] == ("SKIPPED NOT_ALLOWED",)


async def test_an_order_that_no_supplier_may_make_is_refunded(market: PurchaseFixture):
    await route(market, near=18_000, far=17_000)
    order_no = (await market.client.order()).data["orderNo"]
    await market.until(order_no, lambda order: order["orderStatus"] == "REFUNDED")
    assert (await balance(market.client), market.sold()) == ("1000.00", (0, 0))


async def test_a_package_has_a_floor_of_its_own(market: PurchaseFixture):
    await route(market, near=18_000, far=17_000, floor=0)
    await market.client.delivered((await market.client.order()).data["orderNo"])
    assert market.sold() == (1, 0)


async def test_a_recharge_is_held_to_the_floor_too(market: PurchaseFixture):
    await route(market, near=16_000, far=16_000)
    order = await market.client.delivered((await market.client.order()).data["orderNo"])
    hops = [hop("rt:near", "TOPUP_JC016", 11_900)]  # of 1.20
    await set_route(market.service.database, "TEST-TOPUP-OK", hops, "test", clock.now)
    asked = await recharge(market.client, order)
    await market.until(asked.data["orderNo"], lambda recharge: recharge["orderStatus"] == "REFUNDED")
    assert market.near.calls_of("esim/topup") == []
