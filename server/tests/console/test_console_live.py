"""What waits and what changes comes by itself to who looks at it, in a real browser."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from dealer_server.operations.users import accounts
from support.api_client import ApiClient, Service
from support.browser import PASSWORDS, said, signed_in
from support.chromium import needs_chromium, opened, page_faults
from support.money.recharges import advance
from support.money.refunds import bought, profiles

WORD = "a word for the test"
SOON = 15_000  # milliseconds, far more than a page takes to look again

pytestmark = needs_chromium


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@asynccontextmanager
async def looking(chromium: Chromium, service: Service, path: str, tenant_id: int | None) -> AsyncIterator[Page]:
    """Somebody new, of the operator or of a dealer, at a page that is never loaded again."""
    name = f"live-{secrets.token_hex(4)}"
    await accounts.create(service.database, PASSWORDS, tenant_id, name, "admin", "test", WORD)
    context = await chromium.new_context()
    page = await context.new_page()
    heard = page_faults(page)
    await page.goto(f"{service.url}{path}")
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(WORD)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"{service.url}{path}")
    loaded: list[str] = []
    page.on("load", lambda page: loaded.append(page.url))
    yield page
    assert (heard, loaded) == ([], [])
    await context.close()


async def test_a_topup_comes_into_the_queue_and_its_approval_into_the_wallet(
    chromium: Chromium, service: Service, dealer: ApiClient
) -> None:
    async with (
        looking(chromium, service, "/console/topups", None) as queue,
        looking(chromium, service, "/console/wallet", dealer.tenant_id) as wallet,
        signed_in(service, "finance") as finance,
    ):
        asked = await dealer.post("/account/topup", {"amount": "250", "transactionId": secrets.token_hex(6)})
        number = asked.data["topupNo"]
        await expect(queue.locator("#queue")).to_contain_text(number, timeout=SOON)
        await expect(wallet.locator("#wallet")).to_contain_text("Waiting", timeout=SOON)
        answer = await finance.post(f"/console/topups/{number}/approve")
        assert "approved" in said(await finance.get(answer.headers["location"]))
        await expect(queue.get_by_role("row").filter(has_text=number)).to_contain_text("Approved", timeout=SOON)
        await expect(wallet.locator("#wallet")).to_contain_text("1,250.00", timeout=SOON)


async def test_a_queue_stands_still_while_somebody_answers(
    chromium: Chromium, service: Service, dealer: ApiClient
) -> None:
    async def ask() -> str:
        call = {"amount": "5", "transactionId": secrets.token_hex(6)}
        return (await dealer.post("/account/topup", call)).data["topupNo"]

    first = await ask()
    async with looking(chromium, service, "/console/topups", None) as queue:
        await queue.get_by_role("row", name=first).get_by_role("button", name="Reject").click()
        await queue.get_by_role("dialog").get_by_label("Reason").fill("no money came")
        second = await ask()
        async with looking(chromium, service, "/console/topups", None) as another:
            await expect(another.locator("#queue")).to_contain_text(second, timeout=SOON)
        await expect(queue.get_by_role("dialog").get_by_label("Reason")).to_have_value("no money came")
        await expect(queue.locator("#queue")).not_to_contain_text(second)
        await queue.keyboard.press("Escape")
        await expect(queue.locator("#queue")).to_contain_text(second, timeout=SOON)


async def test_the_buttons_of_an_esim_follow_its_state(chromium: Chromium, service: Service, dealer: ApiClient) -> None:
    order = await bought(dealer)
    path = f"/console/profiles/{profiles(order)[0]['profileId']}"
    async with looking(chromium, service, path, dealer.tenant_id) as page:
        buttons = page.locator(".heading-actions [command=show-modal]")  # those in the menu too
        await expect(buttons.filter(has_text="Refund")).to_have_count(1)
        await expect(buttons.filter(has_text="Send SMS")).to_have_count(0)
        menu = page.locator("#more-menu")
        await page.get_by_role("button", name="More actions").click()
        await advance(dealer, order, "ENABLE")
        await expect(menu.get_by_role("button", name="Refund")).to_be_visible()
        await page.keyboard.press("Escape")  # while it is open nothing changes in it
        await expect(buttons.filter(has_text="Send SMS")).to_have_count(1, timeout=SOON)
        await advance(dealer, order, "USE")
        await expect(buttons.filter(has_text="Suspend")).to_have_count(0, timeout=SOON)
        await expect(buttons.filter(has_text="Refund")).to_have_count(0, timeout=SOON)


async def test_refunds_orders_and_refused_calls_come_by_themselves(
    chromium: Chromium, service: Service, dealer: ApiClient
) -> None:
    async with (
        looking(chromium, service, "/console/refunds", None) as reviews,
        looking(chromium, service, "/console/orders", None) as all_orders,
        looking(chromium, service, "/console/orders", dealer.tenant_id) as own_orders,
        looking(chromium, service, "/console/api-log", dealer.tenant_id) as log,
    ):
        order_no = (await dealer.order("TEST-REVIEW")).data["orderNo"]
        for page in (all_orders, own_orders):
            await expect(page.locator("#orders")).to_contain_text(order_no, timeout=SOON)
        await dealer.delivered(order_no)
        refund = {"orderNo": order_no, "refundTransactionId": secrets.token_hex(6)}
        assert (await dealer.post("/esim/refund", refund)).code == "000000"
        await expect(reviews.locator("#queue")).to_contain_text(order_no, timeout=SOON)
        await dealer.post("/health", **{"X-Signature": "0" * 64})
        await expect(log.locator("#calls")).to_contain_text("101003", timeout=SOON)
