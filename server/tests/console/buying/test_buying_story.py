"""A dealer's user buys three eSIMs by CSV and opens the page of one, on a phone, in a real browser."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Locator, Page, expect

from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.console.buying_by_csv import buys_three_by_csv, opens_the_page_of_one
from support.console.people import PHONE

pytestmark = needs_chromium


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@pytest.fixture
async def boss(service: Service, dealer: ApiClient) -> AsyncIterator[Browser]:
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        yield one


@pytest.fixture
async def phone(chromium: Chromium, boss: Browser) -> AsyncIterator[Page]:
    context = await chromium.new_context(viewport=PHONE, has_touch=True, is_mobile=True)  # type: ignore[arg-type]
    await context.add_init_script(AXE)
    await context.add_cookies([{"name": "dealer_console", "value": boss.token, "url": boss.url}])
    page = await context.new_page()
    faults = page_faults(page)
    yield page
    assert faults == []
    await context.close()


async def test_three_esims_by_csv_and_the_page_of_one(service: Service, dealer: ApiClient, phone: Page, tmp_path: Path):
    await buys_three_by_csv(phone, service.url, tmp_path, "5.40 USD")
    assert (await dealer.post("/account/balance")).data["balance"] == "994.60"
    await opens_the_page_of_one(phone)


async def drag(page: Page, onto: Locator, file: Path, *steps: str) -> None:
    """As a person drags a file out of a folder: the browser itself takes it, or goes to it."""
    box = await onto.bounding_box()
    assert box
    place = {"x": box["x"] + box["width"] - 8, "y": box["y"] + 8}
    session = await page.context.new_cdp_session(page)
    for step in steps:
        data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
        await session.send("Input.dispatchDragEvent", {"type": step, **place, "data": data})


@pytest.mark.parametrize("scripts", [True, False])
async def test_a_file_is_dropped_on_its_field(chromium: Chromium, boss: Browser, tmp_path: Path, scripts: bool):
    file = tmp_path / "orders.csv"
    file.write_text("packageCode,quantity\nTEST-OK,2\n")
    context = await chromium.new_context(java_script_enabled=scripts)
    await context.add_init_script(AXE)
    await context.add_cookies([{"name": "dealer_console", "value": boss.token, "url": boss.url}])
    page = await context.new_page()
    await page.goto(f"{boss.url}/console/bulk")
    root, field = page.locator("html"), page.get_by_label("CSV file")
    check = page.get_by_role("button", name="Check prices")
    if scripts:
        await expect(page.get_by_text("Choose a file, or drop it here")).to_be_visible()
        await expect(check).to_be_disabled()
        await drag(page, page.get_by_role("heading", level=1), file, "dragEnter", "dragOver")
        await expect(root).to_have_class(re.compile("dragging"))
        assert await barriers(page) == []
        await drag(page, page.get_by_role("heading", level=1), file, "drop")  # beside it: nothing happens
    await drag(page, field, file, "dragEnter", "dragOver", "drop")
    await expect(field).to_have_value(re.compile("orders.csv"))
    await expect(root).not_to_have_class(re.compile("dragging"))
    await expect(page.get_by_text("orders.csv")).to_have_count(1 if scripts else 0)
    await check.click()
    await expect(page.locator("#main")).to_contain_text("3.60 USD")
    await context.close()


async def test_one_esim_by_hand(service: Service, dealer: ApiClient, phone: Page):
    await phone.goto(f"{service.url}/console/catalogue?q=TEST-OK")
    await phone.locator("#main tbody a").first.tap()
    total, short = phone.locator("[data-sum-total]"), phone.get_by_text("short of this")
    await phone.get_by_label("Quantity").fill("100")
    await expect(total).to_have_text("180.00")
    await expect(short).to_be_hidden()
    await phone.get_by_label("Quantity").fill("1")
    await phone.get_by_role("button", name="One more").tap()
    await expect(total).to_have_text("3.60")
    await expect(phone.locator("[data-sum-after]")).to_have_text("996.40")
    await phone.get_by_label("Markup, %").fill("62")
    await expect(phone.locator("[data-markup-price]")).to_have_text("2.92")
    await expect(phone.locator("[data-markup-margin]")).to_have_text("38.4 %")
    assert await barriers(phone) == []
    await phone.get_by_role("button", name="Review order").tap()
    await expect(phone.locator("#main")).to_contain_text("996.40 USD")
    assert await barriers(phone) == []
    await phone.get_by_role("button", name="Pay 3.60 USD").dblclick()
    await phone.wait_for_url("**/console/orders/D*")
    await expect(phone.get_by_role("status").first).to_contain_text("Bought 2")
    assert (await dealer.post("/account/balance")).data["balance"] == "996.40"


async def test_a_package_is_bought_beside_the_catalogue(service: Service, dealer: ApiClient, phone: Page):
    await phone.goto(f"{service.url}/console/catalogue?q=TEST-OK")
    await phone.get_by_role("link", name="Buy TEST-OK").tap()
    drawer = phone.get_by_role("dialog")
    await expect(drawer.get_by_role("heading", level=1)).to_contain_text("TEST-OK")
    await expect(drawer.get_by_label("Quantity")).to_be_focused()
    assert await barriers(phone) == []
    await phone.keyboard.press("Escape")
    await expect(drawer).to_have_count(0)
    await expect(phone.get_by_role("link", name="Buy TEST-OK")).to_be_focused()
    await phone.keyboard.press("Enter")
    await drawer.get_by_role("button", name="One more").tap()
    await expect(drawer.locator("[data-sum-total]")).to_have_text("3.60")
    await drawer.get_by_role("button", name="Review order").tap()
    await phone.get_by_role("button", name="Pay 3.60 USD").tap()
    await phone.wait_for_url("**/console/orders/D*")
    assert (await dealer.post("/account/balance")).data["balance"] == "996.40"
