"""A dealer's own pages, over HTTP and signed in: they show what is the dealer's, do what the interface does, and keep
secrets from those who should not see them."""

import asyncio
import csv
import html
import io
import json
import os
import re
import secrets
import shutil
import socket
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from dealer_server import clock
from dealer_server.api.refused_calls import CallLog
from dealer_server.console import routing
from dealer_server.console.shared.api_log import words
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.operations.cache import Cache
from dealer_server.operations.tenants.credentials import view_secret
from dealer_server.operations.users import accounts
from dealer_server.rules import refusal
from dealer_server.rules.esim import qr
from dealer_server.rules.notices.notice import NewNotice
from dealer_server.rules.notices.samples import SAMPLES
from dealer_server.rules.orders.bulk import BulkLine
from dealer_server.rules.result_codes import RESULT_CODES
from dealer_server.store.console import dealer as console_dealer
from dealer_server.store.notices import listing, outbox
from dealer_server.store.orders import bulk
from esim_dealer.webhook import verify
from esim_dealer.wire.events import EVENTS
from esim_dealer.wire.operations import OPERATIONS
from support.api_client import ApiClient, Service, http_client
from support.browser import PASSWORDS
from support.browser import Browser as Operator
from support.console.buying import out_of_stock
from support.console.operator_pages import failed_for_good, text_of
from support.console.refused_calls import refuse
from support.money.refunds import bought, query
from support.money.refunds import profiles as profiles_of
from support.patience import PATIENCE
from support.webhook_fixture import Receiver, answer

ROLES = ("admin", "developer", "finance")
QUERIES = {"/console/buy": "?package=TEST-OK&quantity=1&transaction_id=console-0123456789abcdef"}
PAGES = [page for page in routing.declared_pages() if page.kinds == {"dealer"}]
EVIL = "<script>alert(1)</script>"


@dataclass
class Browser:
    """Somebody of a dealer, signed in."""

    http: httpx2.AsyncClient

    async def get(self, path: str, status: int = 200) -> str:
        answer = await self.http.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:2000])
        return answer.text

    async def post(self, path: str, form: Mapping[str, str] | None = None, status: int = 303) -> str:
        """Sends a form as a page of ours would; the page that then comes where it leads on."""
        found = re.search(r'name="csrf" value="([^"]+)"', await self.get("/console/account"))
        assert found
        answer = await self.http.post(path, data={"csrf": found[1], "once": secrets.token_hex(16), **(form or {})})
        assert answer.status_code == status, (path, answer.status_code, answer.text[:2000])
        return await self.get(answer.headers["location"]) if status == 303 else answer.text


People = dict[str, Browser]


async def signed_in(service: Service, tenant_id: int, role: str, http: httpx2.AsyncClient) -> Browser:
    name = f"{role}-{secrets.token_hex(4)}@example.com"
    password = secrets.token_urlsafe(12)
    await accounts.create(service.database, PASSWORDS, tenant_id, name, role, "test", password)
    answer = await http.post("/console/sign-in", data={"name": name, "password": password})
    assert answer.status_code == 303, answer.text
    return Browser(http)


@pytest.fixture
async def people(service: Service, dealer: ApiClient) -> AsyncIterator[People]:
    """One person of each role of the dealer."""
    async with AsyncExitStack() as stack:
        found: People = {}
        for role in ROLES:
            http = http_client(base_url=service.url)
            await stack.enter_async_context(http)
            found[role] = await signed_in(service, dealer.tenant_id, role, http)
        yield found


async def until(browser: Browser, path: str, word: str) -> str:
    """A page once it says this."""
    async with asyncio.timeout(PATIENCE):
        while word not in (text := await browser.get(path)):
            await asyncio.sleep(0.05)
    return text


async def acts(service: Service, tenant_id: int) -> list[str]:
    async with service.database.connection() as connection:
        sql = (
            "SELECT action FROM audit_log WHERE tenant_id = $1 AND author LIKE 'console:%'"
            " AND action <> 'user.sign_in' ORDER BY audit_id"
        )
        return [row[0] for row in await connection.fetch(sql, tenant_id)]


async def no_longer_sure(service: Service, tenant_id: int) -> None:
    """An hour passes since the dealer's people gave their passwords."""
    async with service.database.connection() as connection:
        sql = "UPDATE console_session SET sure_at = sure_at - interval '1 hour' WHERE user_id IN" \
              " (SELECT user_id FROM console_user WHERE tenant_id = $1)"  # fmt: skip
        await connection.execute(sql, tenant_id)


# Home


async def test_the_first_run_finds_out_by_itself_what_is_done(people: People, dealer: ApiClient, receiver: Receiver):
    admin = people["admin"]
    text = await admin.get("/console")
    assert "2 of 7 steps done" in text, "its wallet has money, and its people have addresses"
    assert f"esim-dealer login --url {dealer.url}" in text and "esim-dealer health" in text
    assert "esim-dealer health" not in await people["finance"].get("/console")
    await dealer.post("/health")
    assert "esim-dealer health" not in await until(admin, "/console", "4 of 7 steps done")
    await bought(dealer)
    assert "5 of 7 steps done" in await admin.get("/console")
    await admin.post("/console/brand", {"name": "Acme Travel"})
    assert "6 of 7 steps done" in await admin.get("/console")
    await admin.post("/console/webhooks/url", {"callback_url": receiver.url})
    await admin.post("/console/webhooks/test", status=200)
    text = await admin.get("/console")
    assert "Ready to go live" in text and "Copy request" in text and "Get started" not in text
    text = await admin.post("/console/live")
    assert "Ready to go live" not in text and "Ready to go live" not in await people["finance"].get("/console")


async def test_any_accepted_call_is_a_signed_one_and_orders_stand_above_the_steps(people: People, dealer: ApiClient):
    assert "Get started" not in await people["finance"].get("/console"), "the steps are a developer's"
    text = await people["developer"].get("/console")
    assert text.index("Get started") < text.index("Latest orders")
    await bought(dealer)
    text = await until(people["developer"], "/console", "5 of 7 steps done")
    assert text.index("Latest orders") < text.index("Get started")


async def test_the_first_run_is_dismissed_and_leaves_a_dealer_that_is_live(
    service: Service, people: People, dealer: ApiClient
):
    """Whoever dismisses it does so for all of the dealer; of a dealer with 20 orders only what is left."""
    assert "Get started" not in await people["admin"].post("/console/live")
    assert "Get started" not in await people["developer"].get("/console")
    async with service.database.connection() as connection:
        await connection.execute("DELETE FROM first_run WHERE tenant_id = $1", dealer.tenant_id)
    assert "Get started" in await people["admin"].get("/console")
    await asyncio.gather(*[dealer.order() for _ in range(20)])
    text = await people["admin"].get("/console")
    assert "Get started" not in text and "Finish your set-up" in text and "Verify your webhook" in text
    assert "Finish your set-up" not in await people["finance"].get("/console")
    assert "Finish your set-up" not in await people["admin"].post("/console/live")


