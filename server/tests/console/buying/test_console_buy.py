"""The catalogue of a dealer's user, and buying by hand: once, at the price that was shown, or not at all."""

import asyncio
import html
import json
import re
import secrets
from collections.abc import AsyncIterator

import pytest

from support.api_client import ApiClient, Service
from support.browser import Browser, said, signed_in
from support.console.buying import acts_of, asked, balance, buy, form, order_count
from support.console.operator_pages import see, text_of
from support.reports import folded

pytestmark = pytest.mark.usefixtures("exact")


@pytest.fixture
async def clerk(service: Service, dealer: ApiClient) -> AsyncIterator[Browser]:
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        yield one


def count(page: str) -> int:
    """How many packages the filters find."""
    found = re.search(r"([0-9,]+) packages? in [0-9,]+ place", page)
    assert found, page
    return int(found[1].replace(",", ""))


# The catalogue


async def test_the_catalogue_shows_own_prices_and_nothing_that_is_off_sale(
    service: Service, dealer: ApiClient, clerk: Browser
):
    await service.change(dealer.tenant_id, prices={"TEST-OK": "1.23", "TEST-PARTIAL": "off"})
    page = await see(clerk, "/console/catalogue?q=test-")
    assert re.search(r"TEST-OK .{0,120}? 1\.23 USD", page), page
    assert "TEST-PARTIAL" not in page
    assert "1.23 USD" in await see(clerk, "/console/catalogue/TEST-OK")
    assert (await clerk.get("/console/catalogue/TEST-PARTIAL")).status_code == 404
    assert (await clerk.get("/console/catalogue/NO-SUCH")).status_code == 404


@pytest.mark.parametrize(("price", "per_gb"), [("2.50", "0.83"), ("2.51", "0.84"), ("3.00", "1.00")])
async def test_the_catalogue_tells_what_a_gigabyte_costs(
    service: Service, dealer: ApiClient, clerk: Browser, price: str, per_gb: str
):
    await service.change(dealer.tenant_id, prices={"FR-3GB-30D": price})
    page = await see(clerk, "/console/catalogue?q=FR-3GB-30D")
    margin = round(100 * (3.69 - float(price)) / 3.69, 1)
    assert f"FR-3GB-30D 30 days {per_gb} {price} USD 3.69 {margin} % Buy" in page and "Per GB, USD" in page, page


async def test_the_catalogue_names_each_place_once_above_its_packages(clerk: Browser):
    by_place = (await clerk.get("/console/catalogue?q=FR-")).text
    assert by_place.count('<details class="place-name" open>') == 1 and by_place.count(">Buy<") > 5
    by_price = (await clerk.get("/console/catalogue?q=FR-&sort=price")).text
    assert '<details class="place-name"' not in by_price and "France · " in by_price


async def test_places_are_closed_where_there_are_many_and_the_one_asked_for_is_open_and_first(clerk: Browser):
    everywhere = (await clerk.get("/console/catalogue")).text
    assert '<details class="place-name">' in everywhere and '<details class="place-name" open>' not in everywhere
    france = (await clerk.get("/console/catalogue?place=FR")).text
    first, _, others = france.partition('<details class="place-name" open>')[2].partition("<table")
    assert "France" in first and '<details class="place-name">' in others
    assert '<details class="place-name" open>' not in others


async def test_the_widest_region_leads_its_part_of_the_world_and_others_follow_its_countries(clerk: Browser):
    europe = (await clerk.get("/console/catalogue?part=Europe&sort=")).text
    first = europe.partition('<h2 class="place-part">Europe</h2>')[2].partition("</summary>")[0]
    assert "42 countries" in first and ", several countries" not in europe.partition("Albania")[0]


