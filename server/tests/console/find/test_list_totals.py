"""Below a list stands how many there are, and tabs say how much waits."""

import re
from html import unescape

from dealer_server.console.shared.rendering import many
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import see, text_of
from support.money.refunds import bought, refund


async def test_pages_of_packages_say_which_of_how_many(admin: Browser) -> None:
    page = (await admin.get("/console/packages")).text
    told = re.search(r"1–25 of ([\d,]+) packages", text_of(page))
    following = re.search(r'rel="next" href="([^"]+)"', page)
    assert told and following
    assert f"26–50 of {told[1]} packages" in await see(admin, unescape(following[1]))
    assert "1 package" in await see(admin, "/console/packages?q=DEMO-STOCK")


async def test_other_lists_say_how_many_a_page_has(service: Service, dealer: ApiClient, admin: Browser) -> None:
    for _ in range(2):
        await bought(dealer)
    assert "2 orders" in await see(admin, f"/console/orders?dealer={dealer.tenant_id}")
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        assert "3 entries" in await see(one, "/console/wallet"), "the first is its opening balance"


async def test_tabs_of_orders_and_esims_say_how_many_they_list(dealer: ApiClient, admin: Browser) -> None:
    for code in ("TEST-OK", "TEST-OK", "TEST-FAIL"):
        await dealer.delivered((await dealer.order(code)).data["orderNo"])
    own = f"dealer={dealer.tenant_id}"
    page = await see(admin, f"/console/orders?{own}")
    listed = "All 3 Waiting 0 Delivered 2 Failed 1 Refund in review 0 Refunded 0"
    assert listed in page and "3 orders" in page
    assert listed in await see(admin, f"/console/orders?{own}&status=FAILED")
    assert "No orders match" in await see(admin, f"/console/orders?{own}&status=REFUNDED"), "it is in the tab Failed"
    assert "All 0 Waiting 0 Delivered 0 Failed 0 Refund in review 0 Refunded 0" in await see(
        admin, f"/console/orders?{own}&to=2020-01-01"
    )
    page = await see(admin, f"/console/profiles?{own}")
    listed = "All 3 Unused 2 In use 0 Ended 0 Failed 1 "
    assert listed in page and "3 eSIMs" in page
    tabs = {
        "Failed": {"FAILED": "1 eSIM"},
        "Unused": {"UNUSED": "2 eSIMs", "INSTALLED": "No eSIMs"},
        "In use": {"IN_USE": "No eSIMs", "NEARLY_USED": "No eSIMs", "SUSPENDED": "No eSIMs"},
    }
    for tab, state, count in [(tab, *one) for tab, states in tabs.items() for one in states.items()]:
        page = (await admin.get(f"/console/profiles?{own}&state={state}")).text
        assert listed in text_of(page) and count in page, state
        assert f'aria-current="page"><bdi>{tab}</bdi>' in page, "a state is within its tab"


async def test_top_ups_are_filtered_by_dealer_and_day(dealer: ApiClient, stranger: ApiClient, admin: Browser) -> None:
    for one in (dealer, stranger):
        await one.post("/account/topup", {"amount": "10.00", "transactionId": f"of-{one.tenant_id}"})
    page = await see(admin, f"/console/topups?dealer={dealer.tenant_id}")
    assert f"of-{dealer.tenant_id}" in page and f"of-{stranger.tenant_id}" not in page
    assert "Waiting 1 Approved" in page
    assert f"of-{dealer.tenant_id}" in await see(admin, "/console/topups?status=ALL&from=2020-01-01")
    assert "No top-ups match" in await see(admin, "/console/topups?status=ALL&to=2020-01-01")
    file = (await admin.get(f"/console/topups.csv?status=ALL&dealer={stranger.tenant_id}")).text
    assert f"of-{stranger.tenant_id}" in file and f"of-{dealer.tenant_id}" not in file
    assert "No dealer nobody" in await see(admin, "/console/topups?dealer=nobody")


async def test_tabs_say_how_much_waits(service: Service, dealer: ApiClient, admin: Browser) -> None:
    await dealer.post("/account/topup", {"amount": "10.00", "transactionId": "counted"})
    page = await see(admin, "/console/topups")
    waiting = re.search(r"Waiting (\d+)", page)
    assert waiting and f"{many(int(waiting[1]), 'top-up')}, " in page
    await refund(dealer, await bought(dealer, "TEST-REVIEW"))
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        assert "All 1 In review 1 Being refunded 0 Refunded 0 Rejected 0" in await see(one, "/console/refunds")
