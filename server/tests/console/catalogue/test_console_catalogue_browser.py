"""Packages and price lists in a browser: one story, and no barrier, wide and on a phone. Skipped without a Chromium."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from dealer_server import clock
from dealer_server.operations.suppliers.configure import set_route
from dealer_server.operations.users import accounts
from dealer_server.store.suppliers.purchase import Hop
from support.api_client import Service
from support.browser import PASSWORDS
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.console.people import WORD, sign_in

NAME = "packages-operator"
CODE = "TEST-OK"
BACKGROUND = "button => getComputedStyle(button).backgroundColor"

pytestmark = needs_chromium


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@pytest.fixture(scope="module")
async def operator(service: Service) -> None:
    await accounts.create(service.database, PASSWORDS, None, NAME, "admin", "test", WORD)
    await set_route(service.database, CODE, [Hop("stock", CODE, 15_000, "USD")], "test", clock.now)


async def preview(page: Page, service: Service, file: Path) -> None:
    await page.goto(f"{service.url}/console/packages/import")
    await page.get_by_label("File").set_input_files(file)
    await page.get_by_role("button", name="Preview").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Import preview")


async def test_a_package_is_edited_exported_and_imported_with_one_column(
    chromium: Chromium, service: Service, operator: None, tmp_path: Path
) -> None:
    page = await chromium.new_page(accept_downloads=True)
    faults = page_faults(page)
    await sign_in(page, service, NAME)
    await page.goto(f"{service.url}/console/packages?q={CODE}")
    await page.locator(f'tr[data-href="/console/packages/{CODE}"] a').first.click()
    await page.get_by_role("link", name="Edit", exact=True).click()
    await page.get_by_label("Name", exact=True).fill("Seen in a browser")
    await expect(page.get_by_role("button", name="Save")).to_be_in_viewport()  # it stays in sight of a change
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Seen in a browser")
    await page.goto(f"{service.url}/console/packages")
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Export CSV").click()
    exported = Path(await (await download.value).path()).read_text("utf-8-sig")
    assert "Seen in a browser" in exported
    file = tmp_path / "prices.csv"
    file.write_text(f"packageCode,price\n{CODE},1.95\n")
    await preview(page, service, file)
    await expect(page.locator("#main")).to_contain_text("0 new, 1 changed")
    await page.get_by_role("button", name="Import 1 package").click()
    await expect(page.get_by_role("status")).to_contain_text("1 of them new or changed")
    file.write_text(f"packageCode,price\n{CODE},1.45\n")
    await preview(page, service, file)
    await expect(page.get_by_role("alert")).to_contain_text("1 price below cost")
    await page.get_by_label("Sell below cost").check()
    await page.get_by_role("button", name="Import 1 package").click()
    await expect(page.get_by_role("status")).to_contain_text("1 of them new or changed")
    await page.goto(f"{service.url}/console/packages/{CODE}")
    await expect(page.locator("#main")).to_contain_text("1.45 USD")
    assert faults == []
    await page.close()


async def no_barriers(page: Page) -> None:
    """Of axe's rules only contrast depends on the theme."""
    found = await barriers(page)
    await page.emulate_media(color_scheme="dark")
    found += [f"dark: {one}" for one in await barriers(page, "color-contrast")]
    await page.emulate_media(color_scheme="light")
    assert found == []


@pytest.mark.parametrize("width", [1440, 390])
async def test_no_answer_to_a_form_has_a_barrier(
    chromium: Chromium, service: Service, operator: None, width: int, tmp_path: Path
) -> None:
    """Pages that are not the answer to a form are looked at by test_console_looks.py."""
    context = await chromium.new_context(viewport={"width": width, "height": 900})
    await context.add_init_script(AXE)
    page = await context.new_page()
    await sign_in(page, service, NAME)
    await page.goto(f"{service.url}/console/price-lists/new")
    await page.get_by_label("Name").fill(f"Seen at {width}")
    await page.get_by_label("Markup").fill("-20")
    await page.get_by_role("button", name="Create price list").click()
    await page.get_by_role("link", name="All").first.click()
    save, told = page.get_by_role("button", name="Save prices"), page.locator("#prices .save-bar > [role=status]")
    await expect(told).to_have_text("No changes yet")
    neutral = await save.evaluate(BACKGROUND)
    price = page.locator(".price-edit > .form-control").first
    was = await price.input_value()
    await price.fill("99.00")
    await expect(told).to_have_text("1 change")
    await expect(save).to_be_in_viewport()
    assert await save.evaluate(BACKGROUND) != neutral, "there is something to save now"
    await price.fill(was)
    await expect(told).to_have_text("No changes yet")
    await price.fill("98.00")
    leave = "dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    assert not await page.evaluate(leave), "the browser asks"
    await page.get_by_role("button", name="Cancel", exact=True).filter(visible=True).click()
    await expect(price).to_have_value(was)
    await expect(told).to_have_text("No changes yet")
    assert await page.evaluate(leave)
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"Seen at {width}")
    file = tmp_path / "file.csv"
    await page.goto(f"{page.url}/import")
    file.write_text(f"packageCode,exception\n{CODE},1.00\n")
    await page.get_by_label("File").set_input_files(file)
    await page.get_by_role("button", name="Preview").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await no_barriers(page)
    file.write_text(f"packageCode,price,description\n{CODE},1.00,\n")
    await preview(page, service, file)
    await no_barriers(page)
    await page.goto(f"{service.url}/console/packages?q={CODE}")
    await page.get_by_label(f"Select {CODE}", exact=True).check()
    await page.get_by_role("button", name="Set on a price list").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Set 1 package on a price list")
    await no_barriers(page)
    await page.goto(f"{service.url}/console/packages/{CODE}/edit")
    await page.get_by_label("Dealer price", exact=True).fill("1.01")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Price below cost")
    await no_barriers(page)
    await context.close()
