"""Refunds, through the public API: every rule and code of /esim/refund, /esim/profile/cancel and /revoke."""

import asyncio
import secrets
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Any

import pytest
from structlog.testing import capture_logs

from dealer_server import clock
from dealer_server.dev import catalogue as generate
from dealer_server.operations.catalogue.import_packages import put_packages
from dealer_server.operations.refunds.review import approve_refund, reject_refund
from dealer_server.store.refunds import refund as refunds
from support.api_client import ApiClient, Service, running_service
from support.databases import lock_waiters
from support.money.refunds import PRICE, bought, named, profiles, query, refund, settled
from support.patience import PATIENCE
from support.supplier_setup import fresh
from support.webhook_fixture import Receiver

pytestmark = pytest.mark.usefixtures("exact")


async def balance(dealer: ApiClient) -> Decimal:
    return Decimal((await dealer.post("/account/balance")).data["balance"])


# Synchronous refunds


async def test_a_whole_order_is_credited_at_once(dealer: ApiClient):
    order = await bought(dealer, quantity=3)
    before = await balance(dealer)
    reply = await refund(dealer, order, remark="changed their mind")
    assert reply.code == "000000", reply
    data = reply.data
    assert (data["status"], data["refundAmount"], data["totalRefundAmount"]) == ("REFUNDED", "5.40", "5.40")
    assert data["refundNo"].startswith("R") and data["currency"] == "USD" and data["duplicate"] is False
    assert data["items"] == [
        {
            "itemNo": order["items"][0]["itemNo"],
            "refundStatus": "COMPLETED",
            "profileIds": [int(one["profileId"]) for one in profiles(order)],
            "iccids": [one["iccid"] for one in profiles(order)],
        }
    ]
    assert await balance(dealer) == before + Decimal("5.40")
    after = await query(dealer, order)
    assert (after["payStatus"], after["orderStatus"], after["refundAmount"]) == ("REFUNDED", "REFUNDED", 5.4)
    assert after["items"][0]["itemStatus"] == "REFUNDED"
    assert all(one["cancelled"] and one["lifecycleStatus"] == "CANCELLED" for one in profiles(after))


async def test_named_profiles_are_credited_each_with_its_price(dealer: ApiClient):
    order = await bought(dealer, quantity=3)
    first, second, third = profiles(order)
    by_id = await refund(dealer, order, items=named(order, {"profileId": int(first["profileId"])}))
    by_iccid = await refund(dealer, order, items=named(order, {"iccid": second["iccid"]}))
    both = {"profileId": third["profileId"], "iccid": third["iccid"]}
    by_both = await refund(dealer, order, items=named(order, both))
    assert [one.data["refundAmount"] for one in (by_id, by_iccid, by_both)] == ["1.80"] * 3
    assert [one.data["totalRefundAmount"] for one in (by_id, by_iccid, by_both)] == ["1.80", "3.60", "5.40"]
    assert by_iccid.data["items"][0]["iccids"] == [second["iccid"]]
    assert (await query(dealer, order))["payStatus"] == "REFUNDED"


async def test_a_partly_refunded_order_stays_paid_and_completed(dealer: ApiClient):
    order = await bought(dealer, quantity=2)
    await refund(dealer, order, items=named(order, {"iccid": profiles(order)[0]["iccid"]}))
    after = await query(dealer, order)
    assert (after["payStatus"], after["orderStatus"], after["deliveryStatus"]) == ("PAID", "COMPLETED", "DELIVERED")
    assert after["items"][0]["itemStatus"] == "DELIVERED"
    rest = await refund(dealer, order)
    assert rest.data["refundAmount"] == "1.80"
    assert (await query(dealer, order))["payStatus"] == "REFUNDED"


async def test_a_line_is_refunded_whole_by_its_item_number_in_either_form(dealer: ApiClient):
    order = await bought(dealer, quantity=2, lines=3)
    item_no = order["items"][0]["itemNo"]
    reply = await refund(dealer, order, items=[{"itemNo": f"{order['orderNo']}-I-{item_no}", "profiles": []}])
    assert (reply.data["status"], reply.data["refundAmount"]) == ("REFUNDED", "3.60")
    again = await refund(dealer, order, items=[{"itemNo": item_no}])
    assert again.data["duplicate"] is True and again.data["refundNo"] == reply.data["refundNo"]


