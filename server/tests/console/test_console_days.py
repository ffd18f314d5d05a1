"""A dealer's first day, an operator's, and the days of each role, in a real browser, while everybody writes what would
like to be a script. Skipped where there is no Chromium."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Locator, Page, ViewportSize, expect

from dealer_server.operations.users import accounts
from dealer_server.rules.esim import qr
from esim_dealer import AsyncDealer, Line
from esim_dealer.wire.snapshot import Snapshot
from support.api_client import ApiClient, Service, running_service
from support.browser import PASSWORDS
from support.chromium import needs_chromium, opened, page_faults
from support.console.people import PHONE, WORD, sign_in
from support.patience import PATIENCE
from support.store_fixture import stock_csv
from support.webhook_fixture import Receiver, answer

EVIL = """'"><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"""
SONS = f"{EVIL} & Sons"

DESKTOP: ViewportSize = {"width": 1440, "height": 900}

pytestmark = needs_chromium


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """It tries a webhook twice and gives up."""
    async with running_service(database_url, webhook_schedule="0,0.05") as service:
        yield service


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@asynccontextmanager
async def day(
    chromium: Chromium,
    service: Service,
    tenant_id: int | None = None,
    role: str = "admin",
    size: ViewportSize = DESKTOP,
) -> AsyncIterator[Page]:
    """Somebody new, an operator or of a dealer, signs in; in the evening there is nothing to complain about."""
    name = f'"><script>alert(3)</script>{secrets.token_hex(6)}'
    await accounts.create(service.database, PASSWORDS, tenant_id, name, role, "test", WORD)
    page = await chromium.new_page(viewport=size)
    heard = page_faults(page)
    await sign_in(page, service, name)
    yield page
    assert heard == []
    await page.close()


def main(page: Page) -> Locator:
    return page.locator("#main")


async def menu(page: Page, name: str) -> None:
    """By the menu, which is behind a button on a phone."""
    folded = page.get_by_role("button", name="Menu", exact=True)
    if await folded.is_visible():
        await folded.click()
    link = page.get_by_role("navigation", name="Main").get_by_role("link", name=name)
    path = await link.get_attribute("href")
    await link.click()
    await page.wait_for_url(f"**{path}")


