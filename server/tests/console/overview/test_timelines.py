"""What happened again and again is one row; dealers read the timeline too, without names of suppliers."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from dealer_server import clock
from dealer_server.operations.suppliers.configure import set_route
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import does, failed_for_good, see
from support.money.refunds import settled
from support.patience import PATIENCE
from support.supplier_setup import hop
from support.suppliers.purchases import PurchaseFixture, purchase_fixture
from support.webhook_fixture import Receiver


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template, refund_failed=False) as market:
        yield market
        assert await market.service.audit() == []


async def test_repeated_attempts_are_one_row_that_can_be_opened(market: PurchaseFixture):
    await set_route(market.service.database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    market.near.fault("esim/order", *["200007"] * 4)
    order_no = (await market.client.order()).data["orderNo"]
    for tries in range(1, 4):
        await market.becomes("SELECT failures FROM purchase", tries)
        await market.asked_again()
    await market.becomes("SELECT failures FROM purchase", 4)
    async with signed_in(market.service) as admin:
        page = await see(admin, f"/console/orders/{order_no}")
        assert re.search(r"rt:near was asked for an eSIM Rejected 4 times", page)
        assert "Each time" in page
        async with signed_in(market.service, "finance", market.client.tenant_id) as dealer:
            page = await see(dealer, f"/console/orders/{order_no}")
            assert "Tried again: the supplier does not take orders at present 3 times" in page
            assert "First try: the supplier does not take orders at present, trying again" in page
            assert re.search(
                r"the supplier does not take orders at present , next attempt (\d+ \w{3}, )?\d\d:\d\d", page
            ), page
            assert "rt:near" not in page and "200007" not in page
        await market.asked_again()
        await market.client.delivered(order_no)
        assert "Delivered by rt:near" in await see(admin, f"/console/orders/{order_no}")
        async with signed_in(market.service, "finance", market.client.tenant_id) as dealer:
            assert "Delivered at try 5" in await see(dealer, f"/console/orders/{order_no}")


async def test_times_are_exact_and_the_day_of_two_is_said_once(market: PurchaseFixture):
    await set_route(market.service.database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    market.near.fault("esim/order", *["200007"] * 2)
    order_no = (await market.client.order()).data["orderNo"]
    await market.becomes("SELECT failures FROM purchase", 1)
    await market.asked_again()
    await market.becomes("SELECT failures FROM purchase", 2)
    for last, said in (("00:00:00.5", ""), ("00:00:05", " to 00:00:05")):
        await market.rows("UPDATE supplier_call SET sent_at = '2026-01-01T00:00:00Z'")
        await market.rows(f"UPDATE supplier_call SET sent_at = '2026-01-01T{last}Z' WHERE number = 2")
        async with signed_in(market.service) as admin:
            page = await see(admin, f"/console/orders/{order_no}")
            assert f"as the test wants it 1 Jan 2026, 00:00:00{said} " in page, page[page.index("Timeline") :]
            assert page.count("UTC") == 2, "at the top, or on a phone in the menu of the user"


async def test_a_failed_line_names_reason_and_code(market: PurchaseFixture):
    market.near.fault("esim/order", "200011")
    market.far.fault("esim/order", "200011")
    order_no = (await market.client.order()).data["orderNo"]
    await market.client.delivered(order_no)
    async with signed_in(market.service) as admin:
        page = await see(admin, f"/console/orders/{order_no}")
        assert re.search(
            r"Delivery failed at rt:far: out of stock \d+ \w{3} 20\d\d, ",
            page,
        )
        assert re.search(r"rt:near failed: out of stock (2 times )?\d.* Technical details OUT_OF_STOCK: 200011", page)
        assert re.search(r"1 failed order, [\d.]+ USD, has waited for a refund", await see(admin, "/console"))
    async with signed_in(market.service, "finance", market.client.tenant_id) as dealer:
        page = await see(dealer, f"/console/orders/{order_no}")
        assert "The eSIM could not be delivered: out of stock" in page
        assert re.search(r"Delivery failed Out of stock \d+ \w{3} 20\d\d, [\d:]+ code OUT_OF_STOCK", page)
        assert "200011" not in page and "rt:far" not in page
        assert "1 order failed and is not refunded" in await see(dealer, "/console")


async def test_a_failure_of_a_supplier_that_keeps_no_purchases_is_an_event(
    service: Service, dealer: ApiClient, admin: Browser
):
    lines = [{"packageCode": code, "quantity": 1, "price": "1.80"} for code in ("TEST-OK", "TEST-FAIL")]
    orders = [(await dealer.order("TEST-FAIL")).data, (await dealer.order(amount="3.60", items=lines)).data]
    async with signed_in(service, "finance", dealer.tenant_id) as clerk:
        for order, subject in zip(orders, ("Delivery", "Item 2"), strict=True):
            order = await dealer.delivered(order["orderNo"])
            await settled(dealer, order)
            path = f"/console/orders/{order['orderNo']}"
            told, read = await see(admin, path), await see(clerk, path)
            assert re.search(
                rf"{subject} failed at simulated NOT_ALLOWED: TEST-FAIL fails for good \d+ \w+ 20\d\d",
                told,
            )
            assert (
                re.search(rf"1.80 USD credited .*{subject} failed \d+ \w+ 20\d\d, [\d:]+", read)
                and "simulated" not in read
            )
            profile = order["items"][-1]["profiles"][0]["profileId"]
            assert f"{subject} failed" in await see(clerk, f"/console/profiles/{profile}")
    overview = await see(admin, "/console")
    assert re.search(r"orders? failed in this period and w(as|ere) refunded", overview), "nothing is to be done"


async def test_a_webhook_says_what_matters_in_a_few_words(service: Service, dealer: ApiClient, receiver: Receiver):
    order_no = await failed_for_good(service, dealer, receiver)
    async with signed_in(service, "developer", dealer.tenant_id) as one:
        page = await see(one, f"/console/orders/{order_no}")
    assert (
        re.search(r"Webhook DELIVERY_UPDATED [\w ]*eSIM delivered \d+ \w{3} 20", page)
        and "Order status changed" not in page
    )


async def test_a_dealers_timeline_tells_of_money_esims_and_webhooks(
    service: Service, dealer: ApiClient, receiver: Receiver
):
    order_no = await failed_for_good(service, dealer, receiver)
    for role, link in (("developer", True), ("finance", False)):
        async with signed_in(service, role, dealer.tenant_id) as one:
            html = (await one.get(f"/console/orders/{order_no}")).text
            page = await see(one, f"/console/orders/{order_no}")
            assert "Order placed, 1.80 USD debited" in page and "Webhook ORDER_PAID" in page and "HTTP 500" in page
            told = page.partition("Timeline")[2]
            assert "elivered" in told and not re.search(r"eSIM \d+", told) and "simulated" not in page
            assert ('href="/console/webhooks/' in html.partition('<h2 class="card-title">Timeline')[2]) == link


async def test_a_rejected_refund_says_why(service: Service, dealer: ApiClient, admin: Browser):
    order_no = (await dealer.order("TEST-REVIEW")).data["orderNo"]
    await dealer.delivered(order_no)
    refund = (await dealer.post("/esim/refund", {"orderNo": order_no})).data["refundNo"]
    await does(admin, f"/console/refunds/{refund}/reject", reason="the eSIM was used")
    async with asyncio.timeout(PATIENCE), service.database.connection() as connection:
        while not await connection.fetchval(
            "SELECT count(*) FROM refund WHERE tenant_id = $1 AND status = 'REJECTED'", dealer.tenant_id
        ):
            await asyncio.sleep(0.02)
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        page = await see(one, f"/console/orders/{order_no}")
        assert "A refund of 1.80 USD was rejected: the eSIM was used" in page
        assert f"Refund {refund} rejected" in page
        assert "A refund of 1.80 USD was rejected " in await see(one, "/console")
    assert f"Refund {refund} rejected" in await see(admin, f"/console/orders/{order_no}")


async def test_the_operators_timeline_names_esims_by_iccid_and_leads_to_them(dealer: ApiClient, admin: Browser):
    items = [{"packageCode": "TEST-REVIEW", "quantity": 2, "price": "1.80"}]
    order_no = (await dealer.order(items=items, amount="3.60")).data["orderNo"]
    profiles = (await dealer.delivered(order_no))["items"][0]["profiles"]
    await dealer.post("/esim/refund", {"orderNo": order_no})
    told = (await admin.get(f"/console/orders/{order_no}")).text.partition(">Timeline<")[2]
    for profile in profiles:
        assert f'<a href="/console/profiles/{profile["profileId"]}">{profile["iccid"]}</a>' in told


async def test_webhooks_of_a_dealer_without_a_callback_url_are_one_row(
    service: Service, dealer: ApiClient, admin: Browser
):
    order_no = (await dealer.order()).data["orderNo"]
    await dealer.delivered(order_no)
    page = await see(admin, f"/console/orders/{order_no}")
    assert page.count("2 webhooks Not sent") == 1 and "Each time" not in page
    html = (await admin.get(f"/console/orders/{order_no}")).text
    links = re.findall(rf'<a href="/console/deliveries/{dealer.tenant_id}/\d+">Webhook (\w+)</a>', html)
    assert links == ["DELIVERY_UPDATED", "ORDER_PAID"]