async def test_credentials_are_taken_when_one_of_the_dealers_has_looked_at_the_secret(
    service: Service, people: People, dealer: ApiClient
):
    """An operator who looks takes nothing; the page that only offers to show it does not either."""
    path = f"/console/credentials/{dealer.app_key}/secret"
    keys = service.settings.master_keys
    await view_secret(service.database, keys, dealer.app_key, "console:an-operator")
    await people["developer"].get(path)
    assert "2 of 7 steps done" in await people["admin"].get("/console")
    await people["developer"].get(f"{path}?show=yes")
    assert "3 of 7 steps done" in await people["admin"].get("/console")


async def test_a_balance_below_the_threshold_is_said_on_the_first_page(people: People):
    finance = people["finance"]
    assert "less than the threshold of" not in await finance.get("/console")
    await finance.post("/console/wallet/threshold", {"threshold": "1000.01"})
    assert "less than the threshold of" in await finance.get("/console")


# Orders and eSIMs


async def test_orders_are_listed_found_and_shown(people: People, dealer: ApiClient, stranger: ApiClient):
    order, theirs = await bought(dealer), await bought(stranger)
    developer = people["developer"]
    text = await developer.get("/console/orders")
    assert order["orderNo"] in text and theirs["orderNo"] not in text
    assert order["items"][0]["packageCode"] in text and order["transactionId"] in text
    [profile] = profiles_of(order)
    for sought, found in (
        (order["orderNo"], f"/console/orders/{order['orderNo']}"),
        (order["transactionId"], f"/console/orders/{order['orderNo']}"),
        (profile["iccid"], f"/console/profiles/{profile['profileId']}"),
        (profile["profileId"], f"/console/profiles/{profile['profileId']}"),
    ):
        answer = await developer.http.get("/console/orders", params={"q": sought})
        assert (answer.status_code, answer.headers["location"]) == (303, found)
    for sought in (theirs["orderNo"], theirs["transactionId"], profiles_of(theirs)[0]["iccid"], "nothing"):
        answer = await developer.http.get("/console/orders", params={"q": sought})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/console/search?q={sought}")
        assert "No match" in await developer.get(answer.headers["location"])
    text = await developer.get(f"/console/orders/{order['orderNo']}")
    for word in (order["transactionId"], "TEST-OK", profile["iccid"], "1.80", "COMPLETED", "ORDER_PAID"):
        assert word in text


async def test_filters_and_pages_show_each_order_once(people: People, dealer: ApiClient):
    placed = {(await dealer.order()).data["orderNo"] for _ in range(PAGE_SIZE + 3)}
    admin, seen, path = people["admin"], [], "/console/orders?status=PAID&from=2020-01-01"
    await asyncio.gather(*(dealer.delivered(order_no) for order_no in placed))
    path = path.replace("PAID", "COMPLETED")
    pages = []
    while path:
        text = await admin.get(path)
        pages.append(text)
        seen += re.findall(r'<tr data-href="/console/orders/(D\d+)"', text)
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = html.unescape(following[1]) if following else ""
    assert len(pages) == 2 and len(seen) == len(placed) and set(seen) == placed
    back = re.search(r'rel="prev" href="([^"]+)"', pages[1])
    assert back
    assert re.findall(r"orders/(D\d+)\"", pages[0]) == re.findall(
        r"orders/(D\d+)\"", await admin.get(html.unescape(back[1]))
    )
    assert "No orders match" in await admin.get("/console/orders?status=REFUNDED")
    assert "No orders match" in await admin.get("/console/orders?to=2020-01-01")


async def test_a_large_order_shows_some_esims_and_leads_to_all(people: People, dealer: ApiClient, stranger: ApiClient):
    order, theirs = await bought(dealer, quantity=60), await bought(stranger)
    text = await people["finance"].get(f"/console/orders/{order['orderNo']}")
    assert text.count('<tr data-href="/console/profiles/') == 50
    path, seen = f"/console/profiles?order={order['orderNo']}", []
    assert path in text
    while path:
        text = await people["finance"].get(path)
        seen += re.findall(r'<tr data-href="/console/profiles/(\d+)"', text)
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = html.unescape(following[1]) if following else ""
    assert sorted(seen) == sorted(profile["profileId"] for profile in profiles_of(order))
    assert "No eSIM matches" in await people["finance"].get(f"/console/profiles?order={theirs['orderNo']}")


async def test_codes_are_for_those_who_may_have_them(people: People, dealer: ApiClient):
    order = await bought(dealer)
    [profile] = profiles_of(order)
    page, picture = f"/console/profiles/{profile['profileId']}", f"/console/profiles/{profile['profileId']}/qr.svg"
    for role in ("admin", "developer"):
        assert profile["activationCode"] in html.unescape(await people[role].get(page))
        answer = await people[role].http.get(picture)
        assert answer.content == qr.svg(profile["activationCode"])
        assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("image/svg+xml", "no-store")
        assert picture in await people[role].get(f"/console/orders/{order['orderNo']}/print")
    for path in (page, f"/console/orders/{order['orderNo']}", "/console/profiles", "/console/orders"):
        text = html.unescape(await people["finance"].get(path))
        assert profile["activationCode"] not in text and "qr.svg" not in text and profile["qrCodeUrl"] not in text
    await people["finance"].get(picture, 403)
    await people["finance"].get(f"/console/orders/{order['orderNo']}/print", 403)
    await dealer.post("/esim/profile/cancel", {"iccid": profile["iccid"]})
    await until(people["admin"], page, "Cancelled eSIMs have no QR code")
    await people["admin"].get(picture, 404)


async def test_one_esim_is_refunded_and_the_rest_of_the_order(service: Service, people: People, dealer: ApiClient):
    order = await bought(dealer, quantity=3)
    finance, path = people["finance"], f"/console/orders/{order['orderNo']}"
    first = profiles_of(order)[0]["profileId"]
    form = {"item_no": order["items"][0]["itemNo"], "profile_id": first, "reason": EVIL}
    text = await finance.post(f"{path}/refund", form)
    assert "1.80 USD" in text and EVIL not in text
    await until(finance, f"/console/profiles/{first}", ">Refunded</span>")
    await finance.post(f"{path}/refund", {"reason": "the rest"})
    await until(finance, path, 'title="orderStatus REFUNDED, deliveryStatus DELIVERED">Refunded')
    assert (await dealer.post("/account/balance")).data["balance"] == "1000.00"
    assert await acts(service, dealer.tenant_id) == ["order.refund", "order.refund"]
    assert await service.audit() == []


