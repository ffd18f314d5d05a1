"""A dealer's first day and an operator's, in a real browser, while everybody writes what would like to be a script.
Skipped where there is no Chromium."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import ConsoleMessage, Dialog, Locator, Page, Response, async_playwright, expect
from playwright.async_api import Request as Asked

from browser import PASSWORDS
from dealer_server.operations import user
from dealer_server.rules import qr
from door import Door, Service, running_service
from esim_dealer import AsyncDealer, Line
from esim_dealer.wire.snapshot import Snapshot
from shop import stock_csv
from test_console_browser import FLAGS, PROGRAM, WORD, sign_in
from webhook_stage import PATIENCE, Receiver, answer, listening

EVIL = """'"><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"""
SONS = f"{EVIL} & Sons"

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium here")


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """It tries a webhook twice and gives up."""
    async with running_service(database_url, webhook_schedule="0,0.05") as service:
        yield service


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        yield opened
        await opened.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with listening(1) as [one]:
        yield one


def ear(page: Page) -> list[str]:
    """What nobody wants to hear of a page from now on: dialogs, any word in its console, what failed."""
    heard: list[str] = []

    async def dialog(opened: Dialog) -> None:
        heard.append(f"{page.url}: a dialog says {opened.message}")
        await opened.dismiss()

    def said(message: ConsoleMessage) -> None:
        heard.append(f"{page.url}: {message.text}")

    def answered(response: Response) -> None:
        if response.status >= 400:
            heard.append(f"{response.url}: {response.status}")

    def failed(asked: Asked) -> None:
        if asked.failure != "net::ERR_ABORTED":  # a page that renews itself was left
            heard.append(f"{asked.url}: {asked.failure}")

    page.on("dialog", dialog)
    page.on("console", said)
    page.on("pageerror", lambda error: heard.append(f"{page.url}: {error}"))
    page.on("response", answered)
    page.on("requestfailed", failed)
    return heard


@asynccontextmanager
async def day(chromium: Chromium, service: Service, tenant_id: int | None = None) -> AsyncIterator[Page]:
    """Somebody new, an operator or of a dealer, signs in; in the evening there is nothing to complain about."""
    name = f'"><script>alert(3)</script>{secrets.token_hex(6)}'
    await user.create(service.database, PASSWORDS, tenant_id, name, "admin", "test", WORD)
    page = await chromium.new_page(viewport={"width": 1440, "height": 900})
    heard = ear(page)
    await sign_in(page, service, name)
    yield page
    assert heard == []
    await page.close()


def main(page: Page) -> Locator:
    return page.locator("#main")


async def menu(page: Page, name: str) -> None:
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
    await in_time(page, main(page).get_by_text(f"{steps} of 5 done"))


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
    await press(page, "Go on")
    await press(page, "Show the AppSecret")
    await expect(main(page)).to_contain_text("sk_test_")
    return await fact(page, "AppKey"), await fact(page, "AppSecret")


async def call_amiss(door: Door) -> None:
    """Each call is refused for something else, and each brings a script."""
    assert (await door.order(transactionId=EVIL)).code == "000107"
    body = {"remark": EVIL}
    assert (await door.post("/esim/order", body, **{"X-Signature": "0" * 64})).code == "101003"
    assert (await door.post("/esim/order", body, **{"RT-RequestID": EVIL})).code == "000102"


async def read_why(page: Page, code: str, shown: str) -> None:
    """Why a call was refused: the log says it a little later."""
    await menu(page, "API log")
    await in_time(page, row(page, code))
    await row(page, code).get_by_role("link").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"Refused: {code}")
    await expect(main(page)).to_contain_text(shown)
    await page.get_by_label("Your string to sign").fill(EVIL)
    await press(page, "Compare")
    await expect(main(page)).to_contain_text("They part at character 1")


async def verify_webhook(page: Page, receiver: Receiver, app_secret: str) -> None:
    await menu(page, "Webhooks")
    await page.get_by_label("URL").fill(receiver.url)
    await press(page, "Save")
    await expect(main(page)).to_contain_text("Webhooks go there from now on")
    await press(page, "Send a test event")
    await expect(main(page)).to_contain_text("The sample event was taken.")
    [sample] = receiver.requests
    assert sample.verified(app_secret)


