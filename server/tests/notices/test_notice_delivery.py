"""How do notices arrive? Never twice by two workers, again after a death or a refusal, as each user wants them."""

import asyncio
import json
import re
import secrets
from datetime import timedelta

import pytest

from dealer_server import clock
from dealer_server.notices.loop import NoticeWorker
from dealer_server.operations.retention.sweep import Sweeper
from dealer_server.rules.notices.notice import NewNotice
from dealer_server.store.console.incidents import findings
from dealer_server.store.notices import outbox
from esim_dealer import MalformedWebhook, SignatureMismatch, verify, verify_notice
from support.api_client import ApiClient, Service, http_client
from support.browser import Browser, said, signed_in
from support.notices.smtp_server import SmtpServer
from support.notices.told import FROM, all_told, notice_worker, rows, user
from support.processes import environment, running
from support.webhook_fixture import Receiver, TestClock, hang

KILLED = -9
TOPUP = {
    "topupNo": "T1",
    "transactionId": "t-1",
    "status": "APPROVED",
    "currency": "USD",
    "amount": "20.00",
    "balance": "20.00",
}


async def fact(service: Service, tenant_id: int, name: str = "", **data: object) -> int:
    """Writes the fact of a reviewed top-up; how many facts were new."""
    new = NewNotice(tenant_id, "TOPUP_REVIEWED", name or secrets.token_hex(4), TOPUP | data)
    return await service.database.run(lambda connection: outbox.add(connection, [new], clock.now()))


async def takes_notices(service: Service, dealer: ApiClient, receiver: Receiver) -> None:
    async with signed_in(service, "developer", dealer.tenant_id) as own:
        await own.post("/console/webhooks/notice-url", {"notice_url": receiver.url})


async def states(service: Service, tenant_id: int) -> list[tuple[str, int, str | None]]:
    return [
        (row[0], row[1], row[2])
        for row in await rows(
            service,
            "SELECT state, attempt_count, problem FROM notice_delivery WHERE tenant_id = $1 ORDER BY delivery_id",
            tenant_id,
        )
    ]


async def test_a_fact_that_comes_again_is_told_once_by_several_workers(
    service: Service, dealer: ApiClient, receiver: Receiver, mails: SmtpServer
):
    await user(service, dealer.tenant_id, "finance", f"one-{dealer.tenant_id}@example.com")
    await takes_notices(service, dealer, receiver)
    names = [f"fact-{number % 10}" for number in range(40)]
    assert sum(await asyncio.gather(*[fact(service, dealer.tenant_id, name) for name in names])) == 10
    async with (
        notice_worker(service, mails) as one,
        notice_worker(service, mails) as other,
        notice_worker(service, mails) as third,
    ):
        await asyncio.gather(*[all_told(worker) for worker in (one, other, third)])
        await all_told(one)
    ids = [json.loads(request.body)["noticeId"] for request in receiver.requests]
    assert (len(mails.mails), len(ids), len(set(ids))) == (10, 10, 10)
    assert receiver.most_under_way == 1
    assert {mail.message["X-Notice-ID"] for mail in mails.mails} == set(ids)


@pytest.mark.parametrize("by", ["mail", "url"])
async def test_a_worker_that_is_killed_between_sending_and_recording_sends_the_same_notice_again(
    service: Service, dealer: ApiClient, receiver: Receiver, mails: SmtpServer, by: str
):
    address = f"killed-{dealer.tenant_id}@example.com"
    if by == "mail":
        await user(service, dealer.tenant_id, "finance", address)
    else:
        await takes_notices(service, dealer, receiver)
    env = environment(service.settings.database_url) | {
        "DEALER_PUBLIC_URL": service.url,  # all workers have one: links and the Message-ID are made of it
        "DEALER_SMTP_HOST": "127.0.0.1",
        "DEALER_SMTP_PORT": str(mails.port),
        "DEALER_SMTP_TLS": "none",
        "DEALER_SMTP_FROM": FROM,
        "DEALER_STOCK_LOW": "0",
    }
    await fact(service, dealer.tenant_id)
    for point in ("notice.sent", "notice.claimed"):
        async with running("work", env=env, kill_at=point) as work:
            assert await work.ended() == KILLED, work.said
        await rows(
            service,
            "UPDATE notice_delivery SET due_at = now() WHERE tenant_id = $1 AND due_at IS NOT NULL RETURNING 1",
            dealer.tenant_id,
        )
    async with notice_worker(service, mails) as one:
        await all_told(one)
    assert {tuple(mail.to) for mail in mails.mails} <= {(address,)}, "nobody else is told"
    sent = [mail.raw for mail in mails.mails] if by == "mail" else [request.body for request in receiver.requests]
    assert len(sent) == 2 and len(mails.mails) + len(receiver.requests) == 2
    assert len({mail.message["Message-ID"] for mail in mails.mails} or set(sent)) == 1
    assert await states(service, dealer.tenant_id) == [("DELIVERED", 3, None)]


