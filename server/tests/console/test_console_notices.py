"""The page Notices and the mailbox of `dev`: who opens them, what stands there, and what a mail may do in a page."""

import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from dealer_server import clock
from dealer_server.notices.example import MAILS_IN_A_WINDOW
from dealer_server.rules.notices.notice import NewNotice
from dealer_server.store.notices import outbox
from support.api_client import ApiClient, Service, running_service
from support.browser import Browser, signed_in
from support.chromium import needs_chromium, opened, page_faults
from support.console.operator_pages import see
from support.console.people import PHONE, sign_in
from support.money.recharges import advance
from support.money.refunds import bought, profiles, query
from support.notices.told import rows, user
from support.webhook_fixture import eventually

SCRIPT = "</td><script>document.title = 'taken over'</script>"
ARABIC = "اليابان ٥ جيجابايت"


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    async with running_service(database_url, mailbox=True, stock_low=0) as service:
        yield service


async def says(browser: Browser, path: str, word: str) -> bool:
    return word in await see(browser, path)


async def mailed(service: Service, name: str, code: str) -> int:
    """The mail of a low stock of this package, once it is there."""
    query = "SELECT mail_id FROM dev_mail ORDER BY mail_id DESC LIMIT 1"
    before = await rows(service, query)
    data = {"packageCode": code, "packageName": name, "free": 0, "below": 9}
    fact = NewNotice(0, "STOCK_LOW", f"{name}:{code}", data)
    await service.database.run(lambda connection: outbox.add(connection, [fact], clock.now()))

    async def arrived() -> bool:
        return await rows(service, query) != before

    await eventually(arrived)
    return (await rows(service, query))[0][0]


async def test_who_is_told_of_nothing_has_no_such_page_and_mails_are_the_operators(service: Service):
    dealer = int((await service.tenant()).tenant_id)
    async with signed_in(service, "readonly") as reader, signed_in(service, "admin", dealer) as own:
        assert (await reader.get("/console/notices")).status_code == 403
        assert 'href="/console/notices"' not in (await reader.get("/console/account")).text
        assert (await reader.get("/console/mails")).status_code == 200
        assert 'href="/console/notices"' in (await own.get("/console/account")).text
        assert (await own.get("/console/mails")).status_code == 404
        assert (await own.get("/console/mails/1/html")).status_code == 404


async def test_pages_of_notices_open_without_a_mail_server(database_url: str):
    pages = ("", "?state=resolved", "?state=all", "?kind=unread", "/settings")
    async with running_service(database_url, worker=False) as silent:
        assert silent.settings.mails == "none"
        dealer = int((await silent.tenant()).tenant_id)
        async with signed_in(silent, "admin") as operator, signed_in(silent, "admin", dealer) as own:
            for page in pages:
                for reader in (operator, own):
                    assert (await reader.get(f"/console/notices{page}")).status_code == 200, page
            said = (await operator.get("/console/mails")).text
            assert "No mail server is set up" in said and "DEALER_SMTP_HOST" in said and "kept here" not in said


async def test_a_user_reads_an_example_and_is_mailed_a_test_of_it(service: Service):
    async with signed_in(service, "support", name="tester@example.com") as inside:
        page = (await inside.get("/console/notices/settings")).text
        assert "Low stock: 3 left of FR-3GB-30D" in page and 'value="TOPUP_WAITING"' not in page
        sent = await inside.get((await inside.post("/console/notices/test", {"test": "STOCK_LOW"})).headers["location"])
        assert "A test of “Low stock” is sent to tester@example.com" in sent.text
        [(message,)] = await rows(service, "SELECT message FROM dev_mail ORDER BY mail_id DESC LIMIT 1")
        assert b"Test: Low stock" in message and b"To: tester@example.com" in message
        other = await inside.get(
            (await inside.post("/console/notices/test", {"test": "LOW_BALANCE"})).headers["location"]
        )
        assert "is sent to" not in other.text
        for _ in range(MAILS_IN_A_WINDOW - 1):
            await inside.post("/console/notices/test", {"test": "STOCK_LOW"})
        last = await inside.post("/console/notices/test", {"test": "STOCK_LOW"})
        assert "Too many attempts" in (await inside.get(last.headers["location"])).text
        kept = await rows(service, "SELECT FROM dev_mail WHERE position('tester@'::bytea IN message) > 0")
        assert len(kept) == MAILS_IN_A_WINDOW


async def test_a_dealer_reads_below_which_balance_it_is_told(service: Service):
    tenant = int((await service.tenant()).tenant_id)
    async with signed_in(service, "admin", tenant, name="owner@example.com") as own:
        page = (await own.get("/console/notices/settings")).text
        assert 'href="/console/wallet#dialog-threshold"' in page
        assert "Send me a test" not in page, "a mail that is kept would not reach a dealer"
        await service.change(tenant, low_balance="50")
        assert "Below 50.00\N{NO-BREAK SPACE}USD, your threshold." in (await own.get("/console/notices/settings")).text


async def test_a_mail_is_kept_and_its_html_may_do_nothing(service: Service):
    async with signed_in(service, "support", name="keeper@example.com") as inside:
        mail_id = await mailed(service, SCRIPT, "JP-5GB")
        listed = (await inside.get("/console/mails")).text
        assert "Low stock: 0 left of JP-5GB" in listed
        shown = await inside.get(f"/console/mails/{mail_id}/html")
        assert "<script>" not in shown.text and "&lt;script&gt;" in shown.text
        policy = shown.headers["Content-Security-Policy"]
        assert policy.startswith("sandbox; default-src 'none'") and shown.headers["X-Frame-Options"] == "SAMEORIGIN"
        page = await inside.get(f"/console/mails/{mail_id}")
        assert page.headers["X-Frame-Options"] == "DENY" and "<script>document" not in page.text
        assert (await inside.get("/console/mails/999999")).status_code == 404


