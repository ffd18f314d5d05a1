"""Does the install page look as it should in a real browser? Wide and on a phone, by day and by night, at each stage
and in each language: nothing complains, nothing is cut off, nobody is kept out. Skipped where there is no Chromium."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, ViewportSize, expect

from dealer_server.operations.tenants.brand import BrandChange, set_brand
from dealer_server.rules.esim import qr
from dealer_server.rules.install.languages import LANGUAGES
from support.api_client import ApiClient, Service
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.money.recharges import advance, recharged
from support.money.refunds import bought, profiles

pytestmark = needs_chromium
PHONE, WIDE = ViewportSize(width=390, height=844), ViewportSize(width=1440, height=900)
IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1"
ANDROID = "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 Chrome/130.0.0.0 Mobile Safari/537.36"
_TOO_WIDE = """[...document.querySelectorAll("body *")].filter((one) => one.checkVisibility())
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 120))"""
_OPEN_ALL = "for (const one of document.querySelectorAll('details')) one.open = true"
BRANDS = (
    BrandChange(),
    BrandChange(name="Société Générale des Voyages et du Tourisme du Grand Est", colour="#ffe600"),
    BrandChange(name="رحلة سعيدة", colour="#08111f", logo=qr.png("LPA:1$rsp.example.com$X", 200)),
)


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@asynccontextmanager
async def visited(chromium: Chromium, url: str, **options: Any) -> AsyncIterator[tuple[Page, list[str]]]:
    """The page, and what it complains of."""
    context = await chromium.new_context(**options)
    await context.add_init_script(AXE)
    page = await context.new_page()
    faults = page_faults(page)
    await page.goto(url)
    yield page, faults
    await context.close()


async def stages(dealer: ApiClient) -> Mapping[str, str]:
    """Addresses of install pages, by what their eSIMs have been through."""
    ready, active, void, recharge = await asyncio.gather(*[bought(dealer) for _ in range(4)])
    for order in (active, recharge):
        await advance(dealer, order, "START")
    await advance(dealer, active, "USE", dataUsageBytes=300_000_000)
    await recharged(dealer, recharge)
    await dealer.post("/esim/profile/cancel", {"profileId": int(profiles(void)[0]["profileId"])})
    orders = {"ready": ready, "active": active, "void": void, "recharged": recharge}
    return {name: profiles(order)[0]["installPageUrl"] for name, order in orders.items()}


@pytest.mark.looks
async def test_every_stage_looks_right_wide_and_on_a_phone_by_day_and_by_night(
    chromium: Chromium, service: Service, dealer: ApiClient
):
    pages = await stages(dealer)
    found: list[str] = []
    for brand in BRANDS:
        await set_brand(service.database, dealer.tenant_id, brand, "test")
        for name, url in pages.items():
            for size, agent in ((WIDE, None), (PHONE, IPHONE), (PHONE, ANDROID)):
                options = {"viewport": size, "user_agent": agent, "color_scheme": "light"}
                async with visited(chromium, url, **options) as (page, faults):
                    await page.evaluate(_OPEN_ALL)
                    faults += await page.evaluate(_TOO_WIDE) + await barriers(page)
                    await page.emulate_media(color_scheme="dark")
                    # Of the rules only contrast depends on the scheme.
                    by_night = await page.evaluate(_TOO_WIDE) + await barriers(page, "color-contrast")
                    faults += [f"dark: {fault}" for fault in by_night]
                found += [f"{name} {size['width']}: {fault}" for fault in faults]
    assert not found, "\n".join(found)


@pytest.mark.looks
@pytest.mark.parametrize("language", LANGUAGES)
async def test_every_language_fits_on_a_phone(chromium: Chromium, dealer: ApiClient, language: str):
    url = profiles(await bought(dealer))[0]["installPageUrl"]
    small = ViewportSize(width=320, height=640)
    async with visited(chromium, url, viewport=small, locale=language, user_agent=IPHONE) as (page, faults):
        await page.evaluate(_OPEN_ALL)
        assert faults + await page.evaluate(_TOO_WIDE) + await barriers(page) == []
        assert await page.evaluate("document.documentElement.lang") == language


async def test_codes_are_copied_and_times_are_the_readers_own(chromium: Chromium, dealer: ApiClient):
    [profile] = profiles(await bought(dealer))
    options = {"permissions": ["clipboard-read", "clipboard-write"], "timezone_id": "Asia/Tokyo", "locale": "de"}
    async with visited(chromium, profile["installPageUrl"], **options) as (page, faults):
        await page.locator("details.card:has(dl.values) > summary").click()
        for label, code in (
            ("Kopieren: SM-DP+-Adresse", profile["smdpAddress"]),
            ("Kopieren: Aktivierungscode", profile["matchingId"]),
            ("Kopieren: Vollständiger Code, für Android", profile["activationCode"]),
        ):
            button = page.get_by_role("button", name=label, exact=True)
            await button.click()
            await expect(button).to_have_text("Kopiert")
            assert await page.evaluate("navigator.clipboard.readText()") == code
        assert "UTC" not in await page.locator("time").first.inner_text()
        assert faults == []


async def test_codes_are_copied_by_browsers_that_know_no_names_of_countries(chromium: Chromium, dealer: ApiClient):
    [profile] = profiles(await bought(dealer))
    async with visited(chromium, profile["installPageUrl"]) as (page, faults):
        await page.add_init_script("delete Intl.DisplayNames")
        await page.reload()
        await expect(page.locator("button[data-copy]:not([hidden])")).to_have_count(3)
        assert faults == []


async def test_it_works_without_javascript(chromium: Chromium, dealer: ApiClient):
    [profile] = profiles(await bought(dealer))
    async with visited(chromium, profile["installPageUrl"], java_script_enabled=False) as (page, faults):
        await expect(page.locator("svg.qr")).to_be_visible()
        assert await page.locator("button").count() == 3
        for button in await page.locator("button").all():
            await expect(button).to_be_hidden()
        await page.locator(".langs summary").click()
        await page.get_by_role("link", name="Français").click()
        await expect(page.locator("h1")).to_have_text("Installez votre eSIM")
        assert faults == []


async def test_on_a_narrow_device_that_does_not_say_what_it_is_buttons_stand_first(
    chromium: Chromium, dealer: ApiClient
):
    [profile] = profiles(await bought(dealer))
    for size, shown in ((PHONE, True), (WIDE, False)):
        async with visited(chromium, profile["installPageUrl"], viewport=size) as (page, faults):
            button = page.get_by_role("link", name="Install on an iPhone")
            await expect(button).to_have_count(1 if shown else 0)
            if shown:
                box = await button.bounding_box()
                assert box and box["y"] + box["height"] < size["height"], "in sight without scrolling"
            await expect(page.get_by_text("Do not delete it later: it cannot be installed again.")).to_have_count(2)
            await expect(page.locator("li:visible", has_text="Do not delete it later")).to_have_count(1)
            assert faults == []


async def test_an_unknown_esim_is_told_kindly(chromium: Chromium, service: Service):
    for scheme in ("light", "dark"):
        options = {"viewport": PHONE, "color_scheme": scheme, "locale": "fr"}
        async with visited(chromium, f"{service.url}/i/1-2-unknown", **options) as (page, _):
            assert await page.evaluate(_TOO_WIDE) + await barriers(page) == []
            await expect(page.locator("h1")).to_have_text("Cette eSIM est introuvable")