async def test_a_post_is_signed_as_webhooks_are_and_retried_with_the_same_bytes(
    service: Service, dealer: ApiClient, receiver: Receiver
):
    await takes_notices(service, dealer, receiver)
    await fact(service, dealer.tenant_id)
    receiver.answers = [500, 302, 200]
    async with notice_worker(service, schedule=(0, 0, 0, 0)) as one:
        await all_told(one)
    assert [request.number for request in receiver.requests] == [1, 2, 3]
    assert len({request.body for request in receiver.requests}) == 1
    assert len({request.headers["rt-requestid"] for request in receiver.requests}) == 3
    last = receiver.requests[-1]
    notice = verify_notice(last.headers, last.body, dealer.app_secret, app_key=dealer.app_key)
    assert (notice.notice_type, notice.attempt, notice.is_test) == ("TOPUP_REVIEWED", 3, False)
    assert notice.notice_id == last.headers["rt-delivery-id"] and notice.data == TOPUP
    with pytest.raises(SignatureMismatch):
        verify_notice(last.headers, last.body + b" ", dealer.app_secret)
    assert await states(service, dealer.tenant_id) == [("DELIVERED", 3, None)]


async def test_what_fails_for_good_is_kept_and_shown(service: Service, dealer: ApiClient, receiver: Receiver):
    await takes_notices(service, dealer, receiver)
    await fact(service, dealer.tenant_id)
    receiver.answers = [503]
    async with notice_worker(service, schedule=(0, 0, 0)) as one:
        assert await all_told(one) == 3
        await fact(service, dealer.tenant_id)
        receiver.answers = [410]
        assert await all_told(one) == 1
    assert await states(service, dealer.tenant_id) == [("FAILED", 3, "HTTP 503"), ("FAILED", 1, "HTTP 410")]
    async with signed_in(service, "finance", dealer.tenant_id) as own:
        page = (await own.get("/console/notices")).text
    assert "HTTP 503" in page and "notice URL" in page and "Top-up approved: 20.00\u00a0USD" in page


