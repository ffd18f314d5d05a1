"""Pages at 200 % zoom, and with names that are written from right to left. Skipped without a Chromium."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.chromium import AXE, CROSSED, barriers, needs_chromium, opened, page_faults

ZOOMED = {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}  # a window of 1280 x 800 at 200 %
ARABIC = "بيت الشرائح للسفر"
OPERATORS = ("", "/notices", "/orders", "/profiles", "/refunds", "/reports", "/topups", "/dealers", "/packages",
             "/webhooks", "/suppliers", "/packages/TEST-OK", "/packages/TEST-OK/route", "/dealers/new",
             "/audit")  # fmt: skip
ENDPOINT = "INSERT INTO webhook_endpoint (tenant_id, url, state) VALUES ($1, 'https://a.example/', 'ACTIVE')"
ANSWERS = (
    "INSERT INTO webhook_hour (tenant_id, hour, http_status, error, attempts, took_ms)"
    " SELECT $1, date_trunc('hour', now()) - interval '1 hour', 500, 'HTTP 500', 7, 1"
)
DEALERS = ("", "/orders", "/profiles", "/catalogue", "/bulk", "/wallet", "/reports", "/webhooks", "/credentials")

pytestmark = needs_chromium


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@asynccontextmanager
async def page_of(chromium: Chromium, who: Browser) -> AsyncIterator[Page]:
    context = await chromium.new_context(**ZOOMED)  # type: ignore[arg-type]
    await context.add_init_script(AXE)
    await context.add_cookies([{"name": "dealer_console", "value": who.token, "url": who.url}])
    page = await context.new_page()
    faults = page_faults(page)
    yield page
    assert faults == []
    await context.close()


async def fits(page: Page, url: str) -> None:
    """Nothing is wider than the window, no text crosses the line of its row or the edge of its button, also in wider
    windows, nothing bars anybody, and the heading can be seen."""
    await page.set_viewport_size({"width": 1_440, "height": 800})
    await page.goto(url)
    for width in (1_440, 1_280, 1_152, 1_024, 640):
        await page.set_viewport_size({"width": width, "height": 400})
        assert await page.evaluate(CROSSED) == [], url
    assert await page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), url
    assert await barriers(page) == [], url
    await expect(page.get_by_role("heading", level=1)).to_be_visible()


async def test_pages_of_operators_fit_at_twice_their_size(
    chromium: Chromium, service: Service, dealer: ApiClient, admin: Browser
) -> None:
    await service.change(dealer.tenant_id, name=ARABIC)
    order_no = (await dealer.order(transactionId=f"zoom-{secrets.token_hex(8)}", remark="רכישה לקיץ")).data["orderNo"]
    await dealer.delivered(order_no)
    async with service.database.connection() as connection:  # a notice with two acts
        await connection.execute(ENDPOINT, dealer.tenant_id)
        await connection.execute(ANSWERS, dealer.tenant_id)
    async with page_of(chromium, admin) as page:
        await page.goto(f"{service.url}/console/notices")
        await expect(page.get_by_role("link", name="View endpoint").first).to_be_visible()
        for path in (*OPERATORS, f"/orders/{order_no}", f"/dealers/{dealer.tenant_id}"):
            await fits(page, f"{service.url}/console{path}")


async def test_pages_of_dealers_fit_at_twice_their_size(
    chromium: Chromium, service: Service, dealer: ApiClient
) -> None:
    number = f"{secrets.token_hex(8)}-{secrets.token_hex(16)}"
    order_no = (await dealer.order(transactionId=number, remark="Maximiliane von und zu Hohenstein")).data["orderNo"]
    await dealer.delivered(order_no)
    async with signed_in(service, "admin", dealer.tenant_id) as own, page_of(chromium, own) as page:
        await own.post(f"/console/orders/{order_no}/mail", {"mail": "ann@example.com", "language": "en"})
        for path in (*DEALERS, "/profiles?status=NOT_MAILED", f"/orders/{order_no}"):
            await fits(page, f"{service.url}/console{path}")


async def test_a_name_from_right_to_left_turns_nothing_around_it(
    chromium: Chromium, service: Service, dealer: ApiClient, admin: Browser
) -> None:
    """The number after the name stands after it: on its right, as in any other row."""
    await service.change(dealer.tenant_id, name=ARABIC)
    order_no = (await dealer.order()).data["orderNo"]
    async with page_of(chromium, admin) as page:
        await page.goto(f"{service.url}/console/orders/{order_no}")
        link = page.locator("#main").get_by_role("link", name=ARABIC)
        name = await link.bounding_box()
        number = await link.locator("xpath=following-sibling::span[1]").bounding_box()
        assert name and number and number["x"] >= name["x"] + name["width"]
        await expect(page.locator("html")).to_have_attribute("lang", "en")
