"""CSV files of a dealer's orders and eSIMs: with the filters of their lists, in parts, and without formulas."""

import asyncio
import csv
import io
import json

import pytest

from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.buying import acts_of
from support.money.refunds import bought, profiles, refund


async def taken(browser: Browser, path: str) -> list[dict[str, str]]:
    answer = await browser.get(path)
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.text)))


async def test_orders_are_exported_as_the_list_shows_them(service: Service, dealer: ApiClient, stranger: ApiClient):
    await stranger.order()
    first = await bought(dealer)
    second = (await dealer.order(remark="=HYPERLINK(1)")).data
    await dealer.delivered(second["orderNo"])
    await refund(dealer, first)
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        page = (await one.get("/console/orders?status=REFUNDED")).text
        assert 'href="/console/orders.csv?status=REFUNDED"' in page
        rows = await taken(one, "/console/orders.csv")
        assert [row["orderNo"] for row in rows] == [second["orderNo"], first["orderNo"]]
        assert rows[0]["remark"] == "'=HYPERLINK(1)" and rows[0]["amount"] == "1.80"
        refunded = await taken(one, "/console/orders.csv?status=REFUNDED")
        assert [(row["orderNo"], row["refundAmount"]) for row in refunded] == [(first["orderNo"], first["amount"])]
        assert await taken(one, "/console/orders.csv?from=2001-01-01&to=2001-01-02") == []
    acts = await acts_of(service, dealer, "orders.export")
    assert {"status": "REFUNDED"} in [json.loads(act.detail) for act in acts]


async def test_esims_are_exported_without_their_codes(service: Service, dealer: ApiClient, stranger: ApiClient):
    await bought(stranger)
    order = await bought(dealer)
    [profile, *_] = profiles(order)
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        rows = await taken(one, "/console/profiles.csv")
        assert rows[-1]["ICCID"] == profile["iccid"] and rows[-1]["orderNo"] == order["orderNo"]
        assert profile["activationCode"] not in json.dumps(rows)
        assert await taken(one, f"/console/profiles.csv?order={order['orderNo']}") == rows
        assert await taken(one, "/console/profiles.csv?status=CANCELLED") == []


@pytest.mark.parametrize("path", ["/console/orders.csv", "/console/profiles.csv"])
async def test_a_long_list_comes_in_parts(service: Service, path: str):
    """More rows than one part has."""
    async with (
        service.client(await service.tenant(balance="9000", qps=0)) as dealer,
        signed_in(service, "admin", dealer.tenant_id) as one,
    ):
        line = {"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}
        for _ in range(11):
            await asyncio.gather(*[dealer.order(items=[line]) for _ in range(100)])
        rows = await taken(one, path)
    assert len(rows) == len({row["orderNo"] for row in rows}) == 1_100
