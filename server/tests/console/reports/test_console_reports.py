"""Reports and statements on the console: who sees what, which rows and totals, and as files."""

import csv
import io
import re
from collections.abc import AsyncIterator
from datetime import date

import pytest
from pypdf import PdfReader

from dealer_server import clock
from dealer_server.rules import dates
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import acts, see, text_of
from support.money.refunds import bought, refund, settled
from support.reports import fetch, folded

HIDDEN = ("Cost", "Margin", "simulated", "Supplier", "purchasesWithCost")


@pytest.fixture
async def clerk(service: Service, dealer: ApiClient) -> AsyncIterator[Browser]:
    """Of a dealer that bought three eSIMs, of which one was refunded."""
    await bought(dealer, quantity=2)
    order = await bought(dealer, "TEST-ASYNC")
    await refund(dealer, order)
    await settled(dealer, order)
    await folded(service.database)
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        yield one


def rows(content: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content)))


async def test_an_operator_sees_rows_totals_and_links(admin: Browser, clerk: Browser, dealer: ApiClient):
    answered = await admin.get(f"/console/reports?by=package&then=day&dealer={dealer.tenant_id}")
    text = " ".join(answered.text.split())
    assert answered.status_code == 200
    assert f'href="/console/orders?dealer={dealer.tenant_id}&amp;package=TEST-OK&amp;from=' in text
    page = await see(admin, f"/console/reports?by=package&dealer={dealer.tenant_id}")
    assert "Sold Revenue, USD Share Refunded, USD Net, USD" in page
    today = clock.now().date()
    assert re.search(rf" Reports \d+ \w+( \d+)? – {today:%-d %b %Y} ", page), "as its filter, with its days"
    assert "TEST-OK 1 GB 7 days 2 3.60 66.7 % – 3.60" in page
    assert "Total 3 5.40 100 % 1.80 3.60" in page
    assert "No supplier cost is known for these sales." in page and "Margin" not in page


async def test_costs_are_told_of_where_some_are_known(
    service: Service, admin: Browser, clerk: Browser, dealer: ApiClient
):
    known = "UPDATE report_sum SET costed = 1, cost = 6000 WHERE tenant_id = $1 AND kind = 'DAY' RETURNING 1"
    assert await fetch(service.database, known, dealer.tenant_id) == [(1,)]
    page = await see(admin, f"/console/reports?dealer={dealer.tenant_id}")
    assert "Total 3 5.40 1.80 0.60 ≤ 3.00 –" in page
    assert "2 without a cost" in page


async def test_days_are_compared_with_as_many_before_them(
    service: Service, admin: Browser, clerk: Browser, dealer: ApiClient
):
    whose = "WHERE tenant_id = $1 AND kind = 'DAY'"
    moved = f"UPDATE report_sum SET day = day - 1 {whose} RETURNING day::text"
    [(day,), *_] = await fetch(service.database, moved, dealer.tenant_id)
    alone = f"/console/reports?dealer={dealer.tenant_id}&from={day}&to={day}"
    assert " %" not in (await see(admin, alone)).split("Revenue")[1].split("Net")[0]
    columns = "tenant_id, kind, package_code, supplier, currency, refunded, refunds, costed, cost"
    doubled = f"INSERT INTO report_sum (day, sold, revenue, {columns}) SELECT day - 1, sold, 2 * revenue, {columns}"
    await fetch(service.database, f"{doubled} FROM report_sum {whose} RETURNING 1", dealer.tenant_id)
    assert "Revenue 5.40 USD ↓ down 50 % , 3 sold" in await see(admin, alone)
    assert "Spent 5.40 USD ↓ down 50 % , 3 bought" in await see(clerk, f"{alone}&by=day")
    earlier = doubled.replace("day - 1", "day - 35")
    await fetch(service.database, f"{earlier} FROM report_sum {whose} RETURNING 1", dealer.tenant_id)
    assert re.search(r"% vs period before", home := await see(clerk, "/console")), home


@pytest.mark.usefixtures("clerk")
async def test_rows_are_compared_with_as_many_days_before(service: Service, admin: Browser, dealer: ApiClient):
    whose = "FROM report_day WHERE tenant_id = $1"
    moved = "UPDATE report_day SET day = day - 1 WHERE tenant_id = $1 RETURNING day::text"
    [(day,), *_] = await fetch(service.database, moved, dealer.tenant_id)
    columns = "tenant_id, package_code, supplier, currency, sold, refunded, refunds, costed, cost"
    doubled = f"INSERT INTO report_day (day, revenue, {columns}) SELECT day - 1, 2 * revenue, {columns} {whose}"
    await fetch(service.database, f"{doubled} AND package_code = 'TEST-OK' RETURNING 1", dealer.tenant_id)
    days = f"dealer={dealer.tenant_id}&from={day}&to={day}"
    answered = await admin.get(f"/console/reports?by=package&{days}")
    page = text_of(answered.text)
    assert f"Reports {date.fromisoformat(day):%-d %b %Y}" in page and "Highest revenue first" in page
    assert "TEST-OK 1 GB 7 days 2 3.60 66.7 % ↓ down 50 % –" in page and re.search(" 1 1.80 33.3 % – 1.80", page)
    assert 'href="/console/packages/TEST-OK"' in answered.text
    by_day = await see(admin, f"/console/reports?by=day&{days}")
    at = date.fromisoformat(day)
    assert f"{at:%a} {dates.short_day(at, clock.now())} 3 5.40 1.80" in by_day and "Change" not in by_day
    assert "by=package" in (await admin.get(f"/console/reports?by=supplier&{days}")).text.partition("<tbody>")[2]


