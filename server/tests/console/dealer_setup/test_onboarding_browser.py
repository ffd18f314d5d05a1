"""One wizard, from nothing to a dealer's user who signs in by invitation, sees the first steps, buys three eSIMs by
CSV and opens the page of one on a phone. In a browser."""

import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from dealer_server.operations.users import accounts
from support.api_client import Service
from support.browser import PASSWORDS
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.console.buying_by_csv import buys_three_by_csv, opens_the_page_of_one
from support.console.people import PHONE, WORD, sign_in

IPHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1"
    " Mobile/15E148 Safari/604.1"
)
SIZES = ((1440, 900), (390, 844))
pytestmark = needs_chromium


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


async def looked_at(page: Page) -> None:
    """Nothing bars anybody, wide and on a phone, and nothing is wider than the page."""
    for width, height in SIZES:
        await page.set_viewport_size({"width": width, "height": height})
        assert await barriers(page) == [], page.url
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), page.url


async def heading(page: Page, text: str) -> None:
    await expect(page.get_by_role("heading", level=1)).to_have_text(text)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_a_dealer_is_set_up_and_its_first_user_comes_in(
    chromium: Chromium, service: Service, scripts: bool, tmp_path: Path
) -> None:
    word = secrets.token_hex(4)
    operator, dealer, ann = f"setting-up-{word}", f"Alpine {word}", f"ann-{word}@alpine.example"
    await accounts.create(service.database, PASSWORDS, None, operator, "admin", "test", WORD)
    inside = await chromium.new_context(java_script_enabled=scripts)
    if scripts:
        await inside.add_init_script(AXE)
    page = await inside.new_page()
    faults = page_faults(page)
    look = looked_at if scripts else unseen
    await sign_in(page, service, operator)
    await page.goto(f"{service.url}/console/dealers")
    await page.get_by_role("link", name="New dealer").first.click()
    await heading(page, "New dealer")
    await look(page)
    await page.get_by_label("Name", exact=True).fill(dealer)
    await page.get_by_label("Opening balance").fill("250")
    await page.get_by_text("Optional: API and brand").click()
    await page.get_by_label("Support email").fill("help@alpine.example")
    await page.get_by_role("button", name="Continue").click()
    await page.get_by_label("Markup on dealer prices").fill("10")
    await look(page)
    await page.get_by_role("button", name="Back").click()
    await expect(page.get_by_label("Name", exact=True)).to_have_value(dealer)
    await page.get_by_role("button", name="Continue").click()
    await expect(page.get_by_label("Markup on dealer prices")).to_have_value("10")
    await page.get_by_role("button", name="Continue").click()
    await page.get_by_label("Email").fill(ann)
    await look(page)
    await page.get_by_role("button", name="Continue").click()
    await expect(page.locator("#main")).to_contain_text(ann)
    await look(page)
    await page.get_by_role("button", name="Create dealer").click()
    await heading(page, f"{dealer} created")
    await look(page)
    link = await page.locator("code").filter(has_text="/console/invitation/").inner_text()
    await inside.close()
    assert faults == []
    await comes_in(chromium, service, link, dealer, tmp_path, scripts)


async def comes_in(chromium: Chromium, service: Service, link: str, dealer: str, folder: Path, scripts: bool) -> None:
    phone = {"viewport": PHONE, "is_mobile": True, "user_agent": IPHONE}
    outside = await chromium.new_context(java_script_enabled=scripts, **phone)  # type: ignore[arg-type]
    if scripts:
        await outside.add_init_script(AXE)
    page = await outside.new_page()
    faults = page_faults(page)
    look = looked_at if scripts else unseen
    await page.goto(link)
    await heading(page, f"Welcome to {dealer}")
    await look(page)
    await page.get_by_label("Password", exact=True).fill("correct horse battery")
    await page.get_by_label("Confirm password").fill("correct horse battery")
    await page.get_by_role("button", name="Set password and sign in").click()
    await expect(page).to_have_url(re.compile(r"/console$"))
    await expect(page.get_by_role("heading", name="Get started")).to_be_visible()
    await look(page)
    await page.get_by_role("link", name="AppKeys", exact=True).first.click()
    await heading(page, "AppKeys")
    await look(page)
    assert faults == []
    # The markup of 10 % is paid: 3 x 1.98.
    await page.set_viewport_size(PHONE)
    await buys_three_by_csv(page, service.url, folder, "5.94 USD", scripts)
    install = await opens_the_page_of_one(page)
    await expect(install.locator('a[href^="https://esimsetup.apple.com/"]')).to_be_visible()
    assert not scripts or await barriers(install) == []
    assert faults == []
    await page.goto(link)
    await heading(page, "This invitation was used")
    await look(page)
    await outside.close()


async def unseen(_: Page) -> None:
    """Without scripts nothing can be asked of a page."""
