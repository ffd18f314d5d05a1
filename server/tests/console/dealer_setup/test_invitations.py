"""Invitations to the console: who may, what the link does, and when it does nothing."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from email import message_from_bytes, policy
from typing import Any

import pytest

from dealer_server.operations.users import accounts
from support.api_client import Service, running_service
from support.browser import PASSWORDS, Browser, browser, said, signed_in

GOOD = "correct horse battery"
PASSWORD = {"new": GOOD, "again": GOOD}


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    async with running_service(database_url, worker=False, mailbox=True) as service:
        yield service


async def rows(service: Service, sql: str, *args: object) -> list[Any]:
    async with service.database.connection() as connection:
        return [tuple(row) for row in await connection.fetch(sql, *args)]


def address_of() -> str:
    return f"ann-{secrets.token_hex(4)}@example.com"


async def invited(one: Browser, address: str, role: str = "support", tenant: str = "") -> str:
    """Invites somebody; the path of the link that is shown."""
    answer = await one.post("/console/users", {"name": address, "role": role, "tenant": tenant})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/users"), answer.text
    return await shown_link(one)


async def shown_link(one: Browser) -> str:
    found = re.search(rf"<code>{re.escape(one.url)}(/console/invitation/[\w-]{{43}})</code>", await users(one))
    assert found, "no link is shown"
    return found[1]


async def users(one: Browser) -> str:
    return (await one.get("/console/users")).text


async def id_of(service: Service, address: str) -> int:
    [(invitation_id,)] = await rows(service, "SELECT invitation_id FROM invitation WHERE address = $1", address)
    return invitation_id


async def test_an_invited_person_chooses_a_password_and_is_inside(
    service: Service, admin: Browser, visitor: Browser
) -> None:
    address = address_of()
    link = await invited(admin, address)
    assert link not in await users(admin), "shown once"
    before = await rows(service, "SELECT * FROM invitation WHERE address = $1", address)
    for _ in range(3):  # as programs that look at mails do
        page = await visitor.get(link)
        assert page.status_code == 200 and address in page.text and page.headers["cache-control"] == "no-store"
    assert await rows(service, "SELECT * FROM invitation WHERE address = $1", address) == before
    assert not await rows(service, "SELECT 1 FROM console_user WHERE name = $1", address)
    led = await visitor.send(link, PASSWORD)
    assert (led.status_code, led.headers["location"]) == (303, "/console")
    assert address in (await visitor.get("/console/account")).text
    async with browser(service) as again:
        assert (await again.sign_in(address, GOOD)).headers["location"] == "/console"
    acts = await rows(
        service, "SELECT action, author FROM audit_log WHERE detail->>'user' = $1 ORDER BY audit_id", address
    )
    assert acts[:2] == [("user.invite", f"console:{admin.name}"), ("user.accept", f"console:{address}")]


async def test_the_link_is_kept_as_a_hash_and_mailed(service: Service, admin: Browser) -> None:
    address = address_of()
    link = await invited(admin, address, "finance")
    token = link.rpartition("/")[2]
    dump = str(await rows(service, "SELECT i::text FROM invitation i")) + str(
        await rows(service, "SELECT detail::text FROM audit_log")
    )
    assert token not in dump
    [(kept,)] = await rows(service, "SELECT message FROM dev_mail ORDER BY mail_id DESC LIMIT 1")
    mail: Any = message_from_bytes(kept, policy=policy.default)
    plain, html = mail.get_body(("plain",)).get_content(), mail.get_body(("html",)).get_content()
    assert mail["To"] == address and "invited" in mail["Subject"]
    for text in (plain, html):
        assert f"{service.url}{link}" in text and "finance" in text and "/console/notices" not in text
    [(mailed, problem)] = await rows(
        service, "SELECT mailed_at IS NOT NULL, mail_problem FROM invitation WHERE address = $1", address
    )
    assert mailed and problem is None and "It was mailed" not in await users(admin)


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("used", 410, "This invitation was used"),
        ("withdrawn", 410, "This invitation was withdrawn"),
        ("expired", 410, "This invitation has expired"),
        ("resent", 404, "This link does not work"),
        ("unknown", 404, "This link does not work"),
    ],
)
async def test_a_link_that_works_no_more_says_why(
    service: Service, admin: Browser, visitor: Browser, how: str, status: int, words: str
) -> None:
    address = address_of()
    link = await invited(admin, address)
    place = f"/console/users/invitations/{await id_of(service, address)}"
    if how == "used":
        async with browser(service) as other:
            assert (await other.send(link, PASSWORD)).status_code == 303
    elif how == "expired":
        await rows(service, "UPDATE invitation SET expires_at = now() WHERE address = $1 RETURNING 1", address)
    elif how == "unknown":
        link = link[:-2] + "xx"
    else:
        await admin.post(f"{place}/{'withdraw' if how == 'withdrawn' else 'resend'}")
    for answer in (await visitor.get(link), await visitor.send(link, PASSWORD)):
        assert (answer.status_code, visitor.token) == (status, "") and words in answer.text
    people = await rows(service, "SELECT 1 FROM console_user WHERE name = $1", address)
    assert len(people) == (how == "used")
    if how in ("expired", "resent"):
        await admin.post(f"{place}/resend")
        assert (await visitor.send(await shown_link(admin), PASSWORD)).status_code == 303


async def test_of_many_who_use_a_link_at_once_one_is_in(service: Service, admin: Browser) -> None:
    link = await invited(admin, address_of())
    async with browser(service) as one, browser(service) as other:
        answers = await asyncio.gather(*(each.send(link, PASSWORD) for each in (one, other) * 3))
    assert sorted(answer.status_code for answer in answers) == [303, *[410] * 5]


@pytest.mark.parametrize(
    ("password", "again", "words"),
    [
        ("short", "short", "12 to 200 characters"),
        ("aaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaa", "easily guessed"),
        (GOOD, "another", "not the same"),
        ("", "", "12 to 200 characters"),
    ],
)
async def test_the_rules_of_passwords_hold(
    admin: Browser, visitor: Browser, password: str, again: str, words: str
) -> None:
    link = await invited(admin, address_of())
    refused = await visitor.send(link, {"new": password, "again": again})
    assert refused.status_code == 400 and words in said(refused) and not visitor.token
    assert (await visitor.send(link, PASSWORD)).status_code == 303


@pytest.mark.parametrize(
    "address", ["ann", "two words", "a@b", "<b>@x.com", "ann@example.com\nBcc: x@y.z", "x" * 95 + "@a.com"]
)
async def test_what_is_no_mail_address_is_refused(service: Service, admin: Browser, address: str) -> None:
    refused = await admin.refused("/console/users", {"name": address, "role": "support", "tenant": ""})
    assert "mail address" in said(refused) and 'id="field-name-error"' in refused.text
    assert not await rows(service, "SELECT 1 FROM invitation WHERE address = $1", address)


async def test_who_is_invited_or_inside_is_not_invited_again(service: Service, admin: Browser) -> None:
    address, inside = address_of(), address_of()
    await invited(admin, address)
    await accounts.create(service.database, PASSWORDS, None, inside, "support", "test", GOOD)
    for name, words in (
        (address.upper().replace("EXAMPLE.COM", "example.com"), "invited already"),
        (inside, "already"),
    ):
        refused = await admin.refused("/console/users", {"name": name, "role": "support", "tenant": ""})
        assert words in said(refused)


async def test_a_dealers_admin_invites_colleagues_and_touches_no_others(service: Service, admin: Browser) -> None:
    ours, theirs = [int((await service.tenant()).tenant_id) for _ in range(2)]
    async with signed_in(service, "admin", ours) as one, signed_in(service, "admin", theirs) as other:
        address = address_of()
        link = await invited(one, address, "developer", str(theirs))
        assert address in await users(one) and address not in await users(other) and address in await users(admin)
        place = f"/console/users/invitations/{await id_of(service, address)}"
        for act in ("withdraw", "resend"):
            await other.post(f"{place}/{act}")
            assert said(await other.get("/console/users")) == "there is no such invitation"
        assert "support" in said(await one.refused("/console/users", {"name": address_of(), "role": "support"}))
        async with browser(service) as new:
            assert (await new.send(link, PASSWORD)).status_code == 303
            assert (await new.get("/console/credentials")).status_code == 200
            assert (await new.get("/console/dealers")).status_code == 404
        assert await rows(service, "SELECT tenant_id FROM console_user WHERE name = $1", address) == [(ours,)]
    async with signed_in(service, "developer", ours) as one:
        assert (await one.post("/console/users", {"name": address_of(), "role": "finance"})).status_code == 403


async def test_nobody_comes_in_for_a_disabled_dealer(service: Service, visitor: Browser) -> None:
    ours = int((await service.tenant()).tenant_id)
    async with signed_in(service, "admin", ours) as one:
        link = await invited(one, address_of(), "finance")
    await service.change(ours, status="DISABLED")
    answer = await visitor.send(link, PASSWORD)
    assert answer.status_code == 410 and "This dealer is disabled" in answer.text


async def test_nobody_sends_more_than_a_few_at_once(service: Service) -> None:
    async with signed_in(service) as one:
        for _ in range(20):
            await one.post("/console/users", {"name": address_of(), "role": "support", "tenant": ""})
        refused = await one.refused("/console/users", {"name": address_of(), "role": "support", "tenant": ""})
        assert "Too many" in said(refused)


async def test_another_site_sends_no_password(admin: Browser, visitor: Browser) -> None:
    link = await invited(admin, address_of())
    assert (await visitor.send(link, PASSWORD, Origin="https://evil.example")).status_code == 403
    assert (await visitor.send(link, {"new": "x" * 20_000, "again": "y"})).status_code == 413
