"""Many orders by a CSV file: each line once, whatever is sent again, refused or lost in between."""

import asyncio
import csv
import io
import json
import secrets
import time
from collections.abc import AsyncIterator

import pytest

from support.api_client import ApiClient, Service
from support.browser import Browser, said, signed_in
from support.console.buying import (
    HEADER,
    acts_of,
    balance,
    bought_in_bulk,
    bulk_form,
    order_count,
    uploaded,
)
from support.console.operator_pages import see, text_of

pytestmark = pytest.mark.usefixtures("exact")


@pytest.fixture
async def clerk(service: Service, dealer: ApiClient) -> AsyncIterator[Browser]:
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        yield one


@pytest.fixture
async def boss(service: Service, dealer: ApiClient) -> AsyncIterator[Browser]:
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        yield one


async def results(browser: Browser, page: str) -> list[dict[str, str]]:
    answer = await browser.get(f"{page}/results.csv")
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.text)))


async def faults(browser: Browser, text: str) -> str:
    answer = await browser.post("/console/bulk", {"text": text})
    assert answer.status_code == 400
    return text_of(answer.text)


async def test_a_file_is_looked_at_bought_and_its_results_taken(service: Service, dealer: ApiClient, boss: Browser):
    page = await uploaded(boss, "TEST-OK,2,,For the fair,B-1", "TEST-OK,,,,=B-2", "TEST-DELAY,1,,,B-3")
    shown = await see(boss, page)
    assert "Total 7.20 USD 3 orders, 4 eSIMs" in shown and "Buy 3 orders" in shown and "B-1" in shown
    assert await order_count(dealer) == 0, "nothing is bought yet"
    done = await bought_in_bulk(boss, page)
    assert "3 orders placed" in done and "of 3 orders" in done and "Buy " not in done.partition("of 3 orders")[2]
    assert await balance(dealer) == "992.80"
    rows = await results(boss, page)
    orders = [await dealer.delivered(row["orderNo"]) for row in rows]
    rows = await results(boss, page)
    assert [row["reference"] for row in rows] == ["B-1", "B-1", "'=B-2", "B-3"], "no cell is a formula"
    assert orders[0]["transactionId"] == rows[0]["transactionId"]
    profiles = [profile for order in orders[:1] + orders[2:] for item in order["items"] for profile in item["profiles"]]
    assert [row["ICCID"] for row in rows] == [profile["iccid"] for profile in profiles]
    assert [row["activationCode"] for row in rows] == [profile["activationCode"] for profile in profiles]
    assert [row["installPageUrl"] for row in rows] == [profile["installPageUrl"] for profile in profiles]
    [act] = await acts_of(service, dealer, "orders.bulk")
    detail = json.loads(act.detail)
    assert act.author == f"console:{boss.name}"
    assert (detail["orders"], detail["eSIMs"], detail["amount"]) == (3, 4, "7.20")
    assert rows[0]["transactionId"].startswith(detail["transactionIds"])


async def test_codes_are_in_the_results_of_those_alone_who_may_see_them(clerk: Browser):
    page = await uploaded(clerk, "TEST-OK,1,,,")
    await bought_in_bulk(clerk, page)
    [row] = await results(clerk, page)
    assert row["orderNo"] and not {"activationCode", "installPageUrl"} & row.keys()


async def test_a_file_can_be_chosen_too(clerk: Browser):
    answer = await clerk.post("/console/bulk", files={"file": f"\ufeff{HEADER}\r\nTEST-OK,1,,,\r\n".encode()})
    assert "1 order by CSV" in await see(clerk, answer.headers["location"])
    answer = await clerk.post("/console/bulk", files={"file": b"\xff\xfe\x00packageCode"})
    assert answer.status_code == 400 and "This is no CSV text in UTF-8" in text_of(answer.text)


async def test_the_template_has_lines_that_can_be_bought(clerk: Browser):
    template = (await clerk.get("/console/bulk/template.csv")).text
    assert template.startswith(HEADER) and template.count("\r\n") >= 2
    answer = await clerk.post("/console/bulk", files={"file": template.encode()})
    assert "Step 1 of 3: Choose a file 1 Choose a file 2 Check prices and buy 3 Download results" in await see(
        clerk, "/console/bulk"
    )
    assert "Buy " in await see(clerk, answer.headers["location"])


async def test_one_form_sent_twelve_times_at_once_buys_each_line_once(
    service: Service, dealer: ApiClient, clerk: Browser
):
    page = await uploaded(clerk, *["TEST-OK,1,,,"] * 20)
    fields = await bulk_form(clerk, page)
    forms = [fields, *[fields | {"once": secrets.token_hex(16)} for _ in range(6)], *[fields] * 5]
    answers = await asyncio.gather(*[clerk.send(f"{page}/buy", one, Referer=f"{clerk.url}{page}") for one in forms])
    assert {answer.headers["location"] for answer in answers} == {page}
    assert (await order_count(dealer), await balance(dealer)) == (20, "964.00")


async def test_five_hundred_orders_are_placed_while_one_waits_for_the_page(service: Service):
    async with (
        service.client(await service.tenant(balance="5000", qps=0)) as rich,
        signed_in(service, "finance", rich.tenant_id) as clerk,
    ):
        page = await uploaded(clerk, *[f"TEST-OK,1,,,{number}" for number in range(500)])
        began = time.perf_counter()
        done = await bought_in_bulk(clerk, page)
        print(f"500 orders and their page: {time.perf_counter() - began:.2f} s")
        assert "500 orders placed" in done
        assert (await order_count(rich), await balance(rich)) == (500, "4100.00")
        assert len(await results(clerk, page)) == 500


