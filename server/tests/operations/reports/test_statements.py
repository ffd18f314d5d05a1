"""Monthly statements: their figures are those of the ledger, as a page, as JSON and as a PDF file read back."""

import io
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pypdf import PdfReader

from dealer_server.operations.errors import OperatorError
from dealer_server.operations.reports.pdf.document import pdf
from dealer_server.operations.reports.statement import MOST_ENTRIES, Statement, statement
from dealer_server.operations.wallets.adjust import adjust_balance
from dealer_server.rules.reports.period import Month
from support.api_client import ApiClient, Service, running_service
from support.reports import fetch

OCTOBER, NOVEMBER = Month(2026, 10), Month(2026, 11)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PLATFORM = "Voyage Connect"


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """Nobody adds anything up before a statement is asked for."""
    async with running_service(database_url, worker=False) as service:
        yield service


@pytest.fixture
async def dealer(service: Service) -> AsyncIterator[ApiClient]:
    """It had 1000.00 in September, bought for 3.60 in October, was given 5.00 back then, and bought for 1.80 since."""
    async with service.client(await service.tenant(balance="1000", qps=0, name="北京 Café")) as client:
        for _ in range(2):
            await client.order()
        await adjust_balance(service.database, client.tenant_id, "5", "sorry", "ann", service.database.clock.now)
        await client.order()
        times = ("2026-09-30T23:59:59Z", "2026-10-01T00:00:00Z", "2026-10-31T23:59:59Z", "2026-10-31T23:59:58Z",
                 "2026-11-01T00:00:00Z")  # fmt: skip
        for version, at in enumerate(times, 1):
            await fetch(
                service.database,
                "UPDATE ledger_entry SET created_at = $3 WHERE tenant_id = $1 AND version = $2",
                client.tenant_id,
                version,
                datetime.fromisoformat(at),
            )
        yield client


async def of(service: Service, dealer: ApiClient, month: Month) -> Statement:
    return await statement(service.database, dealer.tenant_id, month, NOW)


def lines(found: Statement) -> list[str]:
    """The pages as an independent reader sees them, cell by cell."""
    reader = PdfReader(io.BytesIO(pdf(found, PLATFORM)))
    return [line.strip() for page in reader.pages for line in page.extract_text().split("\n")]


def amount(text: str) -> int:
    return int(Decimal(text.replace(",", "").replace("−", "-")) * 10_000)


async def test_the_figures_of_a_month_are_those_of_the_ledger(service: Service, dealer: ApiClient):
    october = await of(service, dealer, OCTOBER)
    assert (october.account.opening, october.account.closing, october.complete) == (10_000_000, 10_014_000, True)
    assert {one.kind: (one.entries, one.amount) for one in october.account.movements} == {
        "PURCHASE": (2, -36_000),
        "RECHARGE": (0, 0),
        "REFUND": (0, 0),
        "TOPUP": (0, 0),
        "ADJUST": (1, 50_000),
    }
    assert [(one.package_code, one.sold, one.revenue) for one in october.packages] == [("TEST-OK", 2, 36_000)]
    november = await of(service, dealer, NOVEMBER)
    assert november.account.opening == october.account.closing and not november.complete
    [(balance,)] = await fetch(service.database, "SELECT balance FROM wallet WHERE tenant_id = $1", dealer.tenant_id)
    assert november.account.closing == balance


async def test_entries_out_of_order_at_midnight_are_in_their_month(service: Service, dealer: ApiClient):
    found = await of(service, dealer, OCTOBER)
    assert found.entries and [entry.version for entry in found.entries] == [2, 3, 4]


async def test_the_file_says_what_the_ledger_says(service: Service, dealer: ApiClient):
    found = await of(service, dealer, OCTOBER)
    said = lines(found)
    assert said[0] == PLATFORM and "Page 1 of 1" in said
    assert amount(said[said.index("Opening balance, end of 30 September 2026") + 1]) == found.account.opening
    assert amount(said[said.index("Closing balance, end of 31 October 2026") + 2]) == found.account.closing
    assert amount(said[said.index("Purchases") + 2]) == -36_000
    entries = await fetch(
        service.database,
        "SELECT amount, balance_after FROM ledger_entry WHERE tenant_id = $1 AND version BETWEEN 2 AND 4"
        " ORDER BY version",
        dealer.tenant_id,
    )
    times = [at for at, line in enumerate(said) if re.fullmatch(r"2026-\d\d-\d\d \d\d:\d\d:\d\d", line)]
    read = [[amount(cell) for cell in said[at : at + 5] if re.fullmatch(r"[−\d,]+\.\d\d", cell)] for at in times]
    assert read == [list(entry) for entry in entries]
    assert any("Café" in line for line in said)


async def test_a_month_of_many_entries_has_the_sums_of_its_days(service: Service, dealer: ApiClient):
    await fetch(
        service.database,
        "WITH more AS (SELECT w.*, n FROM wallet w, generate_series(1, $2::int) n WHERE tenant_id = $1),"
        " added AS (INSERT INTO ledger_entry SELECT tenant_id, version + n, 'ADJUST', -1000 - n, 100,"
        "  balance + 100 * n, '2026-11-02T10:00:00Z' FROM more)"
        " UPDATE wallet SET version = version + $2, balance = balance + 100 * $2 WHERE tenant_id = $1",
        dealer.tenant_id,
        MOST_ENTRIES + 1,
    )
    found = await of(service, dealer, NOVEMBER)
    assert found.entries is None and len(found.account.days) == 2
    said = lines(found)
    assert f"By day: {MOST_ENTRIES + 2:,} entries" in said
    assert amount(said[said.index("2026-11-02") + 7]) == found.account.closing


async def test_the_same_statement_is_the_same_file(service: Service, dealer: ApiClient):
    assert pdf(await of(service, dealer, OCTOBER), PLATFORM) == pdf(await of(service, dealer, OCTOBER), PLATFORM)


async def test_a_month_that_has_not_begun_has_no_statement(service: Service, dealer: ApiClient):
    with pytest.raises(OperatorError, match="2026-12 has not begun: 2026-11 is the latest"):
        await of(service, dealer, Month(2026, 12))


async def test_a_long_statement_numbers_its_pages(service: Service, dealer: ApiClient):
    found = await of(service, dealer, OCTOBER)
    assert found.entries
    said = lines(found._replace(entries=list(found.entries) * 60))
    pages = [line for line in said if re.fullmatch(r"Page \d of \d", line)]
    assert len(pages) > 2 and pages == [f"Page {number} of {len(pages)}" for number in range(1, len(pages) + 1)]
    assert said.count("Time (UTC)") == len(pages)
