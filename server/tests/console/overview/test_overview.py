"""The operator's first page: what is wrong, worst first, then how sales go."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from dealer_server import clock
from dealer_server.notices.looks import Limits
from dealer_server.operations.overview.count_hours import HourCounter
from dealer_server.operations.suppliers.configure import set_route, set_supplier_status
from dealer_server.rules import dates
from dealer_server.store.console import overview as console_overview
from dealer_server.store.console.overview import HOUR
from support.api_client import ApiClient, Service, running_service
from support.browser import Browser, signed_in
from support.console.operator_pages import failed_for_good, see, text_of
from support.notices.told import notice_worker
from support.patience import PATIENCE
from support.store_fixture import stock_csv
from support.supplier_setup import fresh, hop
from support.suppliers.purchases import PurchaseFixture, purchase_fixture
from support.webhook_fixture import Receiver, answer


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template) as market:
        yield market
        assert await market.service.audit() == []


@pytest.fixture
async def quiet(postgres: str, template: str) -> AsyncIterator[Service]:
    """A service of its own, whose worker is driven by hand."""
    async with fresh(postgres, template) as url, running_service(url, worker=False) as service:
        await HourCounter(service.database, clock.now).count()
        yield service


async def incidents(browser: Browser, path: str = "/console") -> str:
    """What stands in the list of incidents."""
    page = re.sub(" (?=[,.:])", "", await see(browser, path))
    head = next(words for words in (" Needs attention", " For your information", " All clear") if words in page)
    page = page[page.index(head) :]
    return page[: page.index(" Today 7 days ")]


async def run(service: Service, sql: str, *args: object) -> None:
    async with service.database.connection() as connection:
        await connection.execute(sql, *args)


async def test_all_is_clear_where_nothing_is_wrong(quiet: Service):
    async with signed_in(quiet, "readonly") as one:
        assert "For your information Two-factor sign-in is off for your account" in await incidents(one)
        await run(quiet, "UPDATE console_user SET sealed_totp = 'x', totp_on = true")
        assert "All clear." in await incidents(one)
        page = await see(one, "/console")
        assert "Healthy suppliers" not in page and "Supplier queues" not in page


async def test_a_worker_that_is_not_seen_is_missed(postgres: str, template: str):
    async with (
        fresh(postgres, template) as url,
        running_service(url, worker=False) as service,
        signed_in(service) as admin,
    ):
        assert "No worker has run yet: nothing is delivered, no webhook is sent" in await incidents(admin)
        ago = clock.now() - timedelta(minutes=10)
        await HourCounter(service.database, lambda: ago).count()
        assert f"No worker has been seen since {dates.exact(ago)}" in await incidents(admin)
        await HourCounter(service.database, clock.now).count()
        assert "No worker" not in await incidents(admin)


async def test_lines_that_wait_for_a_paused_supplier_are_counted_and_listed(market: PurchaseFixture):
    await set_route(market.service.database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    market.near.fault("esim/order", *["200007"] * 50)
    orders = [(await market.client.order()).data["orderNo"] for _ in range(3)]
    async with asyncio.timeout(PATIENCE):
        while await market.rows("SELECT count(*) FROM purchase WHERE failures > 0") != [(3,)]:
            await asyncio.sleep(0.02)
    async with signed_in(market.service) as admin:
        await set_supplier_status(market.service.database, "rt:near", "PAUSED", "test")
        said = await incidents(admin)
        assert "Supplier rt:near has been paused since " in said and "3 items wait, the oldest for" in said
        assert "the last attempt for 3 of 3 eSIMs failed (our balance at the supplier is too low)" in said
        assert "View items View supplier" in said
        listed = (await admin.get("/console")).text.partition("Waiting orders")[2].partition("Latest orders")[0]
        assert all(f"/console/orders/{order}" in listed for order in orders) and "Test dealer" in listed
        assert "Being delivered" in listed
        lines = await see(admin, "/console/waiting?supplier=rt:near")
        assert (
            all(order in lines for order in orders)
            and "Top up our balance at the supplier. INSUFFICIENT_FUNDS" in lines
        )
        assert "No items match" in await see(admin, "/console/waiting?supplier=rt:far")
        head = (await see(admin, "/console/suppliers/rt:near")).partition(" Checked ")[0]
        assert "Supplier rt:near has been paused since" in head and "3 items wait" in head and "View items" in head
        await set_supplier_status(market.service.database, "rt:near", "ACTIVE", "test")


async def test_counts_of_what_is_unconfirmed_agree(market: PurchaseFixture):
    market.near.slow = 1_000
    await market.client.order()
    await market.becomes("SELECT state FROM purchase", "PENDING")
    await market.rows(
        "UPDATE purchase SET state = 'PARKED', due_at = NULL, reason = 'no answer', unknown_since = now()"
    )
    async with signed_in(market.service) as admin:
        assert "1 purchase at rt:near, 1.80 USD, has been unconfirmed since" in await incidents(admin)
        page = await see(admin, "/console")
        assert "1 purchase at rt:near, 1.80 USD, has been unconfirmed" in page
        assert "1 unconfirmed" in page and "UNKNOWN" not in page
        assert "Unconfirmed no answer" in await see(admin, "/console/waiting?state=PARKED")
    async with signed_in(market.service, "readonly") as reader:
        said = await incidents(reader)
        assert "View purchases" in said and "Settle" not in said


async def test_a_receiver_that_fails_is_told_of_until_it_listens(market: PurchaseFixture, receiver: Receiver):
    receiver.answers = [answer(500)]
    await market.client.post("/webhook/set", {"callbackUrl": receiver.url})
    for _ in range(3):
        await market.client.delivered((await market.client.order()).data["orderNo"])
    async with asyncio.timeout(PATIENCE):
        while (await market.rows("SELECT consecutive_failures FROM webhook_endpoint"))[0][0] < 3:
            await asyncio.sleep(0.02)
    async with signed_in(market.service) as admin:
        said = await incidents(admin)
        assert "The endpoint of Test dealer has been failing since " in said and "webhooks not delivered" in said
        page = await see(admin, "/console/webhooks")
        assert "ACTIVE" not in page and re.search(r"Failing 0\s% (\d+) of \1 failed", page), page
        assert "has been failing since" in await see(admin, f"/console/dealers/{market.client.tenant_id}")
        async with signed_in(market.service, "admin", market.client.tenant_id) as dealer:
            assert "Your endpoint has been failing since" in await see(dealer, "/console")
            assert "Your endpoint answers HTTP 500 since" in await see(dealer, "/console/webhooks")
        receiver.answers = [200]
        await market.client.delivered((await market.client.order()).data["orderNo"])
        await market.becomes("SELECT consecutive_failures FROM webhook_endpoint", 0)
        assert "receiver" not in await incidents(admin)
        assert "Degraded" in await see(admin, "/console/webhooks"), "most of its attempts failed"


async def test_endpoints_stand_worst_first(service: Service, receiver: Receiver, admin: Browser):
    fine, deaf, gone = [await service.tenant(name=name) for name in ("Fine & Co", "Deaf & Co", "Gone & Co")]
    for made, state, failures in ((fine, "ACTIVE", 0), (gone, "DISABLED", 1), (deaf, "ACTIVE", 4)):
        await run(
            service,
            "INSERT INTO webhook_endpoint (tenant_id, url, state, consecutive_failures, last_success_at)"
            " VALUES ($1, $2, $3, $4, now())",
            int(made.tenant_id),
            receiver.url,
            state,
            failures,
        )
    page = await see(admin, "/console/webhooks/endpoints")
    page = page[page.index("Accepted, 24 h") :]
    assert page.index("Deaf & Co") < page.index("Gone & Co") < page.index("Fine & Co")
    for name, word in (("Deaf & Co", "Failing"), ("Gone & Co", "Paused"), ("Fine & Co", "Healthy")):
        assert re.search(rf"{name} \S+ {word}", page), name


async def test_attempts_make_the_health_and_not_what_became_of_deliveries(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
):
    await failed_for_good(service, dealer, receiver)
    page = await see(admin, "/console/webhooks/endpoints")
    assert re.search(rf"{receiver.url} Failing \d failures? in a row .*? \d of \d failed", page)


async def test_what_waits_for_a_decision_stands_below_the_incidents(quiet: Service):
    async with quiet.client(await quiet.tenant(balance="10", qps=0)) as client, signed_in(quiet) as admin:
        await client.post("/account/topup", {"amount": "250", "transactionId": "top-1"})
        said = (await admin.get("/console")).text
        assert "concern-waiting" in said and "concern-degraded" not in said and "concern-fault" not in said
        assert "1 top-up, 250.00 USD, has waited for approval since " in await incidents(admin)
        await run(quiet, "UPDATE topup SET created_at = $1", clock.now() - timedelta(days=2))
        assert "concern-degraded" in (await admin.get("/console")).text
        said = await incidents(admin)
        assert re.search(r"1 top-up, 250.00 USD, has waited for approval since [^.]*\. Review", said)
        async with signed_in(quiet, "support") as one:
            assert "View top-ups" in await incidents(one)


async def test_stock_that_is_low_is_told_of_with_where_to_load_it(quiet: Service):
    async with signed_in(quiet) as admin, notice_worker(quiet, limits=Limits(stock_low=10, queue_hours=0)) as worker:
        await worker.look()
        said = await incidents(admin)
        assert "Package DEMO-STOCK is sold out. Upload codes" in said
        assert "TEST-STOCKOUT" not in said, "it is meant to be sold out"
        await admin.post("/console/packages/DEMO-STOCK/stock", files={"file": stock_csv(3).encode()})
        assert "Package DEMO-STOCK is low on stock: 3 eSIMs left. Upload codes" in await incidents(admin)


async def test_a_dealers_page_says_what_keeps_it_from_buying(service: Service, dealer: ApiClient, admin: Browser):
    home = f"/console/dealers/{dealer.tenant_id}"
    await dealer.order()
    for terms, said, own in (
        ({"frozen": True}, "The wallet is frozen: every new order is refused", "Your wallet is frozen"),
        ({"frozen": False, "low_balance": "5000"}, "less than the threshold of 5,000.00 USD", "Your wallet has 998.20"),
        ({"low_balance": "0", "status": "DISABLED"}, "is suspended: every call is refused", ""),
        ({"status": "ACTIVE"}, "", ""),
    ):
        await service.change(dealer.tenant_id, **terms)
        page = re.sub(" (?=[,.:])", "", await see(admin, home))
        assert said in page
        if own:
            async with signed_in(service, "finance", dealer.tenant_id) as one:
                assert own in await see(one, "/console")
    assert 'aria-label="What is wrong"' not in (await admin.get(home)).text


# Figures


async def stored(service: Service, *hours: datetime) -> list[int]:
    async with service.database.connection() as connection:
        rows = await console_overview.stored(connection, min(hours), max(hours) + HOUR)
    return [hour.orders for hour in rows if hour.start in hours]


async def test_an_hour_is_counted_once_when_it_is_over(quiet: Service):
    this = clock.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    async with quiet.client(await quiet.tenant(balance="100", qps=0)) as client:
        assert await stored(quiet, this) == []
        for _ in range(3):
            await client.order()
        later = HourCounter(quiet.database, lambda: this + timedelta(hours=1, minutes=10))
        await later.count()
        assert await stored(quiet, this) == [3] or clock.now() >= this + HOUR
        await client.order()
        await later.count()
        assert await stored(quiet, this) == [3] or clock.now() >= this + HOUR


async def test_figures_are_compared_with_the_hours_before(quiet: Service):
    """2 orders an hour."""
    now = clock.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    await quiet.tenant()
    await run(quiet, "UPDATE tenant SET created_at = $1", now - timedelta(days=80))
    await run(
        quiet,
        "INSERT INTO overview_hour SELECT h, 2, '{\"USD\": 18000}', 4, 3, array_fill(0::bigint, ARRAY[64]),"
        " array_fill(0::bigint, ARRAY[64]), 0"
        " FROM generate_series($1::timestamptz - interval '70 days', $1 - interval '1 hour', interval '1 hour') h",
        now,
    )
    async with signed_in(quiet) as admin:
        html = (await admin.get("/console")).text
        assert re.search(r'href="/console/orders\?from=\d{4}-\d\d-\d\d">', html)
        assert re.search(
            r"Orders per day \d+ no change .* Orders Period before (Not over yet )?Show as table .* so far \d+ – ",
            text_of(html),
        )
        yesterday = now.date() - timedelta(days=1)
        page = await see(admin, f"/console?range=custom&from={yesterday}&to={yesterday}")
        assert re.search(r"Orders per hour 48 no change .* Orders Period before (Not over yet )?Show as table", page), (
            page
        )
        assert "hours are counted" not in page and "Webhooks no change 75.0 % of" in page
        assert "Time Orders Period before " in page
        assert re.search(r" \d\d:00 2 2 ", page), page
        page = await see(admin, "/console?range=today")
        assert "Orders per hour" in page and "Arrows compare whole hours with the period before" in page
        page = await see(admin, "/console?range=custom&from=2026-13-01&to=x")
        assert "not a day such as 2026-11-20. 7 days are shown." in page and "Orders per day" in page
        page = await see(admin, f"/console?range=custom&from={now.date()}&to={yesterday}")
        assert "From is after To: the first day must not be after the last. 7 days are shown." in page
        assert "Orders per hour" in await see(admin, "/console?range=custom&from=9999-12-31&to=9999-12-31")
        assert "Orders" in await see(admin, f"/console/orders?from={now:%Y-%m-%dT%H:%M}")


async def test_days_are_those_of_reports_and_compared_with_the_days_before(quiet: Service):
    """2 eSIMs a day for 30 days, and 1 a day before; one of the last 30 days is not over. A dealer pays 1.80."""
    made, today = await quiet.tenant(), clock.now().astimezone(UTC).date()
    await run(
        quiet,
        "INSERT INTO report_day (tenant_id, day, package_code, supplier, currency, sold, revenue, refunded, refunds,"
        " costed, cost) SELECT $1, d, 'TEST-OK', 'simulated', 'USD', n, n * 18000, 0, 0, n, n * 12000"
        " FROM (SELECT d::date, CASE WHEN d > $2::date - 30 THEN 2 ELSE 1 END AS n"
        "  FROM generate_series($2::date - 70, $2::date, interval '1 day') d) days",
        int(made.tenant_id),
        today,
    )
    async with signed_in(quiet) as admin:
        for name, days, change in (("7d", 7, "no change"), ("30d", 30, "↑ up 100 %")):
            page = await see(admin, f"/console?range={name}")
            assert f"Revenue per day, USD {1.8 * 2 * days:.2f} USD {change} " in page
            assert f"Margin {change} {0.6 * 2 * days:.2f} USD 33.3 % of net revenue" in page, page
            first = today - timedelta(days=days - 1)
            report = await see(admin, f"/console/reports?from={first}&to={today}")
            assert f" {1.8 * 2 * days:.2f} " in report and f" {0.6 * 2 * days:.2f} " in report and "33.3 %" in report
            assert (
                f'href="/console/reports?from={first}&amp;to={today}"'
                in (await admin.get(f"/console?range={name}")).text
            )
        assert "Margin 1.20 USD 33.3 % of net revenue" in await see(admin, "/console?range=today")


async def test_hours_that_no_worker_has_counted_yet_are_said_to_be_missing(quiet: Service):
    await quiet.tenant()
    await run(quiet, "UPDATE tenant SET created_at = now() - interval '5 days'")
    async with signed_in(quiet) as admin:
        assert "hours are counted" not in await see(admin, "/console?range=today")
        page = await see(admin, "/console?range=7d")
        assert re.search(r"Webhooks – so far, \d+ of \d+ hours are counted", page), page
        assert "Revenue per day" in page
        counter = HourCounter(quiet.database, clock.now)
        assert await counter.count()
        assert not await counter.count()
        assert "hours are counted" not in await see(admin, "/console?range=7d")


async def test_the_overview_and_the_page_of_an_endpoint_agree_on_its_health(quiet: Service):
    made, now = await quiet.tenant(name="Late & Co"), clock.now().astimezone(UTC)
    await run(
        quiet,
        "INSERT INTO webhook_endpoint (tenant_id, url, state, last_success_at)"
        " VALUES ($1, 'https://a.b/', 'ACTIVE', now())",
        int(made.tenant_id),
    )
    counted = (
        "INSERT INTO webhook_hour (tenant_id, hour, http_status, error, attempts, took_ms)"
        " VALUES ($1, $2, 200, '', $3, 1), ($1, $2, 500, 'HTTP 500', $4, 1)"
    )
    newest = (
        "INSERT INTO webhook_attempt (tenant_id, delivery_id, number, started_at, duration_ms, http_status, error)"
        " SELECT $1, n, 1, $2, 1, $4::int, $5 FROM generate_series($6::int, $6 + $3 - 1) n"
    )
    hour, dealer = now.replace(minute=0, second=0, microsecond=0) - HOUR, int(made.tenant_id)
    page = f"/console/webhooks/endpoints/{dealer}"
    async with signed_in(quiet) as admin:
        await run(quiet, counted, dealer, hour, 96, 4)
        assert "The endpoint of Late" not in await incidents(admin) and "Healthy" in await see(admin, page)
        await run(quiet, newest, dealer, now, 5, 500, "HTTP 500", 1)  # not counted by the hour yet
        for shown in (await incidents(admin), await see(admin, page)):
            assert re.search(r"The endpoint of Late & Co .*? 91\.4 % of 105 attempts accepted", shown), shown
        await run(quiet, newest, dealer, now, 100, 200, None, 10)
        assert "The endpoint of Late" not in await incidents(admin) and "Healthy" in await see(admin, page)


async def test_what_is_degraded_and_what_lasts_for_days_is_told(quiet: Service):
    made, now = await quiet.tenant(name="Short & Co", balance="100"), clock.now().astimezone(UTC)
    hour = now.replace(minute=0, second=0, microsecond=0) - HOUR
    await run(
        quiet,
        "INSERT INTO webhook_endpoint (tenant_id, url, state, last_success_at)"
        " VALUES ($1, 'https://a.b/', 'ACTIVE', now())",
        int(made.tenant_id),
    )
    await run(
        quiet,
        "INSERT INTO webhook_hour (tenant_id, hour, http_status, error, attempts, took_ms)"
        " VALUES ($1, $2, 200, '', 93, 1), ($1, $2, 500, 'HTTP 500', 7, 1)",
        int(made.tenant_id),
        hour,
    )
    await run(
        quiet,
        "INSERT INTO report_day (tenant_id, day, package_code, supplier, currency, sold, revenue, refunded, refunds,"
        " costed, cost) SELECT $1, d, 'TEST-OK', 'simulated', 'USD', 10, 200000, 0, 0, 0, 0"
        " FROM generate_series($2::date - 7, $2::date - 1, interval '1 day') d",
        int(made.tenant_id),
        now.date(),
    )
    async with signed_in(quiet) as admin, signed_in(quiet, "admin", int(made.tenant_id)) as own:
        counted = await see(own, "/console/webhooks")
        assert re.search(r"Accepted, 24 h 93.0 % 7 of 100 attempts failed", counted), "those that were counted, too"
        said = await incidents(admin)
        assert "The endpoint of Short & Co has been degraded since" in said
        assert ": 93.0 % of 100 attempts accepted in the last 24 hours" in said
        assert "The balance of Short & Co lasts about 5 days: 100.00 USD left, at the pace of the last 7 days" in said
        assert "Short & Co" in await see(admin, "/console/dealers?status=LOW")
        await run(quiet, "UPDATE wallet SET balance = balance * 2")
        assert "The balance of" not in await incidents(admin)
        assert "Low balance 0" in await see(admin, "/console/dealers")
