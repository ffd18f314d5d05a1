"""A supplier that refuses us: wrong credentials, an unknown package, another price. Orders wait for a while, the
supplier is paused, and a price that leaves enough is accepted."""

from collections.abc import AsyncIterator

import pytest

from dealer_server import clock, metrics
from dealer_server.fulfillment.purchases.breaker import REFUSALS
from dealer_server.operations.suppliers.configure import set_route, set_supplier_status
from dealer_server.operations.suppliers.describe import show_suppliers
from dealer_server.store.suppliers import supplier as suppliers
from support.supplier_setup import hop
from support.suppliers.purchases import PurchaseFixture, purchase_fixture

STATUS = "SELECT status FROM supplier WHERE code = 'rt:near'"


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template) as one:
        await only(one)
        yield one
        assert await one.service.audit() == []


async def only(market: PurchaseFixture, cost: int = 18_000) -> None:
    """TEST-OK is made by rt:near alone."""
    route = [hop("rt:near", "JC016", cost)]
    await set_route(market.service.database, "TEST-OK", route, "test", clock.now)


async def ordered(market: PurchaseFixture) -> str:
    return (await market.client.order()).data["orderNo"]


async def refused(market: PurchaseFixture, code: str, orders: int = 1) -> list[str]:
    """Orders whose purchases their supplier has refused once with this code."""
    market.near.fault("esim/order", *[code] * orders)
    numbers = [await ordered(market) for _ in range(orders)]
    await market.becomes("SELECT count(*)::int FROM supplier_call WHERE outcome IS NOT NULL", orders)
    return numbers


async def paused(market: PurchaseFixture) -> list[str]:
    """Orders that wait for a supplier that was paused because it refused them all."""
    numbers = await refused(market, "101003", REFUSALS)
    await market.becomes(STATUS, "PAUSED")
    return numbers


async def status_of(market: PurchaseFixture, order_no: str) -> str:
    return (await market.client.post("/esim/query", {"orderNo": order_no})).data["orderStatus"]


@pytest.mark.parametrize("code", ["101003", "310241"])
async def test_an_order_waits_for_its_only_supplier(market: PurchaseFixture, code: str):
    [order_no] = await refused(market, code)
    assert await market.states() == [("rt:near", "PLANNED")]
    assert await status_of(market, order_no) == "FULFILLING"
    await market.asked_again()
    assert (await market.client.delivered(order_no))["deliveryStatus"] == "DELIVERED"
    assert market.sold() == (1, 0)


async def test_an_order_that_waited_too_long_is_given_back(market: PurchaseFixture):
    [order_no] = await refused(market, "310241")
    market.near.fault("esim/order", "310241")
    await market.rows("UPDATE purchase SET created_at = created_at - interval '61 minutes', due_at = now()")
    await market.until(order_no, lambda order: order["orderStatus"] == "REFUNDED")


async def test_the_window_is_a_setting(postgres: str, template: str):
    async with purchase_fixture(postgres, template, supplier_patience_seconds=0) as market:
        await only(market)
        [order_no] = await refused(market, "310241")
        await market.until(order_no, lambda order: order["orderStatus"] == "REFUNDED")
        assert await market.service.audit() == []


async def test_a_supplier_that_refuses_us_as_a_whole_is_paused_until_an_operator_resumes_it(market: PurchaseFixture):
    before = metrics.REGISTRY.get_sample_value("dealer_suppliers_paused_total", {"supplier": "rt:near"}) or 0
    numbers = await paused(market)
    assert metrics.REGISTRY.get_sample_value("dealer_suppliers_paused_total", {"supplier": "rt:near"}) == before + 1
    [shown] = await show_suppliers(market.service.database, market.setup.keys, "rt:near")
    assert shown.paused_reason == "CONFIG: 101003 as the test wants it"
    async with market.service.database.connection() as connection:
        assert (await suppliers.paused_by_worker(connection))["rt:near"]
    acts = "SELECT author, detail ->> 'code', detail -> 'after' ->> 'status' FROM audit_log WHERE author = 'system'"
    assert await market.rows(acts) == [("system", "rt:near", "PAUSED")]
    assert {await status_of(market, number) for number in numbers} == {"FULFILLING"}
    await set_supplier_status(market.service.database, "rt:near", "ACTIVE", "ann")
    for number in numbers:
        assert (await market.client.delivered(number))["deliveryStatus"] == "DELIVERED"
    [shown] = await show_suppliers(market.service.database, market.setup.keys, "rt:near")
    assert (shown.status, shown.paused_reason) == ("ACTIVE", None)
    async with market.service.database.connection() as connection:
        assert not (await suppliers.paused_by_worker(connection))["rt:near"]


