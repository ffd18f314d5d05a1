"""A28: sums of reports that are not those of their sources are found, with the day and the package; a rebuild puts them
right."""

from collections.abc import AsyncIterator

import pytest

from dealer_server import clock
from dealer_server.operations.audit.check_invariants import AuditReport, Scope, check_invariants
from dealer_server.operations.reports.fold import rebuild
from dealer_server.store.audit.invariants import QUERIES
from support.api_client import Service, running_service
from support.money.recharges import recharged
from support.money.refunds import bought, refund, settled
from support.reports import fetch, folded

PLANTED = {
    "revenue that nobody paid": ("UPDATE report_day SET revenue = revenue + 1 WHERE sold > 0", "package"),
    "an eSIM that nobody bought": ("UPDATE report_day SET sold = sold + 1 WHERE refunded > 0", "package"),
    "a refund that is missing": ("UPDATE report_day SET refunds = 0 WHERE refunds > 0", "package"),
    "a cost of no purchase": ("UPDATE report_day SET cost = 5, costed = 1 WHERE refunds > 0", "package"),
    "a day that is gone": ("DELETE FROM report_day WHERE refunds > 0", "package"),
    "a sale of another day": ("UPDATE report_day SET day = day - 1 WHERE refunds > 0", "package"),
    "an entry that was left out": ("UPDATE wallet_day SET entries = entries - 1 WHERE kind = 'PURCHASE'", "wallet"),
    "an entry that was added twice": ("UPDATE wallet_day SET amount = amount * 2 WHERE kind = 'RECHARGE'", "wallet"),
    "a sum of all that is off": ("UPDATE report_all SET revenue = revenue + 1 WHERE sold > 0", "all dealers"),
    "a sum of a month that is off": (
        "UPDATE report_sum SET revenue = revenue + 1 WHERE kind = 'MONTH'",
        "days and months",
    ),
    "a sum of a day that is gone": ("DELETE FROM report_sum WHERE kind = 'DAY' AND sold > 0", "days and months"),
    "a cursor that went too far": ("UPDATE report_cursor SET version = version + 1", "begin after"),
    "a cursor that fell back": ("UPDATE report_cursor SET version = version - 1", "package"),
    "a purchase that was refused": (
        "INSERT INTO purchase (tenant_id, profile_id, position, order_id, line, unit_key, supplier, sku, state,"
        " created_at, finished_at, reported) SELECT tenant_id, profile_id, 0, order_id, line, profile_id::text, 's',"
        " 's', 'REJECTED', now(), now(), true FROM profile LIMIT 1",
        "not over",
    ),
}


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """A dealer has bought, recharged and got money back; nobody adds anything up any more."""
    async with (
        running_service(database_url) as service,
        service.client(await service.tenant(balance="1000", qps=0)) as dealer,
    ):
        order = await bought(dealer)
        await recharged(dealer, order)
        back = await bought(dealer, "TEST-ASYNC")
        await refund(dealer, back)
        await settled(dealer, back)
    async with running_service(database_url, worker=False) as service:
        await folded(service.database)
        yield service


async def audit(service: Service) -> AuditReport:
    return await check_invariants(service.database, service.settings.master_keys, None, clock.now(), Scope())


@pytest.mark.parametrize("planted", PLANTED)
async def test_sums_that_are_not_those_of_their_sources_are_found(service: Service, planted: str):
    assert (await audit(service)).violated == []
    sql, said = PLANTED[planted]
    async with service.database.connection() as connection:
        assert await connection.execute(sql) not in ("UPDATE 0", "DELETE 0", "INSERT 0 0")
    found = await audit(service)
    assert found.violated == ["A28"], found
    assert any(said in row["fault"] for row in found["A28"].samples), found["A28"]
    await rebuild(service.database, clock.now, lambda left: None)
    assert (await audit(service)).violated == []


def test_every_statement_of_the_audit_has_a_planted_fault():
    faults = [query.fault for query in QUERIES if query.invariant == "A28"]
    assert faults
    assert [fault for fault in faults if not any(said in fault for _, said in PLANTED.values())] == []


async def test_an_incremental_audit_leaves_them_to_a_whole_one(service: Service):
    whole = Scope(keep=True)
    assert (await check_invariants(service.database, service.settings.master_keys, None, clock.now(), whole)).checkpoint
    scope = Scope(incremental=True, keep=True)
    found = await check_invariants(service.database, service.settings.master_keys, None, clock.now(), scope)
    assert (found.violated, found.checkpoint, found["A28"].checked) == ([], True, False)


async def test_sums_of_some_entries_are_right_too(service: Service):
    await fetch(service.database, "DELETE FROM report_day")
    await fetch(service.database, "DELETE FROM report_all")
    await fetch(service.database, "DELETE FROM wallet_day")
    await fetch(service.database, "UPDATE report_cursor SET version = 0")
    assert (await audit(service)).violated == []
    await folded(service.database)
    assert (await audit(service)).violated == []