async def test_refunds_are_added_up(people: People, dealer: ApiClient):
    for package in ("TEST-OK", "TEST-REVIEW"):
        order = await bought(dealer, package)
        await dealer.post("/esim/refund", {"orderNo": order["orderNo"]})
    page = html.unescape(await people["finance"].get("/console/refunds"))
    told = text_of(page)
    assert "Refunds 1.80 USD in review 1.80 USD refunded in all" in told
    assert "Request a refund on the page of its order or eSIM" in told
    assert "1.80 USD refunded" in text_of(await people["finance"].get("/console/refunds?status=REFUNDED"))
    assert "1.80 USD in review" in text_of(await people["finance"].get("/console/refunds?status=REVIEW"))
    assert "Refunds" in text_of(await people["finance"].get("/console/refunds?before=1")), "a page of none"


async def test_an_esim_is_cancelled_without_money_back(service: Service, people: People, dealer: ApiClient):
    order = await bought(dealer)
    path = f"/console/profiles/{profiles_of(order)[0]['profileId']}"
    text = await people["finance"].post(f"{path}/cancel", {"reason": "lost phone"})
    assert "cancel" in text
    await until(people["finance"], path, "CANCELLED")
    assert (await dealer.post("/account/balance")).data["balance"] == "998.20"
    assert await acts(service, dealer.tenant_id) == ["profile.cancel"]


async def test_an_esim_is_suspended_and_works_again(service: Service, people: People, dealer: ApiClient):
    order = await bought(dealer)
    finance, path = people["finance"], f"/console/profiles/{profiles_of(order)[0]['profileId']}"
    before = await finance.get(path)
    assert "dialog-suspend" in before and "dialog-unsuspend" not in before and ">Suspended</span>" not in before
    text = await finance.post(f"{path}/suspend", {"reason": "lost phone"})
    assert "The eSIM is suspended" in text and ">Suspended</span>" in text and "Suspended since" in text
    assert "dialog-unsuspend" in text and "dialog-suspend" not in text
    text = await finance.post(f"{path}/unsuspend", {"reason": EVIL})
    assert "The eSIM works again" in text and ">Suspended</span>" not in text and EVIL not in text
    assert " required" not in before.partition('id="dialog-suspend-reason"')[2].partition(">")[0]
    assert "The eSIM is suspended" in await finance.post(f"{path}/suspend", {"reason": ""})
    assert await acts(service, dealer.tenant_id) == ["profile.suspend", "profile.unsuspend", "profile.suspend"]
    await dealer.post("/esim/profile/cancel", {"profileId": profiles_of(order)[0]["profileId"]})
    assert "dialog-suspend" not in await finance.get(path)
    assert await service.audit() == []


async def test_usage_stands_on_the_page_of_an_esim(people: People, dealer: ApiClient):
    order = await bought(dealer)
    [profile] = profiles_of(order)
    call = {"iccid": profile["iccid"], "step": "USE", "dataUsageBytes": 2**29}
    assert (await dealer.post("/test/profile/advance", call)).code == "000000"
    text = await people["finance"].get(f"/console/profiles/{profile['profileId']}")
    assert 'value="50.0"' in text and "512 MB" in text
    await people["finance"].post(f"/console/profiles/{profile['profileId']}/usage")


# Money


async def test_the_statement_on_the_page_and_as_csv_is_the_ledger(people: People, dealer: ApiClient):
    order = await bought(dealer)
    await dealer.post("/esim/refund", {"orderNo": order["orderNo"]})
    await until(people["developer"], "/console/wallet", "REFUND")
    said = (await dealer.post("/account/statement")).data["entries"]
    rows = list(csv.DictReader(io.StringIO(await people["developer"].get("/console/wallet/statement.csv"))))
    names = ("entryNo", "createTime", "entryType", "amount", "balanceAfter", "currency", "orderNo")
    assert [[row[name] for name in names] for row in rows] == [
        [str(entry.get(name, "")) for name in names] for entry in said
    ]
    assert len(rows) == 3
    only = await people["developer"].get("/console/wallet/statement.csv?type=REFUND")
    assert [row["entryType"] for row in csv.DictReader(io.StringIO(only))] == ["REFUND"]
    assert len(await people["developer"].get("/console/wallet/statement.csv?to=2020-01-01")) < 100
    assert "No movements match" in await people["developer"].get("/console/wallet?from=2099-01-01")


async def test_a_long_statement_comes_whole_and_by_time(service: Service, people: People, dealer: ApiClient):
    async with service.database.connection() as connection:
        sql = (
            "WITH moved AS (INSERT INTO ledger_entry SELECT $1, n + 1, 'ADJUST', n + 1, 10000, 10000000 + n * 10000,"
            " now() + n * interval '1 minute' FROM generate_series(1, 1500) n RETURNING 1)"
            " UPDATE wallet SET version = 1501, balance = balance + 15000000 WHERE tenant_id = $1"
        )
        await connection.execute(sql, dealer.tenant_id)
        at = await connection.fetchval(
            "SELECT created_at FROM ledger_entry WHERE tenant_id = $1 AND version = 700", dealer.tenant_id
        )
        assert await console_dealer.version_at(connection, dealer.tenant_id, at, 1501) == 700
        times = [at - timedelta(days=2), *(at + timedelta(seconds=past) for past in (0, 1, 61, 10**7))]
        held = await console_dealer.balances(connection, dealer.tenant_id, times, 1501)
        assert held == [0, 10_000_000 + 698 * 10_000, *(10_000_000 + n * 10_000 for n in (699, 700, 1500))]
        assert await console_dealer.balances(connection, dealer.tenant_id + 1, times[:1], 0) == [0], "no entries"
    rows = list(csv.DictReader(io.StringIO(await people["finance"].get("/console/wallet/statement.csv"))))
    assert [int(row["entryNo"]) for row in rows] == list(range(1501, 0, -1))


async def test_a_topup_is_asked_for_once_however_often_its_form_is_sent(
    service: Service, people: People, dealer: ApiClient
):
    finance = people["finance"]
    found = re.search(r'name="transaction_id" value="([^"]+)"', await finance.get("/console/wallet"))
    assert found
    form = {"transaction_id": found[1], "amount": "250.00", "pay_method": "BANK_TRANSFER", "pay_reference": EVIL}
    for _ in range(2):
        assert "waits for approval" in await finance.post("/console/wallet/topups", form)
    text = await finance.get("/console/wallet/topups")
    assert text.count("250.00") == 2 and text.count("Pay <") == 1 and html.escape(EVIL) in text and EVIL not in text
    assert "amount" in await finance.post("/console/wallet/topups", form | {"transaction_id": "x", "amount": "1e3"})
    assert (await dealer.post("/account/balance")).data["balance"] == "1000.00"