async def test_the_row_of_a_place_shows_what_usual_sizes_cost_and_for_how_many_days(
    service: Service, dealer: ApiClient, clerk: Browser
):
    await service.change(dealer.tenant_id, prices={"FR-3GB-30D": "2.55", "FR-300MB-3D": "0.01"})
    page = await see(clerk, "/console/catalogue?q=France")
    assert "Place 1 GB 7 days 3 GB 30 days 5 GB 30 days 10 GB 30 days Packages" in page
    assert re.search(r"France 1 GB [\d.]+ 3 GB 2\.55 5 GB", page), page
    assert re.search(r"10 GB [\d.]+ 20 ", page), "that of 30 days, though France has one of 60 days"
    longer = await see(clerk, "/console/catalogue?q=France&days=60")
    assert "10 GB 60 days" in longer, "what all last stands in the head"
    daily = await see(clerk, "/console/catalogue?q=France&kind=DAILY")
    assert "Lowest price" in daily and re.search(r"from [\d.]+ USD for \d+ [MG]B a day", daily), daily
    france = (await clerk.get("/console/catalogue?q=france")).text.partition('<details class="place-name" open>')[2]
    row = france.partition("<table")[0]
    assert "France" in row, "the place that is typed is open and first"
    assert re.search(r'data-drawer="buy" href="/console/catalogue/FR-3GB-30D"[^>]*>.*?2\.55</a>', row), (
        "bought in the row"
    )


async def test_parts_of_the_world_are_tabs_and_keep_the_filters(clerk: Browser):
    page = (await clerk.get("/console/catalogue?kind=DAILY")).text
    tabs = {
        name: (html.unescape(href), int(listed.replace(",", "")))
        for href, name, listed in re.findall(
            r'<a class="nav-link[^"]*" href="([^"]+)"[^>]*>([\w ]+) <span class="tab-count">([0-9,]+)<', page
        )
    }
    assert {"All", "Asia", "Europe"} <= set(tabs) and "kind=DAILY" in tabs["Asia"][0]
    assert sum(listed for _, listed in tabs.values()) == 2 * tabs["All"][1]
    asia = await see(clerk, tabs["Asia"][0])
    assert count(asia) == tabs["Asia"][1] and "Japan" in asia and "France" not in asia.partition("Highest price")[2]


async def test_what_is_often_bought_stands_on_top(service: Service, dealer: ApiClient, clerk: Browser):
    assert "Often bought" not in await see(clerk, "/console/catalogue")
    await dealer.delivered((await dealer.order()).data["orderNo"])
    await folded(service.database)
    assert "Often bought in 30 days" in (page := await see(clerk, "/console/catalogue")), page
    assert "Often bought" not in await see(clerk, "/console/catalogue?kind=DAILY")


async def test_a_package_shows_what_else_there_is_for_its_place(clerk: Browser):
    page = (await clerk.get("/console/catalogue/FR-3GB-30D")).text
    plans = page.partition('id="plans"')[2]
    assert '<span aria-current="page">3 GB</span>' in plans and plans.count("<tr data-href=") == 11
    assert "Per GB, USD" in plans and "FR-5GB-30D" in plans and "All 20" in plans


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("quantity=2", "Total 3.60 USD Available balance 1,000.00 USD Balance after 996.40 USD"),
        ("quantity=0", "Total 1.80 USD"),
        ("quantity=9999", "Total 180.00 USD"),
    ],
)
async def test_the_page_of_a_package_adds_up_what_is_asked_for(clerk: Browser, asked: str, told: str):
    assert told in (page := await see(clerk, f"/console/catalogue/TEST-OK?{asked}")), page


async def test_too_low_a_balance_is_told_before_buying(service: Service):
    async with (
        service.client(await service.tenant(balance="2")) as poor,
        signed_in(service, "finance", poor.tenant_id) as clerk,
    ):
        page = (await clerk.get("/console/catalogue/TEST-OK?quantity=2")).text
        assert "Your balance is 1.60 USD short of this." in text_of(page)
        assert re.search(r"<button [^>]*data-when-covered hidden>", page), "nothing to press"
        page = (await clerk.get("/console/catalogue/TEST-OK")).text
        assert re.search(r"<button [^>]*data-when-covered>", page)
        await service.change(poor.tenant_id, frozen=True)
        assert "Your wallet is frozen" in await see(clerk, "/console/catalogue/TEST-OK")


