"""`dealer-server reports`: sums as a table, JSON and CSV, statements, and what is refused."""

import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pypdf import PdfReader

from dealer_server import clock
from support.api_client import ApiClient, Service, running_service
from support.processes import environment, run
from support.reports import folded


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    async with running_service(database_url, worker=False) as service:
        yield service


@pytest.fixture(scope="module")
async def buyer(service: Service) -> AsyncIterator[ApiClient]:
    async with service.client(await service.tenant(balance="10", qps=0)) as client:
        await client.order()
        await client.order()
        await folded(service.database)
        yield client


@pytest.fixture(scope="module")
def env(database_url: str) -> dict[str, str]:
    return environment(database_url)


async def test_a_report_as_json_csv_and_table(env: dict[str, str], buyer: ApiClient):
    shown = await run("reports", "show", "--by", "dealer,package", "--json", env=env)
    assert json.loads(shown.out) == {
        "tenantId": str(buyer.tenant_id),
        "packageCode": "TEST-OK",
        "currency": "USD",
        "sold": 2,
        "revenue": "3.60",
        "refunded": 0,
        "refunds": "0.00",
        "costed": 0,
        "cost": "0.00",
        "margin": "3.60",
    }
    listed = await run("reports", "show", "--csv", env=env)
    [row] = csv.DictReader(io.StringIO(listed.out))
    assert (row["day"], row["revenue"]) == (f"{clock.now():%Y-%m-%d}", "3.60")
    assert "3.60" in (await run("reports", "show", "--by", "supplier", env=env)).out
    nothing = await run("reports", "show", "--from", "2026-01-01", "--to", "2026-01-31", env=env)
    assert "nothing was sold" in nothing.out


async def test_a_statement_as_json_csv_and_pdf(env: dict[str, str], buyer: ApiClient, tmp_path: Path):
    month, tenant = f"{clock.now():%Y-%m}", str(buyer.tenant_id)
    shown = json.loads((await run("reports", "statement", tenant, month, "--json", env=env)).out)
    assert (shown["opening"], shown["closing"], shown["complete"]) == ("0.00", "6.40", False)
    lines = list(csv.DictReader(io.StringIO((await run("reports", "statement", tenant, month, "--csv", env=env)).out)))
    assert [line["amount"] for line in lines] == ["0.00", "0.00", "0.00", "10.00", "-3.60", "0.00", "6.40"]
    file = tmp_path / "statement.pdf"
    assert (await run("reports", "statement", tenant, month, "--pdf", str(file), env=env)).status == 0
    assert "6.40" in PdfReader(file).pages[0].extract_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "--by", "day,week"), "--by 'day,week': one or two of day, dealer, package, supplier"),
        (("show", "--from", "yesterday"), "--from 'yesterday'"),
        (("statement", "1", "2026-10"), "there is no tenant 1"),
        (("statement", "1", "October"), "MONTH 'October' must be a month"),
    ],
)
async def test_bad_values_are_named_in_one_line(env: dict[str, str], arguments: tuple[str, ...], said: str):
    done = await run("reports", *arguments, env=env)
    assert done.status == 1 and said in done.err and "\n" not in done.err


async def test_a_rebuild_says_what_it_did(env: dict[str, str], buyer: ApiClient):
    assert json.loads((await run("reports", "rebuild", "--json", env=env)).out)["dealers"] >= 1