async def test_what_a_worker_put_off_before_it_knew_that_the_supplier_is_resumed_is_tried_at_once(
    market: PurchaseFixture,
):
    numbers = await paused(market)
    async with market.service.database.transaction() as connection:
        await suppliers.set_status(connection, "rt:near", "ACTIVE")
        await connection.execute("UPDATE purchase SET due_at = now() + interval '1 day' WHERE state = 'PLANNED'")
    for number in numbers:
        assert (await market.client.delivered(number))["deliveryStatus"] == "DELIVERED"


async def test_what_waits_for_a_paused_supplier_too_long_is_given_back(market: PurchaseFixture):
    numbers = await paused(market)
    calls = len(market.near.calls_of("esim/order"))
    await market.rows("UPDATE purchase SET created_at = created_at - interval '61 minutes', due_at = now()")
    for number in numbers:
        await market.until(number, lambda order: order["orderStatus"] == "REFUNDED")
    assert len(market.near.calls_of("esim/order")) == calls


async def test_what_a_paused_supplier_would_make_is_bought_at_the_next_of_the_route(market: PurchaseFixture):
    await paused(market)
    route = [hop("rt:near", "JC016"), hop("rt:far", "JC016")]
    await set_route(market.service.database, "TEST-OK", route, "ann", clock.now)
    order_no = await ordered(market)
    assert (await market.client.delivered(order_no))["deliveryStatus"] == "DELIVERED"
    assert (market.sold()[0], market.near.calls_of("esim/order")[REFUSALS:]) == (0, [])


async def test_what_a_paused_supplier_may_have_sold_is_asked_about_all_the_same(market: PurchaseFixture):
    market.near.slow = 1_000
    order_no = await ordered(market)
    await market.becomes("SELECT state FROM purchase", "PENDING")
    market.near.fault("esim/order", *["101003"] * REFUSALS)
    for _ in range(REFUSALS):
        await ordered(market)
    await market.becomes(STATUS, "PAUSED")
    market.near.book.orders[0].looks_left = 0
    await market.rows("UPDATE purchase SET due_at = now() WHERE state = 'PENDING'")
    assert (await market.client.delivered(order_no))["deliveryStatus"] == "DELIVERED"


async def test_an_unknown_package_pauses_nothing(market: PurchaseFixture):
    await refused(market, "310241", REFUSALS + 1)
    assert await market.rows(STATUS) == [("ACTIVE",)]


async def test_a_price_that_rose_is_accepted_recorded_and_told(market: PurchaseFixture):
    await only(market, 12_000)
    market.near.book.packages["JC016"]["price"] = 12_100
    numbers = [await ordered(market) for _ in range(2)]
    for number in numbers:
        assert (await market.client.delivered(number))["deliveryStatus"] == "DELIVERED"
    assert [order.price for order in market.near.book.orders] == [12_100, 12_100]
    assert await market.rows("SELECT DISTINCT cost FROM purchase UNION ALL SELECT cost FROM route"
                             " WHERE package_code = 'TEST-OK'") == [(12_100,), (12_100,)]  # fmt: skip
    acts = "SELECT author, (detail ->> 'before')::int, (detail ->> 'after')::int FROM audit_log" \
           " WHERE action = 'supplier.cost'"  # fmt: skip
    assert await market.rows(acts) == [("system", 12_000, 12_100)]


async def test_a_price_above_what_the_dealer_paid_is_not_accepted(market: PurchaseFixture):
    await only(market, 12_000)
    market.near.book.packages["JC016"]["price"] = 18_001
    order_no = await ordered(market)
    await market.becomes("SELECT reason FROM purchase", "CONFIG: 200005 Package price error")
    assert (await market.states(), market.sold()) == ([("rt:near", "PLANNED")], (0, 0))
    market.near.book.packages["JC016"]["price"] = 18_000
    await market.asked_again()
    assert (await market.client.delivered(order_no))["deliveryStatus"] == "DELIVERED"


async def test_what_a_new_price_must_leave_is_a_setting(postgres: str, template: str):
    async with purchase_fixture(postgres, template, margin_floor_basis_points=2_000) as market:
        await only(market, 12_000)
        market.near.book.packages["JC016"]["price"] = 14_401
        order_no = await ordered(market)
        await market.becomes("SELECT reason FROM purchase", "CONFIG: 200005 Package price error")
        market.near.book.packages["JC016"]["price"] = 14_400
        await market.asked_again()
        assert (await market.client.delivered(order_no))["deliveryStatus"] == "DELIVERED"
