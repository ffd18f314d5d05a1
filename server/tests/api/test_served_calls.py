"""The sample of a dealer's calls that succeeded: few, without bodies, and all of them counted."""

import asyncio
import re
import time
from datetime import timedelta
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.api import authenticate
from dealer_server.api.authenticate import Head
from dealer_server.api.served_calls import MAX_WAITING, PER_DEALER, CallSample
from dealer_server.db.database import Database
from dealer_server.operations.retention.sweep import Sweeper
from dealer_server.store.console import api_log
from dealer_server.store.console.api_log import CallFilter, CallRow
from dealer_server.store.tenants import call_hour, served_call
from dealer_server.store.tenants.call_hour import CallHour
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import see
from support.patience import PATIENCE

SUCCEEDED = re.compile(r'data-href="(/console/[^"]*api-log/succeeded/\d+)"')
SCOPE: dict[str, Any] = {"client": ("192.0.2.7", 4711), "raw_path": b"/open-api/v1/health"}


def head() -> Head:
    return authenticate.read_head([(b"rt-requestid", b"0b7e6c5a-1111-4222-8333-444455556666")])


def served(sample: CallSample, tenant_id: int, times: int) -> int:
    """So many calls; how many are kept."""
    kept = 0
    for _ in range(times):
        if sample.wants(tenant_id):
            sample.keep(SCOPE, head(), b"trace", time.perf_counter(), tenant_id, b"{}", 100)
            kept += 1
    return kept


async def html(browser: Browser, path: str) -> str:
    return (await browser.get(path)).text


async def rows(service: Service, tenant_id: int) -> list[CallRow]:
    async with service.database.connection() as connection:
        return list(await api_log.list_calls(connection, tenant_id, CallFilter(outcome="succeeded"), None, 10_000))


async def test_a_call_is_on_the_page_of_its_dealer_alone(service: Service, dealer: ApiClient, stranger: ApiClient):
    reply = await dealer.order(remark="a secret of the shop")
    trace = reply.headers["X-Trace-Id"]
    async with (
        signed_in(service, "developer", dealer.tenant_id) as one,
        signed_in(service, "developer", stranger.tenant_id) as other,
        signed_in(service, "support") as operator,
    ):
        async with asyncio.timeout(PATIENCE):
            while not (found := SUCCEEDED.search(page := await html(one, f"/console/api-log?q={trace}"))):
                await asyncio.sleep(0.05)
        assert "Place an order" in page and "/esim/order" in page and reply.data["orderNo"] in page
        assert "No calls match" in await see(other, f"/console/api-log?q={trace}")
        assert (await other.get(found[1])).status_code == 404
        assert SUCCEEDED.search(await html(operator, f"/console/dealers/{dealer.tenant_id}/api-log?q={trace}"))
        page = await see(one, found[1])
        assert trace in page and dealer.app_key in page and "Bodies of calls that succeed are not kept" in page
    async with service.database.connection() as connection:
        [row] = await connection.fetch("SELECT * FROM served_call WHERE tenant_id = $1", dealer.tenant_id)
    kept = " ".join(str(value) for value in row.values())
    assert "secret" not in kept and dealer.app_secret not in kept and "TEST-OK" not in kept


async def test_refused_calls_are_not_among_them(service: Service, dealer: ApiClient):
    await dealer.order(amount="1.00")
    await dealer.post("/health")
    async with asyncio.timeout(PATIENCE):
        while not (found := await rows(service, dealer.tenant_id)):
            await asyncio.sleep(0.05)
    assert [row.path for row in found] == ["/open-api/v1/health"]