async def test_the_catalogue_filters_by_place_kind_data_days_and_price(clerk: Browser):
    france = await see(clerk, "/console/catalogue?place=FR&kind=FIXED&sort=price")
    assert "France" in france and "Japan 1" not in france
    daily = await see(clerk, "/console/catalogue?place=FR&kind=DAILY")
    assert "a day" in daily and "Recharge" not in re.sub(r".*Your price", "", daily)
    everything = count(await see(clerk, "/console/catalogue"))
    cheap = await see(clerk, "/console/catalogue?price=2.00&data=1&days=7")
    assert 0 < count(cheap) < everything
    assert all(
        float(price) <= 2
        for price in re.findall(r" ([0-9.]+) USD", cheap.partition("Your price")[2].partition(" from ")[2])
    )


@pytest.mark.parametrize("query", ["price=abc", "data=-1", "days=x", "before=99999999", "place=<x>", "sort=none"])
async def test_a_filter_that_cannot_be_read_asks_for_nothing(clerk: Browser, query: str):
    assert (await clerk.get(f"/console/catalogue?{query}")).status_code == 200


async def test_the_page_of_a_package_names_the_countries_it_works_in(clerk: Browser):
    listed = (await clerk.get("/console/catalogue?place=EU-35&kind=FIXED")).text
    code = re.findall(r'data-href="/console/catalogue/([^"]+)"', listed)[0]
    page = await see(clerk, f"/console/catalogue/{code}")
    assert "35 countries" in page and all(name in page for name in ("Switzerland", "Türkiye", "Iceland"))


async def test_a_package_says_what_a_markup_leaves(clerk: Browser):
    page = await see(clerk, "/console/catalogue/TEST-OK?markup=60")
    assert "Your resale price" in page and "Price 2.88 USD Profit 1.08 USD Margin 37.5 %" in page
    page = await see(clerk, "/console/catalogue/TEST-OK?markup=12.5")
    assert "Price 2.03 USD Profit 0.23 USD" in page
    page = await see(clerk, "/console/catalogue/TEST-OK?markup=x")
    assert "Price 2.88 USD" not in page and "Suggested price" in page
    page = await see(clerk, "/console/catalogue/FR-3GB-30D")
    assert "Price as suggested 3.69 USD" in page, "it begins with the suggested price"
    assert "Your resale price" not in await see(clerk, "/console/catalogue/TEST-TOPUP-OK")


async def test_a_recharge_is_bought_at_its_esim_and_not_here(clerk: Browser):
    page = await clerk.get("/console/catalogue/TEST-TOPUP-OK")
    assert 'action="/console/buy"' not in page.text and "Find the eSIM" in text_of(page.text)
    answer = await clerk.get("/console/buy?package=TEST-TOPUP-OK&quantity=1")
    assert answer.headers["location"] == "/console/catalogue/TEST-TOPUP-OK"


async def test_who_moves_no_money_sees_no_way_to_buy(service: Service, dealer: ApiClient):
    async with signed_in(service, "developer", dealer.tenant_id) as developer:
        page = (await developer.get("/console/catalogue/TEST-OK")).text
        assert 'action="/console/buy"' not in page
        assert "/console/bulk" not in (await developer.get("/console/catalogue")).text
        for path in ("/console/buy?package=TEST-OK&quantity=1", "/console/bulk"):
            assert (await developer.get(path)).status_code == 403
        assert (await developer.post("/console/buy", {"package": "TEST-OK", "quantity": "1"})).status_code == 403
    assert await order_count(dealer) == 0


# Buying


async def test_an_order_by_hand_is_an_order_as_any_other_and_names_who_bought_it(
    service: Service, dealer: ApiClient, clerk: Browser
):
    address = await asked(clerk, quantity=2, remark="Mme Dupont")
    page = await see(clerk, address)
    assert "Total 3.60 USD" in page and "Balance after 996.40 USD" in page and "Pay 3.60 USD" in page
    assert "Each is refundable until it is installed" in page
    assert await order_count(dealer) == 0, "nothing is paid yet"
    fields = await form(clerk, address)
    order_page = await buy(clerk, address, fields)
    shown = await clerk.get(order_page)
    assert said(shown).startswith("Bought 2 × ") and said(shown).endswith(" for 3.60 USD")
    assert "Mme Dupont" in shown.text
    order = await dealer.delivered(order_page.rpartition("/")[2])
    assert order["transactionId"] == fields["transaction_id"] and len(order["items"][0]["profiles"]) == 2
    assert await balance(dealer) == "996.40"
    [act] = await acts_of(service, dealer, "order.place")
    assert act.author == f"console:{clerk.name}"
    assert json.loads(act.detail) == {
        "orderNo": order["orderNo"],
        "transactionId": fields["transaction_id"],
        "packageCode": "TEST-OK",
        "quantity": 2,
        "amount": "3.60",
        "currency": "USD",
    }