async def test_an_undelivered_order_is_refunded_and_never_delivered(postgres: str, template: str):
    async with fresh(postgres, template) as url:
        async with running_service(url, worker=False) as service:
            created = await service.tenant(balance="1000")
            async with service.client(created) as dealer:
                order = {"orderNo": (await dealer.order()).data["orderNo"]}
                reply = await refund(dealer, order)
        assert reply.data["status"] == "REFUNDED" and reply.data["items"][0]["iccids"] == []
        async with running_service(url) as service, service.client(created) as dealer:
            await bought(dealer)  # a worker has been past it
            after = await query(dealer, order)
            assert after["orderStatus"] == "REFUNDED" and "iccid" not in profiles(after)[0]
            assert await service.audit() == []


async def test_an_order_is_found_by_order_number_or_transaction_id(dealer: ApiClient):
    order, other = await bought(dealer), await bought(dealer)
    disagreeing = await refund(dealer, order, transactionId=other["transactionId"])
    assert disagreeing.code == "310272"
    reply = await dealer.post("/esim/refund", {"transactionId": order["transactionId"]})
    assert reply.data["orderNo"] == order["orderNo"]


# Refusals


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        ({"orderNo": None}, "000105", "orderNo"),
        ({"orderNo": "D000000000000000001"}, "310272", ""),
        ({"orderNo": "what"}, "310272", ""),
        ({"items": []}, "000106", "items"),
        ({"items": [{}]}, "000105", "items[0].itemNo"),
        ({"items": [{"itemNo": "12"}]}, "310274", "items[0].itemNo"),
        ({"items": [{"itemNo": "x"}]}, "310274", "items[0].itemNo"),
        ({"esimTranNo": "8"}, "000111", "esimTranNo"),
        ({"profiles": [{"profileId": 1}]}, "000111", "profiles"),
        ({"refundTransactionId": "no spaces"}, "000108", "refundTransactionId"),
        ({"remark": "x" * 256}, "000107", "remark"),
    ],
)
async def test_an_invalid_call_names_the_parameter(dealer: ApiClient, call: dict[str, Any], code: str, said: str):
    order = await bought(dealer)
    reply = await refund(dealer, order, **call)
    assert reply.code == code and said in reply.message, reply
    assert (await query(dealer, order))["refundAmount"] == 0


@pytest.mark.parametrize(
    ("profile", "code"),
    [
        ({}, "000105"),
        ({"profileId": 1}, "310403"),
        ({"iccid": "8900000000000000000"}, "310403"),
        ({"iccid": "12"}, "000108"),
    ],
)
async def test_a_profile_that_is_not_in_the_item(dealer: ApiClient, profile: dict[str, Any], code: str):
    order = await bought(dealer)
    assert (await refund(dealer, order, items=named(order, profile))).code == code


async def test_ids_that_disagree_name_no_profile(dealer: ApiClient):
    order = await bought(dealer, quantity=2)
    first, second = profiles(order)
    reply = await refund(dealer, order, items=named(order, {"profileId": first["profileId"], "iccid": second["iccid"]}))
    assert reply.code == "310403"


async def test_named_profiles_are_all_or_nothing(dealer: ApiClient):
    order = await bought(dealer, quantity=3)
    first, second, _ = profiles(order)
    await dealer.post("/esim/profile/cancel", {"iccid": first["iccid"]})
    reply = await refund(dealer, order, items=named(order, {"iccid": first["iccid"]}, {"iccid": second["iccid"]}))
    assert reply.code == "200003"
    assert reply.data["profiles"] == [{"profileId": int(first["profileId"]), "reason": "CANCELLED"}]
    whole = await refund(dealer, order)
    assert whole.data["refundAmount"] == "3.60", "what can be given is given"


async def test_nothing_is_refunded_twice(dealer: ApiClient):
    order = await bought(dealer, quantity=2)
    await refund(dealer, order)
    reply = await refund(dealer, order, items=named(order, {"iccid": profiles(order)[0]["iccid"]}))
    assert (reply.code, reply.data["profiles"][0]["reason"]) == ("200003", "REFUNDED")


async def test_the_orders_of_others_cannot_be_refunded(dealer: ApiClient, stranger: ApiClient):
    order = await bought(dealer)
    theirs, nobodys = await refund(stranger, order), await refund(stranger, {"orderNo": "D000000000000000001"})
    assert (theirs.code, theirs.message) == (nobodys.code, nobodys.message) == ("310272", nobodys.message)


