"""A user who forgot the password: the link that is mailed, what it does once, and that strangers learn nothing."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator

import pytest

from support.api_client import ApiClient, Service, running_service
from support.browser import Browser, browser, said, signed_in
from support.notices.smtp_server import SmtpServer, mail_server
from support.notices.told import all_told, notice_worker, rows
from support.patience import found

FORGOT = "/console/password-reset"
GOOD = "another battery staple"
PASSWORD = {"new": GOOD, "again": GOOD}


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """Without a worker: mails are sent by hand."""
    async with running_service(database_url, worker=False, mailbox=True) as service:
        yield service


@pytest.fixture
async def mails() -> AsyncIterator[SmtpServer]:
    async with mail_server() as server:
        yield server


@pytest.fixture
async def forgetful(service: Service, dealer: ApiClient) -> AsyncIterator[Browser]:
    """A user of a dealer, signed in elsewhere."""
    async with signed_in(service, "finance", dealer.tenant_id, f"ann-{secrets.token_hex(4)}@example.com") as one:
        yield one


async def asked(one: Browser, name: str) -> str:
    """Asks for a link; what the page says, without the name."""
    answer = await one.send(FORGOT, {"name": name})
    assert answer.status_code == 200 and "Check your email" in answer.text
    return answer.text.replace(name, "NAME")


async def link_to(service: Service, one: Browser, mails: SmtpServer, name: str) -> str:
    """The link that is mailed to the user of this name; there is a fact for it once it was looked up."""
    before = len(await facts(service))
    await asked(one, name)
    await looked_up(service, before + 1)
    async with notice_worker(service, mails) as worker:
        await all_told(worker)
    mail = [mail for mail in mails.mails if mail.to == [name]][-1]
    assert "Choose a new password" in mail.message["Subject"]
    text = mail.message.get_body(("plain",)).get_content()
    link = re.search(rf"{re.escape(mails_lead_to(text))}({FORGOT}/[\w-]{{43}})", text)
    assert link and "/console/notices" not in text
    return link[1]


def mails_lead_to(text: str) -> str:
    """The address before the path of the link."""
    address = re.search(rf"(https?://[^/\s]+){FORGOT}/", text)
    assert address, text
    return address[1]


async def facts(service: Service) -> list[tuple[object, ...]]:
    return await rows(service, "SELECT data::text FROM notice WHERE notice_type = 'RESET_LINK' ORDER BY notice_id")


async def looked_up(service: Service, count: int) -> None:
    """Returns once there are so many facts: names are looked up after the answer."""

    async def look() -> bool | None:
        return len(await facts(service)) >= count or None

    await found(look)


async def test_a_user_who_forgot_the_password_chooses_another(
    service: Service, forgetful: Browser, visitor: Browser, mails: SmtpServer
):
    assert f'href="{FORGOT}"' in (await visitor.get("/console/sign-in")).text
    link = await link_to(service, visitor, mails, forgetful.name)
    for _ in range(3):  # as programs that look at mails do
        page = await visitor.get(link)
        assert page.status_code == 200 and forgetful.name in page.text and page.headers["cache-control"] == "no-store"
    assert (await forgetful.get("/console/account")).status_code == 200, "nothing has changed yet"
    done = await visitor.send(link, PASSWORD)
    assert done.status_code == 200 and "Password changed" in done.text and not visitor.token
    assert (await forgetful.get("/console/account")).status_code == 303, "every session has ended"
    assert (await visitor.get(link)).status_code == (await visitor.send(link, PASSWORD)).status_code == 410
    async with browser(service) as again:
        assert (await again.sign_in(forgetful.name, forgetful.password)).status_code == 403
        assert (await again.sign_in(forgetful.name, GOOD)).headers["location"] == "/console"
    acts = await rows(
        service, "SELECT action, author FROM audit_log WHERE detail->>'user' = $1 ORDER BY audit_id", forgetful.name
    )
    assert ("user.password.reset", f"console:{forgetful.name}") in acts


async def test_the_link_is_kept_as_a_hash_alone(
    service: Service, forgetful: Browser, visitor: Browser, mails: SmtpServer
):
    token = (await link_to(service, visitor, mails, forgetful.name)).rpartition("/")[2]
    stored = await rows(service, "SELECT r::text, n::text FROM password_reset r, notice n")
    logged = await rows(service, "SELECT detail::text FROM audit_log")
    assert stored and all(token not in str(row) for row in [*stored, *logged])


async def test_whether_there_is_such_a_user_is_not_told(
    service: Service, forgetful: Browser, visitor: Browser, mails: SmtpServer
):
    nobody, before = f"nobody-{secrets.token_hex(4)}@example.com", len(await facts(service))
    assert await asked(visitor, nobody) == await asked(visitor, forgetful.name)
    for name in (nobody, forgetful.name):
        for _ in range(2):
            await asked(visitor, name)
        refused = await visitor.send(FORGOT, {"name": name.upper()})
        assert refused.status_code == 429 and "Too many" in said(refused)
    await looked_up(service, before + 3)
    assert [data for (data,) in await facts(service)][before:] == [f'{{"userId":{forgetful.user_id}}}'] * 3


@pytest.mark.parametrize("how", ["expired", "replaced", "changed", "disabled", "unknown"])
async def test_a_link_that_has_ended_changes_nothing(
    service: Service, forgetful: Browser, admin: Browser, visitor: Browser, mails: SmtpServer, how: str
):
    link, name = await link_to(service, visitor, mails, forgetful.name), forgetful.name
    if how == "expired":
        sql = "UPDATE password_reset SET expires_at = now() WHERE user_id = $1 RETURNING 1"
        await rows(service, sql, forgetful.user_id)
    elif how == "replaced":
        assert await link_to(service, visitor, mails, name) != link
    elif how == "changed":
        changed = {"old": forgetful.password, "new": "chosen in the meantime", "again": "chosen in the meantime"}
        assert (await forgetful.post("/console/account/password", changed)).status_code == 303
    elif how == "disabled":
        await admin.post(f"/console/users/{forgetful.user_id}", {"role": "finance", "status": "DISABLED"})
    else:
        link = f"{FORGOT}/{'x' * 43}"
    for answer in (await visitor.get(link), await visitor.send(link, PASSWORD)):
        assert answer.status_code == 410 and "This link does not work" in answer.text
    async with browser(service) as again:
        assert (await again.sign_in(name, GOOD)).status_code == 403


async def test_of_two_who_use_a_link_at_once_one_is_the_first(
    service: Service, forgetful: Browser, visitor: Browser, mails: SmtpServer
):
    link = await link_to(service, visitor, mails, forgetful.name)
    async with browser(service) as other:
        both = await asyncio.gather(visitor.send(link, PASSWORD), other.send(link, PASSWORD))
    assert sorted(answer.status_code for answer in both) == [200, 410]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"new": "short", "again": "short"}, "12 to 200 characters"),
        ({"new": GOOD, "again": f"{GOOD}r"}, "The two passwords are not the same."),
    ],
)
async def test_a_password_that_will_not_do_is_refused_in_words(
    service: Service, forgetful: Browser, visitor: Browser, mails: SmtpServer, fields: dict[str, str], words: str
):
    link = await link_to(service, visitor, mails, forgetful.name)
    refused = await visitor.send(link, fields)
    assert refused.status_code == 400 and words in said(refused)
    assert (await visitor.send(link, PASSWORD)).status_code == 200, "the link still works"


async def test_one_time_codes_stay_on(service: Service, forgetful: Browser, visitor: Browser, mails: SmtpServer):
    await rows(service, "UPDATE console_user SET totp_on = true, sealed_totp = '\\x00' WHERE user_id = $1 RETURNING 1",
               forgetful.user_id)  # fmt: skip
    link = await link_to(service, visitor, mails, forgetful.name)
    assert (await visitor.send(link, PASSWORD)).status_code == 200
    led = await visitor.sign_in(forgetful.name, GOOD)
    assert led.headers["location"].startswith("/console/sign-in/code")


async def test_where_no_mails_are_sent_the_page_says_so(database_url: str):
    async with running_service(database_url, worker=False) as service, browser(service) as one:
        for answer in (await one.get(FORGOT), await one.send(FORGOT, {"name": "ann"})):
            assert answer.status_code == 200 and "This server sends no email" in answer.text
