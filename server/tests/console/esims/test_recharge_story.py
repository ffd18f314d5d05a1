"""An eSIM is bought, used up, recharged, used again and ends. A dealer's user sees each step on its page, in a real
browser, and the dealer's receiver is told of each with the hints that hold."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, expect

from support.api_client import ApiClient, Service
from support.browser import signed_in
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.console.people import PHONE
from support.webhook_fixture import Receiver

pytestmark = [needs_chromium, pytest.mark.usefixtures("exact")]

GB = 2**30
EDGES = """bar => { const a = bar.getBoundingClientRect(), b = bar.%s.getBoundingClientRect();
return [a.x - b.x, a.right - b.right]; }"""
OF_PLANS = {"PLAN_USE_STARTED", "PLAN_USE_ENDED", "USAGE_UPDATED"}


@pytest.fixture
async def page(service: Service, dealer: ApiClient) -> AsyncIterator[Page]:
    async with opened() as chromium, signed_in(service, "finance", dealer.tenant_id) as clerk:
        context = await chromium.new_context(viewport=PHONE)
        await context.add_init_script(AXE)
        await context.add_cookies([{"name": "dealer_console", "value": clerk.token, "url": clerk.url}])
        page = await context.new_page()
        faults = page_faults(page)
        yield page
        assert faults == []


async def told(receiver: Receiver, order_no: str, *hints: str) -> None:
    """Returns once an event of this order has come whose hints of usage and plans are these."""
    await receiver.until(
        lambda request: (
            request.json["orderNo"] == order_no
            and request.event == "DELIVERY_UPDATED"
            and set(request.json["changeHints"]) & OF_PLANS == set(hints)
        )
    )
    receiver.requests.clear()


async def test_an_esim_is_used_up_recharged_and_used_again(
    service: Service, dealer: ApiClient, page: Page, receiver: Receiver
):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    main, plans = page.locator("#main"), page.locator("#plans tbody tr")

    await page.goto(f"{service.url}/console/catalogue?q=TEST-OK")
    await main.locator("tbody a").first.click()
    await page.get_by_role("button", name="Review order").click()
    await page.get_by_role("button", name="Pay 1.80 USD").click()
    await page.wait_for_url("**/console/orders/D*")
    order_no = page.url.rpartition("/")[2]
    profile_id = (await dealer.delivered(order_no))["items"][0]["profiles"][0]["profileId"]

    async def moves(step: str, used: int | None = None) -> None:
        call = {"profileId": profile_id, "step": step} | ({} if used is None else {"dataUsageBytes": used})
        answer = await dealer.post("/test/profile/advance", call)
        assert answer.code == "000000", answer.message

    async def shows(*texts: str) -> None:
        """Its page shows these plans, and no more."""
        await page.goto(f"{service.url}/console/profiles/{profile_id}")
        for row, text in enumerate(texts):
            await expect(plans.nth(row)).to_contain_text(text, use_inner_text=True)
        await expect(plans).to_have_count(len(texts))
        assert await barriers(page) == []

    await shows("Not started")
    for step in ("DOWNLOAD", "INSTALL", "ENABLE", "START"):
        await moves(step)
    await told(receiver, order_no, "PLAN_USE_STARTED")
    await shows("Active")
    await moves("USE")
    await told(receiver, order_no, "PLAN_USE_ENDED", "USAGE_UPDATED")
    await shows("Ended")
    whole = await page.locator(".card-body > progress").first.evaluate(EDGES % "previousElementSibling")
    assert whole == [0, 0], "the bar of the eSIM is as wide as its card"
    under = await page.locator("#plans progress").first.evaluate(EDGES % "nextElementSibling")
    assert under[0] == 0, "a plan's numbers stand under their bar"

    await page.get_by_role("button", name="Recharge", exact=True).click()
    await page.get_by_role("radio", name="TEST-TOPUP-OK").check()
    assert await barriers(page) == []
    await page.get_by_role("button", name="Pay and recharge").click()
    await expect(page.get_by_role("status").first).to_contain_text("Paid. Plans shows the recharge")
    await told(receiver, order_no, "PLAN_USE_STARTED", "USAGE_UPDATED")
    await shows("Ended", "Active")

    await moves("USE", GB + GB * 8 // 10)  # nine tenths of both plans: a mark, so that it is told at once
    await told(receiver, order_no, "USAGE_UPDATED")
    await shows("Ended", "819 MB of 1 GB")
    await moves("USE")
    await told(receiver, order_no, "PLAN_USE_ENDED", "USAGE_UPDATED")
    await shows("Ended", "Ended")
    assert (await dealer.post("/account/balance")).data["balance"] == "997.00"