# Repeats


async def test_an_identical_request_is_the_first_one(dealer: ApiClient):
    order = await bought(dealer, quantity=2)
    before = await balance(dealer)
    first, second = await refund(dealer, order), await refund(dealer, order)
    assert second.data == first.data | {"duplicate": True}
    assert await balance(dealer) == before + Decimal("3.60")


async def test_a_refund_transaction_id_names_one_refund_for_ever(dealer: ApiClient):
    order, other = await bought(dealer, quantity=2), await bought(dealer)
    key = f"r-{secrets.token_hex(6)}"
    first = await refund(dealer, order, refundTransactionId=key, items=[{"itemNo": order["items"][0]["itemNo"]}])
    again = await refund(dealer, order, refundTransactionId=key, items=[{"itemNo": order["items"][0]["itemNo"]}])
    assert again.data == first.data | {"duplicate": True}
    assert (await refund(dealer, order, refundTransactionId=key)).code == "310402", "another scope"
    assert (await refund(dealer, other, refundTransactionId=key)).code == "310402", "another order"


async def test_sixty_four_concurrent_refunds_credit_once(dealer: ApiClient):
    order = await bought(dealer, quantity=4)
    before = await balance(dealer)
    calls = [refund(dealer, order) if number % 2 else refund(dealer, order, items=named(
        order, {"iccid": profiles(order)[number % 4]["iccid"]})) for number in range(64)]  # fmt: skip
    replies = await asyncio.gather(*calls)
    assert {one.code for one in replies} <= {"000000", "200003"}
    credited = sum(
        Decimal(one.data["refundAmount"]) for one in replies if one.code == "000000" and not one.data["duplicate"]
    )
    assert credited == Decimal("7.20") == await balance(dealer) - before


# Asynchronous refunds


async def test_an_asynchronous_refund_holds_first_and_credits_later(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer, "TEST-ASYNC", quantity=2)
    await receiver.received(2)
    before = await balance(dealer)
    reply = await refund(dealer, order)
    assert (reply.data["status"], reply.data["refundAmount"]) == ("REFUNDING", "3.60")
    assert reply.data["totalRefundAmount"] == "0.00" and reply.data["items"][0]["refundStatus"] == "PENDING"
    assert (await refund(dealer, order)).data["duplicate"] is True
    after = await settled(dealer, order)
    assert (after["orderStatus"], after["payStatus"], after["refundAmount"]) == ("REFUNDED", "REFUNDED", 3.6)
    assert await balance(dealer) == before + Decimal("3.60")
    updated, completed = (await receiver.received(4))[2:4]
    assert updated.event == "DELIVERY_UPDATED" and "PROFILE_CANCELLED" in updated.json["changeHints"]
    assert completed.event == "REFUND_COMPLETED" and completed.json["refundAmount"] == 3.6
    assert completed.json["changeHints"] == ["REFUND_COMPLETED", "REFUND_AMOUNT_UPDATED"]
    assert len(receiver.requests) == 4, "no webhook before the credit"


async def test_a_rejected_refund_credits_nothing_and_shows_its_status(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer, "TEST-REJECT")
    await receiver.received(2)
    before = await balance(dealer)
    assert (await refund(dealer, order)).data["status"] == "REFUNDING"
    after = await settled(dealer, order)
    assert (after["orderStatus"], after["payStatus"], after["refundAmount"]) == ("COMPLETED", "PAID", 0)
    assert await balance(dealer) == before
    third = (await receiver.received(3))[2]
    assert third.event == "DELIVERY_UPDATED" and third.json["changeHints"] == ["ORDER_SNAPSHOT_SYNC"]
    assert (await refund(dealer, order)).data["duplicate"] is False, "it may be asked for again"
    await settled(dealer, order)


async def test_only_an_operator_reviews_a_refund(service: Service, dealer: ApiClient):
    approved, denied = await bought(dealer, "TEST-REVIEW"), await bought(dealer, "TEST-REVIEW")
    before = await balance(dealer)
    first, second = (await refund(dealer, approved)).data, (await refund(dealer, denied)).data
    assert first["status"] == second["status"] == "REFUNDING"
    await approve_refund(service.database, first["refundNo"], "ops", clock.now)
    await reject_refund(service.database, second["refundNo"], "used on the plane", "ops", clock.now)
    assert (await settled(dealer, approved))["orderStatus"] == "REFUNDED"
    assert (await settled(dealer, denied))["orderStatus"] == "COMPLETED"
    assert await balance(dealer) == before + PRICE


