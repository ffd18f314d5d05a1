"""Sums of reports: each fact is of the day on which it happened, in UTC."""

from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from support.api_client import ApiClient, Service, running_service
from support.reports import fetch, folded

BOUGHT = """
INSERT INTO purchase (tenant_id, profile_id, position, order_id, line, unit_key, supplier, sku, cost, cost_currency,
    state, iccid, created_at, finished_at)
SELECT tenant_id, profile_id, 0, order_id, line, 'U-' || profile_id, $2, 'SKU', 9000, 'EUR', $3, profile_id::text, $4,
    $4
FROM profile WHERE tenant_id = $1
"""


@pytest.fixture
async def service(database_url: str) -> AsyncIterator[Service]:
    """Nobody delivers or adds anything up."""
    async with running_service(database_url, worker=False) as service:
        yield service
        assert [code for code in await service.audit() if code == "A28"] == []


async def happened(service: Service, dealer: ApiClient, version: int, at: str) -> None:
    await fetch(
        service.database,
        "UPDATE ledger_entry SET created_at = $3 WHERE tenant_id = $1 AND version = $2",
        dealer.tenant_id,
        version,
        datetime.fromisoformat(at),
    )


async def days(
    service: Service, dealer: ApiClient, columns: str, table: str = "report_day"
) -> list[tuple[object, ...]]:
    await folded(service.database)
    sql = f"SELECT day::text, {columns} FROM {table} WHERE tenant_id = $1 ORDER BY day, 2, 3"
    return await fetch(service.database, sql, dealer.tenant_id)


async def test_a_day_begins_and_ends_in_utc(service: Service, dealer: ApiClient):
    await dealer.order()
    await dealer.order()
    await happened(service, dealer, 1, "2026-10-31T23:59:59.999Z")
    await happened(service, dealer, 2, "2026-11-01T00:30:00+01:00")
    await happened(service, dealer, 3, "2026-11-01T00:00:00Z")
    assert await days(service, dealer, "sold, revenue") == [("2026-10-31", 1, 18_000), ("2026-11-01", 1, 18_000)]
    assert await days(service, dealer, "kind, entries", "wallet_day") == [
        ("2026-10-31", "ADJUST", 1),
        ("2026-10-31", "PURCHASE", 1),
        ("2026-11-01", "PURCHASE", 1),
    ]


async def test_a_cost_that_is_known_later_is_of_the_day_of_the_purchase(service: Service, dealer: ApiClient):
    await dealer.order()
    await happened(service, dealer, 2, "2026-10-01T08:00:00Z")
    assert await days(service, dealer, "revenue, costed") == [("2026-10-01", 18_000, 0)]
    at = datetime.fromisoformat("2026-10-03T08:00:00Z")
    await fetch(service.database, BOUGHT, dealer.tenant_id, "simulated", "DONE", at)
    assert await days(service, dealer, "currency, revenue, costed, cost") == [
        ("2026-10-01", "USD", 18_000, 0, 0),
        ("2026-10-03", "EUR", 0, 1, 9_000),
    ]


async def test_the_cost_of_what_nobody_got_counts(service: Service, dealer: ApiClient):
    await dealer.order()
    at = datetime.fromisoformat("2026-10-03T08:00:00Z")
    await fetch(service.database, BOUGHT, dealer.tenant_id, "elsewhere", "WRITTEN_OFF", at)
    await folded(service.database)
    sql = "SELECT supplier, sold, cost FROM report_day WHERE tenant_id = $1 ORDER BY supplier"
    assert await fetch(service.database, sql, dealer.tenant_id) == [("elsewhere", 0, 9_000), ("simulated", 1, 0)]


async def test_what_another_supplier_delivered_later_moves_on_that_day(service: Service, dealer: ApiClient):
    await dealer.order()
    await happened(service, dealer, 2, "2026-10-01T08:00:00Z")
    at = datetime.fromisoformat("2026-10-03T08:00:00Z")
    await fetch(service.database, BOUGHT, dealer.tenant_id, "elsewhere", "DONE", at)
    assert await days(service, dealer, "supplier, currency, sold, revenue, cost") == [
        ("2026-10-01", "simulated", "USD", 1, 18_000, 0),
        ("2026-10-03", "elsewhere", "EUR", 0, 0, 9_000),
        ("2026-10-03", "elsewhere", "USD", 1, 18_000, 0),
        ("2026-10-03", "simulated", "USD", -1, -18_000, 0),
    ]
