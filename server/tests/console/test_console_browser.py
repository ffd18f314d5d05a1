"""Does the console work in a browser? How its pages look is in test_console_looks.py. Skipped without a Chromium."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from dealer_server.operations.users import accounts
from support.api_client import ApiClient, Service
from support.browser import PASSWORDS
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.console.people import PHONE, WORD, sign_in
from support.supplier_setup import free_address

NAMES = {"operator": "browsing-operator", "dealer": "browsing-dealer"}

pytestmark = needs_chromium


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@pytest.fixture(scope="module")
async def people(service: Service) -> None:
    """An operator, and somebody of a dealer that has bought something."""
    created = await service.tenant(balance="1000", name="Browsing & Sons")
    async with service.client(created) as client:
        await bought(client)
    for name, tenant_id in ((NAMES["operator"], None), (NAMES["dealer"], int(created.tenant_id))):
        await accounts.create(service.database, PASSWORDS, tenant_id, name, "admin", "test", WORD)


async def bought(client: ApiClient) -> str:
    """The number of an order that is delivered, and whose state can be sent again: its dealer has a callback URL."""
    named = await client.post("/webhook/set", {"callbackUrl": f"http://{free_address()}/hook"})
    assert named.status == 200, named
    reply = await client.order()
    await client.delivered(reply.data["orderNo"])
    return reply.data["orderNo"]


async def rows(page: Page) -> list[str]:
    """Where the rows of a list lead."""
    return await page.locator("#main tr[data-href]").evaluate_all("rows => rows.map(row => row.dataset.href)")


async def test_the_test_environment_cannot_be_missed(chromium: Chromium, service: Service, people: None) -> None:
    page = await chromium.new_page()
    await page.goto(f"{service.url}/console")
    await expect(page.get_by_role("complementary")).to_contain_text("TEST")
    await sign_in(page, service, NAMES["operator"])
    await expect(page.get_by_role("complementary")).to_be_visible()
    await page.close()


async def test_light_and_dark_are_switched_and_stay(chromium: Chromium, service: Service, people: None) -> None:
    page = await chromium.new_page(color_scheme="light")
    await sign_in(page, service, NAMES["operator"])
    root = page.locator("html")
    await expect(root).to_have_attribute("data-bs-theme", "light")
    await page.get_by_role("button", name="Light or dark").click()
    await expect(root).to_have_attribute("data-bs-theme", "dark")
    await page.reload()
    await expect(root).to_have_attribute("data-bs-theme", "dark")
    await page.close()


async def test_the_menu_folds_on_a_phone(chromium: Chromium, service: Service, people: None) -> None:
    page = await chromium.new_page(viewport=PHONE)
    await sign_in(page, service, NAMES["dealer"])
    users = page.get_by_role("link", name="Users")
    await expect(users).to_be_hidden()
    await page.get_by_role("button", name="Menu").click()
    await users.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Users")
    await page.close()


async def test_a_dialog_invites_a_user_by_keyboard_alone(chromium: Chromium, service: Service, people: None) -> None:
    page = await chromium.new_page()
    await sign_in(page, service, NAMES["operator"])
    await page.goto(f"{service.url}/console/users")
    await page.get_by_role("button", name="Invite a user").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.get_by_label("Email").fill("dialog@example.com")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Invitation for dialog@example.com")).to_be_visible()
    await page.close()


async def open_order(page: Page, service: Service) -> None:
    """As an operator, the order that was bought."""
    await sign_in(page, service, NAMES["operator"])
    await page.goto(f"{service.url}/console/orders")
    await page.goto(f"{service.url}{(await rows(page))[0]}")


async def test_what_is_done_seldom_is_in_a_menu_that_keys_open(
    chromium: Chromium, service: Service, people: None
) -> None:
    page = await chromium.new_page()
    heard = page_faults(page)
    await page.context.add_init_script(AXE)
    await open_order(page, service)
    more, menu = page.get_by_role("button", name="More actions"), page.locator("#more-menu")
    await expect(page.get_by_role("button", name="Add note")).to_be_visible()
    await expect(page.get_by_role("button", name="Refund", exact=True)).to_be_hidden()
    await more.focus()
    await page.keyboard.press("Enter")
    for key, entry in (
        ("ArrowUp", "Notify dealer"),
        ("ArrowDown", "Refund"),
        ("End", "Notify dealer"),
        ("ArrowUp", "Refund"),
        ("ArrowDown", "Notify dealer"),
        ("Home", "Refund"),
    ):
        await page.keyboard.press(key)
        await expect(menu.get_by_role("button", name=entry, exact=True)).to_be_focused()
    assert await barriers(page) == []
    await page.keyboard.press("Escape")
    await expect(menu).to_be_hidden()
    await expect(more).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog", name="Refund this order?")).to_be_visible()
    await expect(menu).to_be_hidden()
    await page.keyboard.press("Escape")
    await expect(more).to_be_focused()
    await page.keyboard.press("Control+k")  # the palette knows what the menu has
    on_page = page.get_by_role("group", name="On this page").get_by_role("option")
    await expect(on_page).to_have_text(["Add note", "Refund", "Notify dealer"])
    await on_page.nth(1).click()
    await expect(page.get_by_role("dialog", name="Refund this order?")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.set_viewport_size({"width": 1280, "height": 400})
    await more.click()
    await expect(menu).to_be_visible()
    await page.mouse.wheel(0, 200)  # its button leaves the view: it would stand above the top bar
    await expect(menu).to_be_hidden()
    assert heard == []
    await page.close()


async def test_without_scripts_the_menu_opens_its_dialogs_too(
    chromium: Chromium, service: Service, people: None
) -> None:
    async with service.client(await service.tenant(balance="1000")) as client:
        order_no = await bought(client)
    context = await chromium.new_context(java_script_enabled=False, viewport=PHONE)
    page = await context.new_page()
    await sign_in(page, service, NAMES["operator"])
    await page.goto(f"{service.url}/console/orders/{order_no}")
    await expect(page.get_by_role("button", name="Add note")).to_be_visible()  # what is done most
    await page.get_by_role("button", name="More actions").click()
    await page.get_by_role("button", name="Refund", exact=True).click()
    dialog = page.get_by_role("dialog", name="Refund this order?")
    await dialog.get_by_label("Reason").fill("asked by phone")
    await dialog.get_by_role("button", name="Refund").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    while "Refunded" not in await page.locator("#main").inner_text():
        await page.reload()  # without scripts no page renews itself
    await context.close()


@pytest.mark.parametrize("scripts", [True, False])
async def test_the_sections_of_a_long_page_are_reached_by_keyboard(
    chromium: Chromium, service: Service, people: None, scripts: bool
) -> None:
    context = await chromium.new_context(java_script_enabled=scripts, viewport=PHONE)
    page = await context.new_page()
    await sign_in(page, service, NAMES["operator"])
    await page.goto(f"{service.url}/console/dealers")
    await page.get_by_role("link", name="Browsing & Sons").click()
    sections = page.get_by_role("navigation", name="On this page")
    for name in ("AppKeys", "Custom prices", "Webhooks"):
        await sections.get_by_role("link", name=name).press("Enter")
        heading = page.get_by_role("heading", level=2, name=name)
        await expect(heading).to_be_in_viewport(ratio=1)
        await expect(sections).to_be_in_viewport(ratio=1)
        tops = [await one.bounding_box() for one in (page.get_by_role("complementary"), sections, heading)]
        assert [box["y"] >= 0 for box in tops if box] == [True] * 3
        assert tops[1] and tops[2] and tops[1]["y"] + tops[1]["height"] <= tops[2]["y"], "nothing lies over the heading"
    await context.close()


async def test_without_scripts_people_sign_in_and_out(chromium: Chromium, service: Service, people: None) -> None:
    context = await chromium.new_context(java_script_enabled=False)
    page = await context.new_page()
    await sign_in(page, service, NAMES["operator"])
    await page.locator(".top-user").click()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    await context.close()


async def test_who_signed_out_sees_nothing_by_going_back(chromium: Chromium, service: Service, people: None) -> None:
    page = await chromium.new_page()
    await sign_in(page, service, NAMES["operator"])
    await page.goto(f"{service.url}/console/users")
    await page.locator(".top-user").click()
    await page.get_by_role("button", name="Sign out").click()
    await page.wait_for_url("**/console/sign-in")
    await page.go_back()
    await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    await page.close()


async def test_a_page_of_what_still_changes_renews_itself(chromium: Chromium, service: Service, people: None) -> None:
    page = await chromium.new_page()
    heard = page_faults(page)
    await sign_in(page, service, NAMES["dealer"])
    await page.goto(f"{service.url}/console/profiles")
    [path] = await rows(page)
    await page.goto(f"{service.url}{path}")
    async with page.expect_response(lambda response: "hx-request" in response.request.headers) as renewed:
        pass
    assert (await renewed.value).status == 200
    await expect(page.locator("#profile")).to_be_visible()
    assert heard == []
    await page.close()


async def test_json_has_colours_and_stays_the_text_it_is(chromium: Chromium, service: Service, people: None) -> None:
    created = await service.tenant(name="Refused")
    async with service.client(created) as client:
        assert (await client.post("/esim/query", {"orderNo": "none"})).code != "000000"
    await accounts.create(service.database, PASSWORDS, int(created.tenant_id), "refused", "admin", "test", WORD)
    page = await chromium.new_page()
    await sign_in(page, service, "refused")
    while not await rows(page):  # what is shown of calls is written behind them
        await page.goto(f"{service.url}/console/api-log")
    await page.goto(f"{service.url}{(await rows(page))[0]}")
    coloured = (
        "kind => [...CSS.highlights.get(kind)].map(at => at.startContainer.data.slice(at.startOffset, at.endOffset))"
    )
    assert '"message"' in await page.evaluate(coloured, "json-name")
    assert all(text.startswith('"') for text in await page.evaluate(coloured, "json-text"))
    assert await page.locator("pre").last.locator("code > *").count() == 0
    await page.close()


def test_what_is_vendored_has_its_licence() -> None:
    import dealer_server.console

    vendor = Path(dealer_server.console.__file__).parent / "static/vendor"
    for folder in vendor.iterdir():
        assert folder.is_file() or (folder / "LICENSE").read_text().strip(), folder