async def test_a_refund_that_was_rejected_says_so_of_each_line(service: Service, dealer: ApiClient):
    order = await bought(dealer, "TEST-REVIEW", quantity=2)
    first = (await refund(dealer, order, refundTransactionId="r-1")).data
    assert [item["refundStatus"] for item in first["items"]] == ["PENDING"]
    await reject_refund(service.database, first["refundNo"], "used on the plane", "ops", clock.now)
    await settled(dealer, order)
    again = (await refund(dealer, order, refundTransactionId="r-1")).data
    assert (again["status"], again["duplicate"]) == ("REJECTED", True)
    assert again["items"] == [first["items"][0] | {"refundStatus": "REJECTED"}]


async def test_null_counts_as_left_out_also_of_what_is_not_accepted(dealer: ApiClient):
    order = await bought(dealer)
    named_so = [{**named(order, profiles(order)[0])[0], "esimTranNo": None}]
    named_so[0]["profiles"] = [{"profileId": profiles(order)[0]["profileId"], "esimTranNo": None}]
    reply = await refund(dealer, order, profiles=None, esimTranNo=None, items=named_so)
    assert (reply.code, reply.data["status"]) == ("000000", "REFUNDED"), reply


async def test_a_part_that_was_rejected_is_held_until_the_rest_is_decided(service: Service, dealer: ApiClient):
    line = {"quantity": 1, "price": "1.80"}
    items = [line | {"packageCode": "TEST-REJECT"}, line | {"packageCode": "TEST-REVIEW"}]
    order = await dealer.delivered((await dealer.order(items=items, amount="3.60")).data["orderNo"])
    before, pending = await balance(dealer), (await refund(dealer, order)).data
    rejected = "SELECT EXISTS (SELECT FROM refund_line WHERE tenant_id = $1 AND status = 'REJECTED')"
    async with asyncio.timeout(PATIENCE), service.database.connection() as connection:
        while not await connection.fetchval(rejected, dealer.tenant_id):
            await asyncio.sleep(0.02)
    assert await service.audit() == []
    again = await refund(dealer, order, items=[{"itemNo": order["items"][0]["itemNo"]}])
    assert again.code == "200004" and (await query(dealer, order))["orderStatus"] == "REFUNDING"
    await approve_refund(service.database, pending["refundNo"], "ops", clock.now)
    after = await settled(dealer, order)
    assert (after["orderStatus"], after["refundAmount"]) == ("COMPLETED", 1.8)
    assert await balance(dealer) == before + PRICE
    repeated = (await refund(dealer, order)).data
    assert (repeated["refundNo"], repeated["status"]) == (pending["refundNo"], "REFUNDED")
    assert [item["refundStatus"] for item in repeated["items"]] == ["REJECTED", "COMPLETED"]
    assert (await refund(dealer, order, items=[{"itemNo": order["items"][0]["itemNo"]}])).code == "000000"
    await settled(dealer, order)


async def test_refunds_that_cannot_be_settled_do_not_block_others(service: Service, dealer: ApiClient):
    orders = [await bought(dealer, "TEST-REVIEW") for _ in range(4)]
    sealed, over = [int(one["orderId"]) for one in orders[:2]]
    before = await balance(dealer)
    pending = [(await refund(dealer, one)).data for one in orders]
    async with service.database.connection() as connection:
        # One holds a code that cannot be opened; of the other, more would be refunded than was paid.
        await connection.execute(
            "UPDATE profile SET activation_code = activation_code || '!' WHERE order_id = $1", sealed
        )
        await connection.execute("UPDATE orders SET refund_amount = amount WHERE order_id = $1", over)
        for one in pending:
            await approve_refund(service.database, one["refundNo"], "ops", clock.now)
        for one in orders[2:]:
            assert (await settled(dealer, one))["orderStatus"] == "REFUNDED"
        assert await balance(dealer) == before + 2 * PRICE
        waits = "SELECT count(*) FROM refund WHERE order_id = ANY($1) AND settle_failures > 0 AND due_at > now()"
        async with asyncio.timeout(PATIENCE):
            while await connection.fetchval(waits, [sealed, over]) < 2:
                await asyncio.sleep(0.02)
        await connection.execute(
            "UPDATE profile SET activation_code = substr(activation_code, 1, length(activation_code) - 1)"
            " WHERE order_id = $1",
            sealed,
        )
        await connection.execute("UPDATE orders SET refund_amount = 0 WHERE order_id = $1", over)
        await connection.execute("UPDATE refund SET due_at = now() WHERE order_id = ANY($1)", [sealed, over])
    for one in orders[:2]:
        assert (await settled(dealer, one))["orderStatus"] == "REFUNDED"
    assert await balance(dealer) == before + 4 * PRICE