async def test_the_balance_after_is_the_available_one_less_the_total(
    service: Service, dealer: ApiClient, clerk: Browser
):
    await service.change(dealer.tenant_id, credit_limit="250")
    page = await see(clerk, await asked(clerk, quantity=2))
    assert "Total 3.60 USD Available balance 1,250.00 USD Balance after 1,246.40 USD" in page


async def test_a_daily_plan_is_bought_for_its_days(dealer: ApiClient, clerk: Browser):
    listed = (await clerk.get("/console/catalogue?kind=DAILY&sort=price")).text
    code = re.findall(r'data-href="/console/catalogue/([^"]+)"', listed)[0]
    address = await asked(clerk, code, quantity=1, days=5)
    order_page = await buy(clerk, address, await form(clerk, address))
    order = (await dealer.post("/esim/query", {"orderNo": order_page.rpartition("/")[2]})).data
    assert order["items"][0]["periodNum"] == 5


async def test_one_form_sent_twelve_times_at_once_buys_once(service: Service, dealer: ApiClient, clerk: Browser):
    address = await asked(clerk)
    fields = await form(clerk, address)
    ways = await asyncio.gather(*[buy(clerk, address, fields) for _ in range(12)])
    [order_page] = {way for way in ways if way.startswith("/console/orders/")}
    again = await clerk.get(address)
    assert (again.status_code, again.headers["location"]) == (303, order_page), "its page leads to the order"
    assert (await order_count(dealer), await balance(dealer)) == (1, "998.20")
    assert len(await acts_of(service, dealer, "order.place")) == 1


async def test_twelve_windows_of_one_form_buy_once(service: Service, dealer: ApiClient, clerk: Browser):
    address = await asked(clerk)
    fields = await form(clerk, address)
    ways = await asyncio.gather(*[buy(clerk, address, fields | {"once": secrets.token_hex(16)}) for _ in range(12)])
    assert len(set(ways)) == 1 and ways[0].startswith("/console/orders/")
    assert (await order_count(dealer), await balance(dealer)) == (1, "998.20")
    assert len(await acts_of(service, dealer, "order.place")) == 1


async def test_a_new_price_is_shown_and_asked_for_again(service: Service, dealer: ApiClient, clerk: Browser):
    address = await asked(clerk)
    fields = await form(clerk, address)
    await service.change(dealer.tenant_id, prices={"TEST-OK": "2.50"})
    back = await buy(clerk, address, fields)
    assert await order_count(dealer) == 0
    page = await clerk.get(back)
    assert "Nothing is bought yet: the price has changed from 1.80 USD to 2.50 USD" in text_of(page.text)
    assert page.text.count('class="flash') == 1, "it is said once"
    order_page = await buy(clerk, back, await form(clerk, back))
    assert order_page.startswith("/console/orders/") and await balance(dealer) == "997.50"


async def test_a_balance_that_is_too_low_leads_to_the_top_up(service: Service):
    async with (
        service.client(await service.tenant(balance="3", qps=0)) as poor,
        signed_in(service, "finance", poor.tenant_id) as clerk,
    ):
        enough = await asked(clerk)
        fields = await form(clerk, enough)
        page = await clerk.get(await asked(clerk, quantity=2))
        assert "Your balance does not cover it: 3.00 USD are available. Top up" in text_of(page.text)
        assert 'type="submit">' not in page.text.partition('action="/console/buy"')[2].partition("</form>")[0]
        back = await buy(clerk, enough, fields | {"quantity": "2"})
        assert said(await clerk.get(back)).startswith("Nothing was bought. Your balance does not cover it")
        assert (await order_count(poor), await balance(poor)) == (0, "3.00")


