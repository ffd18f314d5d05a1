"""The list of dealers as accounts: revenue, last order, what waits, who is suspended or low, and its file."""

import csv

from support.api_client import ApiClient, Service
from support.browser import Browser
from support.console.operator_pages import does, see
from support.reports import folded


async def test_a_dealer_is_listed_with_its_turnover_last_order_and_what_waits(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    mine = f"/console/dealers?q={dealer.tenant_id}"
    assert "never" in await see(admin, mine)
    await dealer.delivered((await dealer.order()).data["orderNo"])
    await dealer.post("/account/topup", {"amount": "5.00", "transactionId": "T-1"})
    await folded(service.database)
    page = await see(admin, mine)
    assert "1.80 USD 998.20 USD 1 " in page and "1 top-up" in page and "never" not in page
    one = await see(admin, f"/console/dealers/{dealer.tenant_id}")
    assert (
        "30-day revenue 1.80 USD" in one
        and "1 top-up waiting" in one
        and "Orders 1 last" in one
        and "eSIMs 1 none refunded" in one
    )
    rows = list(csv.DictReader((await admin.get(f"/console/dealers.csv?q={dealer.tenant_id}")).text.splitlines()))
    assert [(row["revenue30Days"], row["balance"]) for row in rows] == [("1.80", "998.20")]


async def test_those_suspended_and_those_with_a_low_balance_have_tabs(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    home, mine = f"/console/dealers/{dealer.tenant_id}", f"/console/dealers?q={dealer.tenant_id}"
    assert "No dealer matches" in await see(admin, f"{mine}&status=LOW")
    await does(admin, f"{home}/terms", name="Acme", low_balance="5000", status="ACTIVE")
    assert "Low balance" in (await see(admin, f"{mine}&status=LOW")).partition("Webhooks Acme")[2]
    assert "Balance 1,000.00 USD Low" in await see(admin, home)
    assert "No dealer matches" in await see(admin, f"{mine}&status=DISABLED")
    await does(admin, f"{home}/terms", name="Acme", status="DISABLED")
    assert "Disabled" in await see(admin, f"{mine}&status=DISABLED")
    assert "No dealer matches" in await see(admin, f"{mine}&status=ACTIVE")