async def test_the_wallet_says_what_waits_what_was_bought_and_when_a_low_balance_is_told(
    people: People, dealer: ApiClient
):
    order, finance = await bought(dealer, quantity=2), people["finance"]
    text = await finance.get("/console/wallet")
    assert re.search(
        rf"TEST-OK 1\sGB\s7\sdays</span>\s*<span[^>]+>× 2[\s\S]{{0,600}}title=\"{order['orderNo']}\"", text
    )
    await until(finance, "/console/wallet", " out</span>")
    assert " out</span>" not in await finance.get("/console/wallet?type=REFUND"), "of one type nothing is added up"
    assert "Waiting" not in text and "25 % and 10 %" in text and ">Balance</div>" not in text
    await dealer.post("/account/topup", {"transactionId": "console-waiting", "amount": "75"})
    text = await finance.post("/console/wallet/threshold", {"threshold": "50"})
    assert "Pay <" in text and "Payment reference" in text
    assert 'Waiting <span class="money">75.00<' in text and "of the balance after" not in text.partition("<dialog")[0]


async def test_a_topup_that_waits_is_withdrawn_and_who_did_is_written_down(
    service: Service, people: People, dealer: ApiClient
):
    call = {"transactionId": "console-withdrawn", "amount": "75"}
    topup_no = (await dealer.post("/account/topup", call)).data["topupNo"]
    path = f"/console/wallet/topups/{topup_no}/cancel"
    assert path in await people["finance"].get("/console/wallet")
    assert path not in await people["developer"].get("/console/wallet")
    home = await people["finance"].get("/console")
    assert "For your information</h2>" in home and "waits for review" in home and "Needs attention" not in home
    await people["developer"].post(path, status=403)
    for _ in range(2):
        assert f"{topup_no} is cancelled" in await people["finance"].post(path)
    text = await people["finance"].get("/console/wallet/topups")
    assert "CANCELLED" in text and path not in text
    async with service.database.connection() as connection:
        sql = "SELECT author, detail FROM audit_log WHERE tenant_id = $1 AND action = 'topup.cancel'"
        [[author, detail]] = await connection.fetch(sql, dealer.tenant_id)
    assert author.startswith("console:finance-") and json.loads(detail)["topupNo"] == topup_no
    assert (await dealer.post("/account/topup/query", {"topupNo": topup_no})).data["status"] == "CANCELLED"


async def test_who_takes_a_statement_is_written_down_with_its_filter(
    service: Service, people: People, dealer: ApiClient
):
    await people["finance"].get("/console/wallet/statement.csv?type=REFUND&to=2026-01-01&before=7&other=x")
    async with service.database.connection() as connection:
        sql = "SELECT author, source, detail FROM audit_log WHERE tenant_id = $1 AND action = 'statement.export'"
        [[author, source, detail]] = await connection.fetch(sql, dealer.tenant_id)
    assert author.startswith("console:finance-") and source == "127.0.0.1"
    assert json.loads(detail) == {"type": "REFUND", "to": "2026-01-01"}


async def test_a_developer_writes_nothing_that_is_money(people: People, dealer: ApiClient):
    order = await bought(dealer)
    developer, path = people["developer"], f"/console/orders/{order['orderNo']}"
    profile = f"/console/profiles/{profiles_of(order)[0]['profileId']}"
    for page in (path, profile, "/console/wallet"):
        text = await developer.get(page)
        assert "dialog-refund" not in text and "dialog-cancel" not in text and "dialog-topup" not in text
    acts_on_profile = [f"{profile}/{act}" for act in ("cancel", "suspend", "unsuspend")]
    for write in (f"{path}/refund", *acts_on_profile, "/console/wallet/topups", "/console/wallet/threshold"):
        await developer.post(write, status=403)
    assert (await query(dealer, order))["refundAmount"] == 0


# Credentials


async def test_a_secret_is_shown_when_asked_for_and_who_looked_is_written_down(
    service: Service, people: People, dealer: ApiClient
):
    developer, path = people["developer"], f"/console/credentials/{dealer.app_key}/secret"
    assert dealer.app_key in await developer.get("/console/credentials")
    assert dealer.app_secret not in await developer.get("/console/credentials") + await developer.get(path)
    assert await acts(service, dealer.tenant_id) == []
    assert dealer.app_secret in await developer.get(f"{path}?show=yes")
    assert await acts(service, dealer.tenant_id) == ["credentials.view"]


async def test_a_secret_needs_the_password_again_after_a_while(service: Service, people: People, dealer: ApiClient):
    developer, path = people["developer"], f"/console/credentials/{dealer.app_key}"
    await no_longer_sure(service, dealer.tenant_id)
    asked = [await developer.post(f"{path}/reset", status=200)]
    asked += [await developer.get(f"{path}/secret{query}") for query in ("", "?show=yes", "?fresh=reset")]
    for text in asked:
        assert 'name="sure_password"' in text and "sk_test_" not in text
    assert await acts(service, dealer.tenant_id) == []


async def test_a_reset_leaves_the_old_secret_a_day(people: People, dealer: ApiClient):
    text = await people["admin"].post(f"/console/credentials/{dealer.app_key}/reset")
    found = re.search(r"sk_test_[0-9A-Za-z]{40}", text)
    assert found and found[0] != dealer.app_secret
    assert (await dealer.post("/health")).code == "000000"
    dealer.app_secret = found[0]
    async with asyncio.timeout(PATIENCE):
        while (await dealer.post("/health")).code != "000000":  # the API looks for changes a few times a second
            await asyncio.sleep(0.05)
    assert "previous AppSecret valid until" in await people["admin"].get("/console/credentials")


async def test_another_dealers_credential_is_not_there(people: People, stranger: ApiClient):
    path = f"/console/credentials/{stranger.app_key}"
    await people["admin"].get(f"{path}/secret", 404)
    await people["admin"].post(f"{path}/reset", status=404)
    assert (await stranger.post("/health")).code == "000000"


# Webhooks