@pytest.mark.usefixtures("clerk")
async def test_two_groupings_have_subtotals_and_the_chart_shows_the_groups(admin: Browser, dealer: ApiClient):
    page = await see(admin, f"/console/reports?by=dealer&then=package&dealer={dealer.tenant_id}")
    heads = page.partition("By dealer and package")[2]
    whole = "Test dealer 3 5.40 100 %"
    assert heads.index("Total 3 5.40") < heads.index(whole) < heads.index(" 2 3.60 66.7 %")
    assert heads.index(" 2 3.60") < heads.index(" 1 1.80 33.3 %")
    whole = await admin.get(f"/console/reports?by=package&dealer={dealer.tenant_id}")
    assert "Split by package" in whole.text and "layer-2" not in whole.text
    packages = await admin.get(f"/console/reports?by=package&split=1&dealer={dealer.tenant_id}")
    assert "Revenue by day and package" in packages.text and 'class="layer layer-2"' in packages.text
    shown = text_of(packages.text.partition('class="numbers"')[2])
    assert f"{dates.day(clock.now())} so far 3.60 1.80" in shown
    of_dealers = f"/console/reports?by=dealer&dealer={dealer.tenant_id}"
    assert "layer-2" not in (await admin.get(of_dealers)).text, "one dealer is not split"
    every = await see(admin, "/console/reports?by=dealer")
    assert ("Show total only" in every) == ("Revenue by day and dealer" in every)
    assert "Revenue by day," in await see(admin, "/console/reports?by=dealer&split=0")


@pytest.mark.usefixtures("clerk")
async def test_sales_are_grouped_by_the_place_of_their_packages(admin: Browser, dealer: ApiClient):
    mine = f"by=place&dealer={dealer.tenant_id}"
    answered = await admin.get(f"/console/reports?{mine}&then=package")
    page = text_of(answered.text).partition("By place and package")[2]
    assert page.index("United States 3 5.40") < page.index(" 2 3.60")
    assert 'href="/console/packages?region=US"' in answered.text
    assert "Revenue by day, USD" in answered.text
    found = rows((await admin.get(f"/console/reports.csv?{mine}")).text)
    assert [(row["placeCode"], row["place"], row["revenue"]) for row in found] == [("US", "United States", "5.40")]


async def test_a_dealer_sees_its_own_without_costs_and_suppliers(
    clerk: Browser, dealer: ApiClient, stranger: ApiClient, service: Service
):
    await stranger.order()
    await folded(service.database)
    for query in ("", "?by=package", f"?dealer={stranger.tenant_id}", "?by=supplier&then=dealer", "?supplier=stock"):
        page = await see(clerk, f"/console/reports{query}")
        assert re.search(r"Total 3 5.40 1.80 3.60", page), query
        assert "Profit (est.), USD" in page or "dealer" in query, query
        kept = re.search(r"Profit \(est.\) ([\d.]+) USD resale less net spent", page)
        assert (kept and re.search(rf"Total 3 5.40 1.80 3.60 [\d.]+ {kept[1]} ", page)) or "dealer" in query, query
        assert not [word for word in HIDDEN if word in page], query
        exported = (await clerk.get(f"/console/reports.csv{query}")).text
        assert not [word for word in HIDDEN if word.lower() in exported.lower()], query
        assert str(stranger.tenant_id) not in exported
    kept = re.search(r"Profit \(est.\) ([\d.]+) USD resale less", await see(clerk, "/console/reports"))
    assert kept and f"Profit (est.), 30 days {kept[1]} USD" in await see(clerk, "/console")


async def test_the_home_page_tells_of_the_last_30_days_and_of_the_packages_bought_most(
    clerk: Browser, dealer: ApiClient, stranger: ApiClient, service: Service
):
    await stranger.order()
    await folded(service.database)
    page = await see(clerk, "/console")
    assert "Spent today 5.40 USD 3 eSIMs Spent, 30 days 5.40 USD 3 eSIMs Profit (est.), 30 days" in page
    assert "TEST-OK 1 GB 7 days TEST-OK 2 bought 3.60 USD" in page
    assert "TEST-ASYNC 1 bought 1.80 USD" in page
    assert f'{dates.day(clock.now())} <span class="text-secondary">so far</span>' in (await clerk.get("/console")).text