async def linked(service: Service, name: str) -> bool:
    """Whether the link that confirms this user's address was mailed."""
    query = (
        "SELECT 1 FROM notice_delivery JOIN console_user u USING (user_id) WHERE u.name = $1 AND state = 'DELIVERED'"
    )
    return await rows(service, query, name) != []


@needs_chromium
@pytest.mark.parametrize("size", [None, PHONE])
async def test_a_user_chooses_and_reads_a_mail_in_a_browser(service: Service, size: object):
    name = f"chooser-{'wide' if size is None else 'phone'}@example.com"
    await user(service, None, "admin", name)
    async with opened() as chromium:
        page = await chromium.new_page(viewport=size)  # type: ignore[arg-type]
        heard = page_faults(page)
        await sign_in(page, service, name)
        if size is not None:
            await page.get_by_role("button", name="Menu").click()
        await page.get_by_role("link", name="Notices").click()
        await page.get_by_role("link", name="Settings").click()
        await page.get_by_label("Overdue queue").uncheck()
        await page.get_by_label("Frequency").select_option("daily")
        await page.get_by_label("Email address").fill("other@example.com")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("Unconfirmed", exact=True)).to_be_visible()
        await expect(page.get_by_label("Frequency")).to_have_value("daily")
        await expect(page.locator(".save-bar > [role=status]")).to_have_text("No changes yet")
        await expect(page.get_by_label("Overdue queue")).not_to_be_checked()
        await expect(page.get_by_label("Low stock")).to_be_checked()
        await eventually(lambda: linked(service, name))
        await page.get_by_label("Frequency").select_option("once")
        await page.get_by_role("button", name="Save").click()
        mail_id = await mailed(service, ARABIC, f"AR-{'W' if size is None else 'P'}")
        await page.goto(f"{service.url}/console/mails/{mail_id}")
        inside = page.frame_locator("iframe").locator("td.value bdi").first
        await expect(inside).to_have_text(f"{ARABIC} (AR-{'W' if size is None else 'P'})")
        assert heard == []


async def test_what_waits_to_be_mailed_is_told_until_it_is_mailed_or_installed(
    service: Service, dealer: ApiClient, stranger: ApiClient
) -> None:
    """And of a dealer who never mails from here nothing is told."""
    order, foreign = await bought(dealer, quantity=3), await bought(stranger)
    page, waiting = f"/console/orders/{order['orderNo']}", "/console/profiles?status=NOT_MAILED"
    first, second, third = (one["profileId"] for one in profiles(await query(dealer, order)))
    async with signed_in(service, "admin", dealer.tenant_id) as clerk:
        for where in (page, f"/console/profiles/{first}", "/console/profiles", "/console/orders"):
            assert "ot mailed" not in await see(clerk, where), where
        await clerk.post(f"/console/profiles/{first}/mail", {"mail": "ann@example.com", "language": "en"})
        assert "2 of 3 not mailed" in await see(clerk, page)
        assert "Not mailed" in await see(clerk, f"/console/profiles/{second}")
        for one, act, kind in ((first, "Send to buyer", ""), (second, "Send to buyer", "btn-primary")):
            shown = (await clerk.get(f"/console/profiles/{one}")).text
            assert f'class="btn {kind}" commandfor="dialog-mail"' in shown and f"</svg>{act}<" in shown, act
        await dealer.post("/esim/profile/suspend", {"profileId": second})
        assert "Not mailed" not in await see(clerk, f"/console/profiles/{second}"), "to be unsuspended first"
        await dealer.post("/esim/profile/unsuspend", {"profileId": second})
        assert re.search(r"Not mailed\s2\b", await see(clerk, "/console/profiles"))
        await eventually(lambda: says(clerk, f"/console/profiles?order={order['orderNo']}", "Not sent (test)"))
        listed = (await clerk.get(waiting)).text
        assert re.findall(r'<tr data-href="/console/profiles/(\d+)"', listed) == [third, second]
        assert listed.count('#dialog-mail"') == 2
        assert _marks((await clerk.get("/console/profiles")).text) == ["Not mailed"] * 2
        assert third in (await clerk.get("/console/profiles.csv?status=NOT_MAILED")).text
        home = (await clerk.get("/console")).text
        assert re.search(r"2\seSIMs are not mailed yet<", home) and waiting in home
        again = await bought(dealer)
        for where in ("/console/orders", "/console"):
            text = (await clerk.get(where)).text
            for on_phone in ("", " only-on-phone"):
                assert _marks(text, on_phone) == ["No email", "Partly mailed"]
        await advance(dealer, again, "INSTALL")
        installed = profiles(await query(dealer, again))[0]["profileId"]
        assert "Not started, use by" in await see(clerk, f"/console/profiles/{installed}")
        await advance(dealer, again, "START")
        assert "ot mailed" not in await see(clerk, f"/console/orders/{again['orderNo']}"), "its buyer has it"
        assert _marks((await clerk.get("/console/orders")).text) == ["Partly mailed"]
    async with signed_in(service, "admin", stranger.tenant_id) as other:
        assert "not mailed yet" not in await see(other, "/console")
        assert foreign["orderNo"] in (await other.get(waiting)).text and first not in (await other.get(waiting)).text


def _marks(page: str, on_phone: str = "") -> list[str]:
    """What the lists of a page say of what waits to be mailed."""
    return re.findall(rf'<span class="to-mail{on_phone}">(.*?)</span>', page)
