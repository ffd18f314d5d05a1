"""Refunds before delivery: a service without a worker."""

from collections.abc import AsyncIterator

import pytest

from dealer_server.operations.catalogue.load_stock import load_stock
from dealer_server.store.tenants import data_key
from support.api_client import Service, running_service
from support.money.refunds import profiles, query, refund
from support.store_fixture import stock_csv

STOCK = {"packageCode": "DEMO-STOCK", "quantity": 1, "price": "2.50"}


@pytest.fixture(scope="module")
async def idle(database_url: str) -> AsyncIterator[Service]:
    async with running_service(database_url, worker=False) as service:
        async with service.database.connection() as connection:
            keys = await data_key.load(connection, service.settings.master_keys)
        await load_stock(service.database, keys, "DEMO-STOCK", stock_csv(1), "test")
        yield service


async def test_refunded_stock_that_was_not_delivered_can_be_sold_again(idle: Service):
    async with idle.client(await idle.tenant(balance="100", qps=0)) as dealer:
        order = (await dealer.order(items=[STOCK], amount="2.50")).data
        assert (await dealer.order(items=[STOCK], amount="2.50")).code == "200011"
        assert (await refund(dealer, order)).data["status"] == "REFUNDED"
        again = await dealer.order(items=[STOCK], amount="2.50")
        assert again.code == "000000"
        assert (
            await dealer.post("/esim/profile/cancel", {"profileId": profiles(again.data)[0]["profileId"]})
        ).code == "000000"
        assert (await dealer.order(items=[STOCK], amount="2.50")).code == "000000", "a void one, too"
        assert await idle.audit() == []


async def test_a_profile_never_requested_from_a_supplier_is_credited_at_once(idle: Service):
    async with idle.client(await idle.tenant(balance="100", qps=0)) as dealer:
        order = (await dealer.order("TEST-ASYNC")).data
        reply = await refund(dealer, order)
        assert (reply.data["status"], reply.data["items"][0]["iccids"]) == ("REFUNDED", [])
        assert (await query(dealer, order))["orderStatus"] == "REFUNDED"
        assert await idle.audit() == []
