"""An operator retries an order: failed profiles are fulfilled again, waiting ones by another supplier."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.operations.catalogue import load_stock
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.orders.retry import RetryResult, retry_order
from dealer_server.operations.suppliers.configure import set_route
from dealer_server.store.suppliers.purchase import Hop
from support.patience import PATIENCE
from support.processes import environment, run
from support.store_fixture import stock_csv
from support.supplier_setup import hop
from support.suppliers.purchases import PurchaseFixture, purchase_fixture

ACTS = "SELECT author, detail ->> 'supplier', (detail ->> 'profiles')::int FROM audit_log WHERE action = 'order.retry'"


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template, refund_failed=False) as market:
        yield market
        assert await market.service.audit() == []


async def retried(
    market: PurchaseFixture, order_no: str, line: int | None = None, supplier: str | None = None
) -> RetryResult:
    return await retry_order(market.service.database, market.setup.keys, order_no, line, supplier, "ann", clock.now)


async def failed(market: PurchaseFixture) -> str:
    """The orderNo of an order that both suppliers refuse."""
    market.near.fault("esim/order", "200011")
    market.far.fault("esim/order", "200011")
    data = await market.client.delivered((await market.client.order()).data["orderNo"])
    assert statuses(data) == ("FAILED", "FAILED", "FULFILLING")
    return data["orderNo"]


def statuses(data: dict[str, Any]) -> tuple[str, ...]:
    return data["items"][0]["itemStatus"], data["deliveryStatus"], data["orderStatus"]


async def seen(market: PurchaseFixture, order_no: str) -> dict[str, Any]:
    return (await market.client.post("/esim/query", {"orderNo": order_no})).data


async def events(market: PurchaseFixture) -> int:
    [(count,)] = await market.rows("SELECT count(*)::int FROM webhook_delivery WHERE event_type = 'DELIVERY_UPDATED'")
    return count


async def test_a_failed_line_waits_again_and_is_delivered(market: PurchaseFixture):
    order_no = await failed(market)
    market.near.slow = 1_000
    [(version,)] = await market.rows("SELECT version FROM orders")
    assert await retried(market, order_no) == RetryResult(order_no, 1, 0, ())
    await market.becomes("SELECT max(state) FROM purchase WHERE position = 2", "PENDING")
    assert statuses(await seen(market, order_no)) == ("PENDING", "PENDING", "FULFILLING")
    assert await market.rows("SELECT version FROM orders") == [(version + 1,)]
    assert await retried(market, order_no) == RetryResult(order_no, 0, 1, ())
    assert await market.rows(ACTS) == [("ann", None, 1)]
    market.near.book.orders[0].looks_left = 0
    await market.asked_again()
    assert statuses(await market.client.delivered(order_no)) == ("DELIVERED", "DELIVERED", "COMPLETED")
    assert market.sold() == (1, 0)
    with pytest.raises(OperatorError, match="failed or waits"):
        await retried(market, order_no)


async def test_the_dealer_receives_one_event(market: PurchaseFixture):
    order_no = await failed(market)
    before = await events(market)
    market.near.slow = 1_000
    for _ in range(2):
        await retried(market, order_no)
    await market.becomes("SELECT max(state) FROM purchase WHERE position = 2", "PENDING")
    assert await events(market) == before + 1


async def test_a_failed_line_is_made_by_the_named_supplier(market: PurchaseFixture):
    order_no = await failed(market)
    assert (await retried(market, order_no, 1, "rt:far")).retried == 1
    await market.until(order_no, lambda order: order["deliveryStatus"] == "DELIVERED")
    assert market.sold() == (0, 1)
    assert await market.rows(ACTS) == [("ann", "rt:far", 1)]


async def test_a_failed_purchase_is_ordered_again_with_a_new_key(market: PurchaseFixture):
    await set_route(market.service.database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    market.near.slow = 1_000
    order_no = (await market.client.order()).data["orderNo"]
    await market.becomes("SELECT state FROM purchase", "PENDING")
    market.near.book.orders[0].esims[0].esimStatus = "CANCEL"
    market.near.book.orders[0].looks_left = market.near.slow = 0
    await market.asked_again()
    assert statuses(await market.client.delivered(order_no))[0] == "FAILED"
    await retried(market, order_no)
    await market.until(order_no, lambda order: order["deliveryStatus"] == "DELIVERED")
    first, second = [order.transaction_id for order in market.near.book.orders]
    assert second == f"{first}-r1"


async def test_a_purchase_found_failed_after_a_lost_answer_is_ordered_again_with_a_new_key(market: PurchaseFixture):
    """The answer to the purchase was lost; when it was found again it had failed."""
    await set_route(market.service.database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    market.near.fault("esim/order", "LOST_AFTER")
    market.near.fault("esim/query", *["500_BEFORE"] * 5)
    order_no = (await market.client.order()).data["orderNo"]
    await market.becomes("SELECT state FROM purchase", "UNKNOWN")
    market.near.book.orders[0].esims[0].esimStatus = "CANCEL"
    async with asyncio.timeout(PATIENCE):
        while statuses(await seen(market, order_no))[0] != "FAILED":
            await market.asked_again()
            await asyncio.sleep(0.05)
    await retried(market, order_no)
    await market.until(order_no, lambda order: order["deliveryStatus"] == "DELIVERED")
    first, second = [order.transaction_id for order in market.near.book.orders]
    assert second == f"{first}-r1"


async def test_a_waiting_profile_is_sent_to_another_supplier(market: PurchaseFixture):
    await set_route(market.service.database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    market.near.fault("esim/order", "200007")
    order_no = (await market.client.order()).data["orderNo"]
    await market.becomes("SELECT reason FROM purchase", "INSUFFICIENT_FUNDS: 200007 as the test wants it")
    with pytest.raises(OperatorError, match="rt:far does not make TEST-OK: its route is rt:near"):
        await retried(market, order_no, supplier="rt:far")
    route = [hop("rt:near", "JC016"), hop("rt:far", "JC016")]
    await set_route(market.service.database, "TEST-OK", route, "test", clock.now)
    assert await retried(market, order_no, supplier="rt:far") == RetryResult(order_no, 1, 0, ())
    await market.client.delivered(order_no)
    assert (market.sold(), await market.states()) == ((0, 1), [("rt:near", "DROPPED"), ("rt:far", "DONE")])


async def test_a_purchase_that_may_have_been_made_is_not_made_again(market: PurchaseFixture):
    market.near.fault("esim/order", "LOST_AFTER")
    market.near.fault("esim/query", *["500_BEFORE"] * 50)
    order_no = (await market.client.order()).data["orderNo"]
    await market.becomes("SELECT state FROM purchase", "UNKNOWN")
    for supplier in (None, "rt:far"):
        with pytest.raises(OperatorError, match="UNKNOWN at rt:near: what may have been bought is never bought again"):
            await retried(market, order_no, supplier=supplier)
    await market.rows("UPDATE purchase SET unknown_since = now() - interval '2 hours', due_at = now()")
    await market.becomes("SELECT state FROM purchase", "PARKED")
    with pytest.raises(OperatorError, match="PARKED at rt:near"):
        await retried(market, order_no, supplier="rt:far")
    assert await market.rows(ACTS) == []
    assert market.sold() == (1, 0)


async def test_a_line_of_a_builtin_supplier_is_made_again_or_bought(market: PurchaseFixture):
    items = [{"packageCode": "TEST-FAIL", "quantity": 2, "price": "1.80"}]
    placed = await market.client.order("TEST-FAIL", items=items, amount="3.60")
    order_no = placed.data["orderNo"]
    await market.until(order_no, lambda order: order["deliveryStatus"] == "FAILED")
    [(version,)] = await market.rows("SELECT version FROM orders")
    assert (await retried(market, order_no)).retried == 2
    await market.becomes("SELECT version FROM orders", version + 2)  # it waits, and fails again
    assert statuses(await seen(market, order_no))[:2] == ("FAILED", "FAILED")
    await set_route(market.service.database, "TEST-FAIL", [hop("rt:far", "JC016")], "test", clock.now)
    assert (await retried(market, order_no, supplier="rt:far")).retried == 2
    await market.until(order_no, lambda order: order["deliveryStatus"] == "DELIVERED")
    assert market.sold() == (0, 2)


async def stocked(market: PurchaseFixture, codes: int) -> None:
    """Loads this many codes of DEMO-STOCK, and routes it to the stock first, then to rt:far."""
    hops = [Hop("stock", "DEMO-STOCK", None, None), hop("rt:far", "JC016")]
    await set_route(market.service.database, "DEMO-STOCK", hops, "ann", clock.now)
    if codes:
        loaded = await load_stock.load_stock(
            market.service.database, market.setup.keys, "DEMO-STOCK", stock_csv(codes), "ann"
        )
        assert loaded.faults == ()


async def ordered(market: PurchaseFixture, quantity: int) -> str:
    """The orderNo of an order of DEMO-STOCK. It is out of stock until the process has loaded the route."""
    line = {"packageCode": "DEMO-STOCK", "quantity": quantity, "price": "2.50"}
    async with asyncio.timeout(PATIENCE):
        while (placed := await market.client.order(items=[line], amount=f"{2.5 * quantity:.2f}")).code == "200011":
            await asyncio.sleep(0.02)
    assert placed.code == "000000", placed.message
    return placed.data["orderNo"]


async def free_codes(market: PurchaseFixture) -> int:
    [(count,)] = await market.rows("SELECT count(*)::int FROM stock_profile WHERE taken_by IS NULL")
    return count


@pytest.mark.parametrize("other", ["PENDING", "PLANNED"])
async def test_a_line_with_a_purchase_under_way_is_not_sent_to_the_stock(market: PurchaseFixture, other: str):
    await set_route(market.service.database, "DEMO-STOCK", [hop("rt:near", "JC016")], "ann", clock.now)
    market.near.fault("esim/order", "200011", *["200007"] * (other == "PLANNED"))
    market.near.slow = 1_000
    order_no = await ordered(market, 2)
    await market.becomes("SELECT string_agg(state, ' ' ORDER BY state) FROM purchase WHERE calls > 0 AND claim IS NULL",
                         " ".join(sorted([other, "REJECTED"])))  # fmt: skip
    await stocked(market, 2)
    with pytest.raises(OperatorError, match="line 1 cannot go from rt:near to stock"):
        await retried(market, order_no)
    assert await free_codes(market) == 2
    assert await market.rows("SELECT supplier FROM order_item") == [("rt:near",)]


async def test_a_line_that_leaves_the_stock_gives_its_codes_back(market: PurchaseFixture):
    await market.rows("CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS"
                      " $$ BEGIN NEW.due_at := now() + interval '1 hour'; RETURN NEW; END $$")  # fmt: skip
    await market.rows("CREATE TRIGGER later BEFORE INSERT ON order_item FOR EACH ROW EXECUTE FUNCTION later()")
    await stocked(market, 2)
    order_no = await ordered(market, 2)
    assert (await market.rows("SELECT supplier FROM order_item"), await free_codes(market)) == ([("stock",)], 0)
    assert (await retried(market, order_no, supplier="rt:far")).retried == 2
    assert await free_codes(market) == 2
    assert statuses(await market.client.delivered(order_no)) == ("DELIVERED", "DELIVERED", "COMPLETED")
    assert (market.sold(), await free_codes(market)) == ((0, 2), 2)


async def test_a_failed_line_that_is_sent_to_the_stock_takes_codes(market: PurchaseFixture):
    market.far.fault("esim/order", "200011", "200011")
    await stocked(market, 0)
    order_no = await ordered(market, 2)
    await market.until(order_no, lambda order: order["deliveryStatus"] == "FAILED")
    with pytest.raises(OperatorError, match="stock has 0 of DEMO-STOCK; 2 are needed"):
        await retried(market, order_no, supplier="stock")
    await stocked(market, 3)
    assert (await retried(market, order_no, supplier="stock")).retried == 2
    assert await free_codes(market) == 1
    await market.until(order_no, lambda order: order["deliveryStatus"] == "DELIVERED")
    assert (market.sold(), await free_codes(market)) == ((0, 0), 1)


async def test_a_refunded_line_is_not_retried(postgres: str, template: str):
    async with purchase_fixture(postgres, template) as market:
        order_no = (await market.client.order("TEST-FAIL")).data["orderNo"]
        await market.until(order_no, lambda order: order["orderStatus"] == "REFUNDED")
        with pytest.raises(OperatorError, match="given back"):
            await retried(market, order_no)
        assert await market.service.audit() == []


async def test_the_command(market: PurchaseFixture):
    order_no = await failed(market)
    env = environment(market.service.settings.database_url)
    for arguments, said in (
        (("D000000000000000000",), "no order D000000000000000000"),
        ((order_no, "--line", "2"), "--line 2"),
        ((order_no, "--supplier", "rt:nobody"), "rt:nobody does not make TEST-OK: its route is rt:near, rt:far"),
    ):
        refused = await run("order", "retry", *arguments, env=env)
        assert refused.status == 1 and said in refused.err, refused
    done = await run("order", "retry", order_no, "--line", "1", "--supplier", "rt:far", "--json", env=env)
    assert json.loads(done.out) == {"orderNo": order_no, "retried": 1, "waiting": 0, "left": []}
    await market.until(order_no, lambda order: order["deliveryStatus"] == "DELIVERED")
