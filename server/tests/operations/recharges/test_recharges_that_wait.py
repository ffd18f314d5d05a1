"""Recharges that their supplier has not applied yet: TEST-TOPUP-DELAY takes most of a minute here."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.dev import catalogue as generate
from dealer_server.operations.catalogue.import_packages import put_packages
from dealer_server.store.recharges import recharge as recharges
from support.api_client import ApiClient, Service, running_service
from support.money.recharges import balance, plans, recharge
from support.money.refunds import bought, profiles, query, refund
from support.patience import PATIENCE
from support.supplier_setup import fresh

pytestmark = pytest.mark.usefixtures("exact")


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    async with running_service(database_url, supplier_speed=0.1) as service:
        yield service


async def test_a_recharge_that_waits_is_refunded_and_its_esim_may_be_then(dealer: ApiClient):
    order = await bought(dealer)
    waiting = await recharge(dealer, order, "TEST-TOPUP-DELAY")
    assert (await refund(dealer, order)).code == "200003"
    assert (await refund(dealer, waiting.data)).data["status"] == "REFUNDED"
    sold, given_back = await plans(dealer, order)
    assert (sold["status"], given_back["status"]) == ("QUEUED", "CANCELLED")
    assert "dataTotalBytes" in sold and "dataTotalBytes" not in given_back  # null would be unlimited
    assert (await refund(dealer, order)).data["status"] == "REFUNDED"


async def test_a_recharge_that_waits_when_its_esim_is_cancelled_is_refunded(dealer: ApiClient):
    order = await bought(dealer)
    waiting = await recharge(dealer, order, "TEST-TOPUP-DELAY")
    before = await balance(dealer)
    await dealer.post("/esim/profile/cancel", {"iccid": profiles(order)[0]["iccid"]})
    async with asyncio.timeout(PATIENCE):
        while (await query(dealer, waiting.data))["orderStatus"] != "REFUNDED":
            await asyncio.sleep(0.01)
    assert float(await balance(dealer)) - float(before) == pytest.approx(1.20)


async def test_a_recharge_that_read_an_esim_before_its_cancel_was_accepted_is_not_written(
    service: Service, dealer: ApiClient
):
    order = await bought(dealer, "TEST-ASYNC")
    esim = dealer.tenant_id, int(profiles(order)[0]["profileId"])
    async with service.database.connection() as connection:
        seen = (await recharges.targets(connection, [esim]))[esim]
        cancel = await dealer.post("/esim/profile/cancel", {"iccid": profiles(order)[0]["iccid"]})
        assert cancel.data["asyncStatus"] == "PENDING"
        now = (await recharges.targets(connection, [esim]))[esim]
    assert not seen.voiding and now.version > seen.version  # the statement that writes it compares the version
    assert (await recharge(dealer, order)).code == "200002"


async def test_the_answer_to_an_order_and_to_a_recharge_is_what_a_query_of_it_gives(postgres: str, template: str):
    """Before fulfillment begins."""
    async with fresh(postgres, template) as url, running_service(url, worker=False) as api:
        await put_packages(api.database, generate.catalogue("test"), "test", clock.now)
        async with api.client(await api.tenant(balance="100", qps=0)) as dealer:
            async with running_service(url):
                sold = await bought(dealer)
            await _answers_are_those_of_queries(dealer, sold)


async def _answers_are_those_of_queries(dealer: ApiClient, sold: dict[str, Any]) -> None:
    found = (await dealer.post("/package/list", {"dataType": "DAILY_REDUCED", "pager": {"pageSize": 1}})).data
    [daily] = found["packages"]
    lines = [
        {"packageCode": "TEST-DELAY", "quantity": 3, "price": "1.80"},
        {"packageCode": daily["packageCode"], "quantity": 1, "periodNum": 2, "price": daily["price"]},
    ]
    amount = f"{5.40 + 2 * float(daily['price']):.2f}"
    placed = await dealer.order(items=lines, amount=amount, remark="window seat")
    assert placed.code == "000000", placed
    first, second = placed.data["items"]
    then = await query(dealer, placed.data)
    assert placed.data | {"items": [first]} == then | {"items": [then["items"][0]], "duplicate": False}
    assert {"itemNo", "packageCode", "quantity", "periodNum", "profiles"} <= second.keys()
    assert [(one["itemNo"], one.get("periodNum")) for one in then["items"]] == [
        (one["itemNo"], one.get("periodNum")) for one in (first, second)
    ]

    waiting = await recharge(dealer, sold, "TEST-TOPUP-DELAY")
    assert waiting.code == "000000", waiting
    assert waiting.data == await query(dealer, waiting.data) | {"duplicate": False}


async def test_an_esim_that_waits_for_its_codes_is_not_recharged(dealer: ApiClient):
    waiting = (await dealer.order("TEST-DELAY")).data
    reply = await recharge(dealer, None, profileId=int(profiles(waiting)[0]["profileId"]))
    assert reply.code == "200010"
    assert (await refund(dealer, waiting)).data["status"] == "REFUNDED"