async def test_a_locked_refund_does_not_block_others(postgres: str, template: str):
    async with fresh(postgres, template) as url, running_service(url, worker=False) as api:
        await put_packages(api.database, generate.catalogue("test"), "test", clock.now)
        async with api.client(await api.tenant(balance="100", qps=0)) as dealer, api.database.connection() as other:
            async with running_service(url):
                orders = [await bought(dealer, "TEST-REVIEW") for _ in range(2)]
            for one in orders:
                assert (await refund(dealer, one)).data["status"] == "REFUNDING"
            await other.execute("UPDATE refund_line SET status = 'READY'")
            await other.execute("UPDATE refund SET due_at = created_at")
            first, second = orders
            async with other.transaction():
                await other.fetch(
                    "SELECT FROM refund WHERE tenant_id = $1 AND order_id = $2 FOR UPDATE",
                    dealer.tenant_id,
                    int(first["orderId"]),
                )
                async with running_service(url):
                    assert (await settled(dealer, second))["orderStatus"] == "REFUNDED"
            async with running_service(url):
                assert (await settled(dealer, first))["orderStatus"] == "REFUNDED"
        assert await api.audit() == []


async def test_refunds_of_two_dealers_are_settled_without_a_fault(postgres: str, template: str):
    async with fresh(postgres, template) as url, running_service(url, worker=False) as api, AsyncExitStack() as stack:
        tenants = [await api.tenant(balance="100", qps=0) for _ in range(2)]
        dealers = [await stack.enter_async_context(api.client(one)) for one in tenants]
        async with running_service(url):
            orders = [await bought(one, "TEST-REVIEW") for one in dealers]
        for one, order in zip(dealers, orders, strict=True):
            assert (await refund(one, order)).data["status"] == "REFUNDING"
        async with api.database.connection() as connection:
            await connection.execute("UPDATE refund_line SET status = 'READY'")
            await connection.execute("UPDATE refund SET due_at = created_at")
        with capture_logs() as lines:
            async with running_service(url):
                for one, order in zip(dealers, orders, strict=True):
                    assert (await settled(one, order))["orderStatus"] == "REFUNDED"
        assert "batch_failed" not in {line["event"] for line in lines}
        assert await api.audit() == []


LINES = (
    "SELECT tenant_id, refund_id, profile_id FROM refund_line JOIN refund USING (tenant_id, refund_id)"
    " WHERE order_id = $1 ORDER BY profile_id"
)


async def test_the_last_two_lines_decided_at_the_same_time_settle_their_refund(service: Service, dealer: ApiClient):
    order = await bought(dealer, "TEST-REVIEW", quantity=2)
    before = await balance(dealer)
    assert (await refund(dealer, order)).data["status"] == "REFUNDING"
    database = service.database
    async with database.connection() as watch, database.connection() as first, database.connection() as second:
        one, other = await watch.fetch(LINES, int(order["orderId"]))

        async def decide_other() -> None:
            async with second.transaction():
                await refunds.decide_lines(second, [(*other, True, None)], clock.now())

        async with first.transaction():
            await refunds.decide_lines(first, [(*one, True, None)], clock.now())
            deciding = asyncio.create_task(decide_other())
            waits = f"SELECT FROM {lock_waiters()} WHERE pid = $1"
            async with asyncio.timeout(PATIENCE):
                while not deciding.done() and not await watch.fetch(waits, second.get_server_pid()):
                    await asyncio.sleep(0.01)
        await deciding
    assert (await settled(dealer, order))["orderStatus"] == "REFUNDED"
    assert await balance(dealer) == before + 2 * PRICE


