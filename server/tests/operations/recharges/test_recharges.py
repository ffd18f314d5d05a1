"""Recharges of eSIMs, through the public client: /esim/topup and /esim/profile/plans (specification 4.14)."""

import asyncio
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.orders.retry import retry_order
from dealer_server.store.tenants import data_key
from support.api_client import ApiClient, Service, running_service
from support.money.recharges import advance, balance, over, plans, recharge, recharged, shown
from support.money.refunds import bought, profiles, query, refund
from support.patience import PATIENCE
from support.reports import rebuilt
from support.supplier_setup import fresh
from support.webhook_fixture import Receiver

pytestmark = pytest.mark.usefixtures("exact")

GB = 2**30


async def test_a_recharge_adds_its_volume_to_the_esim(dealer: ApiClient):
    order = await bought(dealer)
    before = await balance(dealer)
    placed = await recharge(dealer, order)
    assert placed.code == "000000" and placed.data["duplicate"] is False, placed
    assert placed.data["orderType"] == "TOPUP"
    assert placed.data["items"][0]["topUp"] == {
        "profileId": profiles(order)[0]["profileId"],
        "iccid": profiles(order)[0]["iccid"],
        "planNo": 2,
        "status": "PENDING",
    }
    assert "profiles" not in placed.data["items"][0]
    after = await dealer.delivered(placed.data["orderNo"])
    assert (after["deliveryStatus"], after["orderStatus"]) == ("DELIVERED", "COMPLETED")
    assert after["items"][0]["topUp"]["status"] == "QUEUED"
    assert float(before) - float(await balance(dealer)) == pytest.approx(1.20)
    profile = await shown(dealer, order)
    assert profile["remainDataBytes"] == 2 * GB
    assert [
        (plan["planNo"], plan["type"], plan["status"], plan["dataTotalBytes"]) for plan in await plans(dealer, order)
    ] == [
        (1, "BASE", "QUEUED", GB),
        (2, "TOPUP", "QUEUED", GB),
    ]


