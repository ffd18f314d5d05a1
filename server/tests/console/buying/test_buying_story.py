"""A dealer's user buys three eSIMs by CSV and opens the page of one, on a phone, in a real browser."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.console.people import PHONE

pytestmark = needs_chromium
FILE = "packageCode,quantity,periodNum,remark,reference\n" + "".join(
    f"TEST-OK,1,,Booking {number},B-{number}\n" for number in (1, 2, 3)
)


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
    file = tmp_path / "bookings.csv"
    file.write_text(FILE)
    await phone.goto(f"{service.url}/console/catalogue")
    await phone.get_by_role("link", name="Buy by CSV").tap()
    await phone.get_by_label("CSV file").set_input_files(file)
    await phone.get_by_role("button", name="Preview").tap()
    main = phone.locator("#main")
    await expect(main).to_contain_text("5.40 USD")
    assert await barriers(phone) == []
    await phone.get_by_role("button", name="Buy 3 orders").tap()
    await expect(phone.get_by_role("status")).to_contain_text("3 orders placed")
    await expect(main).to_contain_text("3 of 3 orders")
    assert (await dealer.post("/account/balance")).data["balance"] == "994.60"
    await main.locator("tbody a").first.click()
    await phone.wait_for_url("**/console/orders/D*")
    await main.locator('tr[data-href^="/console/profiles/"] a').first.click()
    await phone.wait_for_url("**/console/profiles/*")
    async with phone.context.expect_page() as opening:
        await main.get_by_role("link", name="Open", exact=True).click()
    install: Any = await opening.value
    await install.wait_for_load_state()
    assert "/i/" in install.url
    await expect(install.locator("body")).to_contain_text("Install your eSIM")


async def test_one_esim_by_hand(service: Service, dealer: ApiClient, phone: Page):
    await phone.goto(f"{service.url}/console/catalogue?q=TEST-OK")
    await phone.locator("#main tbody a").first.tap()
    await phone.get_by_label("Quantity").fill("2")
    assert await barriers(phone) == []
    await phone.get_by_role("button", name="Buy").tap()
    await expect(phone.locator("#main")).to_contain_text("996.40 USD")
    assert await barriers(phone) == []
    await phone.get_by_role("button", name="Pay 3.60 USD").dblclick()
    await phone.wait_for_url("**/console/orders/D*")
    await expect(phone.get_by_role("status").first).to_contain_text("Bought 2")
    assert (await dealer.post("/account/balance")).data["balance"] == "996.40"