async def test_prices_that_changed_are_shown_and_asked_for_again(service: Service, dealer: ApiClient, clerk: Browser):
    page = await uploaded(clerk, "TEST-OK,1,,,", "TEST-DELAY,1,,,")
    fields = await bulk_form(clerk, page)
    await service.change(dealer.tenant_id, prices={"TEST-OK": "2.00"})
    answer = await clerk.send(f"{page}/buy", fields, Referer=f"{clerk.url}{page}")
    shown = await clerk.get(answer.headers["location"])
    assert said(shown) == "What is left, or its prices, has changed. Nothing was bought; please look again."
    assert "Total 3.80 USD" in text_of(shown.text) and await order_count(dealer) == 0
    assert "2 orders placed" in await bought_in_bulk(clerk, page)


async def test_what_is_not_covered_is_not_bought_and_can_be_continued(service: Service):
    async with (
        service.client(await service.tenant(balance="2", qps=0)) as poor,
        signed_in(service, "finance", poor.tenant_id) as clerk,
    ):
        page = await uploaded(clerk, "TEST-OK,1,,,a", "TEST-OK,1,,,b")
        shown = await clerk.get(page)
        assert "Your balance does not cover the total: 1.60 USD are missing. Top up" in text_of(shown.text)
        assert f'action="{page}/buy"' not in shown.text
        await service.change(poor.tenant_id, credit_limit="10")
        assert "2 orders placed" in await bought_in_bulk(clerk, page)
        assert await order_count(poor) == 2


async def test_a_line_that_is_refused_says_why_and_is_bought_later(service: Service, dealer: ApiClient, clerk: Browser):
    """The stock is too short for it; the others are bought."""
    page = await uploaded(clerk, "TEST-OK,1,,,a", "TEST-STOCKOUT,1,,,b")
    done = await bought_in_bulk(clerk, page)
    if "refused" in done:
        assert "Not bought Too few of them are in stock." in done
        assert "Continue: buy 1 order" in done
        assert "1 order" in await bought_in_bulk(clerk, page)
        assert await order_count(dealer) == 1


async def test_a_package_that_is_withdrawn_meanwhile_is_left_out(service: Service, dealer: ApiClient, clerk: Browser):
    page = await uploaded(clerk, "TEST-OK,1,,,a", "TEST-DELAY,1,,,b")
    await service.change(dealer.tenant_id, prices={"TEST-DELAY": "off"})
    shown = await see(clerk, page)
    assert "It is not on sale any more." in shown and "Buy 1 order" in shown
    assert "1 order placed" in await bought_in_bulk(clerk, page)
    assert await order_count(dealer) == 1


async def test_the_same_lines_again_are_warned_of(clerk: Browser):
    first = await uploaded(clerk, "TEST-OK,1,,,a")
    await bought_in_bulk(clerk, first)
    again = await clerk.get(await uploaded(clerk, "TEST-OK,1,,,a"))
    assert "These lines were bought before" in text_of(again.text) and f'href="{first}"' in again.text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("packageCode,buyerEmail\nTEST-OK,ann@example.com", "buyerEmail only an admin may mail install pages"),
        ("packageCode,language\nTEST-OK,de", "language is that of the mail to buyerEmail, which is empty"),
        ("code\nX", "packageCode this column is missing"),
        ("packageCode;quantity\nTEST-OK;1", "cells are separated by semicolons; save the file with commas"),
        ("packageCode,colour\nTEST-OK,red", "colour column 2 is not known; accepted: packageCode, quantity"),
        ("packageCode,packageCode\nTEST-OK,TEST-OK", "column 2 repeats column 1"),
        ("packageCode", "there is no line after the header"),
        ("packageCode,quantity\nTEST-OK", "2 whole line this line has 1 cells, the header has 2"),
        ("packageCode\nNO-SUCH", "2 packageCode 'NO-SUCH' does not exist"),
        ("packageCode\nTEST-TOPUP-OK", "recharges eSIMs: buy it on the page of the eSIM"),
        ("packageCode,quantity\nTEST-OK,1\nTEST-OK,1.5", "3 quantity is '1.5'; accepted: 1 to"),
        ("packageCode,periodNum\nTEST-OK,3", "periodNum is for packages that are sold by the day"),
        ("packageCode,remark\nTEST-OK," + "x" * 256, "remark has 256 characters; accepted: 255 at most"),
        ('packageCode\n"TEST-OK', "a quotation mark is never closed"),
        ("packageCode\n" + "TEST-OK\n" * 501, "there are 501 lines; accepted: 500 at most"),
        ("packageCode,quantity\n" + "TEST-OK,50\n" * 101, "these are 5,050 eSIMs in all; accepted: 5,000"),
    ],
)
async def test_a_fault_is_told_with_its_line_and_column(dealer: ApiClient, clerk: Browser, text: str, told: str):
    assert told in await faults(clerk, text)
    assert await order_count(dealer) == 0


async def test_an_empty_form_asks_for_a_file(clerk: Browser):
    assert "Choose a file, or paste its lines." in await faults(clerk, " ")


async def test_a_file_is_its_dealers_alone(service: Service, dealer: ApiClient, stranger: ApiClient, clerk: Browser):
    page = await uploaded(clerk, "TEST-OK,1,,,secret")
    async with signed_in(service, "admin", stranger.tenant_id) as other:
        assert (await other.get(page)).status_code == 404
        assert (await other.get(f"{page}/results.csv")).status_code == 404
        assert (await other.post(f"{page}/buy", {"seen": ""})).status_code == 404
        assert page not in (await other.get("/console/bulk")).text
    assert await order_count(dealer) == 0