async def test_a_package_that_was_withdrawn_is_not_bought(service: Service, dealer: ApiClient, clerk: Browser):
    address = await asked(clerk)
    fields = await form(clerk, address)
    await service.change(dealer.tenant_id, prices={"TEST-OK": "off"})
    back = await buy(clerk, address, fields)
    page = await see(clerk, back)
    assert "is not on sale" in page and "Sell a replacement" in page and "Nothing was bought." in page
    assert await order_count(dealer) == 0


async def test_what_cannot_be_bought_names_what_can_be_sold_in_its_place(
    service: Service, dealer: ApiClient, clerk: Browser
):
    await service.change(dealer.tenant_id, prices={"EU-35-5GB-30D": "off"})
    page = html.unescape((await clerk.get("/console/buy?package=EU-35-5GB-30D&quantity=3&remark=for+Ann")).text)
    links = re.findall(r'data-drawer="buy" href="(/console/catalogue/(EU-35-[^?]+)\?quantity=3&remark=for\+Ann)"', page)
    assert [code for _, code in links] == ["EU-35-3GB-30D", "EU-35-10GB-30D"]
    assert "2 GB less" in page and "5 GB more" in page
    form = (await clerk.get(links[0][0])).text
    assert 'value="3"' in form and 'value="for Ann"' in form
    short = await see(clerk, await asked(clerk, "TEST-STOCKOUT", quantity=2))
    assert "is out of stock" in short and "Fewer than 2 are left." in short and "1.80 USD" in short
    unknown = await clerk.get("/console/buy?package=NO-SUCH&quantity=1")
    assert unknown.status_code == 404 and "Package NO-SUCH is not on sale" in text_of(unknown.text)
    alone = await clerk.get("/console/buy")
    assert alone.headers["location"] == "/console/catalogue" and not said(await clerk.get("/console/catalogue"))


async def test_a_frozen_wallet_buys_nothing(service: Service, dealer: ApiClient, clerk: Browser):
    await service.change(dealer.tenant_id, frozen=True)
    assert "Your wallet is frozen" in await see(clerk, await asked(clerk))


@pytest.mark.parametrize(
    ("filled", "problem"),
    [
        ({"quantity": "0"}, "Quantity is '0'; accepted: 1 to "),
        ({"quantity": ""}, "Quantity is missing; accepted: 1 to "),
        ({"quantity": "many"}, "Quantity is 'many'; accepted: 1 to "),
        ({"remark": "x" * 300}, "Buyer has 300 characters; accepted: 255 at most."),
    ],
)
async def test_a_field_that_is_wrong_is_named_and_the_others_stay(clerk: Browser, filled: dict[str, str], problem: str):
    filled = {"quantity": "3", "remark": "Ann & Bob"} | filled
    back = (await clerk.get(await asked(clerk, **filled))).headers["location"]
    page = await clerk.get(back)
    assert back.startswith("/console/catalogue/TEST-OK?") and said(page).startswith(problem)
    entered = {name: re.findall(f'<input [^>]*name="{name}"[^>]*>', page.text) for name in filled}
    for name, text in filled.items():
        [field] = entered[name]
        assert f'value="{html.escape(text or "1")}"' in field


async def test_a_form_without_its_transaction_id_buys_nothing(dealer: ApiClient, clerk: Browser):
    address = await asked(clerk)
    for spoilt in ("", "mine", "console-0", "bulk-0123456789abcdef"):
        back = await buy(clerk, address, await form(clerk, address) | {"transaction_id": spoilt})
        assert back.startswith("/console/buy?") and "Please look at the order" in said(await clerk.get(back))
    assert await order_count(dealer) == 0


async def test_nobody_buys_for_another_dealer(service: Service, dealer: ApiClient, stranger: ApiClient, clerk: Browser):
    """A transactionId of another dealer's form is that dealer's."""
    address = await asked(clerk)
    fields = await form(clerk, address)
    await buy(clerk, address, fields)
    async with signed_in(service, "finance", stranger.tenant_id) as other:
        theirs = await form(other, await asked(other))
        await buy(other, address, theirs | {"transaction_id": fields["transaction_id"]})
    assert (await order_count(dealer), await order_count(stranger)) == (1, 1)
