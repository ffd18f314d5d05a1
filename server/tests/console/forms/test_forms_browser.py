"""What scripts add to forms: a preview of the install page as its brand is typed, and units in step with a choice.
Skipped without a Chromium."""

import base64
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from dealer_server.operations.users import accounts
from dealer_server.rules.brand import colour
from dealer_server.rules.esim import qr
from support.api_client import ApiClient, Service
from support.browser import PASSWORDS
from support.chromium import needs_chromium, opened, page_faults
from support.console.people import WORD, sign_in

PICTURE = qr.png("LPA:1$rsp.example.com$X", 200)
LOGO = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"

pytestmark = needs_chromium


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


async def painted(page: Page) -> list[tuple[str, str, str]]:
    """Of each preview that has a button its fill, the text on it and its accent."""
    found = []
    for preview in await page.locator(".brand-preview:has([data-shade=on_fill])").all():
        fill, text = preview.locator("rect[data-shade=fill]").first, preview.locator("[data-shade=on_fill]")
        accent = preview.locator("text[data-shade=accent]").first
        found.append(tuple([str(await one.get_attribute("fill")) for one in (fill, text, accent)]))
    return found


async def test_the_preview_shows_the_brand_as_it_is_typed(
    chromium: Chromium, service: Service, dealer: ApiClient
) -> None:
    await accounts.create(service.database, PASSWORDS, int(dealer.tenant_id), "brand-admin", "admin", "test", WORD)
    page = await chromium.new_page()
    faults = page_faults(page)
    await sign_in(page, service, "brand-admin")
    await page.goto(f"{service.url}/console/brand")
    title = page.locator(".brand-preview [data-name]").first
    await expect(title).to_have_text("eSIM")
    save = page.get_by_role("button", name="Save", exact=True)
    await expect(page.locator(".save-bar > [role=status]")).to_have_text("No changes yet")
    await expect(save).to_be_disabled()
    await page.get_by_label("Name", exact=True).fill("Sunbird Travel")
    await expect(page.locator(".save-bar > [role=status]")).to_have_text("1 change")
    await expect(save).to_be_enabled()
    await expect(title).to_have_text("Sunbird Travel")
    await page.get_by_label("Email").fill("help@sunbird.example")
    await expect(page.locator(".brand-preview [data-support]").nth(2)).to_have_text("help@sunbird.example")
    for one in ("#ffd43b", "#808080", "#000000", "#e11d74"):
        await page.get_by_label("Colour", exact=True).fill(one)
        shades = colour.shades(one)
        both = [(shades.fill, shades.on_fill, accent) for accent in (shades.by_day, shades.by_night)]
        assert await painted(page) == both, "as rules/brand/colour.py"
    await expect(page.get_by_label("Choose a colour")).to_have_value("#e11d74")
    await page.get_by_label("Choose a colour").fill("#0d8f6b")
    await expect(page.get_by_label("Colour", exact=True)).to_have_value("#0d8f6b")
    await page.get_by_label("Logo").set_input_files({"name": "logo.png", "mimeType": "image/png", "buffer": PICTURE})
    await expect(page.locator(".brand-preview image").last).to_have_attribute("href", LOGO)
    drawn = await painted(page)
    await save.click()
    await expect(page.locator(".flash")).to_contain_text("The brand is saved")
    assert await painted(page) == drawn, "the server draws the same"
    await expect(page.locator(".brand-preview image").last).to_have_attribute("href", LOGO)
    assert faults == []
    await page.close()


async def test_amounts_stand_in_the_currency_that_is_chosen(chromium: Chromium, service: Service) -> None:
    await accounts.create(service.database, PASSWORDS, None, "unit-admin", "admin", "test", WORD)
    page = await chromium.new_page()
    await sign_in(page, service, "unit-admin")
    await page.goto(f"{service.url}/console/dealers/new")
    await expect(page.locator("#field-balance-unit")).to_have_text("USD")
    await page.get_by_label("Currency of the wallet").select_option("JPY")
    await expect(page.locator("#field-balance-unit")).to_have_text("JPY")
    await page.get_by_label("Name", exact=True).fill("Nippon")
    await page.get_by_role("button", name="Continue").click()
    await expect(page.get_by_label("Markup on dealer prices")).to_be_visible()
    await page.close()