async def press(page: Page | Locator, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()


async def confirmed(page: Page, place: Page | Locator, name: str, go: str, text: str = "") -> None:
    """Presses a button that asks first, reads what it asks, and says yes."""
    await press(place, name)
    asks = page.get_by_role("dialog")
    await expect(asks).to_contain_text(text)
    await press(asks, go)


async def in_time(page: Page, sought: Locator) -> None:
    """Loads a page that does not renew itself until this is there."""
    async with asyncio.timeout(PATIENCE):
        while not await sought.count():
            await page.reload()
    await expect(sought).to_be_visible()


async def done(page: Page, steps: int) -> None:
    await menu(page, "Home")
    await in_time(page, main(page).get_by_text(f"{steps} of 7 steps done"))


def row(page: Page, *texts: str) -> Locator:
    found = page.get_by_role("row")
    for text in texts:
        found = found.filter(has_text=text)
    return found


async def fact(page: Page, label: str) -> str:
    """What stands under a name, to be copied."""
    return await page.locator(".fact").filter(has=page.get_by_text(label, exact=True)).locator("code").inner_text()


async def an_hour_passes(service: Service) -> None:
    """Since anybody gave a password."""
    async with service.database.connection() as connection:
        await connection.execute("UPDATE console_session SET sure_at = sure_at - interval '1 hour'")


async def buy(sdk: AsyncDealer, package: str, price: str = "1.80") -> Snapshot:
    placed = await sdk.order(f"day-{secrets.token_hex(6)}", [Line(package, 1, price)], remark=EVIL)
    return await sdk.wait_for_delivery(placed.order_no, poll=0.02)


# A dealer's first day


async def take_credentials(page: Page) -> tuple[str, str]:
    """AppKey and AppSecret, for the password once more."""
    await main(page).get_by_role("link", name="View or reset").click()
    await page.get_by_label("Password").fill(WORD)
    await press(page, "Continue")
    await press(page, "Show AppSecret")
    await expect(main(page)).to_contain_text("sk_test_")
    return await fact(page, "AppKey"), await fact(page, "AppSecret")


async def call_amiss(client: ApiClient) -> None:
    """Each call is refused for something else, and each brings a script."""
    assert (await client.order(transactionId=EVIL)).code == "000107"
    body = {"remark": EVIL}
    assert (await client.post("/esim/order", body, **{"X-Signature": "0" * 64})).code == "101003"
    assert (await client.post("/esim/order", body, **{"RT-RequestID": EVIL})).code == "000102"


async def read_why(page: Page, code: str, shown: str) -> None:
    """Why a call was refused: the log says it a little later."""
    await menu(page, "API log")
    refused = row(page, code).first  # among the new ones, and again in the list
    await in_time(page, refused)
    await refused.get_by_role("link").first.click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("refused")
    await expect(main(page)).to_contain_text(f"({code})")
    await expect(main(page)).to_contain_text(shown)
    folded = page.locator("summary", has_text="Expected string to sign")  # where the signature was right
    if await folded.count():
        await folded.click()
    await page.get_by_label("Your string to sign").fill(EVIL)
    await press(page, "Compare")
    await expect(main(page)).to_contain_text("They differ from character 1")


async def verify_webhook(page: Page, receiver: Receiver, app_secret: str) -> None:
    await menu(page, "Webhooks")
    await page.get_by_label("Callback URL").fill(receiver.url)
    await press(page, "Save")
    await expect(main(page)).to_contain_text("Webhooks are sent to this URL from now on")
    await press(page, "Send test event")
    await expect(main(page)).to_contain_text("Test event delivered.")
    [sample] = receiver.requests
    assert sample.verified(app_secret)


async def set_notice_url(page: Page, receiver: Receiver) -> None:
    await menu(page, "Webhooks")
    await main(page).get_by_text("Edit", exact=True).click()
    await page.get_by_label("Notice URL").fill(receiver.url)
    await press(page, "Save notice URL")


async def see_the_order(page: Page, order: Snapshot) -> None:
    """And the page of its eSIM, where the QR code that installs it is shown while no phone has it."""
    await menu(page, "Orders")
    await row(page, order.transaction_id).get_by_role("link").first.click()
    await expect(main(page)).to_contain_text("Delivered")
    await expect(main(page)).to_contain_text(EVIL)
    await page.get_by_role("link", name="Send to buyer").click()
    picture = page.get_by_role("img", name="QR code that installs eSIM")
    await expect(picture).to_be_visible()
    assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    drawn = await page.request.get(await picture.evaluate("image => image.src"))
    codes = [profile.activation_code or "" for item in order.items for profile in item.profiles or ()]
    assert [await drawn.body()] == [qr.svg(code) for code in codes]


async def send_again(page: Page, receiver: Receiver, order: Snapshot) -> None:
    """What was written before there was a URL; the receiver's answer is shown as it came."""
    await menu(page, "Webhooks")
    await expect(row(page, order.transaction_id)).to_have_count(0)
    await main(page).get_by_role("link", name=re.compile("^Not sent")).click()
    await row(page, order.transaction_id, "Order paid").get_by_role("link").first.click()
    await expect(main(page)).to_contain_text("Not sent")
    before = len(receiver.requests)
    await press(page, "Resend")
    await expect(main(page).get_by_text("Attempt 1")).to_be_visible()
    assert (await receiver.received(before + 1))[-1].json["orderNo"] == order.order_no
    await expect(main(page).get_by_text(EVIL)).to_be_visible()


async def test_a_dealers_first_day_ends_with_all_steps_done_and_an_esim(
    chromium: Chromium, service: Service, receiver: Receiver
) -> None:
    created = await service.tenant(balance="1000", name=EVIL)
    receiver.answers = [answer(200, body=EVIL.encode())]
    async with day(chromium, service, int(created.tenant_id)) as page:
        await done(page, 1)
        await an_hour_passes(service)
        await menu(page, "AppKeys")
        app_key, app_secret = await take_credentials(page)
        async with AsyncDealer(service.url, app_key, app_secret) as sdk:
            await sdk.health()
            await done(page, 3)
            assert float((await sdk.balance()).balance) == 1000
            order = await buy(sdk, "TEST-OK")
        await done(page, 4)
        await menu(page, "Install page")
        await page.get_by_label("Name", exact=True).fill("Acme Travel")
        await press(page, "Save")
        await done(page, 5)
        await verify_webhook(page, receiver, app_secret)
        await done(page, 6)
        await set_notice_url(page, receiver)
        await menu(page, "Home")
        await expect(row(page, order.transaction_id)).to_be_visible()
        await expect(page.get_by_text("Get started")).to_have_count(0)
        await see_the_order(page, order)
        await send_again(page, receiver, order)
    assert await service.audit() == []


async def test_a_dealer_finds_out_why_calls_were_refused(chromium: Chromium, service: Service) -> None:
    created = await service.tenant(balance="1000", name=EVIL)
    async with day(chromium, service, int(created.tenant_id)) as page, service.client(created) as client:
        await call_amiss(client)
        await read_why(page, "000107", "transactionId")
        await read_why(page, "101003", "<script>alert(1)</script>")
        await read_why(page, "000102", EVIL)


# An operator's day


async def create_dealer(page: Page, service: Service, name: str) -> tuple[str, str, str]:
    """Its page's address, AppKey and AppSecret, which is shown for the password once more."""
    await menu(page, "Dealers")
    await main(page).get_by_role("link", name="New dealer").first.click()
    await page.get_by_label("Name", exact=True).fill(name)
    await page.get_by_label("Opening balance").fill("10")
    for step in ("Prices", "First user", "Review"):
        await press(page, "Continue")
        await expect(page.locator("[aria-current=step]")).to_contain_text(step)
    await expect(main(page)).to_contain_text(name)
    await press(page, "Create dealer")
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"{name} created")
    app_key = await fact(page, "AppKey")
    await an_hour_passes(service)
    await main(page).get_by_role("link", name="AppSecret").click()
    await page.get_by_label("Password").fill(WORD)
    await press(page, "Continue")
    await main(page).get_by_text("Show", exact=True).click()
    app_secret = await fact(page, "AppSecret")
    assert app_secret.startswith("sk_test_")
    await page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name=name).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)
    assert app_key in await page.content() and app_secret not in await page.content()
    return page.url, app_key, app_secret