async def test_an_esim_that_is_used_up_lives_on_and_its_dealer_is_told(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    await receiver.received(2)
    await advance(dealer, order, "START")
    await receiver.received(3)
    ended = await advance(dealer, order, "USE")
    assert ended["planUseStatus"] == "ENDED"
    await receiver.received(4)
    applied = await recharged(dealer, order)
    profile = await shown(dealer, order)
    assert (profile["planUseStatus"], profile["esimStatus"]) == ("STARTED", "IN_USE")
    assert (profile["dataUsageBytes"], profile["remainDataBytes"]) == (GB, GB)
    await receiver.received(7)
    told = [request.json for request in receiver.requests if request.json["orderNo"] == order["orderNo"]][-1]
    assert told["changeHints"] == ["ESIM_STATUS_CHANGED", "PLAN_USE_STARTED", "USAGE_UPDATED"], told
    events = [
        request.json["eventType"] for request in receiver.requests if request.json["orderNo"] == applied["orderNo"]
    ]
    assert events == ["ORDER_PAID", "DELIVERY_UPDATED"]
    assert [(plan["status"], plan["dataUsageBytes"]) for plan in await plans(dealer, order)] == [
        ("ENDED", GB),
        ("ACTIVE", 0),
    ]
    again = await advance(dealer, order, "USE", dataUsageBytes=GB + 5)
    assert again["remainDataBytes"] == GB - 5


async def test_a_repeat_is_answered_with_the_same_order(dealer: ApiClient):
    order = await bought(dealer)
    first = await recharge(dealer, order, transactionId="same-1")
    await dealer.delivered(first.data["orderNo"])
    again = await recharge(dealer, order, transactionId="same-1")
    assert again.data["duplicate"] is True and again.data["orderNo"] == first.data["orderNo"]
    other = await recharge(dealer, order, transactionId="same-1", remark=None, package="TEST-TOPUP-DELAY")
    assert other.code == "310402"
    assert (await dealer.order(transactionId="same-1")).code == "310402"


async def test_what_fails_for_good_is_refunded(dealer: ApiClient):
    order = await bought(dealer)
    before = await balance(dealer)
    placed = await recharge(dealer, order, "TEST-TOPUP-FAIL")
    async with asyncio.timeout(PATIENCE):
        while (await query(dealer, placed.data))["orderStatus"] != "REFUNDED":
            await asyncio.sleep(0.01)
    assert await balance(dealer) == before
    assert [plan["status"] for plan in await plans(dealer, order)] == ["QUEUED", "FAILED"]
    assert (await shown(dealer, order))["remainDataBytes"] == GB


async def test_a_failed_recharge_is_retried_at_its_own_supplier_and_nowhere_else(postgres: str, template: str):
    async with fresh(postgres, template) as url, running_service(url, refund_failed=False) as service:
        async with service.client(await service.tenant(balance="1000", qps=0)) as dealer:
            order = await bought(dealer)
            failed = await recharged(dealer, order, "TEST-TOPUP-FAIL")
            assert failed["items"][0]["topUp"]["status"] == "FAILED"
            async with service.database.connection() as connection:
                keys = await data_key.load(connection, service.settings.master_keys)
                # From here on its supplier can.
                await connection.execute(
                    "UPDATE order_item SET package_code = 'TEST-TOPUP-OK' WHERE order_id = $1", failed["orderId"]
                )
            retry = service.database, keys, failed["orderNo"], None
            with pytest.raises(OperatorError, match="recharges an eSIM of simulated: no other supplier can"):
                await retry_order(*retry, "stock", "ann", clock.now)
            assert (await retry_order(*retry, None, "ann", clock.now)).retried == 1
            after = await dealer.delivered(failed["orderNo"])
            assert after["items"][0]["topUp"]["status"] == "QUEUED"
            assert (await shown(dealer, order))["remainDataBytes"] == 2 * GB
            with pytest.raises(OperatorError, match="failed or waits"):
                await retry_order(*retry, None, "ann", clock.now)
        await rebuilt(service.database)
        assert await service.audit() == []


async def test_recharges_of_one_esim_are_applied_in_the_order_of_their_payment(dealer: ApiClient):
    order = await bought(dealer)
    slow = await recharge(dealer, order, "TEST-TOPUP-DELAY")
    quick = await recharge(dealer, order)
    after = await dealer.delivered(quick.data["orderNo"])
    assert (await query(dealer, slow.data))["deliveryStatus"] == "DELIVERED"
    assert after["items"][0]["topUp"]["planNo"] == 3
    assert (await shown(dealer, order))["remainDataBytes"] == 3 * GB


async def test_a_plan_is_listed_once_while_it_is_applied(dealer: ApiClient):
    order = await bought(dealer)
    for number in range(2, 14):
        await recharge(dealer, order)
        listed: list[dict[str, Any]] = []
        while not listed or listed[-1]["status"] == "PENDING":
            listed = await plans(dealer, order)
            assert [plan["planNo"] for plan in listed] == list(range(1, number + 1))


async def test_an_applied_recharge_and_its_esim_are_not_refunded(dealer: ApiClient):
    order = await bought(dealer)
    applied = await recharged(dealer, order)
    for one, reason in ((applied, "APPLIED"), (order, "TOPPED_UP")):
        reply = await refund(dealer, one)
        assert (reply.code, reply.data["profiles"][0]["reason"]) == ("200003", reason)


async def test_refusals_in_their_order(dealer: ApiClient, stranger: ApiClient):
    order = await bought(dealer)
    used = await recharge(dealer, order, transactionId="taken")
    assert used.code == "000000"
    esim = profiles(order)[0]
    wrong: dict[str, Any] = {"currency": "EUR", "price": "9.99", "amount": "1.00"}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("310402", {"transactionId": "taken", "iccid": "8900000000000000009", "package": "TEST-OK"}),
        ("310404", {"iccid": "8900000000000000009", "package": "NOBODYS"}),
        ("310241", {"package": "NOBODYS"}),
        ("200008", {"package": "TEST-OK"}),
        ("000108", {"periodNum": 3}),
        ("200015", wrong),
        ("200005", wrong | {"currency": "USD"}),
        ("200006", wrong | {"currency": "USD", "price": "1.20"}),
        ("000111", {"profileId": int(esim["profileId"])}),
    ]
    for code, call in steps:
        reply = await recharge(dealer, order, **call)
        assert reply.code == code, (code, call, reply)
    dearer = (await recharge(dealer, order, price="9.99")).data
    [line] = dearer["lines"]
    assert (line["packageCode"], line["expectedPrice"], dearer["expectedPrice"]) == ("TEST-TOPUP-OK", "1.20", "1.20")
    assert (await recharge(stranger, order)).code == "310404"
    assert (await recharge(dealer, None)).code == "000105"
    unit = used.data["items"][0]["itemNo"]
    assert (await recharge(dealer, None, profileId=int(unit[:-2]))).code == "310404"


