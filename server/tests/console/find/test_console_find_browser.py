"""The palette, type-ahead fields and forms in a real browser, by keyboard. Skipped without a Chromium."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from dealer_server.operations.users import accounts
from support.api_client import ApiClient, Service
from support.browser import PASSWORDS
from support.chromium import AXE, barriers, needs_chromium, opened
from support.console.people import PHONE, WORD, sign_in

pytestmark = needs_chromium
NAME = "finding-operator"


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@pytest.fixture(scope="module")
async def operator(service: Service) -> None:
    """Among 500 dealers."""
    async with service.database.connection() as connection:
        await connection.execute(
            "INSERT INTO tenant (tenant_id, name) SELECT 20000 + n, 'Shop ' || n FROM generate_series(1, 500) n"
        )
        await connection.execute("INSERT INTO wallet (tenant_id, currency) SELECT tenant_id, 'USD' FROM tenant"
                                 " WHERE tenant_id > 20000 ON CONFLICT DO NOTHING")  # fmt: skip
        await connection.execute("UPDATE tenant SET name = 'بيت الشرائح' WHERE tenant_id = 20007")
    await accounts.create(service.database, PASSWORDS, None, NAME, "admin", "test", WORD)


@asynccontextmanager
async def page_of(chromium: Chromium, service: Service, **options: object) -> AsyncIterator[Page]:
    context = await chromium.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})  # type: ignore[arg-type]
    await context.add_init_script(AXE)
    page = await context.new_page()
    await sign_in(page, service, NAME)
    yield page
    await context.close()


async def test_the_palette_is_used_by_keyboard_alone(
    chromium: Chromium, service: Service, operator: None, dealer: ApiClient
) -> None:
    order_no = (await dealer.order(transactionId=f"palette-{dealer.tenant_id}")).data["orderNo"]
    async with page_of(chromium, service) as page:
        await page.keyboard.press("Control+k")
        field = page.get_by_role("combobox", name="Go to page, action or match")
        await expect(field).to_be_focused()
        await expect(page.get_by_role("option", name="Orders", exact=True)).to_be_visible()
        assert await barriers(page) == []
        await page.keyboard.type("audit")
        await expect(field).to_have_attribute("aria-activedescendant", re.compile("option-"))
        await expect(page.get_by_role("option", selected=True)).to_have_text("Audit log")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Audit log")
        await page.keyboard.press("Control+k")
        await page.keyboard.type(f"palette-{dealer.tenant_id}")
        found = page.get_by_role("group", name="Orders").get_by_role("option")
        await expect(found).to_contain_text([order_no])
        await expect(page.locator("#palette-told")).to_contain_text("found")
        assert await barriers(page) == []
        while await found.first.get_attribute("aria-selected") != "true":
            await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.locator("#about")).to_contain_text(order_no)
        await page.keyboard.press("Control+k")
        await page.keyboard.press("Escape")
        await expect(page.locator("#palette")).to_be_hidden()


async def test_a_dealer_is_chosen_among_500_by_keyboard(chromium: Chromium, service: Service, operator: None) -> None:
    async with page_of(chromium, service) as page:
        await page.goto(f"{service.url}/console/orders")
        field = page.get_by_role("combobox", name="Dealer")
        offered = page.get_by_role("listbox", name="Matches").get_by_role("option")
        await field.focus()
        await page.keyboard.type("بيت")
        await expect(offered).to_have_count(1)
        assert await barriers(page) == []
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile("dealer=.*20007"))
        await expect(page.get_by_role("combobox", name="Dealer")).to_have_value("بيت الشرائح · 20007")
        await field.fill("Shop 49")
        await expect(offered).to_have_count(11)
        await page.keyboard.press("Escape")
        await expect(offered).to_have_count(0)


@pytest.mark.parametrize("scripts", [True, False])
async def test_filters_in_force_are_marked_and_can_be_taken_back(
    chromium: Chromium, service: Service, operator: None, scripts: bool
) -> None:
    async with page_of(chromium, service, java_script_enabled=scripts) as page:
        await page.goto(
            f"{service.url}/console/orders?dealer=20001&status=FAILED&from=2026-01-05&to=2026-01-05&sort=created&before=9&trail=~"
        )
        taken = page.locator("#main").get_by_role("link", name="Remove filter")
        views = page.get_by_role("navigation", name="Views")
        failed = views.get_by_role("link", name="Failed")
        await expect(taken).to_have_count(2)
        await expect(failed).to_have_attribute("aria-current", "page")
        await expect(page.locator(".filter-days > summary")).to_have_text("Date: 5 Jan 2026")
        assert not scripts or await barriers(page) == []
        await page.get_by_role("link", name="Remove filter Date").press("Enter")
        await expect(page).to_have_url(f"{service.url}/console/orders?dealer=20001&status=FAILED&sort=created")
        await expect(page.locator(".filter-days > summary")).to_have_text("Date: Any time")
        await page.get_by_role("link", name="Remove filter Dealer").press("Enter")
        await expect(page).to_have_url(f"{service.url}/console/orders?status=FAILED&sort=created")
        await expect(failed).to_have_attribute("aria-current", "page")
        await views.get_by_role("link", name="All").press("Enter")
        await expect(page).to_have_url(f"{service.url}/console/orders?sort=created")
        await page.goto(f"{service.url}/console/audit?author=ann&action=order.note&from=nonsense")
        await page.get_by_role("link", name="Clear filters").first.press("Enter")
        await expect(page).to_have_url(f"{service.url}/console/audit")
        await expect(taken).to_have_count(0)
        await page.goto(f"{service.url}/console/reports?from=2026-01-01&to=2026-01-05&by=day")
        await expect(page.locator(".filter-days > summary")).to_have_text("Date: 1 Jan 2026 to 5 Jan 2026")
        await expect(taken).to_have_count(0)


@pytest.mark.parametrize("scripts", [True, False])
async def test_days_are_chosen_by_a_range_or_two_dates_and_kept_by_tabs(
    chromium: Chromium, service: Service, operator: None, scripts: bool
) -> None:
    today = service.database.clock.now().date()
    async with page_of(chromium, service, java_script_enabled=scripts) as page:
        await page.goto(f"{service.url}/console/orders?dealer=20001")
        days = page.locator(".filter-days")
        await days.locator("summary").click()
        assert not scripts or await barriers(page) == []
        await days.get_by_role("link", name="7 days").click()
        week = f"from={today - timedelta(days=6)}&to={today}"
        await expect(page).to_have_url(f"{service.url}/console/orders?dealer=20001&{week}")
        await expect(days.locator("summary")).to_have_text("Date: 7 days")
        await page.get_by_role("link", name=re.compile(r"^Failed \d")).click()
        await expect(page).to_have_url(re.compile(f"{week}.*status=FAILED"))
        await expect(page.get_by_role("link", name=re.compile(r"^Failed \d"))).to_have_attribute("aria-current", "page")
        await days.locator("summary").click()
        await days.get_by_label("From").fill("2026-01-02")
        await days.get_by_label("To").fill("2026-01-05")
        await days.get_by_role("button", name="Apply").click()
        await expect(days.locator("summary")).to_have_text("Date: 2 Jan 2026 to 5 Jan 2026")
        await expect(page).to_have_url(re.compile("status=FAILED.*from=2026-01-02&to=2026-01-05"))
        if scripts:
            await days.locator("summary").click()
            await expect(days.get_by_label("From")).to_be_visible()
            await page.keyboard.press("Escape")
            await expect(days.get_by_label("From")).to_be_hidden()
            await days.locator("summary").click()
            await days.get_by_role("button", name="Month after").click()
            await days.get_by_role("button", name="10 February 2026", exact=True).click()
            await days.get_by_role("button", name="8 February 2026", exact=True).click()
            await expect(days.get_by_label("From")).to_have_value("2026-02-08")
            await expect(days.get_by_label("To")).to_have_value("2026-02-10")
            assert await barriers(page) == []
            await days.get_by_role("button", name="Apply").click()
            await expect(days.locator("summary")).to_have_text("Date: 8 Feb 2026 to 10 Feb 2026")


async def test_on_a_phone_filters_in_force_stay_and_the_others_fold(
    chromium: Chromium, service: Service, operator: None
) -> None:
    async with page_of(chromium, service, viewport=PHONE, has_touch=True) as page:
        await page.goto(f"{service.url}/console/orders?package=TEST-OK")
        days = page.locator(".filter-days > summary")
        await expect(page.get_by_label("Package", exact=True)).to_be_visible()
        await expect(days).to_be_hidden()
        await page.locator(".filter-more").tap()
        await expect(days).to_be_visible()
        await page.get_by_role("link", name="Remove filter Package").tap()
        await expect(page).to_have_url(f"{service.url}/console/orders")
        await expect(page.get_by_label("Package", exact=True)).to_be_hidden()
        await page.goto(f"{service.url}/console/orders?status=SOMEHOW")
        await expect(page.get_by_label("Status", exact=True)).to_be_visible()  # what is wrong is not hidden


async def test_a_form_outlives_its_session(
    chromium: Chromium, service: Service, operator: None, dealer: ApiClient
) -> None:
    async with page_of(chromium, service) as page:
        await page.goto(f"{service.url}/console/dealers/{dealer.tenant_id}")
        await page.get_by_role("button", name="Adjust balance").click()
        dialog = page.get_by_role("dialog", name="Adjust the balance")
        await dialog.get_by_label("Amount").fill("3")
        await dialog.get_by_label("Reason").fill("said before")
        async with service.database.connection() as connection:
            await connection.execute("DELETE FROM console_session")
        await dialog.get_by_role("button", name="Adjust").click()
        await expect(page.get_by_role("alert")).to_contain_text("what you entered is kept")
        await page.get_by_label("Name").fill(NAME)
        await page.get_by_label("Password").fill(WORD)
        await page.get_by_role("button", name="Sign in").click()
        await expect(dialog).to_be_visible()
        await expect(dialog.get_by_label("Reason")).to_have_value("said before")
        assert (await dealer.post("/account/balance")).data["balance"] == "1000.00"
        await dialog.get_by_role("button", name="Adjust").click()
        await expect(page.get_by_role("status").first).to_contain_text("adjusted by 3")
        assert (await dealer.post("/account/balance")).data["balance"] == "1003.00"


async def test_without_a_network_the_form_stays(
    chromium: Chromium, service: Service, operator: None, dealer: ApiClient
) -> None:
    async with page_of(chromium, service) as page:
        await page.goto(f"{service.url}/console/dealers/{dealer.tenant_id}")
        await page.get_by_text("Edit terms", exact=True).click()
        terms = page.locator("form", has=page.get_by_role("button", name="Save terms"))
        name = terms.get_by_label("Name", exact=True)
        await name.fill("Named offline")
        await page.context.set_offline(True)
        await page.get_by_role("button", name="Save terms").click()
        await expect(page.get_by_role("alert")).to_contain_text("nothing was sent")
        await expect(name).to_have_value("Named offline")
        await page.context.set_offline(False)
        await page.get_by_role("button", name="Save terms").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Named offline")


async def test_times_and_states_say_more_where_they_are_focused(
    chromium: Chromium, service: Service, operator: None, dealer: ApiClient
) -> None:
    order = await dealer.delivered((await dealer.order()).data["orderNo"])
    async with page_of(chromium, service) as page:
        await page.goto(f"{service.url}/console/orders?dealer={dealer.tenant_id}")
        time = page.locator("#main time:visible").first
        await expect(time).to_have_text(re.compile(r"^\d\d:\d\d$"))
        await time.hover()
        await expect(page.get_by_role("tooltip")).to_contain_text("UTC")
        await page.goto(f"{service.url}/console/orders/{order['orderNo']}")
        await expect(page.locator("#timeline time").first).to_have_text(
            re.compile(r"^\d+ [A-Z][a-z]{2} 20\d\d, [\d:]{8}$")
        )
        await page.locator(".state[data-tip]").first.hover()
        await expect(page.get_by_role("tooltip")).to_have_text(
            re.compile("^orderStatus [A-Z]+, deliveryStatus [A-Z]+$")
        )


async def test_without_scripts_fields_and_search_work(
    chromium: Chromium, service: Service, operator: None, dealer: ApiClient
) -> None:
    async with page_of(chromium, service, java_script_enabled=False) as page:
        await page.goto(f"{service.url}/console/orders")
        await page.get_by_label("Dealer", exact=True).fill("Shop 12")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.get_by_label("Dealer", exact=True)).to_have_value("Shop 12 · 20012")
        await page.get_by_label("Dealer", exact=True).fill("Nobody")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.get_by_text("No dealer Nobody")).to_be_visible()
        await page.get_by_role("searchbox", name="Search").fill("TEST-")
        await page.get_by_role("searchbox", name="Search").press("Enter")
        await expect(page.get_by_role("heading", name="Packages")).to_be_visible()


@pytest.mark.parametrize("viewport", [{"width": 1440, "height": 900}, PHONE])
async def test_pages_of_finding_have_no_barrier(
    chromium: Chromium, service: Service, operator: None, viewport: dict[str, int]
) -> None:
    async with page_of(chromium, service, viewport=viewport) as page:
        for path in (
            "search",
            "search?q=Test",
            "orders?status=FAILED",
            "orders?dealer=nobody",
            "lookup/dealers?q=Shop",
        ):
            await page.goto(f"{service.url}/console/{path}")
            assert await barriers(page) == [], path
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
