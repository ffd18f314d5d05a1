"""The page Notices of operators: what is open, what is over, what is new."""

from collections.abc import AsyncIterator

import pytest

from dealer_server import clock
from dealer_server.notices.looks import Limits
from support.api_client import Service, running_service
from support.browser import Browser, signed_in
from support.console.operator_pages import does, see, text_of
from support.notices.told import notice_worker
from support.store_fixture import stock_csv
from support.supplier_setup import fresh

INBOX, OVER = "/console/notices", "/console/notices?state=resolved"
UNREAD = 'class="side-count">'


@pytest.fixture
async def quiet(postgres: str, template: str) -> AsyncIterator[Service]:
    """Its worker is driven by hand."""
    async with fresh(postgres, template) as url, running_service(url, worker=False) as service:
        yield service


async def looks(service: Service) -> None:
    async with notice_worker(service, limits=Limits(stock_low=2, queue_hours=24)) as worker:
        await worker.look()


async def load_stock(browser: Browser) -> None:
    await browser.post("/console/packages/DEMO-STOCK/stock", files={"file": stock_csv(3).encode()})


async def test_a_subject_is_one_line_until_it_is_over_and_then_says_when_that_was(quiet: Service):
    async with signed_in(quiet) as admin:
        assert "Nothing was resolved yet" in await see(admin, OVER)
        await looks(quiet)
        said = await see(admin, INBOX)
        assert "Critical: Package DEMO-STOCK is sold out" in said and "Upload codes" in said
        assert said.count("DEMO-STOCK") == 1, "the incident and its notice are one line"
        assert "Package DEMO-STOCK" not in await see(admin, f"{INBOX}?kind=Dealers")
        assert "Package DEMO-STOCK" in await see(admin, f"{INBOX}?kind=Supply")
        await load_stock(admin)
        await looks(quiet)
        page = (await admin.get(INBOX)).text
        assert page.index('id="inbox"') < page.index("Resolved lately") < page.rindex("</ul>") < page.index("</main>")
        assert "Resolved lately" in page.partition('<div id="inbox"')[2].partition("\n</div>\n")[0], "it renews itself"
        still_open, _, lately = (await see(admin, INBOX)).partition("Resolved lately")
        assert "DEMO-STOCK" not in still_open and "Resolved: Low stock: 0 left of DEMO-STOCK" in lately
        said = await see(admin, OVER)
        assert "Resolved: Low stock: 0 left of DEMO-STOCK" in said and "Upload codes" not in said
        assert "resolved" in await see(admin, f"{INBOX}?state=all")


async def test_what_was_told_of_later_is_one_line_of_its_subject_with_its_count(quiet: Service):
    async with signed_in(quiet) as admin:
        for _ in range(2):
            await looks(quiet)  # sold out
            await load_stock(admin)
            await looks(quiet)
            async with quiet.database.connection() as connection:
                await connection.execute("DELETE FROM stock_profile")
        assert ", notified 2 times" in await see(admin, OVER)


async def test_what_nobody_was_told_of_stands_there_as_on_the_overview(quiet: Service):
    async with quiet.client(await quiet.tenant(balance="10", qps=0)) as client, signed_in(quiet) as admin:
        await client.post("/account/topup", {"amount": "250", "transactionId": "top-1"})
        said = await see(admin, INBOX)
        assert "Task: 1 top-up, 250.00 USD, has waited for approval since " in said and "Review" in said
        await looks(quiet)
        assert (await see(admin, INBOX)).count("top-up") == 1


async def test_a_low_balance_that_is_told_with_its_top_up_is_no_line_of_its_own(quiet: Service):
    made, today = await quiet.tenant(name="Short & Co", balance="100", low_balance="200"), clock.now().date()
    async with quiet.database.connection() as connection:
        await connection.execute(
            "INSERT INTO report_day (tenant_id, day, package_code, supplier, currency, sold, revenue, refunded,"
            " refunds, costed, cost) SELECT $1, d, 'TEST-OK', 'simulated', 'USD', 10, 200000, 0, 0, 0, 0"
            " FROM generate_series($2::date - 7, $2::date - 1, interval '1 day') d",
            int(made.tenant_id),
            today,
        )
    async with quiet.client(made) as client, signed_in(quiet) as admin:
        await looks(quiet)
        assert (await see(admin, INBOX)).count("balance of Short & Co") == 1
        await client.post("/account/topup", {"amount": "250", "transactionId": "top-1"})
        page = (await admin.get(INBOX)).text
        said = text_of(page)
        assert "1 top-up, 250.00 USD, has waited" in said and said.count("Short & Co") == 1, said
        assert page.count("is-unread") == 2, "of the package and of what was told of the balance"


async def test_a_notice_is_new_until_its_reader_marks_all_as_read(quiet: Service):
    async with signed_in(quiet) as admin, signed_in(quiet, "support") as other:
        assert UNREAD not in (await admin.get(INBOX)).text
        await looks(quiet)
        page = (await admin.get(INBOX)).text
        assert f"{UNREAD}1 unread<" in page and "is-unread" in page
        newest = page.partition('name="newest" value="')[2].partition('"')[0]
        said = await does(admin, f"{INBOX}/read", newest=newest)
        assert "Mark all as read" not in said and "DEMO-STOCK" in said
        assert UNREAD not in (await admin.get(INBOX)).text
        assert f"{UNREAD}1 unread<" in (await other.get(INBOX)).text, "it is read by one and new to another"
        async with signed_in(quiet, "admin") as later:
            assert UNREAD not in (await later.get(INBOX)).text, "what was told before a user was there is not new"