async def test_a_flood_keeps_few_of_each_dealer_and_counts_all(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    sample = CallSample(service.database, clock.now, ())
    async with sample.running():  # which writes at its end
        assert served(sample, dealer.tenant_id, 5_000) == PER_DEALER
        assert served(sample, stranger.tenant_id, 3) == 3
    async with service.database.connection() as connection:
        assert await served_call.served(connection, dealer.tenant_id) == 5_000
        assert await served_call.served(connection, stranger.tenant_id) == 3
    assert len(await rows(service, dealer.tenant_id)) == PER_DEALER


async def test_many_dealers_at_once_are_bounded_and_their_counts_are_kept(service: Service, dealer: ApiClient):
    """Whom nothing is kept of is counted with the next call that is kept."""
    sample = CallSample(service.database, clock.now, ())
    others = [int((await service.tenant()).tenant_id) for _ in range(MAX_WAITING // PER_DEALER)]
    assert {served(sample, other, PER_DEALER + 1) for other in others} == {PER_DEALER}
    assert served(sample, dealer.tenant_id, 7) == 0
    await sample._flush()
    assert served(sample, dealer.tenant_id, 1) == 1
    await sample._flush()
    async with service.database.connection() as connection:
        assert await served_call.served(connection, dealer.tenant_id) == 8


async def test_the_ring_holds_the_newest(service: Service, dealer: ApiClient):
    sample = CallSample(service.database, clock.now, ())
    for _ in range(served_call.KEPT // PER_DEALER + 2):
        served(sample, dealer.tenant_id, PER_DEALER)
        await sample._flush()
    found = await rows(service, dealer.tenant_id)
    assert len(found) == served_call.KEPT
    newest = served_call.KEPT + 2 * PER_DEALER
    assert {row.number for row in found} == set(range(newest, newest - served_call.KEPT, -1))


async def test_old_calls_are_swept(service: Service, dealer: ApiClient):
    sample = CallSample(service.database, clock.now, ())
    served(sample, dealer.tenant_id, 2)
    await sample._flush()
    for days, left in ((29, 2), (32, 0)):
        sweeper = Sweeper(
            service.database, lambda days=days: clock.now() + timedelta(days=days), {"served_call": timedelta(days=30)}
        )
        await sweeper.sweep()
        await sweeper.close()
        assert len(await rows(service, dealer.tenant_id)) == left


async def test_a_lost_database_costs_the_log_and_nothing_else(service: Service, dealer: ApiClient):
    database = await Database.open(service.settings.database_url)
    sample = CallSample(database, clock.now, ())
    await database.close()
    served(sample, dealer.tenant_id, 1)
    await sample._flush()
    assert served(sample, dealer.tenant_id, PER_DEALER) == PER_DEALER


@pytest.mark.parametrize(
    "path",
    ["", "?path=/open-api/v1/none", "?before=1", "?before=x", f"?before={'9' * 18}", "?result=succeeded", "?q=x"],
)
async def test_the_page_opens_with_any_filter(service: Service, dealer: ApiClient, path: str):
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        assert "No calls yet" in (page := await see(one, f"/console/api-log{path}")) or "No calls match" in page


async def test_calls_are_counted_by_the_hour(service: Service, dealer: ApiClient, stranger: ApiClient):
    """Those that are not kept too; what was a week ago gives way."""
    now = clock.now().replace(minute=0, second=0, microsecond=0)
    old = now - timedelta(hours=call_hour.KEPT)
    sample = CallSample(service.database, lambda: old, ())
    served(sample, dealer.tenant_id, 9)
    await sample._flush()
    sample = CallSample(service.database, clock.now, ())
    for count in (7, 2):
        served(sample, dealer.tenant_id, count)
        await sample._flush()
    async with service.database.transaction() as connection:
        await call_hour.add(connection, [CallHour(dealer.tenant_id, old, served=100)])  # comes too late
        await call_hour.add(connection, [CallHour(dealer.tenant_id, now, refused=3)])
        found = await call_hour.since(connection, dealer.tenant_id, old)
        assert [(one.served, one.refused) for one in found] == [(9, 3)]
        assert await call_hour.since(connection, stranger.tenant_id, old) == []
    async with signed_in(service, "developer", dealer.tenant_id) as one:
        assert "9 succeeded, 3 refused" in await html(one, "/console/api-log")


def test_what_a_call_costs_is_printed(service: Service):
    sample = CallSample(service.database, clock.now, ())
    began = time.perf_counter()
    for _ in range(100_000):
        sample.wants(10_001)
    print(f"{(time.perf_counter() - began) * 10:.3f} µs a call")