async def test_an_esim_that_is_over_or_held_is_not_recharged(dealer: ApiClient):
    expired = await bought(dealer)
    await advance(dealer, expired, "START")
    await advance(dealer, expired, "EXPIRE")
    reply = await recharge(dealer, expired)
    assert (reply.code, reply.data["reason"]) == ("200002", "EXPIRED")
    cancelled = await bought(dealer)
    await dealer.post("/esim/profile/cancel", {"iccid": profiles(cancelled)[0]["iccid"]})
    reply = await recharge(dealer, cancelled)
    assert (reply.code, reply.data["reason"]) == ("200002", "CANCELLED")
    held = await bought(dealer, "TEST-REVIEW")
    assert (await refund(dealer, held)).data["status"] == "REFUNDING"
    assert (await recharge(dealer, held)).code == "200004"


async def test_an_esim_has_at_most_100_plans_also_where_recharges_come_at_once(dealer: ApiClient):
    order = await bought(dealer)
    for at_once in (40, 40, 24):
        replies = await asyncio.gather(*(recharge(dealer, order) for _ in range(at_once)))
    refused = [(reply.code, reply.data["reason"]) for reply in replies if reply.code != "000000"]
    assert refused == [("200002", "TOO_MANY_PLANS")] * 5
    assert len(await plans(dealer, order)) == 100


async def test_a_topup_package_is_not_sold_as_an_esim(dealer: ApiClient):
    line = {"packageCode": "TEST-TOPUP-OK", "quantity": 1, "price": "1.20"}
    assert (await dealer.order(items=[line], amount="1.20")).code == "200008"


async def test_the_packages_that_fit_an_esim_are_listed(dealer: ApiClient):
    order = await bought(dealer)
    expected = {f"TEST-TOPUP-{what}" for what in ("OK", "DELAY", "FAIL", "QUEUE", "ASYNC")}
    for name in ({"iccid": profiles(order)[0]["iccid"]}, {"forPackageCode": "TEST-OK"}):
        reply = await dealer.post("/package/list", {"type": "TOPUP"} | name)
        assert {package["packageCode"] for package in reply.data["packages"]} == expected, reply
    assert (await dealer.post("/package/list", {"forPackageCode": "DEMO-STOCK"})).data["packages"] == []


async def test_recharge_refund_and_cancel_at_once_leave_the_money_exact(service: Service, dealer: ApiClient):
    for _ in range(6):
        order = await bought(dealer)
        named = {"iccid": profiles(order)[0]["iccid"]}
        replies = await asyncio.gather(
            *[recharge(dealer, order, package) for package in ("TEST-TOPUP-OK", "TEST-TOPUP-DELAY") * 4],
            *[refund(dealer, order) for _ in range(2)],
            *[dealer.post("/esim/profile/cancel", named) for _ in range(2)],
        )
        assert {reply.code for reply in replies} <= {"000000", "200002", "200003", "200004"}, replies
        for reply in replies[:8]:
            if reply.code == "000000":
                await over(dealer, reply.data)
        assert await service.audit() == []


async def test_a_scripted_esim_that_is_used_up_is_recharged_and_used_up_again(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer, "TEST-LIFECYCLE")

    async def ended(used: int) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while True:
                profile = await shown(dealer, order)
                if profile["planUseStatus"] == "ENDED" and profile["dataUsageBytes"] == used:
                    return profile
                await asyncio.sleep(0.01)

    await ended(GB)
    await recharged(dealer, order)
    profile = await ended(2 * GB)
    assert (profile["esimStatus"], profile["remainDataBytes"], profile["usagePercent"]) == ("USED_UP", 0, 100.0)
    assert [(plan["status"], plan["dataUsageBytes"]) for plan in await plans(dealer, order)] == [("ENDED", GB)] * 2
    assert (await recharged(dealer, order))["items"][0]["topUp"]["planNo"] == 3
    await ended(3 * GB)