async def test_a_notice_has_a_page_for_those_who_are_told_of_it(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    plan = {"profileId": "7", "iccid": "8944000000000000007", "packageCode": "TEST-OK"}
    plans = [plan | {"planUseEndTime": "2026-11-30T14:00:00Z"}]
    ending = NewNotice(
        dealer.tenant_id, "PLANS_ENDING", "2026-11-30", {"date": "2026-11-30", "count": 3, "plans": plans}
    )
    await service.database.run(lambda connection: outbox.add(connection, [ending], clock.now()))
    async with (
        signed_in(service, "admin", dealer.tenant_id) as own,
        signed_in(service, "finance", dealer.tenant_id) as finance,
        signed_in(service, "admin", stranger.tenant_id) as other,
    ):
        inbox = (await own.get("/console/notices")).text
        [path] = set(re.findall(r'href="(/console/notices/\d+)"', inbox))
        page = (await own.get(path)).text
        assert "3 plans end on 30 Nov 2026" in page and "/console/profiles/7" in page and "And 2 more" in page
        assert (await finance.get(path)).status_code == (await other.get(path)).status_code == 404


async def test_a_receiver_that_hangs_delays_no_other_dealer_and_takes_one_place(
    service: Service, dealer: ApiClient, stranger: ApiClient, receiver: Receiver, mails: SmtpServer
):
    slow = await Receiver().start()
    slow.answers = [hang]
    await takes_notices(service, dealer, slow)
    await takes_notices(service, stranger, receiver)
    for _ in range(5):
        await fact(service, dealer.tenant_id)
    await fact(service, stranger.tenant_id)
    async with notice_worker(service) as one:
        await one.address()
        assert await one.run_once() == 2
        await receiver.received(1)
        await slow.received(1)
        assert await one.run_once() == 0
        assert slow.most_under_way == 1
        await slow.close()


async def test_a_mail_is_tried_again_after_a_moments_refusal_and_not_after_a_final_one(
    service: Service, dealer: ApiClient, mails: SmtpServer
):
    await user(service, dealer.tenant_id, "finance", f"again-{dealer.tenant_id}@example.com")
    mails.refusals = [("RCPT", "451 later"), ("DATA", "452 full"), ("EHLO", "500 what?"), ("", "")]
    await fact(service, dealer.tenant_id)
    async with notice_worker(service, mails, schedule=(0, 0, 0, 0, 0, 0)) as one:
        await all_told(one)
        assert len(mails.mails) == 1
        mails.refusals = [("RCPT", "550 no such\r\tuser")]
        await fact(service, dealer.tenant_id)
        assert await all_told(one) == 1
    [taken, refused] = await states(service, dealer.tenant_id)
    assert taken[0] == "DELIVERED" and refused == ("FAILED", 1, "550 no such user")
    async with service.database.connection() as connection:
        failing = await findings.failing_mails(connection, clock.now() - timedelta(hours=1))
        assert failing and failing.problem == "550 no such user"
        assert await findings.failing_mails(connection, clock.now() + timedelta(hours=1)) is None
    mine = f"again-{dealer.tenant_id}@example.com"
    async with signed_in(service, "support") as helper, signed_in(service, "readonly") as reader:
        page = await helper.get(f"/console/mails?status=FAILED&to={mine}")
        assert mine in page.text and "550 no such user" in page.text
        assert "550 no such" not in (await helper.get(f"/console/mails?status=WAITING&to={mine}")).text
        [again] = re.findall(r'action="(/console/mails/\d+/\d+/resend)"', page.text)
        assert (await reader.post(again)).status_code == 403
        assert (await helper.post(again)).status_code == 303
        mails.refusals = []
        async with notice_worker(service, mails, schedule=(0,)) as one:
            await all_told(one)
        assert [state for state, *_ in await states(service, dealer.tenant_id)] == ["DELIVERED", "DELIVERED"]
        assert "did not fail" in (await helper.get((await helper.post(again)).headers["location"])).text


async def test_users_are_told_what_they_want_where_they_want_it(service: Service, dealer: ApiClient, mails: SmtpServer):
    async with (
        signed_in(service, "finance", dealer.tenant_id, f"ada-{dealer.tenant_id}@example.com") as ada,
        signed_in(service, "admin", dealer.tenant_id, f"no-address-{dealer.tenant_id}") as bob,
        signed_in(service, "admin", dealer.tenant_id, f"off-{dealer.tenant_id}@example.com") as off,
        signed_in(service, "developer", dealer.tenant_id, f"dev-{dealer.tenant_id}@example.com"),
        notice_worker(service, mails) as one,
    ):
        await off.post("/console/notices/settings", {"mail": "", "LOW_BALANCE": "on", "when": "once"})
        await fact(service, dealer.tenant_id)
        await all_told(one)
        assert [mail.to for mail in mails.mails] == [[ada.name]]
        await bob.post("/console/notices/settings", {"mail": "bob@example.com", "TOPUP_REVIEWED": "on", "when": "once"})
        await ada.post(
            "/console/notices/settings", {"mail": "elsewhere@example.com", "TOPUP_REVIEWED": "on", "when": "once"}
        )
        for address in ("bob@example.com", "elsewhere@example.com"):
            await confirmed(bob, one, mails, address)
        del mails.mails[1:]
        await fact(service, dealer.tenant_id)
        await all_told(one)
        assert sorted(mail.to[0] for mail in mails.mails[1:]) == ["bob@example.com", "elsewhere@example.com"]
        page = (await bob.get("/console/notices/settings")).text
        assert "bob@example.com" in page and 'value="once" selected' in page
        await rows(service, "UPDATE console_user SET status = 'DISABLED' WHERE user_id = $1 RETURNING 1", bob.user_id)
        await fact(service, dealer.tenant_id)
        await all_told(one)
        assert [mail.to for mail in mails.mails[3:]] == [["elsewhere@example.com"]]


async def link_to(one: NoticeWorker, mails: SmtpServer, address: str) -> str:
    """The path of the newest link that was mailed to an address."""
    await all_told(one)
    mail = [mail for mail in mails.mails if mail.to == [address]][-1]
    found = re.search(r"/console/confirm-address/[\w-]{43}", mail.plain)
    assert found and mail.message["Subject"] == "[eSIM Dealer] Confirm your address", mail.plain
    return found[0]


async def confirmed(browser: Browser, one: NoticeWorker, mails: SmtpServer, address: str) -> None:
    """Whoever has the link confirms; nobody needs to be signed in."""
    link = await link_to(one, mails, address)
    async with http_client() as http:
        assert address in (await http.get(f"{browser.url}{link}")).text
        assert "Email confirmed" in (await http.post(f"{browser.url}{link}")).text


async def test_an_address_is_told_of_nothing_before_it_is_confirmed(
    service: Service, dealer: ApiClient, mails: SmtpServer
):
    new, name = f"new-{dealer.tenant_id}@example.com", f"old-{dealer.tenant_id}@example.com"
    wanted = {"mail": new, "TOPUP_REVIEWED": "on", "when": "once"}
    async with (
        signed_in(service, "finance", dealer.tenant_id, name) as own,
        notice_worker(service, mails) as one,
    ):
        await own.post("/console/notices/settings", wanted)
        page = (await own.get("/console/notices/settings")).text
        assert "Unconfirmed" in page and f"Until then notices go to <bdi>{name}</bdi>" in page
        first = await link_to(one, mails, new)
        await fact(service, dealer.tenant_id)
        await all_told(one)
        assert [mail.to for mail in mails.mails] == [[new], [name]], "the notice goes where they went before"
        await own.post("/console/notices/settings", wanted | {"when": "daily"})
        await own.post("/console/notices/settings", wanted)
        await all_told(one)
        assert len(mails.mails) == 2, "saving the rest of the form sends no other link"
        await own.post("/console/notices/confirmation")
        second = await link_to(one, mails, new)
        assert (await own.get(first)).status_code == 410 and second != first
        stored = await rows(service, "SELECT c::text, n.data::text FROM mail_confirmation c, notice n")
        assert stored and all(second.rpartition("/")[2] not in part for row in stored for part in row)
        for _ in range(3):
            assert "Confirm your email" in (await own.get(second)).text, "opening it changes nothing"
        await confirmed(own, one, mails, new)
        assert (await own.send(second)).status_code == 410, "it works once"
        page = (await own.get("/console/notices/settings")).text
        assert "Unconfirmed" not in page and f'value="{new}"' in page and "Confirmed." not in page, "email is off here"
        await fact(service, dealer.tenant_id)
        await all_told(one)
        assert mails.mails[-1].to == [new]


async def test_a_link_expires_and_only_a_few_are_sent(service: Service, dealer: ApiClient, mails: SmtpServer):
    async with (
        signed_in(service, "finance", dealer.tenant_id, f"late-{dealer.tenant_id}") as own,
        notice_worker(service, mails) as one,
    ):
        address = f"late-{dealer.tenant_id}@example.com"
        await own.post("/console/notices/settings", {"mail": address, "when": "once"})
        link = await link_to(one, mails, address)
        await rows(
            service, "UPDATE mail_confirmation SET expires_at = now() WHERE user_id = $1 RETURNING 1", own.user_id
        )
        assert (await own.get(link)).status_code == (await own.send(link)).status_code == 410
        assert "its link has expired" in (await own.get("/console/notices/settings")).text
        for _ in range(6):
            await own.post("/console/notices/confirmation")
        assert "Too many" in said(await own.get("/console/notices/settings"))
        await own.post("/console/notices/settings", {"mail": "", "when": "once"})
        assert "Unconfirmed" not in (await own.get("/console/notices/settings")).text
        await own.post("/console/notices/confirmation")
        assert "Too many" in said(await own.get("/console/notices/settings"))


@pytest.mark.parametrize(
    "mail",
    ["ada", "a@b", "a@example.com, b@example.com", "a@example.com\nBcc: b@example.com", "<a@example.com>",
     "ä@example.com", "a b@example.com", f"{'a' * 250}@example.com", "a..b@example.com"],
)  # fmt: skip
async def test_a_mail_address_that_is_none_is_refused_in_words(service: Service, dealer: ApiClient, mail: str):
    async with signed_in(service, "admin", dealer.tenant_id) as own:
        await own.post("/console/notices/settings", {"mail": mail, "when": "once"})
        page = (await own.get("/console/notices/settings")).text
    assert "mail address is" in page and "accepted: one plain address such as ada@example.com" in page


async def test_a_digest_tells_once_a_day_all_in_one_mail(service: Service, dealer: ApiClient, mails: SmtpServer):
    time = TestClock()
    async with (
        signed_in(service, "finance", dealer.tenant_id, f"daily-{dealer.tenant_id}@example.com") as own,
        notice_worker(service, mails, time, digest_hour=7, schedule=(0, 0)) as one,
        notice_worker(service, mails, time, digest_hour=7, schedule=(0, 0)) as other,
    ):
        await own.post("/console/notices/settings", {"mail": "", "TOPUP_REVIEWED": "on", "when": "daily"})
        for _ in range(3):
            await fact(service, dealer.tenant_id)
            await asyncio.gather(one.address(), other.address())
        await all_told(one)
        assert mails.mails == []
        assert 'value="daily" selected' in (await own.get("/console/notices/settings")).text
        time.advance(timedelta(days=1).total_seconds())
        mails.refusals = [("MAIL", "421 later")]
        await asyncio.gather(all_told(one), all_told(other))
        await all_told(one)
        [mail] = mails.mails
        assert mail.message["Subject"] == "[eSIM Dealer] 3 notices"
        assert mail.plain.count("Top-up approved: 20.00 USD") == 3 == mail.message["X-Notice-ID"].count("N")
        await fact(service, dealer.tenant_id)
        time.advance(timedelta(days=1).total_seconds())
        await one.address()
        time.advance(timedelta(days=1).total_seconds())
        await all_told(one)
        assert len(mails.mails) == 2, "the next day's is another mail"


async def test_without_a_mail_server_nothing_is_mailed_and_the_console_says_so(service: Service, dealer: ApiClient):
    async with signed_in(service, "admin", dealer.tenant_id, f"none-{dealer.tenant_id}@example.com") as own:
        await fact(service, dealer.tenant_id)
        async with notice_worker(service) as one:
            assert await all_told(one) == 0
        page = (await own.get("/console/notices")).text
        assert "Email is off: no mail server is set up." in page and "Top-up approved: 20.00\u00a0USD" in page
        assert (await own.get("/console/mails")).status_code == 404
    async with signed_in(service) as admin:
        assert (await admin.get("/console/mails")).status_code == 200
        assert (await admin.get("/console/mails/1")).status_code == 404


async def test_the_notice_url_is_tested_and_is_not_the_callback_url(
    service: Service, dealer: ApiClient, receiver: Receiver
):
    async with signed_in(service, "developer", dealer.tenant_id) as own:
        await own.post("/console/webhooks/notice-test")
        assert "no notice URL is set" in (await own.get("/console/webhooks")).text
        await own.post("/console/webhooks/notice-url", {"notice_url": "http://10.0.0.1/x"})
        assert "notice URL: the address 10.0.0.1 is not a public one" in (await own.get("/console/webhooks")).text
        await own.post("/console/webhooks/notice-url", {"notice_url": receiver.url})
        await own.post("/console/webhooks/notice-test")
        assert "The test notice was taken. Your endpoint answered 200" in (await own.get("/console/webhooks")).text
        receiver.answers = [404]
        await own.post("/console/webhooks/notice-test")
        assert "The test notice was not taken. Your endpoint answered 404" in (await own.get("/console/webhooks")).text
    [first, _] = receiver.requests
    notice = verify_notice(first.headers, first.body, dealer.app_secret)
    assert (notice.notice_type, notice.notice_id, notice.is_test) == ("TEST", "N0", True)
    with pytest.raises(MalformedWebhook):
        verify(first.headers, first.body, dealer.app_secret)
    assert (await dealer.post("/webhook/query")).data["callbackUrl"] == ""
    acts = await rows(service, "SELECT action FROM audit_log WHERE tenant_id = $1 ORDER BY audit_id", dealer.tenant_id)
    assert ("notice.url",) in acts


async def test_old_notices_are_deleted_with_what_told_of_them(service: Service, dealer: ApiClient, receiver: Receiver):
    await takes_notices(service, dealer, receiver)
    await fact(service, dealer.tenant_id)
    async with notice_worker(service) as one:
        await all_told(one)
    await fact(service, dealer.tenant_id)  # nobody was told of it yet: it stays
    later = TestClock()
    later.advance(timedelta(days=92).total_seconds())
    sweeper = Sweeper(service.database, later, {"notice": timedelta(days=90)})
    deleted = await sweeper.sweep()
    await sweeper.close()
    assert deleted["notice"] >= 1
    assert await states(service, dealer.tenant_id) == []
    left = await rows(service, "SELECT addressed_at FROM notice WHERE tenant_id = $1", dealer.tenant_id)
    assert left == [(None,)]
