"""SMS at the console: dealers send and read them, operators see them, and who reads a text stands in the audit log."""

import html
import json
import re

import pytest

from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import acts
from support.money.refunds import bought, profiles
from support.suppliers.sms import SMS, TEXT, installed, new, rows

EVIL = '"><script>alert(1)</script>'
FORM = re.compile(r'/sms"(?:(?!</form>).)*?name="transaction_id" value="(console-[0-9a-f]{16})"', re.DOTALL)


async def seen(browser: Browser, path: str) -> str:
    answered = await browser.get(path)
    assert answered.status_code == 200
    return html.unescape(answered.text)


async def test_a_dealer_sends_an_sms_and_sees_it(service: Service, dealer: ApiClient):
    profile = await installed(dealer)
    page = f"/console/profiles/{profile['profileId']}"
    async with signed_in(service, "developer", dealer.tenant_id) as person:
        [transaction_id] = FORM.findall(await seen(person, page))
        form = {"transaction_id": transaction_id, "message": f"{TEXT}\r\n{EVIL}"}
        for _ in range(2):
            assert (await person.post(f"{page}/sms", form)).headers["location"] == page
        shown = (await person.get(page)).text
        assert "SMS M" in html.unescape(shown) and EVIL not in shown and f"{TEXT}\n{EVIL}" in html.unescape(shown)
        author = f"console:{person.name}"
    assert await rows(service, "SELECT count(*) FROM sms WHERE tenant_id = $1", dealer.tenant_id) == [(1,)]
    [act] = [act for act in await acts(service, "profile.send_sms") if act.tenant_id == dealer.tenant_id]
    assert act.author == author and json.loads(act.detail)["profileId"] == int(profile["profileId"])
    assert TEXT not in act.detail


async def test_a_text_that_is_refused_is_not_lost(service: Service, dealer: ApiClient):
    profile = await installed(dealer)
    await dealer.post(SMS, new(profile))
    page = f"/console/profiles/{profile['profileId']}"
    async with signed_in(service, "developer", dealer.tenant_id) as person:
        [transaction_id] = FORM.findall(await seen(person, page))
        form = {"transaction_id": transaction_id, "message": f"{TEXT}\r\n{EVIL}"}
        answered = await person.post(f"{page}/sms", form)
        assert answered.headers["location"] == page
        shown = await seen(person, page)
        dialog = shown.partition('id="dialog-sms"')[2].partition("</dialog>")[0]
        assert f"\n{TEXT}\r\n{EVIL}</textarea>" in dialog and "data-reopen" in dialog.partition(">")[0]
        assert transaction_id in dialog, "sent again it is the same SMS"
        assert "One SMS a minute. Send it again in " in dialog
        assert shown.count("One SMS a minute.") == 1, "the dialog says it, not the page behind it too"
        assert EVIL not in await seen(person, page), "it is shown once"


async def test_who_sees_no_codes_sees_no_texts_and_sends_none(service: Service, dealer: ApiClient):
    profile = await installed(dealer)
    await dealer.post(SMS, new(profile))
    page = f"/console/profiles/{profile['profileId']}"
    async with signed_in(service, "finance", dealer.tenant_id) as clerk:
        shown = await seen(clerk, page)
        assert 'title="SENT">Sent</span>' in shown and TEXT not in shown and not FORM.search(shown)
        form = {"transaction_id": "mine", "message": "x"}
        assert (await clerk.post(f"{page}/sms", form)).status_code == 403


async def test_there_is_no_form_where_no_sms_can_be_sent(service: Service, dealer: ApiClient):
    profile = profiles(await bought(dealer))[0]
    page = f"/console/profiles/{profile['profileId']}"
    async with signed_in(service, "admin", dealer.tenant_id) as person:
        assert not FORM.search(await seen(person, page))
        form = {"transaction_id": "mine", "message": "x"}
        answered = await person.post(f"{page}/sms", form)
        assert answered.status_code == 303
        assert "not installed" in await seen(person, answered.headers["location"])


async def test_a_stranger_finds_no_profile_to_send_to(service: Service, dealer: ApiClient, stranger: ApiClient):
    profile = await installed(dealer)
    page = f"/console/profiles/{profile['profileId']}"
    async with signed_in(service, "admin", stranger.tenant_id) as person:
        await person.post(f"{page}/sms", {"transaction_id": "mine", "message": "x"})
        assert (await person.get(page)).status_code == 404
    assert await rows(service, "SELECT count(*) FROM sms WHERE profile_id = $1", int(profile["profileId"])) == [(0,)]


@pytest.mark.parametrize("role", ["admin", "support", "finance", "readonly"])
async def test_an_operator_sees_sms_and_who_reads_the_texts_is_written_down(
    service: Service, dealer: ApiClient, role: str
):
    profile = await installed(dealer)
    await dealer.post(SMS, new(profile))
    page, reads = f"/console/profiles/{profile['profileId']}", role in ("admin", "support")
    async with signed_in(service, role) as one:
        shown = await seen(one, page)
        assert 'title="SENT">Sent</span>' in shown and TEXT not in shown
        assert (f'href="{page}/sms"' in shown) == reads
        answered = await one.get(f"{page}/sms")
        assert answered.status_code == (200 if reads else 403)
        assert (TEXT in html.unescape(answered.text)) == reads
        assert 'hx-trigger="every' not in answered.text, "a page that renews itself would read again and again"
        author = f"console:{one.name}"
    read = [act for act in await acts(service, "profile.view_sms") if act.tenant_id == dealer.tenant_id]
    assert [(act.author, json.loads(act.detail)) for act in read] == (
        [(author, {"profileId": int(profile["profileId"])})] if reads else []
    )


async def test_an_operator_who_looks_for_texts_where_there_are_none_is_not_written_down(
    service: Service, dealer: ApiClient, admin: Browser
):
    profile = await installed(dealer)
    assert (await admin.get(f"/console/profiles/{profile['profileId']}/sms")).status_code == 200
    assert not [act for act in await acts(service, "profile.view_sms") if act.tenant_id == dealer.tenant_id]
