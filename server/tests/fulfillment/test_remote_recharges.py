"""Recharges of eSIMs that remote suppliers made: each is applied once and paid once, whatever answer is lost."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.suppliers.resolve import list_parked, resolve_applied, resolve_bought
from dealer_server.rules.catalogue.package import GB
from fulfillment.test_purchases import locked_out
from support.money.recharges import balance, plans, recharge, shown
from support.money.refunds import bought, profiles, refund
from support.patience import PATIENCE
from support.rt_family import BALANCE, FAULTS, PRICE, TOP_UP_PRICE
from support.suppliers.purchases import PurchaseFixture, purchase_fixture


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template) as one:
        yield one
        assert await one.service.audit() == []


async def placed(market: PurchaseFixture, order: dict[str, Any], **call: Any) -> dict[str, Any]:
    reply = await recharge(market.client, order, **call)
    assert reply.code == "000000", reply
    return reply.data


async def applied(market: PurchaseFixture, order_no: str) -> dict[str, Any]:
    """The order of a recharge once it is applied. What is unknown is asked about again and again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            data = (await market.client.post("/esim/query", {"orderNo": order_no})).data
            if data["deliveryStatus"] == "DELIVERED":
                return data
            await market.asked_again()
            await asyncio.sleep(0.02)


async def given_back(market: PurchaseFixture, order: dict[str, Any]) -> None:
    await market.until(order["orderNo"], lambda data: data["orderStatus"] == "REFUNDED")


async def refused_for_now(market: PurchaseFixture) -> None:
    """The newest recharge is to be asked for again, in ten minutes."""
    await market.becomes(
        "WITH newest AS (SELECT * FROM purchase WHERE recharges IS NOT NULL ORDER BY order_id DESC LIMIT 1),"
        " put_off AS (UPDATE purchase p SET due_at = now() + interval '10 minutes' FROM newest"
        "  WHERE p.unit_key = newest.unit_key AND p.state = 'PLANNED' AND p.failures = 1 RETURNING p.state)"
        " SELECT state FROM put_off",
        "PLANNED",
    )


async def refreshed(market: PurchaseFixture, order: dict[str, Any]) -> None:
    """Its supplier was asked about the eSIM."""
    await market.rows("UPDATE profile_life SET asked_at = NULL")
    usage = await market.client.post("/esim/profile/usage", {"iccid": profiles(order)[0]["iccid"], "refresh": True})
    assert usage.code == "000000", usage
    await market.becomes("SELECT claim IS NULL AND reported_at >= asked_at FROM profile_life", True)


async def test_a_recharge_is_applied_by_the_supplier_of_the_esim(market: PurchaseFixture):
    order = await bought(market.client)
    data = await placed(market, order)
    await market.client.delivered(data["orderNo"])
    [made] = market.near.book.recharges
    [call] = market.near.calls_of("esim/topup")
    assert call == {
        "transactionId": made.transaction_id,
        "packageCode": "TOPUP_JC016",
        "esimTranNo": made.esim.esimTranNo,
        "amount": TOP_UP_PRICE,
    }
    assert made.transaction_id.startswith("t-") and market.sold() == (1, 0)
    assert market.near.book.balance == BALANCE - PRICE - TOP_UP_PRICE
    assert await balance(market.client) == "997.00"
    assert (await shown(market.client, order))["remainDataBytes"] == 2 * GB
    assert [(plan["status"], plan["dataTotalBytes"]) for plan in await plans(market.client, order)] == [
        ("QUEUED", GB)
    ] * 2


@pytest.mark.parametrize("operation", ["esim/topup", "esim/query"])
async def test_whatever_answer_is_lost_it_is_applied_once_and_paid_once(market: PurchaseFixture, operation: str):
    order = await bought(market.client)
    for number, fault in enumerate(FAULTS, 1):
        market.near.fault(operation, fault)
        await applied(market, (await placed(market, order))["orderNo"])
        assert len(market.near.book.recharges) == number, fault
    assert market.near.book.balance == BALANCE - PRICE - len(FAULTS) * TOP_UP_PRICE
    assert (await shown(market.client, order))["remainDataBytes"] == (1 + len(FAULTS)) * GB