async def see_the_order(page: Page, order: Snapshot) -> None:
    """With the QR code that installs its eSIM."""
    await menu(page, "Orders")
    await row(page, order.order_no).get_by_role("link", name=order.order_no).click()
    await expect(main(page)).to_contain_text("DELIVERED")
    await expect(main(page)).to_contain_text(EVIL)
    picture = page.get_by_role("img", name="QR code that installs eSIM")
    assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    drawn = await page.request.get(await picture.evaluate("image => image.src"))
    codes = [profile.activation_code or "" for item in order.items for profile in item.profiles or ()]
    assert [await drawn.body()] == [qr.svg(code) for code in codes]


async def send_again(page: Page, receiver: Receiver, order: Snapshot) -> None:
    """What was written before there was a URL; the receiver's answer is shown as it came."""
    await menu(page, "Webhooks")
    await row(page, order.order_no, "ORDER_PAID").get_by_role("link", name="ORDER_PAID").click()
    await expect(main(page)).to_contain_text("SKIPPED")
    before = len(receiver.requests)
    await press(page, "Send again")
    await expect(main(page).get_by_text("Attempt 1")).to_be_visible()
    assert (await receiver.received(before + 1))[-1].json["orderNo"] == order.order_no
    await page.get_by_text("What your receiver answered").click()
    await expect(main(page).get_by_text(EVIL)).to_be_visible()


async def test_a_dealers_first_day_ends_with_all_steps_done_and_an_esim(
    chromium: Chromium, service: Service, receiver: Receiver
) -> None:
    created = await service.tenant(balance="1000", name=EVIL)
    receiver.answers = [answer(200, body=EVIL.encode())]
    async with day(chromium, service, int(created.tenant_id)) as page:
        await done(page, 1)
        await an_hour_passes(service)
        await menu(page, "Credentials")
        app_key, app_secret = await take_credentials(page)
        async with AsyncDealer(service.url, app_key, app_secret) as sdk:
            await sdk.health()
            await done(page, 2)
            assert float((await sdk.balance()).balance) == 1000
            await done(page, 3)
            order = await buy(sdk, "TEST-OK")
        await done(page, 4)
        await verify_webhook(page, receiver, app_secret)
        await menu(page, "Home")
        await expect(row(page, order.order_no)).to_be_visible()
        await expect(page.get_by_text("Your first run")).to_have_count(0)
        await see_the_order(page, order)
        await send_again(page, receiver, order)
    assert await service.audit() == []


async def test_a_dealer_finds_out_why_calls_were_refused(chromium: Chromium, service: Service) -> None:
    created = await service.tenant(balance="1000", name=EVIL)
    async with day(chromium, service, int(created.tenant_id)) as page, service.door(created) as door:
        await call_amiss(door)
        await read_why(page, "000107", "transactionId")
        await read_why(page, "101003", "<script>alert(1)</script>")
        await read_why(page, "000102", EVIL)


# An operator's day


async def create_dealer(page: Page, name: str) -> tuple[str, str, str]:
    """Its page's address, AppKey and AppSecret, which is shown once."""
    await menu(page, "Dealers")
    await main(page).get_by_role("link", name="New dealer").first.click()
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Opening balance").fill("10")
    await press(page, "Create dealer")
    await expect(main(page)).to_contain_text("The AppSecret is shown this once")
    app_key, app_secret = await fact(page, "AppKey"), await fact(page, "AppSecret")
    await page.get_by_role("link", name="Go to the dealer").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)
    assert app_key in await page.content() and app_secret not in await page.content()
    return page.url, app_key, app_secret


async def give_markup(page: Page, percent: str) -> None:
    await page.get_by_label("Markup, percent").fill(percent)
    await press(page, "Save terms")
    await expect(main(page)).to_contain_text("The terms are changed")
    await expect(page.get_by_label("Markup, percent")).to_have_value(percent)


