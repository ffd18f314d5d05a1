"""Buying from suppliers that are called: routes, unknown outcomes, parking, and who says what became of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest

from dealer_server import clock, metrics
from dealer_server.db.database import Database
from dealer_server.operations.catalogue import load_stock
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.suppliers.configure import set_route, set_supplier_status
from dealer_server.operations.suppliers.describe import show_suppliers
from dealer_server.operations.suppliers.resolve import list_parked, resolve_bought, resolve_not_bought
from dealer_server.store.suppliers.purchase import Hop
from dealer_server.suppliers.rt.upstream import POLL_LATER_SECONDS
from support.api_client import running_service
from support.databases import lock_waiters
from support.patience import PATIENCE
from support.rt_family import BALANCE, running_upstream
from support.store_fixture import stock_csv
from support.supplier_setup import Source, fresh, hop, set_up
from support.suppliers.purchases import PurchaseFixture, purchase_fixture


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template) as one:
        yield one
        assert await one.service.audit() == []


async def test_the_first_of_the_route_sells_and_its_cost_is_known(market: PurchaseFixture):
    placed = await market.client.order()
    data = await market.client.delivered(placed.data["orderNo"])
    assert data["orderStatus"] == "COMPLETED"
    assert market.sold() == (1, 0)
    [near] = await show_suppliers(market.service.database, market.setup.keys, "rt:near")
    assert (near.purchases, near.cost, near.sold) == ({"DONE": 1}, {"USD": "1.80"}, {"USD": "1.80"})


async def test_how_suppliers_are_stands_in_the_metrics(market: PurchaseFixture):
    async with asyncio.timeout(PATIENCE):
        while metrics.REGISTRY.get_sample_value("dealer_supplier_up", {"supplier": "rt:near"}) is None:
            await asyncio.sleep(0.02)
    assert metrics.REGISTRY.get_sample_value("dealer_supplier_up", {"supplier": "rt:near"}) == 1
    assert metrics.REGISTRY.get_sample_value("dealer_supplier_balance", {"supplier": "rt:near"}) == BALANCE / 10_000


async def test_what_is_out_of_stock_is_bought_at_the_next(market: PurchaseFixture):
    market.near.book.packages.clear()
    placed = await market.client.order()
    await market.client.delivered(placed.data["orderNo"])
    assert market.sold() == (0, 1)
    assert await market.states() == [("rt:near", "REJECTED"), ("rt:far", "DONE")]


async def test_what_nobody_sells_fails_for_good_and_is_given_back(market: PurchaseFixture):
    market.near.fault("esim/order", "200011")
    market.far.fault("esim/order", "200011")
    placed = await market.client.order()
    await market.until(placed.data["orderNo"], lambda order: order["orderStatus"] == "REFUNDED")
    assert (await market.client.post("/account/balance")).data["balance"] == "1000.00"


async def test_an_answer_that_was_lost_is_never_bought_elsewhere(market: PurchaseFixture):
    """It was sold there, and the answer never came: the same supplier is asked until it is found."""
    lost = {"supplier": "rt:near", "call": "buy", "outcome": "UNKNOWN"}
    before = metrics.REGISTRY.get_sample_value("dealer_supplier_calls_total", lost) or 0
    market.near.fault("esim/order", "LOST_AFTER")
    placed = await market.client.order()
    await market.becomes("SELECT state FROM purchase", "UNKNOWN")
    await market.asked_again()
    await market.client.delivered(placed.data["orderNo"])
    assert market.sold() == (1, 0)
    assert await market.states() == [("rt:near", "DONE")]
    calls = await market.rows("SELECT kind, step, outcome FROM supplier_call ORDER BY number")
    assert calls[0] == ("ALLOCATE", "", "UNKNOWN") and calls[1][0] == "PROBE"
    assert metrics.REGISTRY.get_sample_value("dealer_supplier_calls_total", lost) == before + 1
    assert metrics.REGISTRY.get_sample_value("dealer_supplier_breaker_open", {"supplier": "rt:near"}) == 0


async def test_what_stays_unknown_waits_for_an_operator_who_knows_that_it_was_bought(market: PurchaseFixture):
    unit_key = await parked(market)
    [order] = market.near.book.orders
    [esim] = order.esims
    await resolve_bought(market.service.database, market.setup.keys, unit_key, esim.iccid, esim.ac, "ann", clock.now)
    await market.becomes("SELECT delivery_status FROM orders", "DELIVERED")
    assert await market.states() == [("rt:near", "DONE")]
    [act] = await market.rows("SELECT author, action FROM audit_log WHERE action = 'supplier.resolve'")
    assert act == ("ann", "supplier.resolve")
    with pytest.raises(OperatorError, match="does not wait"):
        await resolve_not_bought(market.service.database, market.setup.keys, unit_key, "ann", clock.now)


async def test_what_stays_unknown_goes_on_at_the_next_once_an_operator_knows_that_it_was_not_bought(
    market: PurchaseFixture,
):
    unit_key = await parked(market, sold=False)
    await resolve_not_bought(market.service.database, market.setup.keys, unit_key, "ann", clock.now)
    await market.becomes("SELECT delivery_status FROM orders", "DELIVERED")
    assert market.sold() == (0, 1)


async def test_a_verdict_that_cannot_be_opened_is_kept_and_stops_no_other(market: PurchaseFixture):
    market.near.fault("esim/order", "LOST_BEFORE", "LOST_BEFORE")
    market.near.fault("esim/query", *["500_BEFORE"] * 50)
    line = {"packageCode": "TEST-OK", "quantity": 2, "price": "1.80"}
    assert (await market.client.order(items=[line], amount="3.60")).code == "000000"
    await market.becomes("SELECT count(*)::int FROM purchase WHERE state = 'UNKNOWN'", 2)
    await market.rows("UPDATE purchase SET unknown_since = now() - interval '2 hours', due_at = now()")
    await market.becomes("SELECT count(*)::int FROM purchase WHERE state = 'PARKED'", 2)
    bad, good = (one.unit_key for one in await list_parked(market.service.database))
    await market.rows(
        "UPDATE purchase SET state = 'UNKNOWN', verdict = 'nonsense', unknown_since = now(), due_at = now()"
        " WHERE unit_key = $1",
        bad,
    )
    async with asyncio.timeout(PATIENCE):
        while not await market.rows("SELECT 1 FROM supplier_call WHERE message LIKE '%could not be recorded%'"):
            await asyncio.sleep(0.02)
    [(state, verdict)] = await market.rows("SELECT state, verdict FROM purchase WHERE unit_key = $1", bad)
    assert (state, verdict) == ("UNKNOWN", b"nonsense")
    await resolve_not_bought(market.service.database, market.setup.keys, good, "ann", clock.now)
    await market.becomes("SELECT count(*)::int FROM purchase WHERE state = 'DONE'", 1)
    assert market.sold()[1] == 1


async def unknown(market: PurchaseFixture, quantity: int) -> str:
    """An order whose units were asked for in vain and will be asked about in ten minutes."""
    market.near.fault("esim/order", *["LOST_AFTER"] * quantity)
    line = {"packageCode": "TEST-OK", "quantity": quantity, "price": "1.80"}
    placed = await market.client.order(items=[line], amount=f"{1.8 * quantity:.2f}")
    await market.becomes("SELECT count(*)::int FROM purchase WHERE state = 'UNKNOWN'", quantity)
    await market.rows("UPDATE purchase SET due_at = now() + interval '10 minutes'")
    return placed.data["orderNo"]


async def test_after_an_outage_all_that_is_unknown_is_asked_about_once_the_supplier_answers(market: PurchaseFixture):
    order_no = await unknown(market, 6)
    await market.rows("UPDATE purchase SET due_at = now() WHERE unit_key LIKE '%-1'")
    assert (await market.client.delivered(order_no))["orderStatus"] == "COMPLETED"
    assert market.sold() == (6, 0)


async def test_what_is_unknown_is_asked_about_when_the_supplier_is_seen_up(market: PurchaseFixture):
    order_no = await unknown(market, 1)
    for status in ("PAUSED", "ACTIVE"):
        await set_supplier_status(market.service.database, "rt:near", status, "ann")
    assert (await market.client.delivered(order_no))["orderStatus"] == "COMPLETED"
    assert market.sold() == (1, 0)


async def test_what_a_supplier_does_not_void_is_looked_at_at_once(market: PurchaseFixture):
    order_no = (await market.client.order()).data["orderNo"]
    await market.client.delivered(order_no)
    await market.becomes("SELECT asked_at IS NOT NULL OR due_at > now() + interval '1 minute' FROM profile_life", True)
    [esim] = market.near.book.esims()
    esim.esimStatus, esim.smdpStatus = "IN_USE", "ENABLED"
    assert (await market.client.post("/esim/refund", {"orderNo": order_no})).data["status"] == "REFUNDING"
    after = await market.until(
        order_no, lambda order: order["items"][0]["profiles"][0]["lifecycleStatus"] == "ACTIVATED"
    )
    assert after["items"][0]["profiles"][0]["esimStatus"] == "IN_USE"


@asynccontextmanager
async def locked_out(database: Database, sql: str, times: int) -> AsyncIterator[None]:
    """Another session changes rows, until so many transactions have waited for them in vain, and takes it back."""
    waiting = set[object]()
    look = f"SELECT xact_start FROM {lock_waiters()} WHERE application_name = 'esim-dealer session'"
    async with database.connection() as other, database.connection() as watch, asyncio.timeout(PATIENCE):
        transaction = other.transaction()
        await transaction.start()
        await other.execute(sql)
        try:
            yield
            while len(waiting) <= times:
                waiting |= {row[0] for row in await watch.fetch(look)}
                await asyncio.sleep(0.02)
        finally:
            await transaction.rollback()


async def test_an_answer_that_waits_for_a_lock_is_not_lost(market: PurchaseFixture):
    market.near.slow = 1_000
    order_no = (await market.client.order()).data["orderNo"]
    await market.becomes("SELECT state FROM purchase", "PENDING")
    async with locked_out(market.service.database, "UPDATE orders SET version = version", 3):
        market.near.book.orders[0].looks_left = 0
        await market.asked_again()
    await market.client.delivered(order_no)
    assert market.sold() == (1, 0)
    assert await market.rows("SELECT DISTINCT outcome FROM supplier_call ORDER BY 1") == [("DONE",), ("PENDING",)]


async def test_an_order_that_is_locked_is_planned_soon_after(postgres: str, template: str):
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(fresh(postgres, template))
        near = await stack.enter_async_context(running_upstream())
        await set_up(url, [Source("rt:near", "rt_upstream", near.settings)], {"TEST-OK": [hop("rt:near", "JC016")]})
        api = await stack.enter_async_context(running_service(url, worker=False))
        client = await stack.enter_async_context(api.client(await api.tenant(balance="1000", qps=0)))
        placed = await client.order()
        async with locked_out(api.database, "UPDATE orders SET version = version", 1):
            await stack.enter_async_context(running_service(url))
        await client.delivered(placed.data["orderNo"])
        assert await api.audit() == []


async def parked(market: PurchaseFixture, sold: bool = True) -> str:
    """A purchase that was unknown for more than an hour: nobody refunded it, bought it elsewhere or gave it up."""
    market.near.fault("esim/order", "LOST_AFTER" if sold else "LOST_BEFORE")
    market.near.fault("esim/query", *["500_BEFORE"] * 50)
    placed = await market.client.order()
    await market.becomes("SELECT state FROM purchase", "UNKNOWN")
    await market.rows("UPDATE purchase SET unknown_since = now() - interval '2 hours', due_at = now()")
    await market.becomes("SELECT state FROM purchase", "PARKED")
    data = (await market.client.post("/esim/query", {"orderNo": placed.data["orderNo"]})).data
    assert data["orderStatus"] == "FULFILLING"
    assert market.sold()[1] == 0
    [waiting] = await list_parked(market.service.database)
    return waiting.unit_key


async def test_a_message_about_a_locked_row_may_come_again(market: PurchaseFixture):
    market.near.slow = 1_000
    placed = await market.client.order()
    await market.becomes("SELECT state FROM purchase", "PENDING")
    await market.rows("UPDATE purchase SET due_at = now() + interval '1 hour'")
    [order] = market.near.book.orders
    order.looks_left = 0
    event = market.near.event("ORDER_STATUS", order.esims[0], transaction_id=False, orderStatus="GOT_RESOURCE")
    url = market.events + market.setup.events["rt:near"]
    async with market.service.database.connection() as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("UPDATE purchase SET state = state")
        assert await market.near.push(url, event) == 503
        await transaction.rollback()
    assert await market.near.push(url, event) == 200
    await market.client.delivered(placed.data["orderNo"])


async def test_a_cancelled_unit_that_is_bought_all_the_same_is_voided_there(market: PurchaseFixture):
    market.near.slow = 1_000
    placed = await market.client.order()
    await market.becomes("SELECT state FROM purchase", "PENDING")
    [profile] = placed.data["items"][0]["profiles"]
    answer = await market.client.post("/esim/profile/cancel", {"profileId": profile["profileId"]})
    assert answer.data["asyncStatus"] == "COMPLETED"
    market.near.book.orders[0].looks_left = 0
    await market.asked_again()
    await market.becomes("SELECT state FROM purchase", "DONE")
    await market.becomes("SELECT max(outcome) FROM void_request", "VOIDED")
    data = (await market.client.post("/esim/query", {"orderNo": placed.data["orderNo"]})).data
    assert "iccid" not in data["items"][0]["profiles"][0]


async def test_a_message_is_a_reason_to_ask(market: PurchaseFixture):
    market.near.slow = 1_000
    placed = await market.client.order()
    await market.becomes("SELECT state FROM purchase", "PENDING")
    await market.rows("UPDATE purchase SET due_at = now() + interval '1 hour'")
    [order] = market.near.book.orders
    order.looks_left = 0
    event = market.near.event("ORDER_STATUS", order.esims[0], transaction_id=False, orderStatus="GOT_RESOURCE")
    path = market.setup.events["rt:near"]
    assert await market.near.push(market.events + path, event) == 200
    assert await market.near.push(market.events + path, event) == 200
    assert await market.near.push(market.events + path[:-1], event) == 404
    assert await market.near.push(f"{market.events}{path}", {"what": "?"}) == 400
    await market.client.delivered(placed.data["orderNo"])
    assert await market.rows("SELECT count(*)::int FROM supplier_event") == [(1,)]


async def test_a_message_that_comes_while_the_supplier_is_asked_is_not_lost(market: PurchaseFixture):
    """The answer was made before the message, and says that there is nothing yet."""
    market.near.slow = 1_000
    placed = await market.client.order()
    await market.becomes("SELECT state FROM purchase", "PENDING")
    await market.rows("UPDATE purchase SET created_at = now() - interval '1 hour'")  # asked about once a minute
    market.near.fault("esim/query", "HANG")
    await market.asked_again()
    async with asyncio.timeout(PATIENCE):
        await market.near.hanging.wait()
    await market.becomes("SELECT state FROM purchase", "SENT")
    [order] = market.near.book.orders
    order.looks_left = 0
    event = market.near.event("ORDER_STATUS", order.esims[0], transaction_id=False, orderStatus="GOT_RESOURCE")
    assert await market.near.push(market.events + market.setup.events["rt:near"], event) == 200
    market.near.let_go.set()
    await market.becomes("SELECT state FROM purchase", "DONE")
    last, before = await market.rows("SELECT sent_at, answered_at FROM supplier_call ORDER BY number DESC LIMIT 2")
    assert last[0] - before[1] < timedelta(seconds=POLL_LATER_SECONDS)
    await market.client.delivered(placed.data["orderNo"])


async def test_the_stock_is_sold_first(market: PurchaseFixture):
    """Also once the process knows the dealer's wallet and decides without asking the database."""
    database, keys = market.service.database, market.setup.keys
    assert (await load_stock.load_stock(database, keys, "DEMO-STOCK", stock_csv(3), "ann")).faults == ()
    hops = [Hop("stock", "DEMO-STOCK", None, None), hop("rt:far", "JC016")]
    await set_route(database, "DEMO-STOCK", hops, "ann", clock.now)
    line = {"packageCode": "DEMO-STOCK", "quantity": 1, "price": "2.50"}
    async with asyncio.timeout(PATIENCE):
        for _ in range(5):
            while (await market.client.order(items=[line], amount="2.50")).code == "200011":
                await asyncio.sleep(0.02)  # the process does not know yet who comes after the stock
    orders = await market.rows("SELECT supplier FROM order_item ORDER BY order_id")
    assert orders == [("stock",)] * 3 + [("rt:far",)] * 2


async def test_what_the_stock_no_longer_has_is_bought_at_the_next(market: PurchaseFixture):
    """DEMO-STOCK has one code left; the first order takes it."""
    database = market.service.database
    keys = market.setup.keys
    assert (await load_stock.load_stock(database, keys, "DEMO-STOCK", stock_csv(1), "ann")).faults == ()
    hops = [Hop("stock", "DEMO-STOCK", None, None), hop("rt:far", "JC016")]
    await set_route(database, "DEMO-STOCK", hops, "ann", clock.now)
    line = {"packageCode": "DEMO-STOCK", "quantity": 1, "price": "2.50"}
    async with asyncio.timeout(PATIENCE):
        while not (await market.rows("SELECT 1 FROM orders WHERE transaction_id = 'second'")):
            for name in ("first", "second"):
                await market.client.order(transactionId=name, items=[line], amount="2.50")
    for name in ("first", "second"):
        placed = (await market.client.post("/esim/query", {"transactionId": name})).data
        await market.client.delivered(placed["orderNo"])
    assert market.sold() == (0, 1)
    assert await market.rows("SELECT count(*) FROM stock_profile WHERE taken_by IS NULL") == [(0,)]
