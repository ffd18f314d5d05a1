"""The list of dealers as accounts: revenue, last order, what waits, who is suspended or low, and its file."""

import csv
import re

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
    assert re.search(r"1\.80 USD (–|[\d.]+ %) 998\.20 USD 1 ", page), "revenue, margin and balance"
    assert "5.00 top-up" in page and "never" not in page
    one = await see(admin, f"/console/dealers/{dealer.tenant_id}")
    assert (
        "Revenue, 30 days 1.80 USD" in one
        and re.search(r"1 top-up, 5.00 USD, has waited for approval [^.]+ ?\. Review ", one)
        and "Orders 1 Failed All orders" in one
        and "eSIMs, 30 days 1 1 in all" in one
        and "Revenue per day, USD" in one
    )
    html = (await admin.get(f"/console/dealers/{dealer.tenant_id}")).text
    invites = html.partition('id="dialog-invite"')[2].partition("</dialog>")[0]
    assert 'action="/console/users"' in invites and f'name="tenant" value="{dealer.tenant_id}"' in invites
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids)), [one for one in ids if ids.count(one) > 1]
    rows = list(csv.DictReader((await admin.get(f"/console/dealers.csv?q={dealer.tenant_id}")).text.splitlines()))
    assert [(row["revenue30Days"], row["balance"]) for row in rows] == [("1.80", "998.20")]


async def test_an_endpoint_is_as_healthy_as_its_attempts_of_a_day(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    """One rule for the list, the dealer's page and those of webhooks: never healthy beside a degraded endpoint."""
    await dealer.delivered((await dealer.order()).data["orderNo"])
    async with service.database.connection() as connection:
        await connection.execute(
            "INSERT INTO webhook_endpoint (tenant_id, url, state, last_success_at) VALUES ($1, $2, 'ACTIVE', now())",
            dealer.tenant_id,
            "https://shop.example.com/hooks",
        )
        for number, error in enumerate([*["STATUS"] * 3, *[None] * 27], 1):
            await connection.execute(
                "INSERT INTO webhook_attempt (tenant_id, delivery_id, number, started_at, duration_ms, http_status,"
                " error) VALUES ($1, 1, $2, now(), 40, 200, $3)",
                dealer.tenant_id,
                number,
                error,
            )
    home = f"/console/dealers/{dealer.tenant_id}"
    for page in (f"/console/dealers?q={dealer.tenant_id}", home, f"/console/webhooks/endpoints/{dealer.tenant_id}"):
        shown = await see(admin, page)
        assert "Degraded" in shown and "Healthy" not in shown, page
    assert "Accepted, 24 h 90.0 % of 30 attempts" in await see(admin, home)
    rows = list(csv.DictReader((await admin.get(f"/console/dealers.csv?q={dealer.tenant_id}")).text.splitlines()))
    assert rows[0]["webhooks"] == "Degraded"


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