async def load_stock(page: Page) -> None:
    await menu(page, "Packages")
    await main(page).get_by_role("searchbox").fill("DEMO-STOCK")
    await press(main(page), "Search")
    await row(page, "DEMO-STOCK").get_by_role("link", name="Load stock").click()
    file = {"name": "stock.csv", "mimeType": "text/csv", "buffer": stock_csv(3).encode()}
    await page.get_by_label("CSV file").set_input_files(file)  # type: ignore[arg-type]
    await press(page, "Load")
    await expect(main(page)).to_contain_text("3 profiles are loaded; 3 can be sold now")


async def approve_topup(page: Page, topup_no: str) -> None:
    await menu(page, "Top-ups")
    waiting = row(page, topup_no)
    await expect(waiting).to_contain_text(EVIL)
    await confirmed(page, waiting, "Approve", "Approve", f"Credit 250.00 USD to {SONS}?")
    await expect(main(page)).to_contain_text(f"{topup_no} is approved and credited")
    await expect(waiting).to_have_count(0)


async def review_refund(page: Page, refund_no: str, order_no: str) -> None:
    """The order is looked at first."""
    await menu(page, "Refunds")
    await row(page, refund_no).get_by_role("link", name=order_no).click()
    await expect(main(page)).to_contain_text("REFUNDING")
    await expect(main(page)).to_contain_text(EVIL)
    await page.go_back()
    await confirmed(page, row(page, refund_no), "Approve", "Approve", "Give back 1.98 USD?")
    await expect(main(page)).to_contain_text(f"{refund_no} is approved")


async def set_callback(page: Page, dealer_page: str, url: str) -> None:
    await page.goto(dealer_page)
    await page.get_by_label("Webhooks go to").fill(url)
    await press(page, "Set URL")
    await expect(main(page)).to_contain_text("The callback URL is set")


async def see_failures(page: Page, order_no: str) -> None:
    """Both events of the order, given up."""
    await menu(page, "Webhooks")
    await page.get_by_role("link", name="Failed deliveries").click()
    for event in ("ORDER_PAID", "DELIVERY_UPDATED"):
        await in_time(page, row(page, order_no, event))
        await expect(row(page, order_no, event)).to_contain_text("500 STATUS")


async def push_again(page: Page, receiver: Receiver, order_no: str, event: str, app_secret: str) -> None:
    """Once the receiver has recovered; the page renews itself until it is delivered."""
    await row(page, order_no, event).get_by_role("link", name=event).click()
    await expect(page.locator("#delivery")).to_contain_text(EVIL)
    before = len(receiver.requests)
    receiver.answers = [answer(200, body=EVIL.encode())]
    await confirmed(page, page, "Send again", "Send", "Send this delivery once more?")
    sent = (await receiver.received(before + 1))[-1]
    assert sent.verified(app_secret) and (sent.event, sent.json["orderNo"]) == (event, order_no)
    await expect(page.locator("#delivery").get_by_text("HTTP 200")).to_be_visible()
    await expect(page.locator("#delivery").get_by_text("DELIVERED", exact=True)).to_be_visible()


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
        dealer_page, app_key, app_secret = await create_dealer(page, SONS)
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
        await page.goto(f"{service.url}/console/webhooks/failed")
        await expect(row(page, order_no)).to_have_count(1)
        await push_again(page, receiver, order_no, "DELIVERY_UPDATED", app_secret)
        await look_around(page)
    assert await service.audit() == []


async def test_what_would_be_complained_about_is_heard(chromium: Chromium, service: Service) -> None:
    """The days above would not pass with a script that runs, nor with one that only the policy stops."""
    page = await chromium.new_page()
    heard = ear(page)
    await page.goto(f"{service.url}/console")
    inserted = "text => document.body.append(document.createRange().createContextualFragment(text))"
    async with page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        await page.evaluate(inserted, "<script>alert(1)</script>")
    await page.evaluate("alert(2)")
    assert any("Content Security Policy" in one for one in heard) and any("a dialog says 2" in one for one in heard)
    await page.close()