async def give_markup(page: Page, percent: str) -> None:
    await page.get_by_text("Edit terms", exact=True).click()
    await page.get_by_label("Markup").fill(percent)
    await press(page, "Save terms")
    await expect(main(page)).to_contain_text("The terms are changed")
    await expect(page.get_by_label("Markup")).to_have_value(percent)
    await expect(page.locator(".fact").filter(has_text="Markup")).to_contain_text(f"{percent} %")


async def load_stock(page: Page) -> None:
    await menu(page, "Packages")
    await main(page).get_by_role("searchbox").fill("DEMO-STOCK")
    await main(page).get_by_role("searchbox").press("Enter")
    await row(page, "DEMO-STOCK").get_by_role("link", name="Upload codes").click()
    file = {"name": "stock.csv", "mimeType": "text/csv", "buffer": stock_csv(3).encode()}
    await page.get_by_label("CSV file").set_input_files(file)  # type: ignore[arg-type]
    await press(page, "Upload")
    await expect(main(page)).to_contain_text("3 eSIMs loaded; 3 available now")


async def approve_topup(page: Page, topup_no: str) -> None:
    await menu(page, "Top-ups")
    waiting = row(page, topup_no)
    await expect(waiting).to_contain_text(EVIL)
    await confirmed(page, waiting, "Approve", "Approve", f"Credit 250.00 USD to {SONS}?")
    await expect(main(page)).to_contain_text(f"{topup_no} is approved and credited")
    await expect(waiting.get_by_role("button", name="Approve")).to_have_count(0)
    await expect(waiting).to_contain_text("Approved")


async def review_refund(page: Page, refund_no: str, order_no: str) -> None:
    """The order is looked at first."""
    await menu(page, "Refunds")
    await row(page, refund_no).get_by_role("link", name=order_no).click()
    await expect(main(page)).to_contain_text("Refund in review")
    await expect(main(page)).to_contain_text(EVIL)
    await page.go_back()
    await confirmed(page, row(page, refund_no), "Approve", "Approve", "Refund 1.98 USD?")
    await expect(main(page)).to_contain_text(f"{refund_no} is approved")