async def test_the_home_page_of_a_dealer_who_bought_nothing_has_no_chart(dealer: ApiClient, service: Service):
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        page = await see(one, "/console")
    assert "Spent today 0.00 USD 0 eSIMs Spent, 30 days 0.00 USD 0 eSIMs" in page and "Profit" not in page
    assert "Top packages" not in page and "Spent per day" not in page


async def test_the_file_has_every_row(admin: Browser, clerk: Browser, dealer: ApiClient, service: Service):
    answered = await admin.get(f"/console/reports.csv?by=dealer&then=package&dealer={dealer.tenant_id}")
    found = {row["packageCode"]: row for row in rows(answered.text)}
    assert found["TEST-OK"] == {
        "tenantId": str(dealer.tenant_id),
        "dealer": "Test dealer",
        "packageCode": "TEST-OK",
        "packageName": "TEST-OK 1 GB 7 days",
        "currency": "USD",
        "sold": "2",
        "revenue": "3.60",
        "refunded": "0",
        "refunds": "0.00",
        "purchasesWithCost": "0",
        "cost": "0.00",
        "margin": "3.60",
        "marginPercent": "",
    }
    assert found["TEST-ASYNC"]["refunds"] == "1.80" and found["TEST-ASYNC"]["margin"] == "0.00"
    [act, *_] = await acts(service, "reports.export")
    assert act.author == f"console:{admin.name}"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("from=2026-02-30", "from '2026-02-30': a day from 2000-01-01 to 2099-12-31 is expected"),
        ("from=2026-02-02&to=2026-02-01", "must not be after"),
        ("from=2020-01-01&to=2026-02-01", "longer than 366 days"),
        ("to=%00%3Cscript%3E", "to '"),
    ],
)
async def test_days_that_cannot_be_are_named(admin: Browser, query: str, said: str):
    answered = await admin.get(f"/console/reports?{query}")
    assert answered.status_code == 400 and said in answered.text.replace("&#39;", "'")
    assert "<script>" not in answered.text.partition("</head>")[2]


@pytest.mark.parametrize(
    "query", ["by=nothing", "then=day", "dealer=x", "range=ever", "package=%27%3B--", "supplier=%00"]
)
async def test_other_strange_parameters_are_no_error(admin: Browser, query: str):
    assert (await admin.get(f"/console/reports?{query}")).status_code == 200
    assert (await admin.get(f"/console/reports.csv?{query}")).status_code == 200


async def test_what_is_not_added_up_yet_is_said(admin: Browser, service: Service):
    sql = "INSERT INTO report_rebuild (started_at) VALUES (now())"
    await fetch(service.database, sql)
    assert "not complete yet" in await see(admin, "/console/reports")
    await fetch(service.database, "DELETE FROM report_rebuild")
    assert "not complete yet" not in await see(admin, "/console/reports")


async def test_groups_whose_days_are_not_added_up_are_no_error(clerk: Browser, dealer: ApiClient, service: Service):
    moved = "UPDATE report_sum SET day = day {} 4000 WHERE kind = 'DAY' AND tenant_id = $1"
    await fetch(service.database, moved.format("-"), dealer.tenant_id)
    try:
        assert "TEST-OK" in await see(clerk, "/console/reports?by=package")
    finally:
        await fetch(service.database, moved.format("+"), dealer.tenant_id)


async def test_a_statement_is_a_page_and_a_file_on_both_sides(admin: Browser, clerk: Browser, dealer: ApiClient):
    month, theirs = f"{clock.now():%Y-%m}", f"/console/dealers/{dealer.tenant_id}/statements"
    for one, path in ((clerk, "/console/wallet/statements"), (admin, theirs)):
        assert (
            f"{clock.now():%B %Y} so far 0.00 USD 0.00 USD + 1.80 USD + 1,000.00 USD −5.40 USD 996.40 USD"
            f" CSV of the entries of {clock.now():%B %Y} Draft PDF" in await see(one, path)
        )
        page = await see(one, f"{path}/{month}")
        assert "Purchases −5.40 USD 2 entries" in page and "Refunds + 1.80 USD 1 entry" in page
        assert "Balance so far = 996.40 USD" in page
        answered = await one.get(f"{path}/{month}/pdf")
        assert answered.headers["content-type"] == "application/pdf"
        assert f"statement-{dealer.tenant_id}-{month}.pdf" in answered.headers["content-disposition"]
        text = PdfReader(io.BytesIO(answered.content)).pages[0].extract_text()
        assert "996.40" in text and "−5.40" in text


@pytest.mark.parametrize("month", ["2026-13", "next", "2099-12", "../x"])
async def test_a_month_without_a_statement_is_not_found(clerk: Browser, month: str):
    assert (await clerk.get(f"/console/wallet/statements/{month}")).status_code == 404


async def test_a_dealer_opens_no_statement_of_another(clerk: Browser, stranger: ApiClient):
    month = f"{clock.now():%Y-%m}"
    assert (await clerk.get(f"/console/dealers/{stranger.tenant_id}/statements/{month}")).status_code == 404
    assert (await clerk.get(f"/console/dealers/{stranger.tenant_id}/statements/{month}/pdf")).status_code == 404
