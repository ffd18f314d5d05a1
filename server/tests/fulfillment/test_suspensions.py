"""Suspensions at suppliers that are called: written down, asked until there is a clear answer, one after another."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from support.api_client import ApiClient, Reply
from support.money.refunds import bought, profiles, query, refund
from support.rt_family import Esim
from support.suppliers.purchases import PurchaseFixture, purchase_fixture

SUSPEND, UNSUSPEND, CANCEL = "/esim/profile/suspend", "/esim/profile/unsuspend", "/esim/profile/cancel"


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template) as market:
        yield market
        assert await market.service.audit() == []


async def delivered(market: PurchaseFixture) -> tuple[dict[str, Any], Esim]:
    """An order of one eSIM, and that at its supplier."""
    order = await bought(market.client)
    return order, next(esim for esim in market.near.book.esims() if esim.iccid == profiles(order)[0]["iccid"])


def name(order: dict[str, Any]) -> dict[str, int]:
    return {"profileId": int(profiles(order)[0]["profileId"])}


async def asked(client: ApiClient, path: str, order: dict[str, Any]) -> tuple[str, bool]:
    reply = await client.post(path, name(order))
    assert reply.code == "000000", reply
    return reply.data["asyncStatus"], reply.data["suspended"]


async def shows(market: PurchaseFixture, order: dict[str, Any], suspended: bool) -> dict[str, Any]:
    """The profile once it is shown so."""
    after = await market.until(order["orderNo"], lambda now: profiles(now)[0].get("suspended", False) == suspended)
    return profiles(after)[0]


async def acts(market: PurchaseFixture) -> list[tuple[Any, ...]]:
    return await market.rows("SELECT suspended, outcome FROM suspension ORDER BY suspension_id")


async def asked_again(market: PurchaseFixture) -> None:
    """The pause between questions is over."""
    await market.rows("UPDATE suspension SET due_at = now() WHERE due_at IS NOT NULL AND claim IS NULL")


async def until_called(market: PurchaseFixture, operation: str, times: int) -> None:
    while len(market.near.calls_of(operation)) < times:
        await asked_again(market)
        await asyncio.sleep(0.02)


async def test_the_supplier_is_asked_once_and_then_it_is_shown(market: PurchaseFixture):
    order, esim = await delivered(market)
    assert await asked(market.client, SUSPEND, order) == ("PENDING", False)
    assert "suspendedAt" in await shows(market, order, True)
    assert esim.esimStatus == "SUSPENDED"
    assert market.near.calls_of("esim/suspend") == [{"esimTranNo": esim.esimTranNo}]
    assert await asked(market.client, SUSPEND, order) == ("COMPLETED", True), "repeating is success"
    assert await asked(market.client, UNSUSPEND, order) == ("PENDING", True)
    await shows(market, order, False)
    assert esim.esimStatus == "GOT_RESOURCE"
    assert await asked(market.client, UNSUSPEND, order) == ("COMPLETED", False)
    assert len(market.near.calls_of("esim/suspend")) == len(market.near.calls_of("esim/unsuspend")) == 1
    assert await acts(market) == [(True, "DONE"), (False, "DONE")]


@pytest.mark.parametrize("fault", ["LOST_BEFORE", "LOST_AFTER", "500_AFTER", "HTML_AFTER", "429"])
async def test_an_answer_that_is_lost_is_asked_for_again(market: PurchaseFixture, fault: str):
    order, esim = await delivered(market)
    market.near.fault("esim/suspend", fault)
    assert await asked(market.client, SUSPEND, order) == ("PENDING", False)
    await until_called(market, "esim/suspend", 2)
    await shows(market, order, True)
    assert esim.esimStatus == "SUSPENDED" and await acts(market) == [(True, "DONE")]


async def test_what_the_supplier_refuses_is_refused(market: PurchaseFixture):
    order, esim = await delivered(market)
    esim.esimStatus = "USED_UP"  # which we have not heard yet
    assert await asked(market.client, SUSPEND, order) == ("PENDING", False)
    await market.becomes("SELECT outcome FROM suspension", "REFUSED")
    before = await query(market.client, order)
    refused = await market.client.post(SUSPEND, name(order))
    assert (refused.status, refused.code) == (409, "200002")
    assert refused.data == {**name(order), "reason": "REFUSED_BY_SUPPLIER"}
    assert await asked(market.client, UNSUSPEND, order) == ("COMPLETED", False), "so it is"
    assert await query(market.client, order) == before
    eleven_minutes_ago = market.service.database.clock.now() - timedelta(minutes=11)
    await market.rows("UPDATE suspension SET finished_at = $1", eleven_minutes_ago)
    esim.esimStatus = "IN_USE"
    assert await asked(market.client, SUSPEND, order) == ("PENDING", False), "after a while it is asked again"
    await shows(market, order, True)


async def test_acts_on_one_profile_follow_each_other(market: PurchaseFixture):
    """The second waits until the first is answered; what was not asked yet is withdrawn."""
    order, esim = await delivered(market)
    market.near.fault("esim/suspend", "HANG")
    assert await asked(market.client, SUSPEND, order) == ("PENDING", False)
    await market.near.hanging.wait()
    assert await asked(market.client, UNSUSPEND, order) == ("PENDING", False)
    assert await asked(market.client, SUSPEND, order) == ("PENDING", False)
    assert await acts(market) == [(True, None), (False, "WITHDRAWN")]
    assert await asked(market.client, UNSUSPEND, order) == ("PENDING", False)
    assert market.near.calls_of("esim/unsuspend") == []
    market.near.let_go.set()
    await market.becomes("SELECT count(*) FROM suspension WHERE outcome = 'DONE'", 2)
    assert esim.esimStatus == "GOT_RESOURCE"
    assert "suspended" not in profiles(await query(market.client, order))[0]


async def test_a_suspension_by_the_supplier_itself_can_be_ended(market: PurchaseFixture):
    order, esim = await delivered(market)
    esim.esimStatus = "SUSPENDED"
    await market.client.post("/esim/profile/usage", name(order) | {"refresh": True})
    seen = await shows(market, order, True)
    assert seen["esimStatus"] == "SUSPENDED" and "suspendedAt" not in seen
    assert await asked(market.client, SUSPEND, order) == ("COMPLETED", True)
    assert await asked(market.client, UNSUSPEND, order) == ("PENDING", True)
    await shows(market, order, False)
    assert esim.esimStatus == "IN_USE"


async def test_a_profile_that_is_void_meanwhile_is_left_alone(market: PurchaseFixture):
    order, esim = await delivered(market)
    market.near.fault("esim/suspend", "LOST_BEFORE")
    await asked(market.client, SUSPEND, order)
    await market.becomes("SELECT claims > 0 AND claim IS NULL FROM suspension", True)
    await market.client.post(CANCEL, name(order))
    await market.until(order["orderNo"], lambda now: profiles(now)[0]["cancelled"])
    await asked_again(market)
    await market.becomes("SELECT outcome FROM suspension", "REFUSED")
    assert len(market.near.calls_of("esim/suspend")) == 1 and esim.esimStatus == "CANCEL"
    assert "suspended" not in profiles(await query(market.client, order))[0]


async def test_twelve_at_once_suspend_cancel_and_refund(market: PurchaseFixture):
    orders = [await bought(market.client) for _ in range(4)]

    async def client(number: int) -> Reply:
        order, turn = orders[number % 4], number // 4
        if turn == 2:
            return await (market.client.post(CANCEL, name(order)) if number % 2 else refund(market.client, order))
        return await market.client.post((SUSPEND, UNSUSPEND)[turn], name(order))

    replies = await asyncio.gather(*map(client, range(12)))
    assert {reply.code for reply in replies} <= {"000000", "200002", "200004"}
    await market.becomes("SELECT count(*) FROM suspension WHERE outcome IS NULL", 0)
    await market.becomes("SELECT count(*) FROM void_request WHERE outcome IS NULL", 0)
    await market.becomes("SELECT count(*) FROM refund WHERE status = 'REFUNDING'", 0)
    for order in orders:
        [shown] = profiles(await query(market.client, order))
        esim = next(esim for esim in market.near.book.esims() if esim.iccid == shown["iccid"])
        assert (esim.esimStatus in ("CANCEL", "REVOKE")) == shown["cancelled"]
        assert (esim.esimStatus == "SUSPENDED") == shown.get("suspended", False)


async def test_a_supplier_that_suspends_none_is_not_asked(postgres: str, template: str):
    """Decided by its kind, where no supplier is made: an API process has none."""
    async with purchase_fixture(postgres, template) as market:
        order, _ = await delivered(market)
        await market.rows("UPDATE supplier SET kind = 'es2plus'")
        for path in (SUSPEND, UNSUSPEND):
            refused = await market.client.post(path, name(order))
            assert (refused.status, refused.code) == (501, "200022")
        assert await acts(market) == []