async def set_callback(page: Page, dealer_page: str, url: str) -> None:
    await page.goto(dealer_page)
    await page.get_by_text("Edit URL", exact=True).click()
    await page.get_by_label("Callback URL").fill(url)
    await press(page, "Save URL")
    await expect(main(page)).to_contain_text("The callback URL is set")


def delivery_row(page: Page, order_no: str, event: str) -> Locator:
    return row(page, order_no).filter(has=page.get_by_title(event))


async def see_failures(page: Page, order_no: str) -> None:
    """Both events of the order, given up."""
    await menu(page, "Webhooks")
    await page.get_by_role("navigation", name="Views").get_by_role("link", name=re.compile("^Undelivered")).click()
    for event in ("ORDER_PAID", "DELIVERY_UPDATED"):
        await in_time(page, delivery_row(page, order_no, event))
        await expect(delivery_row(page, order_no, event)).to_contain_text("HTTP 500")


async def push_again(page: Page, receiver: Receiver, order_no: str, event: str, app_secret: str) -> None:
    """Once the receiver has recovered; the page renews itself until it is delivered."""
    await delivery_row(page, order_no, event).get_by_role("link").first.click()
    await expect(page.locator("#delivery")).to_contain_text(EVIL)
    before = len(receiver.requests)
    receiver.answers = [answer(200, body=EVIL.encode())]
    await confirmed(page, page, "Resend", "Resend", "Resend this delivery?")
    sent = (await receiver.received(before + 1))[-1]
    assert sent.verified(app_secret) and (sent.event, sent.json["orderNo"]) == (event, order_no)
    await expect(page.locator("#delivery").get_by_text("HTTP 200")).to_be_visible()
    await expect(page.locator("#about").get_by_text("Delivered at attempt")).to_be_visible()


