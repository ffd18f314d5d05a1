"""A dealer's inbox: what is unread, what is folded together, and what each user sees of it."""

import re
from datetime import date, timedelta

from dealer_server import clock
from dealer_server.rules.notices.notice import AnyNoticeType, NewNotice
from dealer_server.rules.notices.samples import SAMPLES
from dealer_server.store.notices import marks, outbox
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in

INBOX = "/console/notices"


async def told(service: Service, tenant_id: int, notice_type: AnyNoticeType, fact: str, **data: object) -> None:
    new = NewNotice(tenant_id, notice_type, fact, {**SAMPLES[notice_type], **data})
    await service.database.run(lambda connection: outbox.add(connection, [new], clock.now()))


async def plans_end(service: Service, tenant_id: int, day: date, count: int) -> None:
    await told(service, tenant_id, "PLANS_ENDING", day.isoformat(), date=day.isoformat(), count=count)


def unread(page: str) -> int:
    return page.count("Unread: ")


async def see(browser: Browser, path: str = INBOX) -> str:
    return (await browser.get(path)).text


async def test_a_notice_is_unread_until_this_user_opens_it_or_marks_all(service: Service, dealer: ApiClient):
    await told(service, dealer.tenant_id, "TOPUP_REVIEWED", "before")
    async with (
        signed_in(service, "admin", dealer.tenant_id) as ada,
        signed_in(service, "finance", dealer.tenant_id) as bob,
    ):
        assert unread(await see(ada)) == 0, "what was told before the user was made is read"
        await told(service, dealer.tenant_id, "LOW_BALANCE", "low")
        await told(service, dealer.tenant_id, "RECEIVER_FAILING", "failing")
        page = await see(ada)
        assert unread(page) == 2 and 'class="side-count">2 unread<' in page
        assert unread(await see(bob)) == 1, "finance is not told of endpoints"
        [path] = set(re.findall(r'href="(/console/notices/\d+)"[^>]*>(?:<span[^>]*>Unread: </span><bdi>Low)', page))
        await see(ada, path)
        assert unread(await see(ada)) == 1 == unread(await see(ada, f"{INBOX}?kind=unread"))
        assert unread(await see(bob)) == 1, "each user reads for itself"
        newest = re.search(r'name="newest" value="(\d+)"', await see(ada))
        assert newest
        await told(service, dealer.tenant_id, "PRICE_CHANGED", "meanwhile")
        await ada.post(f"{INBOX}/read", {"newest": newest[1]})
        page = await see(ada)
        assert unread(page) == 1 and "Mark all as read" in page, "what came meanwhile stays unread"
        await ada.post(f"{INBOX}/read", {"newest": re.findall(r'name="newest" value="(\d+)"', page)[0]})
        page = await see(ada)
        assert unread(page) == 0 and "Mark all as read" not in page and "side-count" not in page
        assert "All read" in await see(ada, f"{INBOX}?kind=unread")


async def test_kinds_are_listed_apart_and_plans_that_have_ended_are_one_line_of_a_week(
    service: Service, dealer: ApiClient
):
    today = clock.now().date()
    async with signed_in(service, "admin", dealer.tenant_id) as ada:
        monday = today - timedelta(days=today.weekday() + 7)
        for day, count in ((monday - timedelta(days=1), 6), (monday, 2), (monday + timedelta(days=2), 3)):
            await plans_end(service, dealer.tenant_id, day, count)
        await plans_end(service, dealer.tenant_id, today + timedelta(days=1), 1)
        await told(service, dealer.tenant_id, "LOW_BALANCE", "low")
        page = await see(ada)
        assert "6 plans ended" in page and "5 plans ended, " in page and page.count("notice-more") == 1
        customers = await see(ada, f"{INBOX}?kind=customers")
        assert "5 plans ended" not in customers and "3 plans ended" in customers
        assert customers.count("Unread: ") == 4 and "Low balance" not in customers
        assert "Low balance" in await see(ada, f"{INBOX}?kind=money")
        assert "No such notices" in await see(ada, f"{INBOX}?kind=integration")
        places = [page.index(words) for words in ("Low balance", "1 plan ends", "5 plans ended", "6 plans ended")]
        assert places == sorted(places), "the newest first"


async def test_marks_keep_few_and_a_notice_is_opened_once(service: Service, dealer: ApiClient):
    async with signed_in(service, "admin", dealer.tenant_id) as ada, service.database.connection() as connection:
        before = (await marks.of_user(connection, ada.user_id)).read_to
        for notice_id in (*range(before + 1, before + 600), before + 599):
            await marks.open_one(connection, ada.user_id, notice_id)
        mark = await marks.of_user(connection, ada.user_id)
        assert mark.read_to == before and list(mark.opened) == list(range(before + 100, before + 600))
        await marks.read_to(connection, ada.user_id, before + 590)
        assert list((await marks.of_user(connection, ada.user_id)).opened) == list(range(before + 591, before + 600))
        await marks.read_to(connection, ada.user_id, 1)
        assert (await marks.of_user(connection, ada.user_id)).read_to == before + 590


async def test_a_developer_is_told_what_became_of_an_app_key(service: Service, dealer: ApiClient):
    async with signed_in(service, "developer", dealer.tenant_id) as own, signed_in(service) as admin:
        home = f"/console/dealers/{dealer.tenant_id}/credentials/{dealer.app_key}"
        for verb in ("reset", "disable", "disable", "enable"):
            await admin.post(f"{home}/{verb}", {"password": admin.password})
        page = await see(own, f"{INBOX}?kind=integration")
        order = [page.index(f"{dealer.app_key} was {word}") for word in ("enabled", "disabled", "reset")]
        assert order == sorted(order) and unread(page) == 3
        [*_, path] = re.findall(r'href="(/console/notices/\d+)"', page)
        assert "Previous AppSecret valid until" in await see(own, path)