async def test_a_callback_url_is_set_tried_and_removed(
    service: Service, people: People, dealer: ApiClient, receiver: Receiver
):
    developer = people["developer"]
    text = await developer.post("/console/webhooks/url", {"callback_url": "http://a:b@example.com/"})
    assert "user information before the host" in text
    assert receiver.url in await developer.post("/console/webhooks/url", {"callback_url": receiver.url})
    text = await developer.post("/console/webhooks/test", status=200)
    assert "Test event delivered." in text
    renewed = re.findall(r'hx-get="([^"]*)"', text)
    assert renewed and "deliveries" in await developer.get(renewed[0])
    assert receiver.requests[0].headers["rt-test"] == "true"
    receiver.answers = [503]
    text = await developer.post("/console/webhooks/test", status=200)
    assert "Test event failed" in text and "503" in text
    assert receiver.url not in await developer.post("/console/webhooks/url", {"callback_url": ""})
    assert "nowhere to send" in await developer.post("/console/webhooks/test")
    assert await acts(service, dealer.tenant_id) == ["webhook.set", "webhook.set"]


async def test_the_url_of_the_rt_family_s_events_is_set_once_it_takes_one(
    service: Service, people: People, dealer: ApiClient, receiver: Receiver
):
    developer, path = people["developer"], "/console/webhooks/rt-url"
    assert "Events of the RT family" not in await developer.get("/console/webhooks")
    await service.change(dealer.tenant_id, rt_face="signed")
    assert "Events of the RT family" in await developer.get("/console/webhooks")
    receiver.answers = [500, 200]
    assert "CHECK_HEALTH was not taken" in await developer.post(path, {"rt_url": receiver.url})
    assert "not an absolute" in await developer.post(path, {"rt_url": "nowhere"})
    assert receiver.url in await developer.post(path, {"rt_url": receiver.url})
    assert [request.json["notifyType"] for request in receiver.requests] == ["CHECK_HEALTH"] * 2
    assert receiver.url not in await developer.post(path, {"rt_url": ""})
    assert await acts(service, dealer.tenant_id) == ["webhook.set", "webhook.set"]


@pytest.mark.one_server("each node numbers transactions by itself")
async def test_a_callback_url_and_its_act_are_written_by_one_transaction(
    service: Service, people: People, dealer: ApiClient, receiver: Receiver
):
    await people["developer"].post("/console/webhooks/url", {"callback_url": receiver.url})
    async with service.database.connection() as connection:
        sql = (
            "SELECT a.xmin = e.xmin, a.detail FROM audit_log a JOIN webhook_endpoint e USING (tenant_id)"
            " WHERE a.tenant_id = $1 AND a.action = 'webhook.set'"
        )
        [[together, detail]] = await connection.fetch(sql, dealer.tenant_id)
    changed = {"before": {"callbackUrl": ""}, "after": {"callbackUrl": receiver.url}}
    assert together and json.loads(detail) == changed


async def test_a_trial_shows_the_beginning_of_what_the_receiver_said(
    people: People, dealer: ApiClient, receiver: Receiver
):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    developer = people["developer"]
    receiver.answers = [answer(500, body=f"out of paper {EVIL}".encode() + b"x" * 4000)]
    text = await developer.post("/console/webhooks/test", status=200)
    shown = re.search(r"<pre[^>]*>([^<]*)</pre>", text)
    assert shown and html.unescape(shown[1]).startswith(f"out of paper {EVIL}x") and EVIL not in text
    assert len(html.unescape(shown[1])) == 2048
    assert re.search(r"answered 500\s+after \d+ ms", text)
    receiver.answers = [answer(204)]
    assert "The response was empty." in await developer.post("/console/webhooks/test", status=200)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        await dealer.post("/webhook/set", {"callbackUrl": f"http://127.0.0.1:{deaf.getsockname()[1]}/"})
        text = await developer.post("/console/webhooks/test", status=200)
    assert "No answer" in text and "CONNECT" in text and "<pre" not in text.partition('id="events"')[0]


async def test_a_delivery_shows_its_attempts_and_is_sent_again(people: People, dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    await receiver.received(2)
    developer = people["developer"]
    text = await until(developer, f"/console/webhooks?order={order['orderNo']}&event=ORDER_PAID", "DELIVERED")
    found = re.search(r'data-href="(/console/webhooks/\d+)"', text)
    assert found
    assert "Attempt 1" in await until(developer, found[1], "Attempt 1")
    text = html.unescape(await developer.get(found[1]))
    [sent] = [one for one in receiver.requests if found[1].endswith(f"/{one.headers['rt-delivery-id']}")]
    assert re.search("<h1>[^<]+: TEST-OK[^<]*</h1>", text) and order["transactionId"] in text
    assert sent.event in text and "Resend" in text
    assert f'data-copy="{sent.body.decode()}"' in text, "the bytes that were sent"
    await developer.post(f"{found[1]}/resend")
    await receiver.received(3)
    assert "Attempt 2" in await until(developer, found[1], "Attempt 2")
    await people["finance"].get(found[1], 403)


async def test_what_was_not_needed_is_listed_where_it_is_asked_for(people: People, dealer: ApiClient):
    developer, order = people["developer"], await bought(dealer)
    row = f'href="/console/orders/{order["orderNo"]}"'
    text = await until(developer, "/console/webhooks?status=SKIPPED", row)
    assert "Not sent" in text
    text = await developer.get("/console/webhooks")
    assert row not in text and "Without a callback URL nothing is sent" in text
    assert row in await developer.get(f"/console/webhooks?order={order['orderNo']}"), "all of one order"


async def test_what_failed_is_sent_again_at_once(
    service: Service, people: People, dealer: ApiClient, receiver: Receiver
):
    developer = people["developer"]
    text = await developer.get("/console/webhooks")
    assert "Save a URL first" in text and 'class="filter-bar"' not in text and "resend-failed" not in text
    order_no = await failed_for_good(service, dealer, receiver)
    text = await developer.get("/console/webhooks?status=FAILED")
    count = re.search(r"Resend (\d) undelivered webhook", text)
    assert count and "HTTP 500" in text and " ms</td>" in text, "what the endpoint said last"
    hours = re.search(r"Attempts: (\d+) accepted, (\d+) failed", text)
    assert hours and int(hours[2]) > 0, "how the last day went"
    found = re.search(r'data-href="(/console/webhooks/\d+)"', text)
    day = clock.now().date()
    assert found and found[1] in await developer.get(f"/console/webhooks?status=FAILED&from={day - timedelta(days=1)}")
    assert "No deliveries match" in await developer.get(f"/console/webhooks?from={day + timedelta(days=2)}")
    for status in ("", "FAILED"):
        assert found[1] not in await developer.get(f"/console/webhooks?status={status}&to={day - timedelta(days=2)}")
    text = await developer.get(found[1])
    assert "1 attempt failed. No more follow automatically." in text and "its log has the cause" in text
    receiver.answers = [200]
    assert re.search(
        f"{count[1]} webhooks? (is|are) sent again", await developer.post("/console/webhooks/resend-failed")
    )
    await until(developer, f"/console/webhooks?order={order_no}&event=ORDER_PAID", "DELIVERED")
    text = await until(developer, "/console/webhooks", "after a retry")
    assert "resend-failed" not in text and "HTTP 500 → 200" in text


# The API log


async def test_many_that_failed_are_sent_again_by_one_job(
    service: Service, people: People, dealer: ApiClient, receiver: Receiver
):
    developer = people["developer"]
    await failed_for_good(service, dealer, receiver)
    async with service.database.connection() as connection:
        sql = (
            "INSERT INTO webhook_delivery (tenant_id, order_id, event_type, trigger, order_version, state, finished_at,"
            " created_at) SELECT tenant_id, max(order_id), 'DELIVERY_UPDATED', 'SYNC', 1, 'FAILED', now(), now()"
            " FROM orders CROSS JOIN generate_series(1, 60) AS number WHERE tenant_id = $1 GROUP BY tenant_id, number"
        )
        await connection.execute(sql, dealer.tenant_id)
    assert "Resend all undelivered webhooks?" in await developer.get("/console/webhooks")
    receiver.answers = [200]
    text = await developer.post("/console/webhooks/resend-failed")
    assert re.search(r"6\d webhooks are being sent again, the oldest first", text)
    async with service.database.connection() as connection:
        job = "SELECT finished_at FROM webhook_job WHERE tenant_id = $1"
        async with asyncio.timeout(PATIENCE):
            while await connection.fetchval(job, dealer.tenant_id) is None:
                await asyncio.sleep(0.05)
    text = await until(developer, "/console/webhooks", "after a retry")
    assert "resend-failed" not in text
    assert "HTTP 500 → 200" in await developer.get("/console/webhooks?event=ORDER_PAID")


async def run_script(script: str, dealer: ApiClient) -> str:
    """What a shell that a page offers prints; the AppSecret is in its environment alone."""
    process = await asyncio.create_subprocess_exec(
        "bash", stdin=PIPE, stdout=PIPE, env={"PATH": os.environ["PATH"], "ESIM_DEALER_APP_SECRET": dealer.app_secret}
    )
    out, _ = await process.communicate("\n".join(line for line in script.splitlines() if "=…" not in line).encode())
    return out.decode()


needs_shell = pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "curl", "openssl"))), reason="bash, curl or openssl is not installed"
)