@pytest.mark.parametrize("repeats", ["FIRST", "200008", "SECOND"])
async def test_what_was_applied_shows_whatever_becomes_of_a_repeat(market: PurchaseFixture, repeats: str):
    market.near.repeats = repeats
    order = await bought(market.client)
    market.near.fault("esim/topup", "LOST_AFTER")
    await applied(market, (await placed(market, order))["orderNo"])
    assert len(market.near.book.recharges) == 1


@pytest.mark.parametrize("code", ["200002", "310403", "000105"])
async def test_what_the_supplier_refuses_is_given_back(market: PurchaseFixture, code: str):
    order = await bought(market.client)
    market.near.fault("esim/topup", code)
    await given_back(market, await placed(market, order))
    assert await balance(market.client) == "998.20"
    assert [plan["status"] for plan in await plans(market.client, order)] == ["QUEUED", "FAILED"]
    assert not market.near.book.recharges


async def test_a_price_that_fell_is_taken_and_one_that_rose_is_not(market: PurchaseFixture):
    order = await bought(market.client)
    top_up = market.near.book.top_ups["TOPUP_JC016"]
    top_up["price"] = TOP_UP_PRICE - 2_000
    await applied(market, (await placed(market, order))["orderNo"])
    assert await market.rows("SELECT cost FROM purchase WHERE recharges IS NOT NULL") == [(TOP_UP_PRICE - 2_000,)]
    top_up["price"] = TOP_UP_PRICE + 1
    data = await placed(market, order)
    await refused_for_now(market)
    assert (await refund(market.client, data)).data["status"] == "REFUNDED"
    assert len(market.near.book.recharges) == 1


async def test_what_we_cannot_pay_waits_until_we_can(market: PurchaseFixture):
    order = await bought(market.client)
    market.near.fault("esim/topup", "200007", "200007")
    await applied(market, (await placed(market, order))["orderNo"])
    assert len(market.near.book.recharges) == 1


async def test_an_answer_that_waits_for_a_lock_is_not_lost(market: PurchaseFixture):
    order = await bought(market.client)
    await refreshed(market, order)
    market.near.fault("esim/topup", "HANG")
    data = await placed(market, order)
    await market.near.hanging.wait()
    async with locked_out(market.service.database, "UPDATE orders SET version = version", 3):
        market.near.let_go.set()
    await market.client.delivered(data["orderNo"])
    assert len(market.near.book.recharges) == 1


async def test_recharges_of_one_esim_are_asked_for_one_after_the_other(market: PurchaseFixture):
    order = await bought(market.client)
    market.near.fault("esim/topup", "LOST_BEFORE")
    several = [await placed(market, order) for _ in range(4)]
    await market.becomes("SELECT count(*)::int FROM purchase WHERE recharges IS NOT NULL", 1)
    for data in several:
        await applied(market, data["orderNo"])
    units = await market.rows("SELECT unit_key FROM purchase WHERE recharges IS NOT NULL ORDER BY order_id")
    assert [(made.transaction_id,) for made in market.near.book.recharges] == units
    assert (await shown(market.client, order))["remainDataBytes"] == 5 * GB


async def test_recharges_that_wait_when_their_esim_is_cancelled_are_given_back(market: PurchaseFixture):
    order = await bought(market.client)
    market.near.fault("esim/topup", "LOST_BEFORE")
    asked, waiting = await placed(market, order), await placed(market, order)
    await market.becomes("SELECT state FROM purchase WHERE recharges IS NOT NULL", "UNKNOWN")
    await market.client.post("/esim/profile/cancel", {"iccid": profiles(order)[0]["iccid"]})
    await market.until(order["orderNo"], lambda data: profiles(data)[0]["cancelled"])
    await market.asked_again()
    await given_back(market, asked)
    await given_back(market, waiting)
    assert await balance(market.client) == "998.20"
    assert not market.near.book.recharges


