"""The only supplier goes down: it stands on top of the overview with what it stops, and what waits for it is bought
elsewhere."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
from playwright.async_api import Page, expect

from dealer_server import clock
from dealer_server.fulfillment.health_monitor import HealthMonitor
from dealer_server.operations.suppliers.configure import set_route
from dealer_server.suppliers.rt.upstream import RtUpstream
from support.api_client import ApiClient, Service, running_service
from support.browser import Browser, signed_in
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.console.operator_pages import acts, does, see
from support.patience import PATIENCE
from support.rt_family import running_upstream
from support.supplier_setup import Source, fresh, hop, set_up

pytestmark = needs_chromium
WIDE, PHONE = (1440, 900), (390, 844)


class Market(NamedTuple):
    """A service whose only supplier is rt:near; `goes_down` takes that off the network. rt:far could sell as well."""

    service: Service
    client: ApiClient
    goes_down: Callable[[], Awaitable[None]]
    check: Callable[[], Awaitable[None]]


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[Market]:
    async with fresh(postgres, template) as url, AsyncExitStack() as up, running_upstream() as far:
        near = await up.enter_async_context(running_upstream())
        sources = [Source("rt:near", "rt_upstream", near.settings), Source("rt:far", "rt_upstream", far.settings)]
        await set_up(url, sources, {"TEST-OK": [hop("rt:near", "JC016")]})
        async with (
            running_service(url, stock_low=0) as service,
            service.client(await service.tenant(balance="1000", qps=0)) as client,
        ):

            async def check() -> None:
                """What a worker does about once a minute."""
                remote = RtUpstream("rt:near", near.settings)
                await HealthMonitor(service.database, remote, clock.now, lambda: None).check()

            yield Market(service, client, up.aclose, check)
            assert await service.audit() == []


async def tried(service: Service) -> None:
    """Until the supplier was asked for what was ordered, in vain. The next try is far off: the operator is first."""
    waits = "state = 'PLANNED' AND failures > 0"
    put_off = f"UPDATE purchase SET due_at = now() + interval '1 hour' WHERE {waits} RETURNING 1"
    async with asyncio.timeout(PATIENCE), service.database.connection() as connection:
        while not await connection.fetchval(put_off):
            await asyncio.sleep(0.02)


async def lasts_since(service: Service, ago: str) -> None:
    """The outage that has not ended began then."""
    async with service.database.connection() as connection:
        await connection.execute(
            "UPDATE supplier_outage SET began_at = now() - $1::text::interval WHERE ended_at IS NULL", ago
        )


async def lasted(service: Service, began: str, ended: str) -> None:
    """An outage of rt:near between these times ago."""
    async with service.database.connection() as connection:
        await connection.execute(
            "INSERT INTO supplier_outage (code, began_at, ended_at, detail) VALUES"
            " ('rt:near', now() - $1::text::interval, now() - $2::text::interval, 'it was slow')",
            began,
            ended,
        )


async def looked_at(page: Page) -> list[str]:
    """What axe finds on a wide screen and on a phone."""
    found: list[str] = []
    for width, height in (PHONE, WIDE):
        await page.set_viewport_size({"width": width, "height": height})
        found += [f"{width}: {one}" for one in await barriers(page)]
        if await page.evaluate("document.scrollingElement.scrollWidth > innerWidth"):
            found.append(f"{width}: it is wider than its window")
    return found


async def test_what_waits_for_a_supplier_that_is_down_is_sent_to_the_next_one(market: Market) -> None:
    """Without a next one there is no button; whoever may only look has none."""
    await market.goes_down()
    order_no = (await market.client.order()).data["orderNo"]
    await tried(market.service)
    for _ in range(2):  # one failed check may be a moment's fault
        await market.check()
    alone, act = "/console/packages?supplier=rt:near&status=ON_SALE&route=alone", "/console/suppliers/rt:near/reroute"
    async with (
        signed_in(market.service) as admin,
        signed_in(market.service) as other,
        signed_in(market.service, "readonly") as reader,
    ):
        for path in ("/console", "/console/suppliers/rt:near"):
            page = await see(admin, path)
            assert "1 package goes there first it has no other supplier" in page in page
            assert "Send 1 waiting item" not in page
        found = await see(admin, alone)
        assert "TEST-OK" in found and " 1 package " in found
        assert "Nothing was moved" in await does(admin, act)
        page = await see(admin, "/console/suppliers/rt:near")
        assert re.search(r"Outages, 30 days .* still down \d+ s 1 ", page)
        assert page.count("Test connection") == 1, "in the head, on a phone too"
        assert not re.search(r"\bDown\b", page), "its incident says so"
        await lasts_since(market.service, "35 days")
        assert re.search(r"still down 35 d 1 ", await see(admin, "/console/suppliers/rt:near")), "however old"
        await lasts_since(market.service, "1 hour")
        await lasted(market.service, "40 days", "1 day")
        page = await see(admin, "/console/suppliers/rt:near")
        assert re.search(r"still down 1 h .* 39 d 0 it was slow", page), "it ended lately"
        await set_route(
            market.service.database, "TEST-OK", [hop("rt:near", "JC016"), hop("rt:far", "JC016")], "test", clock.now
        )
        page = await see(admin, "/console")
        assert "Send 1 waiting item to rt:far" in page and "no other supplier" not in page
        assert "No package matches" in await see(admin, alone)
        assert "Send 1 waiting item" not in await see(reader, "/console")
        assert (await reader.post(act)).status_code == 403
        both = await asyncio.gather(does(admin, act), does(other, act))
        assert [
            sum(word in page for page in both) for word in ("1 eSIM of 1 order sent to rt:far", "Nothing was moved")
        ] == [1, 1]
        assert (await market.client.delivered(order_no))["deliveryStatus"] == "DELIVERED"
        assert "nothing waits for it" in await see(admin, "/console")
        assert [one.action for one in await acts(market.service, "order.retry")] == ["order.retry"]


async def test_the_only_supplier_goes_down_and_the_line_is_bought_elsewhere(market: Market) -> None:
    database, url = market.service.database, market.service.url
    await market.goes_down()
    order_no = (await market.client.order()).data["orderNo"]
    await tried(market.service)
    await market.check()
    dealers = signed_in(market.service, "admin", market.client.tenant_id)
    async with signed_in(market.service) as admin, dealers as dealer, opened() as chromium:

        async def looking(one: Browser) -> Page:
            context = await chromium.new_context(viewport={"width": 1440, "height": 900})
            await context.add_init_script(AXE)
            await context.add_cookies([{"name": "dealer_console", "value": one.token, "url": url}])
            return await context.new_page()

        page = await looking(admin)
        faults = page_faults(page)
        await page.goto(f"{url}/console")
        worst = page.get_by_label("Incidents").get_by_role("listitem").first
        await expect(worst).to_contain_text("Supplier rt:near has been down")
        await expect(worst).to_contain_text("1 item waits")
        assert await looked_at(page) == []
        await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        text = worst.get_by_text("Supplier rt:near has been down")
        on_top = (
            "one => { const r = one.getBoundingClientRect(); return document.elementFromPoint(r.x + 9, r.y + 9).href }"
        )
        href = await text.evaluate(on_top)
        assert str(href).endswith("/console/waiting?supplier=rt:near"), "all of a row is its link"
        await worst.get_by_role("link", name="1 package goes there first").click(trial=True)
        await page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
        own = await looking(dealer)
        await own.goto(f"{url}/console/orders/{order_no}")
        await expect(own.get_by_label("Summary")).to_contain_text("the supplier does not answer at present")
        await worst.get_by_role("link", name="View items").click()
        await expect(page.get_by_label("Supplier queues")).to_contain_text(order_no)
        assert await looked_at(page) == []
        await set_route(database, "TEST-OK", [hop("rt:near", "JC016"), hop("rt:far", "JC016")], "test", clock.now)
        await page.get_by_role("link", name=order_no).click()
        await page.get_by_role("button", name="Use rt:far").first.click()
        await page.get_by_role("dialog").get_by_role("button", name="Use rt:far").click()
        await expect(page.get_by_role("status")).to_contain_text("1 eSIM made again")
        await expect(page.get_by_label("Summary")).to_contain_text("Delivered")
        await page.goto(f"{url}/console")
        await expect(worst).to_contain_text("nothing waits for it")
        await own.goto(f"{url}/console/orders/{order_no}")
        await expect(own.get_by_label("Summary")).to_contain_text("Delivered")
        await expect(own.get_by_role("main")).to_contain_text("First try: the supplier was busy, trying again")
        assert "rt:" not in await own.get_by_role("main").inner_text()
        assert await looked_at(own) == []
        assert faults == []
