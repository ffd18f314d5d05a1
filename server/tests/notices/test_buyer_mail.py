"""The page of an eSIM, mailed to its buyer: in the dealer's brand, once; its dealer reads to whom."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.clock import Clock
from dealer_server.notices.buyer.message import texts_of
from dealer_server.notices.buyer.worker import BuyerMailWorker
from dealer_server.notices.mailer import mailer
from dealer_server.notices.message import Sender
from dealer_server.operations.profiles.mail_install_page import MAILS_AN_HOUR
from dealer_server.operations.retention.sweep import Sweeper
from dealer_server.rules.install.languages import LANGUAGES
from dealer_server.rules.orders.identity import order_no
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.notices import buyer_mails
from dealer_server.store.tenants import data_key
from support.api_client import ApiClient, Service, running_service
from support.browser import Browser, said, signed_in
from support.console.buying import acts_of, bulk_form, buy, form, out_of_stock
from support.console.buying import asked as asked_to_buy
from support.console.operator_pages import see
from support.money.refunds import bought, profiles, query
from support.notices.smtp_server import SmtpServer
from support.notices.told import FROM, with_mail
from support.patience import found as waited_for

BUYER = "ann@example.com"
HOUR = timedelta(hours=1)
BRAND = {"name": "Brücke Reisen", "colour": "#0a7d55", "support_email": "help@bruecke.example",
         "sales_url": "https://bruecke.example"}  # fmt: skip


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """Its pages know of a mail server. It has no worker: what mails is driven by hand."""
    smtp = {"smtp_host": "127.0.0.1", "smtp_port": 9, "smtp_tls": "none", "smtp_from": FROM}
    async with running_service(database_url, worker=False, **smtp) as service:
        yield service


@pytest.fixture
async def page(service: Service, dealer: ApiClient) -> AsyncIterator[tuple[Browser, dict[str, Any], str]]:
    """A developer of the dealer, an eSIM, and its page. Mails that others left are settled."""
    async with service.database.connection() as connection:
        await connection.execute("DELETE FROM buyer_mail")
    async with running_service(service.settings.database_url):  # whose worker delivers
        profile = profiles(await bought(dealer))[0]
    async with signed_in(service, "developer", dealer.tenant_id) as one:
        yield one, profile, f"/console/profiles/{profile['profileId']}"


@asynccontextmanager
async def worker(service: Service, server: SmtpServer, now: Clock = clock.now) -> AsyncIterator[BuyerMailWorker]:
    settings = with_mail(service.settings.database_url, server)
    async with service.database.connection() as connection:
        data_keys = await data_key.load(connection, service.settings.master_keys)
    links = Links(service.url, "{carddata}", "{carddata}")
    sender = Sender("eSIM Dealer", FROM, service.url)
    one = BuyerMailWorker(
        service.database, data_keys, links, mailer(settings, service.database, now), sender, now, (0.0, 0.0, 60.0)
    )
    yield one
    await one.close()


async def asked(one: Browser, path: str, mail: str = BUYER, language: str = "de") -> str:
    answer = await one.send(
        f"{path}/mail",
        {"csrf": await one.csrf(), "once": (await _nonce(one, path)), "mail": mail, "language": language},
        Referer=f"{one.url}{path}",
    )
    assert answer.headers["location"] == path
    return said(await one.get(path))


async def _nonce(one: Browser, path: str) -> str:
    return (await one.get(path)).text.partition('name="once" value="')[2].partition('"')[0]


async def kept(service: Service) -> list[tuple[str | None, str, str | None]]:
    async with service.database.connection() as connection:
        rows = await connection.fetch("SELECT mail, state, problem FROM buyer_mail ORDER BY mail_id")
    return [(row["mail"], row["state"], row["problem"]) for row in rows]


async def test_the_page_goes_out_in_the_dealers_brand_and_its_dealer_reads_to_whom(
    service: Service, dealer: ApiClient, mails: SmtpServer, page: tuple[Browser, dict[str, Any], str]
):
    one, profile, path = page
    await one.post("/console/brand", BRAND)
    assert await asked(one, path) == f"The page of this eSIM is on its way to {BUYER}"
    async with worker(service, mails) as sending:
        assert await sending.run_once() == 1
        assert await sending.run_once() == 0
    [mail] = await mails.received(1, BUYER)
    assert mail.message["From"] == f"Brücke Reisen <{FROM}>" and mail.message["Reply-To"] == "help@bruecke.example"
    assert mail.message["Subject"] == "Ihre eSIM – Brücke Reisen"
    address = profile["installPageUrl"].partition("/i/")[2]
    assert f"/i/{address}?lang=de" in mail.plain and f"/i/{address}?lang=de" in mail.html
    assert "#0a7d55" in mail.html and "help@bruecke.example" in mail.plain
    assert '<a href="https://bruecke.example"' in mail.html and "Reisen\r\nhttps://bruecke.example" in mail.plain
    assert profile["activationCode"] not in mail.plain + mail.html
    assert await kept(service) == [(BUYER, "DELIVERED", None)]
    async with service.database.connection() as connection:
        order_id = await connection.fetchval("SELECT max(order_id) FROM buyer_mail")
        assert order_id is not None
    for where in (path, f"/console/orders/{order_no(order_id)}"):
        assert f"{BUYER} Mailed " in await see(one, where), where
    for where in ("/console/profiles", "/console/orders", "/console"):
        assert BUYER in (listed := await see(one, where)) and "Mailed " in listed, where
    found = await one.get(f"/console/search?q={BUYER.upper()}")
    assert found.headers["location"] == f"/console/orders/{order_no(order_id)}", "the only one"
    assert f"Install page mailed to {BUYER}" in await see(one, path)
    [act] = await acts_of(service, dealer, "profile.mail")
    assert act.author == f"console:{one.name}" and BUYER not in act.detail
    assert json.loads(act.detail)["profileId"] == int(profile["profileId"])


async def test_all_esims_of_an_order_are_sent_at_once(service: Service, dealer: ApiClient):
    """Those that can be installed; one mail each."""
    async with service.database.connection() as connection:
        await connection.execute("DELETE FROM buyer_mail")
    async with running_service(service.settings.database_url):  # whose worker delivers
        order = await bought(dealer, quantity=3)
    first, *others = profiles(order)
    await dealer.post("/esim/profile/cancel", {"iccid": first["iccid"]})
    path = f"/console/orders/{order['orderNo']}"
    async with signed_in(service, "developer", dealer.tenant_id) as one:
        text = (await one.get(path)).text
        assert "Copy all links" in text and all(esim["installPageUrl"] in text for esim in others)
        assert "must be one plain address" in await asked(one, path, "nobody")
        assert await kept(service) == []
        assert await asked(one, path) == f"The pages of 2 eSIMs are on the way to {BUYER}"
        assert await kept(service) == [(BUYER, "READY", None)] * 2
        acts = await acts_of(service, dealer, "profile.mail")
        assert sorted(json.loads(act.detail)["profileId"] for act in acts) == [
            int(esim["profileId"]) for esim in others
        ]
    async with signed_in(service, "finance", dealer.tenant_id) as clerk:
        assert "Send all" not in (await clerk.get(path)).text
        assert (await clerk.post(f"{path}/mail", {"mail": BUYER, "language": "en"})).status_code == 403


async def test_the_buyers_of_a_file_are_mailed_once_each(service: Service, dealer: ApiClient):
    """However often it is sent; they do not count among the mails of an hour that are sent by hand."""
    async with service.database.connection() as connection:
        await connection.execute("DELETE FROM buyer_mail")
    lines = (f"TEST-OK,2,{BUYER},de", "TEST-OK,1,,", "TEST-OK,1,bob@example.com,")
    text = "\n".join(("packageCode,quantity,buyerEmail,language", *lines))
    async with signed_in(service, "admin", dealer.tenant_id) as boss:
        page = (await boss.post("/console/bulk", {"text": text})).headers["location"]
        shown = await see(boss, page)
        assert "3 orders, 4 eSIMs, 3 mails to buyers" in shown and BUYER in shown
        fields = await bulk_form(boss, page)
        forms = [fields | {"once": secrets.token_hex(16)} for _ in range(4)]
        await asyncio.gather(*[boss.send(f"{page}/buy", one, Referer=f"{boss.url}{page}") for one in forms])
        wrong = await boss.post("/console/bulk", {"text": "packageCode,buyerEmail\nTEST-OK,ann"})
        assert wrong.status_code == 400 and "must be one plain address" in wrong.text
    async with service.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT mail, language, count(DISTINCT profile_id) AS esims, count(*) AS mails FROM buyer_mail"
            " WHERE tenant_id = $1 GROUP BY mail, language ORDER BY mail",
            dealer.tenant_id,
        )
        async with connection.transaction():
            assert await buyer_mails.count_since(connection, dealer.tenant_id, clock.now() - HOUR) == 0
    assert [tuple(row.values()) for row in rows] == [(BUYER, "de", 2, 2), ("bob@example.com", "en", 1, 1)]
    assert 3 in {json.loads(act.detail)["mails"] for act in await acts_of(service, dealer, "orders.bulk")}


@asynccontextmanager
async def ordering(
    service: Service, dealer: ApiClient, package: str
) -> AsyncIterator[tuple[Browser, str, dict[str, str]]]:
    """An admin of the dealer, and the form that buys two of the package and mails them."""
    async with service.database.connection() as connection:
        await connection.execute("DELETE FROM buyer_mail")
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        address = await asked_to_buy(one, package, quantity=2)
        yield one, address, await form(one, address) | {"mail": BUYER, "language": "de"}


async def test_what_is_bought_by_hand_is_mailed_once_it_is_ready(
    service: Service, dealer: ApiClient, mails: SmtpServer
):
    async with ordering(service, dealer, "TEST-OK") as (one, address, fields):
        assert await buy(one, address, fields | {"mail": "nobody"}) == address
        assert "must be one plain address" in (shown := (await one.get(address)).text) and 'value="nobody"' in shown
        assert await kept(service) == []
        fields |= await form(one, address) | {"mail": BUYER}
        order = await buy(one, address, fields)
        await buy(one, address, fields)
        await buy(one, address, fields | {"once": await _nonce(one, order)})
        assert await kept(service) == [(BUYER, "READY", None)] * 2, "once, however often it is sent"
        assert f"{BUYER} To be mailed as soon as it is ready" in await see(one, order)
        await looked_at(service, mails)
        assert await kept(service) == [(BUYER, "READY", None)] * 2 and mails.mails == []
        async with running_service(service.settings.database_url):  # whose worker delivers
            await dealer.delivered(order.rpartition("/")[2])
        async with worker(service, mails, lambda: clock.now() + 2 * HOUR) as sending:
            assert await sending.run_once() == 2
            assert await sending.run_once() == 0
        assert await kept(service) == [(BUYER, "DELIVERED", None)] * 2
        assert len(await mails.received(2, BUYER)) == 2
        assert f"{BUYER} Mailed " in await see(one, order)


async def test_a_form_that_buys_nothing_keeps_buyer_and_language_and_no_address_has_the_email(
    service: Service, dealer: ApiClient
):
    async with ordering(service, dealer, "TEST-OK") as (one, address, fields):
        await service.change(dealer.tenant_id, prices={"TEST-OK": "2.50"})
        back = await buy(one, address, fields | {"remark": "bob@example.com"})
        assert "price has changed" in (shown := (await one.get(back)).text) and "example.com" not in back
        assert all(f'value="{mail}"' in shown for mail in (BUYER, "bob@example.com"))
        assert '<option value="de" selected' in shown, "in the language that was chosen"
        other = back.replace("quantity=2", "quantity=3")
        await buy(one, address, fields)
        assert f'value="{BUYER}"' not in (await one.get(other)).text, "of that form alone"


async def test_what_failed_is_not_mailed(service: Service, dealer: ApiClient, mails: SmtpServer):
    async with ordering(service, dealer, "TEST-FAIL") as (one, address, fields):
        order = await buy(one, address, fields)
        await looked_at(service, mails)
        async with running_service(service.settings.database_url):  # whose worker fails
            await waited_for(lambda: refunded(dealer, order.rpartition("/")[2]))
        async with worker(service, mails, lambda: clock.now() + 2 * HOUR) as sending:
            await sending.run_once()
        assert mails.mails == [] and await kept(service) == [(BUYER, "SKIPPED", None)] * 2
        assert f"has no eSIM: {BUYER}" in await see(one, order)
        other = (await one.get(await asked_to_buy(one, order=order.rpartition("/")[2]))).text
        assert f'value="{BUYER}"' in other and '<option value="de" selected' in other, "a replacement is for this buyer"
        await out_of_stock(service, dealer, order.rpartition("/")[2])
        assert f"Filled in for {BUYER}." in await see(one, order)
        async with signed_in(service, "finance", dealer.tenant_id) as clerk:
            shown = await see(clerk, order)
            assert "Sell a replacement" in shown and "Filled in for" not in shown, "whose form has no email"


async def looked_at(service: Service, mails: SmtpServer) -> None:
    """Two mails wait for their eSIMs. It is an hour later, so that no other worker takes them meanwhile."""
    at = clock.now() + HOUR
    async with worker(service, mails, lambda: at) as sending:
        assert await sending.run_once() == 2
        assert await sending.run_once() == 0, "they are looked at again later"


async def refunded(dealer: ApiClient, order_no: str) -> bool | None:
    return (await query(dealer, {"orderNo": order_no}))["orderStatus"] == "REFUNDED" or None


async def test_who_may_not_see_codes_buys_without_a_mail(service: Service, dealer: ApiClient):
    async with ordering(service, dealer, "TEST-OK"), signed_in(service, "finance", dealer.tenant_id) as clerk:
        address = await asked_to_buy(clerk)
        shown = (await clerk.get(address)).text
        assert 'name="mail"' not in shown and "Admins and developers send them" in shown
        fields = await form(clerk, address) | {"mail": BUYER, "language": "en"}
        assert "/console/orders/" in await buy(clerk, address, fields)
        assert await kept(service) == []


async def test_a_form_that_is_sent_twice_mails_once(service: Service, page: tuple[Browser, dict[str, Any], str]):
    one, _, path = page
    fields = {"csrf": await one.csrf(), "once": await _nonce(one, path), "mail": BUYER, "language": "en"}
    for _ in range(3):
        await one.send(f"{path}/mail", fields, Referer=f"{one.url}{path}")
    assert len(await kept(service)) == 1


async def test_a_mail_that_was_not_taken_is_sent_again_and_in_the_end_given_up(
    service: Service, mails: SmtpServer, page: tuple[Browser, dict[str, Any], str]
):
    one, _, path = page
    mails.refusals = [("RCPT", "451 later"), ("RCPT", f"550 {BUYER} is unknown")]
    await asked(one, path)
    async with worker(service, mails) as sending:
        await sending.run_once()
        assert await kept(service) == [(BUYER, "RETRY", "451")]
    later = clock.now() + timedelta(hours=1)
    async with worker(service, mails, lambda: later) as sending:
        await sending.run_once()
    assert await kept(service) == [(BUYER, "FAILED", "550")], "nothing of what a server says but its code"
    assert f"{BUYER} Could not be mailed " in await see(one, path)


async def test_a_void_esim_is_not_mailed(
    service: Service, dealer: ApiClient, mails: SmtpServer, page: tuple[Browser, dict[str, Any], str]
):
    one, profile, path = page
    await asked(one, path)
    await dealer.post("/esim/profile/cancel", {"profileId": profile["profileId"]})
    async with worker(service, mails) as sending:
        await sending.run_once()
    assert mails.mails == [] and await kept(service) == [(BUYER, "SKIPPED", None)]
    answer = await one.post(f"{path}/mail", {"mail": BUYER, "language": "en"})
    assert answer.status_code == 303 and len(await kept(service)) == 1


@pytest.mark.parametrize(
    ("mail", "language", "told"),
    [
        ("", "en", "Email must be one plain address"),
        ("ann@example.com, bob@example.com", "en", "Email must be one plain address"),
        ("ann@example.com\r\nBcc: bob@example.com", "en", "Email must be one plain address"),
        (BUYER, "xx", "language is 'xx'; accepted: en, es, de, fr, zh, ja"),
    ],
)
async def test_what_cannot_be_sent_is_told(
    service: Service, page: tuple[Browser, dict[str, Any], str], mail: str, language: str, told: str
):
    one, _, path = page
    assert (await asked(one, path, mail, language)).startswith(told)
    assert await kept(service) == []


async def test_to_whom_it_went_is_known_for_some_months(
    service: Service, mails: SmtpServer, page: tuple[Browser, dict[str, Any], str]
):
    one, _, path = page
    await asked(one, path)
    days = service.settings.buyer_mail_days
    async with worker(service, mails) as sending:
        await sending.run_once()
    for age, left in ((days - 1, 1), (days + 2, 0)):
        await sweep(service, age)
        assert len(await kept(service)) == left
    await asked(one, path)
    await sweep(service, days + 2)
    assert [state for _, state, _ in await kept(service)] == ["READY"], "it is still to be sent"


async def sweep(service: Service, days: int) -> None:
    """As in so many days."""
    sweeper = Sweeper(service.database, lambda: clock.now() + timedelta(days=days), service.settings.retention)
    await sweeper.sweep()
    await sweeper.close()


async def test_a_dealer_mails_so_many_an_hour(service: Service, page: tuple[Browser, dict[str, Any], str]):
    one, profile, path = page
    async with service.database.connection() as connection:
        await connection.execute(
            "INSERT INTO buyer_mail (tenant_id, order_id, profile_id, language, state, created_at)"
            " SELECT tenant_id, order_id, profile_id, 'en', 'DELIVERED', now() FROM profile, generate_series(2, $2)"
            " WHERE profile_id = $1",
            int(profile["profileId"]),
            MAILS_AN_HOUR,
        )
    assert "on its way" in await asked(one, path)
    assert "no more are allowed" in await asked(one, path)


async def test_who_may_not_see_codes_sends_no_page(
    service: Service, dealer: ApiClient, stranger: ApiClient, page: tuple[Browser, dict[str, Any], str]
):
    _, _, path = page
    for tenant_id, role, status in ((dealer.tenant_id, "finance", 403), (stranger.tenant_id, "admin", 404)):
        async with signed_in(service, role, tenant_id) as other:
            assert (await other.post(f"{path}/mail", {"mail": BUYER, "language": "en"})).status_code == status
    assert await kept(service) == []


async def test_without_a_mail_server_the_link_opens_the_users_own_program(
    service: Service, page: tuple[Browser, dict[str, Any], str]
):
    one, _, path = page
    assert f'action="{path}/mail"' in (await one.get(path)).text
    async with running_service(service.settings.database_url, worker=False) as without:
        one.url = without.url
        text = (await one.get(path)).text
    assert 'href="mailto:' in text and f'action="{path}/mail"' not in text


def test_every_language_has_every_text():
    for language in LANGUAGES:
        assert all(texts_of()[language])