async def look_around(page: Page) -> None:
    """Every page of the menu, and the search, with all that was written today."""
    entries = page.get_by_role("navigation", name="Main").get_by_role("listitem").get_by_role("link")
    for at in range(await entries.count()):
        await entries.nth(at).click()
        await expect(entries.nth(at)).to_have_attribute("aria-current", "page")
    await page.get_by_label("Search").fill(SONS)
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/console/dealers/*")  # the one dealer of that name


async def test_an_operators_day_from_a_new_dealer_to_a_receiver_that_recovers(
    chromium: Chromium, service: Service, receiver: Receiver
) -> None:
    receiver.answers = [answer(500, body=EVIL.encode())]
    async with day(chromium, service) as page:
        dealer_page, app_key, app_secret = await create_dealer(page, service, SONS)
        async with AsyncDealer(service.url, app_key, app_secret) as sdk:
            await give_markup(page, "10")
            assert float((await sdk.package("TEST-OK")).price) == 1.98
            await load_stock(page)
            assert (await buy(sdk, "DEMO-STOCK", "2.75")).delivery_status == "DELIVERED"
            topup = await sdk.topup("top-1", "250", pay_reference=EVIL, remark=EVIL)
            await approve_topup(page, topup.topup_no)
            assert float((await sdk.balance()).balance) == 257.25
            reviewed = await buy(sdk, "TEST-REVIEW", "1.98")
            refund = await sdk.refund(reviewed.order_no, remark=EVIL)
            await review_refund(page, refund.refund_no, reviewed.order_no)
            refunded = await sdk.wait_for_refund(reviewed.order_no, poll=0.02)
            assert float(refunded.refund_amount or 0) == 1.98
            await set_callback(page, dealer_page, receiver.url)
            order_no = (await buy(sdk, "TEST-OK", "1.98")).order_no
        await see_failures(page, order_no)
        await push_again(page, receiver, order_no, "ORDER_PAID", app_secret)
        await page.goto(f"{service.url}/console/webhooks?status=FAILED")
        await expect(row(page, order_no)).to_have_count(1)
        await push_again(page, receiver, order_no, "DELIVERY_UPDATED", app_secret)
        await look_around(page)
    assert await service.audit() == []


# Each role's day: it sees and does what is its own. Writes of others are tried in test_console_sign_in.py


OPERATORS = {
    *("Overview", "Orders", "eSIMs", "Refunds", "Top-ups", "Dealers", "Packages", "Regions"),
    *("Webhooks", "Suppliers", "Audit log", "Price lists", "Reports", "Notices"),
}
CODES = "Activation code"


async def offered(page: Page) -> set[str]:
    """The words of the menu."""
    return set(await page.locator(".side-link > span:not(.side-count)").all_inner_texts())


async def lacks(page: Page, *texts: str) -> None:
    for text in texts:
        await expect(main(page).get_by_text(text, exact=True)).to_have_count(0)


async def refused(page: Page, *paths: str) -> None:
    """What this person's menu does not lead to does not open by its address either."""
    there = urlsplit(page.url)
    for path in paths:
        answered = await page.request.get(f"{there.scheme}://{there.netloc}{path}")
        assert answered.status == 403, path


async def ask_for_a_topup(page: Page, amount: str) -> None:
    await menu(page, "Wallet")
    await press(main(page), "Top up")
    asks = page.get_by_role("dialog")
    await asks.get_by_label("Amount").fill(amount)
    await press(asks, "Submit request")
    await expect(main(page)).to_contain_text("waits for approval")


async def refund_all(page: Page, reason: str) -> None:
    """Of the order that is shown; its page renews itself until the money is back."""
    if await page.get_by_role("button", name="More actions").count():
        await press(page, "More actions")
    await press(main(page), "Refund order")
    asks = page.get_by_role("dialog")
    await asks.get_by_label("Reason").fill(reason)
    await press(asks, "Refund order")
    await expect(main(page).get_by_text("Refunded", exact=True).first).to_be_visible()


async def test_a_dealers_developer_connects_and_moves_no_money(
    chromium: Chromium, service: Service, receiver: Receiver
) -> None:
    created = await service.tenant(balance="1000", name=EVIL)
    async with day(chromium, service, int(created.tenant_id), "developer") as page:
        assert await offered(page) == {
            "Home",
            "Orders",
            "Refunds",
            "eSIMs",
            "Wallet",
            "Webhooks",
            "AppKeys",
            "API log",
            "Notices",
            "Install page",
            "Catalogue",
            "Reports",
        }
        await an_hour_passes(service)
        await menu(page, "AppKeys")
        app_key, app_secret = await take_credentials(page)
        await verify_webhook(page, receiver, app_secret)
        async with AsyncDealer(service.url, app_key, app_secret) as sdk:
            order = await buy(sdk, "TEST-OK")
        await see_the_order(page, order)
        await lacks(page, "Refund order")
        await menu(page, "Wallet")
        await lacks(page, "Top up", "Change")
        await refused(page, "/console/users")


async def test_a_dealers_finance_refunds_and_tops_up_and_sees_no_codes(chromium: Chromium, service: Service) -> None:
    created = await service.tenant(balance="1000", name=EVIL)
    async with (
        AsyncDealer(service.url, created.app_key, created.app_secret) as sdk,
        day(chromium, service, int(created.tenant_id), "finance") as page,
    ):
        assert await offered(page) == {
            "Home",
            "Orders",
            "eSIMs",
            "Refunds",
            "Wallet",
            "Reports",
            "Catalogue",
            "Buy by CSV",
            "Notices",
        }
        order = await buy(sdk, "TEST-OK")
        await menu(page, "Orders")
        await row(page, order.transaction_id).get_by_role("link").first.click()
        await expect(main(page)).to_contain_text("Delivered")
        await lacks(page, CODES, "Print QR codes")
        await expect(page.get_by_role("img", name="QR code")).to_have_count(0)
        await refund_all(page, EVIL)
        assert float((await sdk.balance()).balance) == 1000
        await ask_for_a_topup(page, "250")
        await expect(row(page, "Waiting")).to_contain_text("250.00 USD")
        paths = ("/console/credentials", "/console/webhooks", "/console/api-log", "/console/users")
        await refused(page, *paths, f"/console/orders/{order.order_no}/print")


async def fits(page: Page) -> None:
    """Nothing of a page is wider than the phone, and every button is on its screen, but for a strip of tabs."""
    out = """() => [...document.querySelectorAll("#main :is(a, button, input, select)")]
      .filter((one) => one.checkVisibility() && !one.closest(".nav-pills"))
      .filter((one) => one.getBoundingClientRect().right > innerWidth)
      .map((one) => one.outerHTML)"""
    assert await page.evaluate(out) == []
    assert await page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


async def test_a_dealer_with_a_phone_hands_an_esim_over_and_asks_for_money(
    chromium: Chromium, service: Service, receiver: Receiver
) -> None:
    created = await service.tenant(balance="1000", name=EVIL)
    async with (
        AsyncDealer(service.url, created.app_key, created.app_secret) as sdk,
        day(chromium, service, int(created.tenant_id), size=PHONE) as page,
    ):
        await fits(page)
        await verify_webhook(page, receiver, created.app_secret)
        await fits(page)
        order = await buy(sdk, "TEST-OK")
        await see_the_order(page, order)
        await expect(page.get_by_role("img", name="QR code that installs eSIM")).to_be_visible()
        await fits(page)
        await ask_for_a_topup(page, "250")
        await fits(page)
        for name in ("Orders", "eSIMs", "AppKeys", "API log", "Users"):
            await menu(page, name)
            await fits(page)


async def test_an_operators_support_sends_again_and_moves_no_money(
    chromium: Chromium, service: Service, receiver: Receiver
) -> None:
    created = await service.tenant(balance="1000", name=SONS)
    home = f"/console/dealers/{created.tenant_id}"
    receiver.answers = [answer(500, body=EVIL.encode())]
    async with (
        AsyncDealer(service.url, created.app_key, created.app_secret) as sdk,
        day(chromium, service, role="support") as page,
    ):
        assert await offered(page) == OPERATORS
        await sdk.set_webhook(receiver.url)
        order = await buy(sdk, "TEST-OK")
        await see_failures(page, order.order_no)
        await push_again(page, receiver, order.order_no, "ORDER_PAID", created.app_secret)
        topup = await sdk.topup("top-support", "250", pay_reference=EVIL)
        await menu(page, "Top-ups")
        await expect(row(page, topup.topup_no)).to_be_visible()
        await lacks(page, "Approve", "Reject")
        await page.goto(f"{service.url}{home}")
        await lacks(page, "Adjust balance", "Save terms", "Save URL", "Set price", "Secret")
        paths = ("/console/users", "/console/dealers/new", "/console/packages/import")
        await refused(page, *paths, f"{home}/credentials/{created.app_key}")


async def test_an_operators_finance_moves_money_and_sees_no_codes(chromium: Chromium, service: Service) -> None:
    created = await service.tenant(balance="1000", name=SONS)
    home = f"/console/dealers/{created.tenant_id}"
    async with (
        AsyncDealer(service.url, created.app_key, created.app_secret) as sdk,
        day(chromium, service, role="finance") as page,
    ):
        assert await offered(page) == OPERATORS
        order = await buy(sdk, "TEST-OK")
        topup = await sdk.topup("top-finance", "250", pay_reference=EVIL)
        await approve_topup(page, topup.topup_no)
        await page.goto(f"{service.url}{home}")
        await adjust(page, "12.50", EVIL)
        assert float((await sdk.balance()).balance) == 1000 - 1.80 + 250 + 12.50
        await lacks(page, "Save terms", "Save URL", "Set price", "Secret")
        await page.goto(f"{service.url}/console/orders/{order.order_no}")
        await expect(main(page)).to_contain_text("Delivered")
        await lacks(page, CODES, "Notify dealer")
        await menu(page, "Webhooks")
        await lacks(page, "Resend in bulk")
        paths = ("/console/users", "/console/dealers/new", "/console/packages/import")
        await refused(page, *paths, f"{home}/credentials/{created.app_key}")


async def adjust(page: Page, amount: str, reason: str) -> None:
    await press(main(page), "Adjust balance")
    asks = page.get_by_role("dialog")
    await asks.get_by_label("Amount").fill(amount)
    await asks.get_by_label("Reason").fill(reason)
    await press(asks, "Adjust")
    await expect(main(page)).to_contain_text("1,260.70 USD")


async def test_what_would_be_complained_about_is_heard(chromium: Chromium, service: Service) -> None:
    """The days above would not pass with a script that runs, nor with one that only the policy stops."""
    page = await chromium.new_page()
    heard = page_faults(page)
    await page.goto(f"{service.url}/console")
    inserted = "text => document.body.append(document.createRange().createContextualFragment(text))"
    async with page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        await page.evaluate(inserted, "<script>alert(1)</script>")
    await page.evaluate("alert(2)")
    assert any("Content Security Policy" in one for one in heard) and any("a dialog says 2" in one for one in heard)
    await page.close()
