"""The log of all webhooks: its tabs and filters, its file, and sending one again from it."""

import csv
import re
from datetime import UTC, datetime, timedelta

from dealer_server import clock
from dealer_server.operations.overview.count_hours import HourCounter
from dealer_server.store.console import webhooks
from dealer_server.store.console.webhooks import Wanted
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import does, failed_for_good, see, text_of
from support.webhook_fixture import Receiver, answer, eventually


async def log(admin: Browser, query: str) -> str:
    return text_of((await admin.get(f"/console/webhooks?{query}")).text)


async def test_the_log_lists_deliveries_of_all_dealers_by_state_event_and_day(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
) -> None:
    order_no = await failed_for_good(service, dealer, receiver)
    today = datetime.now(UTC).date()
    mine = f"dealer={dealer.tenant_id}"
    assert order_no in await log(admin, "") and order_no in await log(admin, "status=FAILED")
    for wanted in (f"{mine}&status=FAILED&event=ORDER_PAID", f"{mine}&from={today}", f"{mine}&to={today}"):
        assert order_no in await log(admin, wanted), wanted
    for other in ("event=REFUND_COMPLETED", f"from={today + timedelta(days=1)}", f"to={today - timedelta(days=1)}"):
        assert order_no not in await log(admin, f"{mine}&{other}"), other
    assert "“LOST” is not one of the list" in await log(admin, "status=LOST")


async def test_one_is_sent_again_from_the_log_which_stays_as_it_is(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
) -> None:
    await failed_for_good(service, dealer, receiver)
    async with service.database.connection() as connection:
        wanted = Wanted(int(dealer.tenant_id), "FAILED")
        found = (await webhooks.deliveries(connection, wanted, None, 10, datetime.now(UTC))).rows[0]
    path, before = f"/console/deliveries/{dealer.tenant_id}/{found.delivery_id}", len(receiver.requests)
    receiver.answers = [answer(200)]
    for back in ("/console/webhooks?status=FAILED", "https://example.com/"):
        sent = await admin.post(f"{path}/resend", {"back": back})
        assert sent.headers["location"] == (path if "example" in back else back)
    assert f"Delivery {found.delivery_id} is sent again" in await does(admin, f"{path}/resend")
    await receiver.received(before + 1)

    async def marked() -> bool:
        return "HTTP 500 → 200" in await log(admin, f"dealer={dealer.tenant_id}")

    await eventually(marked)


async def test_the_log_says_what_each_told_and_a_delivery_has_its_request_beside_its_attempts(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
) -> None:
    order_no = await failed_for_good(service, dealer, receiver)
    html = (await admin.get(f"/console/webhooks?dealer={dealer.tenant_id}&status=FAILED")).text
    assert re.search(r"Retrying \d.* Undelivered [1-9]", text_of(html)), "tabs count"
    assert re.search(rf"Order paid \w.+ Test dealer {order_no} .*HTTP 500 not retried [\d,]+ ms \d", text_of(html))
    # newest first: DELIVERY_UPDATED may have failed after ORDER_PAID
    pages = list(dict.fromkeys(re.findall(rf'data-href="(/console/deliveries/{dealer.tenant_id}/\d+)"', html)))
    assert (
        "Event Package Dealer" in text_of(html)
        and f"{len(pages)} deliver" in text_of(html)
        and "Answer" not in text_of(html)
    )
    shown = await see(admin, page := pages[-1])
    assert "Order paid: TEST-OK 1 GB 7 days" in shown and order_no in shown
    assert "RT-Delivery-Attempt" in shown and "New at each attempt, not kept" in shown
    assert re.search(
        "Response Status 500 Internal Server Error .*content-length .*out of paper", shown, re.IGNORECASE
    ), "of an attempt that failed"
    async with signed_in(service, "readonly") as reader:
        hidden = await see(reader, page)
        assert "Not visible to your role" in hidden and "content-length:" not in hidden.lower()


async def test_the_log_shows_its_attempts_of_a_day_and_finds_what_failed_at_first(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
) -> None:
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    receiver.answers = [answer(200)]
    good = (await dealer.order()).data["orderNo"]
    await dealer.delivered(good)
    await receiver.received(2)
    mine = f"dealer={dealer.tenant_id}"
    assert "100 % accepted" in await log(admin, mine) and good in await log(admin, mine)
    assert "No failed attempts" in await log(admin, f"{mine}&attempts=failed")
    bad = await failed_for_good(service, dealer, receiver)
    every = (await admin.get(f"/console/webhooks?{mine}")).text
    assert good in every and bad in every and every.count("<th>Event</th>") == 1, "one table, in the order of time"
    page = await log(admin, f"{mine}&attempts=failed")
    assert re.search(r"All Retrying \d+ Undelivered \d+ With failed attempts Delivered", page), "tabs count"
    assert "All Retrying Undelivered With failed attempts Delivered" in await log(admin, f"{mine}&event=ORDER_PAID")
    assert bad in page and good not in page and re.search(r"\d+ of \d+ attempts failed", page)