async def test_only_what_the_supplier_was_not_asked_for_is_refunded(market: PurchaseFixture):
    order = await bought(market.client)
    market.near.fault("esim/topup", "200007")
    data = await placed(market, order)
    await refused_for_now(market)
    assert (await refund(market.client, data)).data["status"] == "REFUNDED"
    market.near.fault("esim/topup", "HANG")
    data = await placed(market, order)
    await market.near.hanging.wait()
    reply = await refund(market.client, data)
    assert (reply.code, reply.data["profiles"][0]["reason"]) == ("200003", "APPLIED")
    market.near.let_go.set()
    await market.client.delivered(data["orderNo"])
    assert len(market.near.book.recharges) == 1


async def test_an_operator_says_that_a_parked_recharge_was_applied(market: PurchaseFixture):
    order = await bought(market.client)
    await refreshed(market, order)
    market.near.fault("esim/topup", "LOST_AFTER")
    data = await placed(market, order)
    await market.becomes("SELECT state FROM purchase WHERE recharges IS NOT NULL", "UNKNOWN")
    market.near.fault("esim/query", *["500_BEFORE"] * 50)
    await market.rows(
        "UPDATE purchase SET unknown_since = now() - interval '2 hours', due_at = now() WHERE recharges IS NOT NULL"
    )
    await market.becomes("SELECT state FROM purchase WHERE recharges IS NOT NULL", "PARKED")
    [waiting] = await list_parked(market.service.database)
    known = market.service.database, market.setup.keys, waiting.unit_key
    [esim] = market.near.book.esims()
    with pytest.raises(OperatorError, match="say that it was applied"):
        await resolve_bought(*known, esim.iccid, esim.ac, "ann", clock.now)
    await resolve_applied(*known, "ann", clock.now)
    await market.client.delivered(data["orderNo"])
    assert (await shown(market.client, order))["remainDataBytes"] == 2 * GB


async def test_used_up_that_is_told_late_does_not_end_what_was_recharged(market: PurchaseFixture):
    order = await bought(market.client)
    [esim] = market.near.book.esims()
    esim.esimStatus, esim.smdpStatus, esim.orderUsage = "USED_UP", "ENABLED", GB
    esim.activateTime, esim.expiredTime = "2026-11-20T00:00:00+0000", "2099-11-27T00:00:00+0000"
    await refreshed(market, order)
    assert (await shown(market.client, order))["planUseStatus"] == "ENDED"
    market.near.late = 2
    await applied(market, (await placed(market, order))["orderNo"])
    for _ in range(3):
        await refreshed(market, order)
        profile = await shown(market.client, order)
        assert (profile["planUseStatus"], profile["esimStatus"]) == ("STARTED", "IN_USE")
    assert (profile["remainDataBytes"], profile["planUseEndTime"]) == (GB, "2099-12-04T00:00:00Z")
    esim.esimStatus, esim.orderUsage = "USED_UP", 2 * GB
    await refreshed(market, order)
    await market.until(order["orderNo"], lambda data: profiles(data)[0]["planUseStatus"] == "ENDED")


async def test_a_volume_that_is_told_while_it_is_added_is_not_added_twice(market: PurchaseFixture):
    order = await bought(market.client)
    await refreshed(market, order)
    market.near.fault("esim/topup", "LOST_AFTER")
    data = await placed(market, order)
    await market.becomes("SELECT state FROM purchase WHERE recharges IS NOT NULL", "UNKNOWN")
    await refreshed(market, order)
    assert (await shown(market.client, order))["remainDataBytes"] == GB
    await applied(market, data["orderNo"])
    assert (await shown(market.client, order))["remainDataBytes"] == 2 * GB


async def test_a_volume_that_is_told_after_it_was_added_is_not_added_again(market: PurchaseFixture):
    """The supplier was asked before the recharge was applied, and answered afterwards."""
    order = await bought(market.client)
    await refreshed(market, order)
    market.near.fault("esim/usage/query", "HANG")
    asking = asyncio.create_task(refreshed(market, order))
    await market.near.hanging.wait()
    await applied(market, (await placed(market, order))["orderNo"])
    market.near.let_go.set()
    await asking
    await market.becomes("SELECT claim IS NULL FROM profile_life", True)
    assert (await shown(market.client, order))["remainDataBytes"] == 2 * GB