async def test_an_abandoned_refund_is_found_and_settled(service: Service, dealer: ApiClient):
    order = await bought(dealer, "TEST-REVIEW")
    before = await balance(dealer)
    assert (await refund(dealer, order)).data["status"] == "REFUNDING"
    async with service.database.connection() as connection:
        await connection.execute("UPDATE refund_line SET status = 'READY' WHERE tenant_id = $1", dealer.tenant_id)
    async with running_service(service.settings.database_url):  # a worker looks when it starts, and every minute
        assert (await settled(dealer, order))["orderStatus"] == "REFUNDED"
    assert await balance(dealer) == before + PRICE


async def test_a_permanently_failed_profile_is_refunded_automatically(dealer: ApiClient):
    before = await balance(dealer)
    order = {"orderNo": (await dealer.order("TEST-FAIL")).data["orderNo"]}
    async with asyncio.timeout(PATIENCE):
        while (after := await query(dealer, order))["orderStatus"] != "REFUNDED":
            await asyncio.sleep(0.02)
    assert (after["deliveryStatus"], after["payStatus"], after["refundAmount"]) == ("FAILED", "REFUNDED", 1.8)
    assert await balance(dealer) == before


# Voids


@pytest.mark.parametrize("path", ["/esim/profile/cancel", "/esim/profile/revoke"])
async def test_a_cancelled_profile_is_void_without_a_credit(dealer: ApiClient, path: str):
    order = await bought(dealer, quantity=2)
    before, first = await balance(dealer), profiles(order)[0]
    reply = await dealer.post(path, {"profileId": int(first["profileId"])})
    assert reply.data == {
        "orderNo": order["orderNo"],
        "itemNo": order["items"][0]["itemNo"],
        "profileId": int(first["profileId"]),
        "iccid": first["iccid"],
        "asyncStatus": "COMPLETED",
        "cancelled": True,
        "lifecycleStatus": "CANCELLED",
    }
    assert (await dealer.post(path, {"iccid": first["iccid"]})).data == reply.data, "repeating is success"
    assert await balance(dealer) == before
    after = await query(dealer, order)
    assert (after["orderStatus"], after["payStatus"], after["refundAmount"]) == ("COMPLETED", "PAID", 0)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({}, "000105"),
        ({"profileId": 1, "iccid": "8900000000000000000"}, "000111"),
        ({"profileId": 1}, "310404"),
        ({"profileId": "x"}, "310404"),
        ({"iccid": "8900000000000000000"}, "310404"),
        ({"iccid": "1"}, "000108"),
        ({"profileId": 1.5}, "000108"),
    ],
)
async def test_an_invalid_cancellation_names_the_parameter(dealer: ApiClient, call: dict[str, Any], code: str):
    assert (await dealer.post("/esim/profile/cancel", call)).code == code


async def test_the_profiles_of_others_cannot_be_voided(dealer: ApiClient, stranger: ApiClient):
    order = await bought(dealer)
    reply = await stranger.post("/esim/profile/cancel", {"iccid": profiles(order)[0]["iccid"]})
    assert reply.code == "310404"
    assert not profiles(await query(dealer, order))[0]["cancelled"]


async def test_a_void_before_delivery_stops_the_fulfillment(postgres: str, template: str):
    async with fresh(postgres, template) as url, running_service(url, worker=False) as idle:
        async with idle.client(await idle.tenant(balance="1000")) as dealer:
            placed = (await dealer.order()).data
            reply = await dealer.post("/esim/profile/cancel", {"profileId": profiles(placed)[0]["profileId"]})
            assert reply.data["cancelled"] and "iccid" not in reply.data
            after = await query(dealer, placed)
            assert (after["orderStatus"], after["deliveryStatus"]) == ("COMPLETED", "PENDING")
            assert (await refund(dealer, placed)).code == "200003", "dealers refund instead of cancelling"
        assert await idle.audit() == []


async def test_a_cancellation_completes_when_the_supplier_is_slow(dealer: ApiClient):
    order = await bought(dealer, "TEST-ASYNC")
    iccid = profiles(order)[0]["iccid"]
    reply = await dealer.post("/esim/profile/cancel", {"iccid": iccid})
    assert (reply.data["asyncStatus"], reply.data["cancelled"]) == ("PENDING", False)
    async with asyncio.timeout(PATIENCE):
        while not profiles(await query(dealer, order))[0]["cancelled"]:
            await asyncio.sleep(0.02)
    assert (await dealer.post("/esim/profile/cancel", {"iccid": iccid})).data["asyncStatus"] == "COMPLETED"