async def test_the_log_is_exported_with_its_filters(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
) -> None:
    order_no = await failed_for_good(service, dealer, receiver)
    file = await admin.get(f"/console/webhooks.csv?dealer={dealer.tenant_id}&status=FAILED")
    rows = list(csv.DictReader(file.text.splitlines()))
    assert {row["orderNo"] for row in rows} == {order_no} and rows[0]["httpStatus"] == "500"
    assert rows[0]["attempts"] and rows[0]["durationMs"] and rows[0]["tenantId"] == str(dealer.tenant_id)


async def test_a_day_before_and_after_all_deliveries_is_empty(service: Service, dealer: ApiClient) -> None:
    now = datetime.now(UTC)
    async with service.database.connection() as connection:
        for wanted in (
            Wanted(end=datetime(2001, 1, 1, tzinfo=UTC)),
            Wanted(start=now + timedelta(days=400)),
            Wanted(start=datetime(2001, 1, 1, tzinfo=UTC), end=datetime(2001, 1, 2, tzinfo=UTC)),
        ):
            found = await webhooks.deliveries(connection, wanted, None, 10, now)
            assert not found.rows and found.next is None, wanted


async def test_an_endpoints_page_has_its_history_and_finds_deliveries_by_their_answer(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
) -> None:
    order_no = await failed_for_good(service, dealer, receiver)
    home = f"/console/webhooks/endpoints/{dealer.tenant_id}"
    for _ in range(2):  # from the attempts, and then from the hours that were counted
        for name in ("24h", "7d", "30d"):
            page = await see(admin, f"{home}?range={name}")
            assert re.search(r"Accepted 0 % of (\d+) attempts? .* HTTP 500 .* \1 attempts? 100 %", page), page
            assert "p95" in page and page.count("its log has the cause") == 1, "once, in its card"
            assert order_no in page and page.count("UTC") == 2, "at the top, or on a phone in the menu of the user"
        await HourCounter(service.database, lambda: clock.now() + timedelta(hours=1, minutes=6)).count()
    current = re.compile(r'aria-current="page" href="([^"]+)">(All|With failed attempts)<')
    opened = [current.findall((await admin.get(f"{home}{query}")).text) for query in ("", "?attempts=all")]
    assert [one[0][1] for one in opened] == ["With failed attempts", "All"], "what is wrong first"
    for found in ("500", "5xx"):
        for tried in ("", "&attempts=failed"):
            assert order_no in await see(admin, f"{home}?answer={found}{tried}")
        assert order_no in await log(admin, f"dealer={dealer.tenant_id}&status=FAILED&answer={found}")
    for other in ("200", "2xx", "NONE", "TIMEOUT"):
        assert order_no not in await see(admin, f"{home}?answer={other}")
        assert order_no not in await log(admin, f"dealer={dealer.tenant_id}&status=FAILED&answer={other}")
    assert "“6xx” is not 500, 5xx or NONE" in await see(admin, f"{home}?answer=6xx")
    assert "“6xx” is not 500, 5xx or NONE" in await log(admin, "answer=6xx")
    assert (await admin.get("/console/webhooks/endpoints/999999")).status_code == 404


async def test_an_endpoints_page_says_how_it_is_sends_a_test_event_and_finds_events(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
) -> None:
    home = f"/console/webhooks/endpoints/{dealer.tenant_id}"
    assert "This dealer has no callback URL" in await see(admin, home)
    assert "no callback URL is set" in await does(admin, f"{home}/test")
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    assert "Nothing was sent to this endpoint yet" in await see(admin, home)
    receiver.answers = [answer(200)]
    page = text_of((await admin.post(f"{home}/test")).text)
    assert "Test event delivered. The endpoint answered 200 after" in page
    order_no = (await dealer.order()).data["orderNo"]
    await dealer.delivered(order_no)
    await receiver.received(3)

    async def healthy() -> bool:
        return "Healthy http" in await see(admin, home)

    await eventually(healthy)
    assert f"…{dealer.app_key[-4:]}" in await see(admin, home)
    assert order_no in await see(admin, f"{home}?event=ORDER_PAID")
    for other in ("event=REFUND_COMPLETED", "attempts=failed"):
        assert order_no not in await see(admin, f"{home}?{other}"), other
    assert "“LOST” is not one of the list" in await see(admin, f"{home}?event=LOST")
    async with signed_in(service, "readonly") as reader:
        assert (await reader.post(f"{home}/test")).status_code == 403
        assert "Send test event" not in await see(reader, home)


async def test_behind_what_was_not_needed_there_is_no_next_page(service: Service, dealer: ApiClient) -> None:
    """A dealer without an endpoint has deliveries that are not listed: no page follows for their sake."""
    now = datetime.now(UTC)
    async with service.database.connection() as connection:
        skipped = (
            "INSERT INTO webhook_delivery (tenant_id, order_id, event_type, trigger, state, order_version, created_at)"
            " SELECT $1, 1, 'ORDER_PAID', 'AUTO', 'SKIPPED', 1, now() FROM generate_series(1, 12000)"
        )
        await connection.execute(skipped, dealer.tenant_id)
        found = await webhooks.deliveries(connection, Wanted(dealer.tenant_id), None, 10, now)
        assert (list(found.rows), found.next) == ([], None)
        await connection.execute("DELETE FROM webhook_delivery WHERE tenant_id = $1 AND order_id = 1", dealer.tenant_id)