@needs_shell
async def test_the_sample_of_a_first_call_is_accepted(people: People, dealer: ApiClient):
    text = html.unescape(await people["developer"].get("/console/credentials"))
    found = re.search(r'<div class="code-block code-of-curl"><pre[^>]*><code>(.*?)</code>', text, re.DOTALL)
    assert found and dealer.app_secret not in text
    assert json.loads(await run_script(found[1], dealer))["code"] == "000000"
    assert 'Dealer(\n    "' in text and "new Dealer({" in text


@needs_shell
async def test_a_webhook_is_repeated_by_the_shell_on_its_page(people: People, dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = (await dealer.order(remark="it's for O'Brien; $HOME")).data
    sent = await receiver.until(lambda one: one.event == "DELIVERY_UPDATED")
    page = await until(people["developer"], f"/console/webhooks?order={order['orderNo']}", "DELIVERED")
    number = sent.headers["rt-delivery-id"]
    assert f"/console/webhooks/{number}" in page
    text = html.unescape(await people["developer"].get(f"/console/webhooks/{number}"))
    found = re.search(r'<pre class="sample[^>]*><code>(.*?)</code>', text, re.DOTALL)
    assert found and dealer.app_secret not in text and "<dt>RT-Order-Version</dt>" in text
    count = len(receiver.requests)
    assert "200" in await run_script(found[1], dealer)
    again = (await receiver.received(count + 1))[count]
    assert again.body == sent.body
    assert verify(again.headers, again.body, dealer.app_secret).snapshot.order_no == order["orderNo"]
    same = ("rt-delivery-id", "rt-order-version", "rt-accesscode", "content-type")
    assert [again.headers[name] for name in same] == [sent.headers[name] for name in same]


async def test_the_balance_is_in_view_on_every_page(people: People, dealer: ApiClient, admin: Operator):
    await dealer.order()
    for role, path in (
        ("admin", "/console/account"),
        ("finance", "/console/orders"),
        ("developer", "/console/webhooks"),
    ):
        bar = re.search(r'id="balance".*?</div>', await people[role].get(path), re.DOTALL)
        assert bar and "998.20" in bar[0]
        assert ("Top up" in bar[0]) is (role != "developer"), "who moves money"
    assert 'id="balance"' not in (await admin.get("/console/orders")).text


async def test_a_refused_call_shows_what_was_to_be_signed_and_where_two_strings_part(
    service: Service, people: People, dealer: ApiClient
):
    developer = people["developer"]
    assert "No calls yet" in await developer.get("/console/api-log")
    assert "No refused calls" in await developer.get("/console/api-log?result=refused")
    body = b'{"orderNo":"D1"}'
    headers = dealer.headers(body, **{"X-Signature": "0" * 64})
    await dealer.send("/open-api/v1/esim/query", body, headers)
    text = await until(developer, "/console/api-log", "101003")
    found = re.search(r'data-href="(/console/api-log/\d+)"', text)
    assert found and 'href="/docs/errors#101003"' in text
    text = html.unescape(await developer.get(found[1]))
    string = f"{headers['RT-Timestamp']}{headers['RT-RequestID']}{dealer.app_key}{body.decode()}"
    assert f'data-copy="{string}"' in text and "0" * 64 in text and dealer.app_secret not in text
    same = await developer.post(f"{found[1]}/compare", {"theirs": string}, 200)
    assert "The strings are equal" in same
    other = await developer.post(f"{found[1]}/compare", {"theirs": string.replace('":"', '": "')}, 200)
    place = string.index('"D1"}') + 1
    assert f"They differ from character {place};" in other
    path, today = "/console/api-log?path=/open-api/v1/esim/", f"{service.database.clock.now():%Y-%m-%d}"
    row = f'data-href="{found[1]}"'
    assert row in await developer.get(f"{path}query&from={today}&to={today}&code=101003")
    assert "No calls match" in await developer.get(f"{path}order")
    assert row not in await developer.get(f"{path}query&to=2020-01-01")
    await people["finance"].get("/console/api-log", 403)
    await people["finance"].get(found[1], 403)


def test_every_result_code_has_its_words():
    assert words.MEANINGS.keys() == RESULT_CODES.keys() - {"000000"}


def test_every_operation_has_its_words():
    assert words.OPERATIONS.keys() == {operation.path for operation in OPERATIONS}


async def test_the_api_log_says_what_each_call_was_about_and_goes_back_and_forth(
    service: Service, people: People, dealer: ApiClient
):
    order = (await dealer.order(transactionId="booking-7")).data
    await dealer.post("/esim/query", {"orderNo": "D1"})
    log = "/console/api-log"
    for _ in range(3):
        await dealer.post("/esim/query", {"orderNo": order["orderNo"]})
    await until(people["developer"], f"{log}?result=succeeded", "4 calls")
    text = await until(people["developer"], f"{log}?q=booking-7", "Place an order")
    assert f'href="/console/orders/{order["orderNo"]}"' in text and ">booking-7</a>" in text and "1 call<" in text
    text = await until(people["developer"], f"{log}?q=D1&result=refused", "Read an order")
    assert re.search(r"<span[^>]*>D1</span>", text), "an order that is not there leads nowhere"
    memory = await Cache.open(service.database)
    await memory.load_caller(dealer.app_key)
    for _ in range(60):
        calls = CallLog(service.database, memory, clock.now, ())
        refuse(calls, dealer.app_key, why=refusal.OrderNotFound())
        async with calls.running():  # which writes at its end
            pass
    whole = await people["developer"].get(log)
    assert 0 < whole.index("Refused in the last 24 hours") < whole.index("Median latency") < whole.index("Latest calls")
    first = await people["developer"].get(f"{log}?result=refused")
    assert "Refused in the last 24 hours" not in first
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following
    second = await people["developer"].get(html.unescape(following[1]))
    numbers = [re.findall(rf'data-href="{log}/(\d+)"', text) for text in (first, second)]
    assert len(numbers[0]) == PAGE_SIZE and len({*numbers[0], *numbers[1]}) == len(numbers[0]) + len(numbers[1])
    assert 'rel="prev"' in second


async def test_a_usual_mistake_in_signing_is_named(people: People, dealer: ApiClient):
    sent, signed_body = b'{"orderNo": "D1"}', b'{"orderNo":"D1"}'
    await dealer.send("/open-api/v1/esim/query", sent, dealer.headers(signed_body))
    text = await until(people["developer"], "/console/api-log", "101003")
    found = re.search(r'data-href="(/console/api-log/\d+)"', text)
    assert found
    text = await people["developer"].get(found[1])
    assert "<h1>POST /esim/query refused</h1>" in text and "Signature wrong (101003)" in text
    assert "<strong>Likely cause: The body was serialized twice" in text and dealer.app_secret not in text


async def test_what_strangers_send_is_shown_and_never_run(people: People, dealer: ApiClient):
    await dealer.send(f"/open-api/v1/{EVIL}", EVIL.encode(), dealer.headers(EVIL.encode(), **{"User-Agent": EVIL}))
    await dealer.post("/health", EVIL.encode(), **{"X-Signature": "0" * 64, "User-Agent": EVIL})
    text = await until(people["admin"], "/console/api-log", "101003")
    for path in re.findall(r'data-href="(/console/api-log/\d+)"', text):
        assert EVIL not in await people["admin"].get(path)
    assert EVIL not in text


@pytest.mark.parametrize("body", [b"[" * 2_000, b'{"x":' * 2_000, b'{"orderNo":"\\ud800"}'])
async def test_a_call_of_any_body_is_shown(people: People, dealer: ApiClient, body: bytes):
    await dealer.post("/esim/query", body, **{"X-Signature": "0" * 64})
    text = await until(people["developer"], "/console/api-log", "101003")
    [path] = set(re.findall(r'data-href="(/console/api-log/\d+)"', text))
    assert "Signature wrong (101003)" in await people["developer"].get(path)


async def test_another_dealers_refused_call_is_not_there(people: People, dealer: ApiClient, stranger: ApiClient):
    await stranger.post("/theirs")
    for _ in range(2):
        await dealer.post("/mine")
    text = await until(people["admin"], "/console/api-log", "/mine")
    assert "/theirs" not in text
    await people["admin"].get("/console/api-log/0", 404)
    await people["admin"].get("/console/api-log/x", 404)
    await people["admin"].get(f"/console/api-log/{'9' * 19}", 404)


# Who may do what


@pytest.fixture
async def places(service: Service, dealer: ApiClient, stranger: ApiClient) -> tuple[dict[str, str], dict[str, str]]:
    """What stands in the braces of a path: ours, and another dealer's. All may sell a package that is
    there, and each month has a statement of every dealer's own, but for one that is still to come."""
    made: list[dict[str, str]] = []
    cases = ((dealer, "TEST-OK", f"{clock.now():%Y-%m}"), (stranger, "NO-SUCH", "2099-12"))
    for client, package_code, month in cases:
        line = BulkLine(2, "TEST-OK", 1, None, "", "")
        async with service.database.transaction() as connection:
            bulk_id = await bulk.add(connection, client.tenant_id, "token", b"", [line], "test", clock.now())
        order = await bought(client)
        data: dict[str, Any] = (await client.post("/webhook/delivery/list")).data
        prices = NewNotice(client.tenant_id, "PRICE_CHANGED", "terms:1", SAMPLES["PRICE_CHANGED"])
        async with service.database.connection() as connection:
            await outbox.add(connection, [prices], clock.now())
            [told] = await listing.newest(connection, client.tenant_id, ["PRICE_CHANGED"], None, 1)
        made.append(
            {
                "order_no": order["orderNo"],
                "profile_id": profiles_of(order)[0]["profileId"],
                "app_key": client.app_key,
                "delivery_id": data["deliveries"][0]["deliveryId"],
                "package_code": package_code,
                "bulk_id": str(bulk_id),
                "month": month,
                "notice_id": str(told.notice_id),
            }
        )
    return made[0], made[1]


async def test_each_page_opens_for_its_roles_and_for_nobody_else(people: People, places: tuple[dict[str, str], ...]):
    for page in PAGES:
        if page.method == "GET" and "{number}" not in page.path:
            for role in ROLES:
                expected = 200 if f"dealer:{role}" in page.roles else 403
                await people[role].get(page.path.format(**places[0]) + QUERIES.get(page.path, ""), expected)


async def test_nothing_of_another_dealer_is_there(
    people: People, stranger: ApiClient, places: tuple[dict[str, str], ...]
):
    before = await query(stranger, {"orderNo": places[1]["order_no"]})
    for page in PAGES:
        if "{" not in page.path or "{number}" in page.path:
            continue
        path = page.path.format(**places[1])
        if page.method == "GET":
            await people["admin"].get(path, 404)
        else:
            data = {"csrf": await _csrf(people["admin"]), "once": secrets.token_hex(16), "reason": "x"}
            answer = await people["admin"].http.post(path, data=data)
            assert answer.status_code in (303, 404), (path, answer.status_code)
            assert (answer.status_code == 404) or "sent again" not in await people["admin"].get("/console/orders")
    assert await query(stranger, {"orderNo": places[1]["order_no"]}) == before


async def _csrf(browser: Browser) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', await browser.get("/console/account"))
    assert found
    return found[1]


async def test_the_webhooks_page_explains_each_event_and_where_its_signature_comes_from(
    people: People, dealer: ApiClient
):
    text = html.unescape(await people["developer"].get("/console/webhooks"))
    for name, event in EVENTS.items():
        assert f"<code>{name}</code>" in text and event.summary in text, name
        assert f'"{dealer.url}/qr/' in text or name == "ORDER_PAID", "addresses of an example are ours"
    assert f"/console/credentials/{dealer.app_key}/secret" in text and "Check a signature" in text


async def test_the_api_log_opens_with_all_calls(people: People, dealer: ApiClient):
    await dealer.post("/health")
    await dealer.post("/esim/query", {"orderNo": "D1"})
    text = await until(people["developer"], "/console/api-log", "errors#310272")
    text = await until(people["developer"], "/console/api-log", "/console/api-log/succeeded/")
    assert "/health" in text and "errors#310272" in text
    refused = await people["developer"].get("/console/api-log?result=refused")
    assert "errors#310272" in refused and "/console/api-log/succeeded/" not in refused
    assert "errors#310272" not in await people["developer"].get("/console/api-log?path=/open-api/v1/health")


async def test_an_order_that_failed_says_why_where_its_money_is_and_is_bought_again(people: People, dealer: ApiClient):
    order_no = (await dealer.order("TEST-FAIL", remark="for Ann")).data["orderNo"]
    finance, path = people["finance"], f"/console/orders/{order_no}"
    text = html.unescape(await until(finance, path, "Failed, refunded"))
    assert "returned to your wallet" in text and "The supplier " in text
    again = f"/console/catalogue/TEST-FAIL?quantity=1&order={order_no}"
    assert re.findall(r'href="(/console/catalogue/[^"]+)"', text) == [again, "/console/catalogue/TEST-FAIL"]
    entry = re.search(r'href="(/console/wallet\?type=REFUND[^"]+)"', text)
    assert entry and order_no in await finance.get(entry[1])
    asked = f"/console/buy?package=TEST-FAIL&quantity=1&transaction_id=console-0123456789abcdef&order={order_no}"
    assert f'name="order" value="{order_no}"' in await finance.get(again)
    assert 'value="for Ann"' in await finance.get(asked)
    assert "Buy again" not in await people["developer"].get(path), "who may not buy"


async def test_an_order_out_of_stock_offers_the_nearest_package_that_is_available(
    service: Service, people: People, dealer: ApiClient, stranger: ApiClient
):
    order_no = (await dealer.order("TEST-FAIL", remark="ann@example.com")).data["orderNo"]
    finance, path = people["finance"], f"/console/orders/{order_no}"
    text = await until(finance, path, "Failed, refunded")
    assert "Sell a replacement" not in text and "Buy again" in text
    await out_of_stock(service, dealer, order_no)
    text = html.unescape(await finance.get(path))
    assert "Sell a replacement" in text and "Closest: " in text and "Buy again" not in text
    assert "Filled in for ann@example.com." in text
    links = re.findall(r'btn-primary" data-drawer="buy" href="(/console/catalogue/([A-Z0-9-]+)\?[^"]+)"', text)
    assert len(links) == 1 and links[0][1] != "TEST-FAIL", "the nearest alone is blue"
    assert "ann" not in links[0][0] and f'name="order" value="{order_no}"' in await finance.get(links[0][0])
    asked = f"/console/buy?package={links[0][1]}&quantity=1&transaction_id=console-0123456789abcdef&order={order_no}"
    assert re.search(r'value="ann@example.com" [^>]*id="field-remark"', await finance.get(asked))
    async with http_client(base_url=service.url) as http:
        other = await signed_in(service, stranger.tenant_id, "admin", http)
        assert 'value="ann@example.com"' not in await other.get(asked)
    assert "Sell a replacement" not in await people["developer"].get(path), "who may not buy"


async def test_orders_say_what_they_leave_at_the_suggested_price(people: People, dealer: ApiClient):
    order = await bought(dealer, quantity=2)
    text = await people["finance"].get("/console/orders")
    assert "Profit (est.), USD" in text and re.search(rf"{order['orderNo']}.*?>1\.98<", text, re.DOTALL), text
    assert "1.98" in await people["finance"].get(f"/console/orders/{order['orderNo']}")


async def test_orders_esims_and_entries_are_called_by_the_dealers_own_reference(people: People, dealer: ApiClient):
    order, admin = await bought(dealer), people["admin"]
    reference, [profile] = order["transactionId"], profiles_of(order)
    esim = f"/console/profiles/{profile['profileId']}"
    for path in ("/console/orders", "/console/profiles", "/console/wallet", esim):
        assert f">{reference}<" in await admin.get(path), path
    text = await admin.get(esim)
    assert text.index("Data used") < text.index('id="install"') < text.index(">History<")


async def test_users_are_told_what_each_role_may_do(people: People):
    text = await people["admin"].get("/console/users")
    assert "What each role may do" in text and "Invite users, change roles" in text


async def test_countries_have_their_flags(people: People):
    text = await people["admin"].get("/console/catalogue?q=france")
    found = re.search(r'<img class="flag" src="(/console/static/vendor/flags/FR\.[0-9a-f]+\.svg)"', text)
    assert found and "<svg" in await people["admin"].get(found[1])


async def test_top_ups_are_found_by_day_and_taken_as_a_file(people: People, dealer: ApiClient):
    get = people["finance"].get
    made = (await dealer.post("/account/topup", {"transactionId": "t-days", "amount": 12.5})).data["topupNo"]
    for asked, there in (("", True), ("?from=2020-01-01", True), ("?to=2020-01-01", False)):
        listed, file = await get(f"/console/wallet/topups{asked}"), await get(f"/console/wallet/topups.csv{asked}")
        assert (made in listed) == (made in file) == there, asked
    assert "No top-ups match" in await get("/console/wallet/topups?to=2020-01-01")
    wrong = await get("/console/wallet/topups?from=yesterday")
    assert made not in wrong and 'aria-invalid="true"' in wrong
