"""Does the documentation work in a real browser? Signed calls against `dealer-server dev`, search, and every page wide
and on a phone, light and dark: nothing complains, nothing is cut off, nobody is kept out, nothing comes from elsewhere.
Skipped where there is no Chromium."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, ViewportSize, expect

from support.api_client import Service
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.databases import postgres_folder
from support.docs_site.pages import PAGES
from support.patience import PATIENCE
from support.processes import environment, running
from support.webhook_fixture import Receiver

# Every page is opened by one test.
pytestmark = [needs_chromium, pytest.mark.timeout(1_200)]
WIDE, PHONE = ViewportSize(width=1440, height=900), ViewportSize(width=390, height=844)
AT_ONCE = 3  # pages under way
NARROW = ("target-size", "scrollable-region-focusable")  # of the rules, those that depend on the width
# Sections out of sight are laid out once the page is there; before, axe finds in them what nobody ever sees.
_TO_BE_LAID_OUT = ".article > section:not([style*=visible])"
_SIDEWAYS = "document.documentElement.scrollWidth > innerWidth"


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@asynccontextmanager
async def visited(chromium: Chromium, url: str, path: str, **options: Any) -> AsyncIterator[tuple[Page, list[str]]]:
    """A page of the documentation, and what it complains of; a request to elsewhere is a complaint."""
    context = await chromium.new_context(**{"viewport": WIDE, "color_scheme": "light", **options})
    context.set_default_timeout(1_000 * PATIENCE)
    await context.add_init_script(AXE)
    page = await context.new_page()
    faults = page_faults(page)
    page.on("request", lambda request: None if request.url.startswith(url) else faults.append(request.url))
    await page.goto(f"{url}{path}")
    yield page, faults
    await context.close()


# Every page


@pytest.mark.looks
async def test_every_page_is_whole_for_everybody(chromium: Chromium, service: Service):
    gate, found = asyncio.Semaphore(AT_ONCE), []

    async def look(path: str) -> None:
        async with gate, visited(chromium, service.url, path) as (page, faults):
            if path == "/docs/404.html":
                faults.clear()  # its own status
            await expect(page.locator(_TO_BE_LAID_OUT)).to_have_count(0)
            faults += await barriers(page)
            await page.emulate_media(color_scheme="dark")
            faults += [f"dark: {fault}" for fault in await barriers(page, "color-contrast")]
            await page.set_viewport_size(PHONE)
            faults += [f"phone: {fault}" for fault in await barriers(page, *NARROW)]
            faults += ["phone: it scrolls sideways"] if await page.evaluate(_SIDEWAYS) else []
            found.extend(f"{path}: {fault}" for fault in faults)

    await asyncio.gather(*[look(path) for path in PAGES])
    assert not found, "\n".join(found)


async def test_an_anchor_far_down_a_long_page_is_reached_and_the_contents_say_so(chromium: Chromium, service: Service):
    """Sections out of sight have no layout until they are gone to."""
    async with visited(chromium, service.url, "/docs/specification") as (page, faults):
        await page.locator(".toc a", has_text="10. Formats").click()
        await expect(page.get_by_role("heading", name="10. Formats")).to_be_in_viewport()
        await expect(page.locator(".toc .seen")).to_have_text("10. Formats")
    assert faults == []


# Signed calls


class Dev(NamedTuple):
    """`dealer-server dev`: where it is, and its demo dealer."""

    url: str
    app_key: str
    app_secret: str


@pytest.fixture(scope="module")
async def dev() -> AsyncIterator[Dev]:
    with postgres_folder() as folder:
        arguments = ("dev", "--json", "--port", "0", "--data", f"{folder}/data")
        async with running(*arguments, env=environment(None), ready=False) as process:
            line = await process.line()
            assert line, process.said
            said = json.loads(line)
            yield Dev(said["baseUrl"], said["appKey"], said["appSecret"])


@asynccontextmanager
async def trying(chromium: Chromium, dev: Dev, operation: str, **options: Any) -> AsyncIterator[Page]:
    """The page of an operation, with the demo dealer's key in its form. Nothing complains, and the AppSecret is not
    sent."""
    async with visited(chromium, dev.url, f"/docs/reference{operation}", **options) as (page, faults):
        sent: list[str] = []
        page.on("request", lambda asked: sent.append(f"{asked.url} {asked.headers} {asked.post_data}"))
        await page.get_by_label("AppKey").fill(dev.app_key)
        await page.get_by_label("AppSecret").fill(dev.app_secret)
        yield page
        assert any(f"/open-api/v1{operation} " in call for call in sent)
        assert [call for call in sent if dev.app_secret in call] == []
        assert [fault for fault in faults if "/open-api/" not in fault and "Failed to load" not in fault] == []


async def answered(page: Page) -> tuple[str, dict[str, Any]]:
    """Sends what stands in the form: the HTTP status as it is shown, and the answer."""
    async with page.expect_response(lambda response: "/open-api/" in response.url):
        await page.evaluate("document.getElementById('try-answer').replaceChildren()")
        await page.get_by_role("button", name="Sign and send").click()
    await expect(page.locator("#try-answer pre").first).to_be_visible()
    shown = await page.locator("#try-answer pre").first.inner_text()
    return await page.locator("#try-answer strong").inner_text(), json.loads(shown)


async def test_health_is_called_in_the_page(chromium: Chromium, dev: Dev):
    async with trying(chromium, dev, "/health") as page:
        status, answer = await answered(page)
        assert (status, answer["code"], answer["data"]["status"]) == ("HTTP 200", "000000", "UP")
        await page.get_by_text("The same call by curl").click()
        curl = await page.locator("#try-answer details pre").inner_text()
        assert f"{dev.url}/open-api/v1/health" in curl and f"RT-AccessCode: {dev.app_key}" in curl
        assert await barriers(page) == []
        await page.emulate_media(color_scheme="dark")
        assert await barriers(page, "color-contrast") == []


async def test_an_order_is_placed_in_the_page_on_a_phone(chromium: Chromium, dev: Dev):
    async with trying(chromium, dev, "/esim/order", viewport=PHONE) as page:
        status, answer = await answered(page)
        assert (status, answer["code"], answer["data"]["payStatus"]) == ("HTTP 200", "000000", "PAID")
        assert await page.evaluate(_SIDEWAYS) is False
        assert (await answered(page))[1]["data"]["duplicate"] is True
    async with trying(chromium, dev, "/esim/order") as page:
        assert (await answered(page))[1]["data"]["orderNo"] != answer["data"]["orderNo"]  # an order of its own


@pytest.mark.parametrize("scripts", [True, False])
async def test_the_top_of_an_operation_leads_to_its_form_on_a_phone(
    chromium: Chromium, service: Service, scripts: bool
):
    options = {"viewport": PHONE, "java_script_enabled": scripts}
    async with visited(chromium, service.url, "/docs/reference/esim/order", **options) as (page, faults):
        link = page.get_by_role("link", name="Try it", exact=True)
        await expect(link).to_be_in_viewport()
        await link.click()
        await expect(page.get_by_role("heading", name="Try it")).to_be_in_viewport()
        await page.set_viewport_size(WIDE)
        await expect(link).to_be_hidden()
        assert faults == []


async def test_a_webhook_is_tried_in_the_page(chromium: Chromium, dev: Dev, receiver: Receiver):
    async with trying(chromium, dev, "/webhook/set") as page:
        await page.get_by_label("Body").fill(json.dumps({"callbackUrl": receiver.url}))
        assert (await answered(page))[1]["data"]["callbackUrl"] == receiver.url
    async with trying(chromium, dev, "/webhook/test") as page:
        status, answer = await answered(page)
        assert (status, answer["data"]["delivered"]) == ("HTTP 200", True)
    # An order placed by another test may be told of first.
    events = await receiver.received(1)
    assert all(event.headers["rt-accesscode"] == dev.app_key for event in events)


async def test_a_refusal_leads_to_its_cause_and_cure(chromium: Chromium, dev: Dev):
    async with trying(chromium, dev, "/health") as page:
        await page.get_by_label("AppSecret").fill("sk_test_wrong")
        status, answer = await answered(page)
        assert (status, answer["code"]) == ("HTTP 401", "101003")
        await page.locator("#try-answer").get_by_role("link", name="101003").click()
        await page.wait_for_url("**/docs/errors#101003")
        await expect(page.get_by_role("heading", name="101003")).to_be_in_viewport()


async def test_a_key_is_kept_for_the_tab_only_where_the_reader_asks(chromium: Chromium, dev: Dev):
    async with trying(chromium, dev, "/health") as page:
        await answered(page)
        await page.reload()
        await expect(page.get_by_label("AppSecret")).to_have_value("")
        await page.get_by_label("AppKey").fill(dev.app_key)
        await page.get_by_label("AppSecret").fill(dev.app_secret)
        await page.get_by_label("Keep both until this tab is closed").check()
        await page.goto(f"{dev.url}/docs/reference/account/balance")
        assert (await answered(page))[1]["data"]["currency"] == "USD"
        assert await page.evaluate("[localStorage.length, document.cookie]") == [0, ""]


# Finding, copying, without scripts


async def test_search_finds_a_code_a_path_and_words(chromium: Chromium, service: Service):
    async with visited(chromium, service.url, "/docs") as (page, faults):
        for words, address in (
            ("310402", "/docs/errors#310402"),
            ("/webhook/test", "/docs/reference/webhook/test"),
            ("upper bound nobody wrote", ""),
            ("verify webhook typescript", "/docs/guides/typescript#webhooks"),
            ("csharp", "/docs/guides/other-languages"),
            ("idempotent", "/docs/specification#23-order-snapshot"),
            ("mcp", "/docs/guides/mcp"),  # before what the changelog says of it
            ("changelog", "/docs/changelog"),
        ):
            await page.keyboard.press("Control+k")
            await page.get_by_role("combobox").fill(words)
            if not address:
                await expect(page.locator("#search-told")).to_have_text("Nothing found")
                await page.keyboard.press("Escape")
                continue
            await expect(page.get_by_role("option").first).to_be_visible()
            assert await barriers(page) == []
            await page.keyboard.press("Enter")
            await page.wait_for_url(f"**{address}")
        assert faults == []


async def test_code_is_copied_and_the_theme_is_kept(chromium: Chromium, service: Service):
    options = {"permissions": ["clipboard-read", "clipboard-write"]}
    async with visited(chromium, service.url, "/docs/quickstart", **options) as (page, faults):
        block = page.locator(".code").first
        await block.hover()
        await block.get_by_role("button", name="Copy").click()
        assert await page.evaluate("navigator.clipboard.readText()") == "make dev"
        await page.get_by_role("button", name="Light or dark").click()
        await page.reload()
        await expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        assert faults == []


async def test_a_phone_has_the_navigation_behind_a_button(chromium: Chromium, service: Service):
    options = {"viewport": PHONE, "reduced_motion": "reduce"}
    async with visited(chromium, service.url, "/docs/quickstart", **options) as (page, faults):
        link = page.get_by_role("navigation", name="Documentation").get_by_role("link", name="Signing", exact=True)
        await expect(link).to_be_hidden()
        await page.get_by_role("button", name="Menu").click()
        assert await barriers(page) == []
        await link.click()
        await page.wait_for_url("**/docs/guides/signing")
        assert faults == []


async def test_it_is_read_without_javascript(chromium: Chromium, service: Service):
    async with visited(chromium, service.url, "/docs/reference/esim/order", java_script_enabled=False) as (
        page,
        faults,
    ):
        await expect(page.get_by_role("heading", level=1)).to_have_text("Create an order")
        await expect(page.get_by_role("button", name="Sign and send")).to_be_hidden()
        await page.get_by_role("link", name="Errors", exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("[Ee]rror"))
        assert faults == []
