"""What waits for an operator is decided on a phone, with a thumb: no button lies outside the screen."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from support.api_client import ApiClient, Service
from support.browser import Browser
from support.chromium import needs_chromium, opened
from support.console.operator_pages import failed_for_good, park
from support.webhook_fixture import Receiver

PHONE = {"width": 390, "height": 844}
THUMB, ROW = 32, 76  # CSS pixels

pytestmark = needs_chromium


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@pytest.fixture
async def phone(chromium: Chromium, service: Service, admin: Browser) -> AsyncIterator[Page]:
    """An operator's."""
    context = await chromium.new_context(viewport=PHONE, has_touch=True, is_mobile=True)  # type: ignore[arg-type]
    await context.add_cookies([{"name": "dealer_console", "value": admin.token, "url": service.url}])
    yield await context.new_page()
    await context.close()


async def within_reach(page: Page, *names: str) -> None:
    """These buttons are on the screen without moving it sideways, and large enough."""
    for name in names:
        button = page.get_by_role("button", name=name, exact=True).first
        await button.scroll_into_view_if_needed()
        box: Any = await button.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"], (name, box)
        assert box["height"] >= THUMB, (name, box)
    for moved in await page.locator(".table-responsive").evaluate_all("boxes => boxes.map(box => box.scrollLeft)"):
        assert moved == 0, "nothing had to be moved sideways"


async def shows_in_its_line(page: Page, part: str) -> None:
    """This part of a row's second line is not left out for want of room."""
    line: Any = await page.locator(".note-parts").first.bounding_box()
    box: Any = await page.locator(f".note-parts {part}").first.bounding_box()
    assert box["width"] > THUMB and box["y"] + box["height"] <= line["y"] + line["height"] + 4, (part, box, line)


async def has_rows_of_two_lines(page: Page) -> None:
    for box in await page.locator("tr[data-href]").evaluate_all("rows => rows.map(row => row.offsetHeight)"):
        assert box <= ROW, box


async def test_a_topup_is_approved_on_a_phone(service: Service, dealer: ApiClient, phone: Page):
    await dealer.post(
        "/account/topup", {"amount": "250.00", "transactionId": "paid-by-bank", "payReference": "b" * 128}
    )
    await phone.goto(f"{service.url}/console/topups")
    await within_reach(phone, "Approve", "Reject")
    await phone.get_by_role("button", name="Approve").tap()
    await phone.get_by_role("dialog").get_by_role("button", name="Approve").tap()
    await expect(phone.get_by_role("status")).to_contain_text("is approved and credited")
    assert (await dealer.post("/account/balance")).data["balance"] == "1250.00"


async def test_a_refund_is_rejected_on_a_phone(service: Service, dealer: ApiClient, phone: Page):
    order = (await dealer.order("TEST-REVIEW")).data
    await dealer.delivered(order["orderNo"])
    await dealer.post("/esim/refund", {"orderNo": order["orderNo"], "remark": "the trip was cancelled " * 8})
    await phone.goto(f"{service.url}/console/orders?dealer={dealer.tenant_id}")
    await expect(phone.locator("tbody")).to_contain_text("Refund in review")
    for part in ("bdi", ".mono:visible", "time"):
        await shows_in_its_line(phone, part)
    await has_rows_of_two_lines(phone)
    await phone.goto(f"{service.url}/console/profiles?dealer={dealer.tenant_id}")
    for part in ("bdi", ".iccid"):
        await shows_in_its_line(phone, part)
    await has_rows_of_two_lines(phone)
    await phone.goto(f"{service.url}/console/refunds")
    await within_reach(phone, "Approve", "Reject")
    await phone.get_by_role("button", name="Reject", exact=True).tap()
    dialog = phone.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("used on the plane")
    await dialog.get_by_role("button", name="Reject").tap()
    await expect(phone.get_by_role("status")).to_contain_text("is rejected")


async def test_purchases_that_nobody_knows_about_are_decided_on_a_phone(
    service: Service, dealer: ApiClient, phone: Page
):
    await park(service, dealer)
    await phone.goto(f"{service.url}/console/suppliers")
    await within_reach(phone, "Purchased", "Not purchased")


async def test_what_failed_is_sent_again_on_a_phone(
    service: Service, dealer: ApiClient, receiver: Receiver, phone: Page
):
    await failed_for_good(service, dealer, receiver)
    await phone.goto(f"{service.url}/console/webhooks?status=FAILED&dealer={dealer.tenant_id}")
    await within_reach(phone, "Resend")


async def test_an_esim_is_found_and_cancelled_on_a_phone(service: Service, dealer: ApiClient, phone: Page):
    profile = (await dealer.delivered((await dealer.order()).data["orderNo"]))["items"][0]["profiles"][0]
    await phone.goto(f"{service.url}/console/profiles?dealer={dealer.tenant_id}")
    await phone.get_by_role("link", name=profile["iccid"]).tap()
    await within_reach(phone, "More actions")
    await phone.get_by_role("button", name="More actions").tap()
    await phone.get_by_role("button", name="Cancel eSIM").tap()
    dialog = phone.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("lost")
    await dialog.get_by_role("button", name="Cancel without refund").tap()
    await expect(phone.get_by_role("status")).to_contain_text("The eSIM is cancelled")
