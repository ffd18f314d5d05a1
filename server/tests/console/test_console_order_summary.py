"""The first thing on an operator's page of an order: what it waits for, what went wrong, and what can be done."""

import json
import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from dealer_server import clock
from dealer_server.fulfillment.health_monitor import HealthMonitor
from dealer_server.operations.suppliers.configure import set_route, set_supplier_status
from dealer_server.suppliers.rt.upstream import RtUpstream
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.console.operator_pages import acts, does, failed_for_good, fill, park, see
from support.money.refunds import settled
from support.supplier_setup import hop
from support.suppliers.purchases import PurchaseFixture, purchase_fixture
from support.webhook_fixture import Receiver


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template, refund_failed=False) as market:
        yield market
        assert await market.service.audit() == []


def page_of(order_no: str) -> str:
    return f"/console/orders/{order_no}"


async def summary(browser: Browser, order_no: str) -> str:
    """What stands above the facts of the order."""
    page = re.sub(" (?=[,.])", "", await see(browser, page_of(order_no)))
    return page[: page.index(" Amount ")]


async def test_an_order_that_waits_for_a_supplier_is_bought_at_another(market: PurchaseFixture):
    await set_route(market.service.database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    market.near.fault("esim/order", *["200007"] * 50)
    order_no = (await market.client.order()).data["orderNo"]
    await market.becomes("SELECT reason FROM purchase", "INSUFFICIENT_FUNDS: 200007 as the test wants it")
    async with signed_in(market.service) as admin:
        said = await summary(admin, order_no)
        assert "Waiting for rt:near: our balance at the supplier is too low, next attempt " in said
        assert "Item 1, TEST-OK: 1 eSIM. Top up our balance at the supplier." in said
        assert "Supplier's response: INSUFFICIENT_FUNDS: 200007 as the test wants it" in said
        assert "Retry now" in said and "Use rt:far" not in said
        route = [hop("rt:near", "JC016"), hop("rt:far", "JC016")]
        await set_route(market.service.database, "TEST-OK", route, "test", clock.now)
        assert "Use rt:far" in await summary(admin, order_no)
        done = await does(admin, f"{page_of(order_no)}/retry", line="1", supplier="rt:far")
        assert "1 eSIM made again" in done
        await market.client.delivered(order_no)
        assert "No callback URL" in await summary(admin, order_no)
    [act] = await acts(market.service, "order.retry")
    assert act.author.startswith("console:") and json.loads(act.detail)["supplier"] == "rt:far"


async def test_a_supplier_that_is_paused_or_down_is_named_with_since_when(market: PurchaseFixture):
    database = market.service.database
    await set_route(database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    market.near.fault("balance/query", *["200001"] * 50)  # the worker's own checks find it down, too
    market.near.fault("esim/order", *["200007"] * 50)
    order_no = (await market.client.order()).data["orderNo"]
    await market.becomes("SELECT reason FROM purchase", "INSUFFICIENT_FUNDS: 200007 as the test wants it")
    await HealthMonitor(database, RtUpstream("rt:near", market.near.settings), clock.now, lambda: None).check()
    async with signed_in(market.service) as admin:
        await market.rows("UPDATE supplier_health SET since = '2026-11-20 06:46Z' WHERE code = 'rt:near' AND NOT up")
        assert "our balance at the supplier is too low, down since 20 Nov 2026, 06:46:00, next" in await summary(
            admin, order_no
        )
        await set_supplier_status(database, "rt:near", "PAUSED", "test")
        said = await summary(admin, order_no)
        assert "our balance at the supplier is too low, paused since " in said and "View supplier" in said
        assert "Retry now" not in said, "a supplier that is paused is not asked"


async def test_what_failed_is_named_with_its_reason_and_made_again(market: PurchaseFixture):
    market.near.fault("esim/order", "200011")
    market.far.fault("esim/order", "200011")
    order_no = (await market.client.order()).data["orderNo"]
    await market.client.delivered(order_no)
    async with signed_in(market.service) as admin:
        said = await summary(admin, order_no)
        assert "Delivery failed: out of stock" in said and "Supplier's response" not in said, "it is in the timeline"
        assert re.search("Asked rt:near ?, then rt:far", said)
        assert "Use rt:near" in said and "Use rt:far" not in said
        assert "1.80 USD not refunded: retry the delivery, or refund it" in said
        assert "Refund this order?" in said
        assert "1 eSIM made again" in await does(admin, f"{page_of(order_no)}/retry", line="1")
        await market.until(order_no, lambda order: order["deliveryStatus"] == "DELIVERED")
        refused = await does(admin, f"{page_of(order_no)}/retry", line="1")
        assert f"nothing of {order_no} failed or waits" in refused


async def test_cost_and_margin_stand_beside_the_price_for_operators_alone(market: PurchaseFixture):
    await set_route(market.service.database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    items = [{"packageCode": "TEST-OK", "quantity": 1, "price": "2.70"}]
    async with (
        signed_in(market.service) as admin,
        signed_in(market.service, "admin", market.client.tenant_id) as dealer,
    ):
        await does(admin, f"/console/dealers/{market.client.tenant_id}/terms", markup="50", status="ACTIVE")
        order_no = (await market.client.order(items=items, amount="2.70")).data["orderNo"]
        await market.client.delivered(order_no)
        page = await see(admin, page_of(order_no))
        assert "Margin 0.90 USD 33.3 %" in page and "Cost 1.80 USD" in page
        assert "2.70 USD 0.90 USD 33.3 %" in await see(admin, "/console/orders")
        for path in (page_of(order_no), "/console/orders"):
            assert "Margin" not in await see(dealer, path) and "0.90" not in await see(dealer, path)


async def test_what_failed_and_is_refunded_says_where_it_failed(service: Service, dealer: ApiClient, admin: Browser):
    order = (await dealer.order("TEST-FAIL")).data
    await dealer.delivered(order["orderNo"])
    assert (await settled(dealer, order))["orderStatus"] == "REFUNDED"
    said = await summary(admin, order["orderNo"])
    assert "1.80 USD refunded Delivery failed: the supplier refused it. Asked simulated" in said
    assert "No callback URL: the dealer sees it" in said and "Supplier's response" not in said
    assert "Retry now" not in said


async def test_a_purchase_nobody_knows_about_is_settled_not_retried(market: PurchaseFixture):
    market.near.slow = 1_000
    order_no = (await market.client.order()).data["orderNo"]
    await market.becomes("SELECT state FROM purchase", "PENDING")
    await market.rows("UPDATE purchase SET state = 'PARKED', due_at = NULL, reason = 'no answer'")
    async with signed_in(market.service) as admin:
        said = await summary(admin, order_no)
        assert "It is unknown whether rt:near made the eSIM, and asking again did not help: no answer" in said
        assert "Settle" in said and "Retry now" not in said and "Use rt:far" not in said


async def test_an_operator_refunds_an_order_with_a_reason(service: Service, dealer: ApiClient, admin: Browser):
    order_no = (await dealer.order()).data["orderNo"]
    await dealer.delivered(order_no)
    done = await does(admin, f"{page_of(order_no)}/refund", reason="the traveller stayed at home")
    assert "1.80 USD is refunded" in done and "Refunded 1.80 USD" in done
    [act] = [act for act in await acts(service, "order.refund") if act.tenant_id == dealer.tenant_id]
    assert order_no in act.detail and "the traveller stayed at home" in act.detail
    assert "1.80 USD is refunded" in await does(admin, f"{page_of(order_no)}/refund", reason="once more"), "once"
    assert (await dealer.post("/account/balance")).data["balance"] == "1000.00"


async def test_who_may_retry_and_who_may_refund(service: Service, dealer: ApiClient):
    order_no = (await dealer.order("TEST-REVIEW")).data["orderNo"]
    await dealer.delivered(order_no)
    await park(service, dealer, (await dealer.order("TEST-DELAY")).data["orderNo"])
    allowed = {}
    for role in ("admin", "finance", "support", "readonly"):
        async with signed_in(service, role) as one:
            page = await see(one, page_of(order_no))
            retried = (await fill(one, f"{page_of(order_no)}/retry", line="1")).status_code != 403
            refund = "Refund this order?" in page
            allowed[role] = (retried, refund)
    assert allowed == {
        "admin": (True, True),
        "finance": (False, True),
        "support": (True, False),
        "readonly": (False, False),
    }


async def test_a_refund_in_review_leads_to_where_it_is_decided(service: Service, dealer: ApiClient, admin: Browser):
    order_no = (await dealer.order("TEST-REVIEW")).data["orderNo"]
    await dealer.delivered(order_no)
    await dealer.post("/esim/refund", {"orderNo": order_no})
    said = await summary(admin, order_no)
    assert "Decide the refund of 1.80 USD" in said and "Approve" in said and "Reject" in said
    async with signed_in(service, "finance", dealer.tenant_id) as clerk:
        assert "A refund of 1.80 USD is in review: the operator decides" in await see(clerk, page_of(order_no))


async def test_a_receiver_that_refuses_is_named(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
):
    order_no = await failed_for_good(service, dealer, receiver)
    said = await summary(admin, order_no)
    assert "The dealer's endpoint did not accept ORDER_PAID: 1 attempt failed, no more follow" in said
    assert "View attempts" in said


async def test_a_dealer_reads_what_an_order_waits_for_and_no_name_of_a_supplier(market: PurchaseFixture):
    market.near.slow = 1_000
    order_no = (await market.client.order()).data["orderNo"]
    await market.becomes("SELECT state FROM purchase", "PENDING")
    async with signed_in(market.service, "admin", market.client.tenant_id) as dealer:
        page = await see(dealer, page_of(order_no))
        assert "The eSIM is on the way" in page and "rt:near" not in page and "than usual" not in page
        market.near.book.orders[0].looks_left = 0
        await market.asked_again()
        await market.client.delivered(order_no)
        assert "Open eSIM" in await see(dealer, page_of(order_no))


async def test_a_dealer_reads_what_could_not_be_made(market: PurchaseFixture):
    market.near.fault("esim/order", "200011")
    market.far.fault("esim/order", "200011")
    order_no = (await market.client.order()).data["orderNo"]
    await market.client.delivered(order_no)
    async with signed_in(market.service, "finance", market.client.tenant_id) as dealer:
        page = await see(dealer, page_of(order_no))
    assert "The eSIM could not be delivered" in page and "200011" not in page


async def test_a_dealer_reads_that_its_receiver_refuses(service: Service, dealer: ApiClient, receiver: Receiver):
    order_no = await failed_for_good(service, dealer, receiver)
    said = "Your endpoint did not accept ORDER_PAID: 1 attempt failed, no more follow"
    for role, link in (("developer", True), ("finance", False)):
        async with signed_in(service, role, dealer.tenant_id) as one:
            page = re.sub(" (?=[,.])", "", await see(one, page_of(order_no)))
            assert said in page and ("View attempts" in page) == link, role


@needs_chromium
async def test_in_a_browser_what_failed_is_made_by_another_supplier(market: PurchaseFixture):
    market.near.fault("esim/order", "200011")
    market.far.fault("esim/order", "200011")
    order_no = (await market.client.order()).data["orderNo"]
    await market.client.delivered(order_no)
    async with signed_in(market.service) as admin, opened() as chromium:
        context = await chromium.new_context(viewport={"width": 390, "height": 844})
        await context.add_init_script(AXE)
        await context.add_cookies([{"name": "dealer_console", "value": admin.token, "url": market.service.url}])
        page = await context.new_page()
        faults = page_faults(page)
        await page.goto(f"{market.service.url}{page_of(order_no)}")
        assert await barriers(page) == []
        await page.get_by_role("button", name="Use rt:near").first.click()
        await page.get_by_role("dialog").get_by_role("button", name="Use rt:near").click()
        await expect(page.get_by_role("status")).to_contain_text("1 eSIM made again")
        await expect(page.get_by_label("Summary")).to_contain_text("Delivered")
        assert faults == []
