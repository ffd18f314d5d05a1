"""Events in the RT family's dialect: where they go, one per eSIM and change, none superseded, each verified."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.operations.webhooks import resend
from dealer_server.store.tenants import data_key
from dealer_server.webhooks.rt_validity import RtValidity
from esim_dealer.wire import signing
from support.api_client import ApiClient, Service
from support.patience import found
from support.rt_client import RtClient
from support.webhook_fixture import Receiver, Request, listening

GB = 2**30
SAYS = {
    "ORDER_STATUS": "orderStatus",
    "SMDP_EVENT": "smdpStatus",
    "ESIM_STATUS": "esimStatus",
    "DATA_USAGE": "remainThreshold",
    "VALIDITY_USAGE": "remain",
}


@pytest.fixture(scope="module")
async def own(service: Service) -> AsyncIterator[ApiClient]:
    async with service.client(await service.tenant(balance="1000", qps=0, rt_face="signed")) as client:
        yield client


@pytest.fixture(scope="module")
def dealer(own: ApiClient) -> RtClient:
    return RtClient(own.url, own.app_key, own.app_secret, own.http)


@pytest.fixture(scope="module")
async def rt_receiver(dealer: RtClient) -> AsyncIterator[Receiver]:
    """The receiver of the dealer's RT events; those of our own go nowhere."""
    async with listening(1) as [receiver]:
        assert await dealer.good("webhook/save", {"webhook": receiver.url}) == {}
        yield receiver


@pytest.fixture(scope="module", autouse=True)
async def audited(service: Service) -> AsyncIterator[None]:
    yield
    assert await service.audit() == []


def told(receiver: Receiver, order_no: str) -> list[tuple[str, str]]:
    """(notifyType, what it says) of an order's events, in the order they came."""
    said = []
    for request in receiver.requests:
        content = request.json["content"]
        if content["orderNo"] == order_no:
            what = SAYS[request.json["notifyType"]]
            said.append((request.json["notifyType"], content[what]))
    return said


async def comes(receiver: Receiver, order_no: str, kind: str, word: Any) -> Request:
    return await receiver.until(
        lambda request: (
            request.json["content"]["orderNo"] == order_no
            and request.json["notifyType"] == kind
            and word in request.json["content"].values()
        )
    )


def verify(request: Request, own: ApiClient) -> None:
    names = ("rt-timestamp", "rt-requestid", "rt-accesscode")
    values = [request.headers[name].encode() for name in names]
    assert request.headers["x-signature"] == signing.signature(own.app_secret.encode(), *values, request.body)


async def test_a_url_is_saved_once_it_takes_a_health_check(own: ApiClient, service: Service, receiver: Receiver):
    async with service.client(await service.tenant(balance="1", rt_face="signed")) as other:
        client = RtClient(other.url, other.app_key, other.app_secret, other.http)
        assert await client.good("webhook/query") == {"webhook": ""}
        receiver.answers = [500, 200]
        code, message = await client.refused("webhook/save", {"webhook": receiver.url})
        assert code == "000105" and "CHECK_HEALTH" in message and "500" in message
        assert await client.good("webhook/query", {}) == {"webhook": ""}
        for url in ("http://10.0.0.1/hook", "no url", "ftp://example.com/x"):
            assert (await client.refused("webhook/save", {"webhook": url}))[0] == "000105"
        await client.good("webhook/save", {"webhook": receiver.url})
        assert await client.good("webhook/query") == {"webhook": receiver.url}
        [_, health] = receiver.requests
        assert health.json["content"] == {"orderNo": "1234567890", "orderStatus": "Test"}
        assert health.json["notifyType"] == "CHECK_HEALTH" and len(health.json["notifyId"]) == 32
        verify(health, other)
        assert (await other.post("/webhook/query")).data["callbackUrl"] == ""


async def test_the_life_of_an_esim_is_told_step_by_step(own: ApiClient, dealer: RtClient, rt_receiver: Receiver):
    [esim] = await dealer.bought()
    order_no, iccid = esim["orderNo"], esim["iccid"]
    for step in ("DOWNLOAD", "INSTALL", "ENABLE", "START"):
        reply = await own.post("/test/profile/advance", {"iccid": iccid, "step": step})
        assert reply.code == "000000", reply
    for used in (GB * 6 // 10, GB * 7 // 10, GB * 95 // 100):
        await own.post("/test/profile/advance", {"iccid": iccid, "step": "USE", "dataUsageBytes": used})
    assert await dealer.good("esim/suspend", {"iccid": iccid}) == {}
    assert await dealer.good("esim/unsuspend", {"iccid": iccid}) == {}
    assert await dealer.good("esim/revoke", {"iccid": iccid}) == {}
    last = await comes(rt_receiver, order_no, "ESIM_STATUS", "REVOKED")
    assert told(rt_receiver, order_no) == [
        ("ORDER_STATUS", "GOT_RESOURCE"),
        ("SMDP_EVENT", "DOWNLOAD"),
        ("SMDP_EVENT", "INSTALLATION"),
        ("SMDP_EVENT", "ENABLED"),
        ("ESIM_STATUS", "IN_USE"),
        ("DATA_USAGE", 0.5),
        ("DATA_USAGE", 0.1),
        ("ESIM_STATUS", "SUSPENDED"),
        ("ESIM_STATUS", "IN_USE"),
        ("ESIM_STATUS", "REVOKED"),
    ]
    verify(last, own)
    events = [request.json for request in rt_receiver.requests if request.json["content"]["orderNo"] == order_no]
    assert len({event["notifyId"] for event in events}) == len(events)
    assert all(event["eventGenerateTime"].endswith("Z") for event in events)
    by_type = {event["notifyType"]: event["content"] for event in events}
    names = {"orderNo", "transactionId"}
    assert by_type["ORDER_STATUS"].keys() == names | {"orderStatus"}
    names |= {"esimTranNo", "iccid"}
    states = {"esimStatus", "smdpStatus"}
    assert by_type["SMDP_EVENT"].keys() == names | states | {"eid", "timestamp", "seqNumber", "notifyStatus"}
    assert by_type["ESIM_STATUS"].keys() == names | states | {"totalVolume", "orderUsage", "remainVolume"}
    assert by_type["DATA_USAGE"].keys() == names | {
        "totalVolume", "orderUsage", "remain", "remainThreshold", "lastUpdateTime"
    }  # fmt: skip
    assert (await dealer.esim(iccid))["esimStatus"] == "REVOKE"  # the family's word where it is asked


async def test_an_order_of_several_is_told_once_and_a_recharge_never(dealer: RtClient, rt_receiver: Receiver):
    first, _ = await dealer.bought(count=2)
    call = {"iccid": first["iccid"], "packageCode": "TEST-TOPUP-OK", "transactionId": "told-up-1"}
    await dealer.good("esim/topup", call)
    await dealer.good("esim/revoke", {"iccid": first["iccid"]})
    await comes(rt_receiver, first["orderNo"], "ESIM_STATUS", "REVOKED")
    assert told(rt_receiver, first["orderNo"])[0] == ("ORDER_STATUS", "GOT_RESOURCE")
    assert [kind for kind, _ in told(rt_receiver, first["orderNo"])].count("ORDER_STATUS") == 1
    numbers = {request.json["content"]["orderNo"] for request in rt_receiver.requests}
    transactions = {request.json["content"].get("transactionId") for request in rt_receiver.requests}
    assert first["orderNo"] in numbers and "told-up-1" not in transactions


async def test_a_refund_is_told_as_a_cancellation(dealer: RtClient, rt_receiver: Receiver):
    [esim] = await dealer.bought()
    await dealer.good("esim/cancel", {"iccid": esim["iccid"]})
    request = await comes(rt_receiver, esim["orderNo"], "ESIM_STATUS", "CANCEL")
    assert request.json["content"]["iccid"] == esim["iccid"]


async def test_what_fails_is_sent_again_and_nothing_after_it_is_lost(
    service: Service, own: ApiClient, dealer: RtClient, rt_receiver: Receiver
):
    """The log and sending again are those of our own events."""
    rt_receiver.answers = [500] * (len(rt_receiver.requests) + 1) + [200]
    [esim] = await dealer.bought()
    await own.post("/test/profile/advance", {"iccid": esim["iccid"], "step": "DOWNLOAD"})
    await comes(rt_receiver, esim["orderNo"], "SMDP_EVENT", "DOWNLOAD")
    first = await comes(rt_receiver, esim["orderNo"], "ORDER_STATUS", "GOT_RESOURCE")

    async def delivery() -> int | None:
        async with service.database.connection() as connection:
            return await connection.fetchval(
                "SELECT delivery_id FROM webhook_delivery WHERE tenant_id = $1 AND event_type = 'RT_ORDER_STATUS'"
                " AND state = 'RETRY'", own.tenant_id
            )  # fmt: skip

    delivery_id = await found(delivery)
    assert await resend.resend(service.database, own.tenant_id, [delivery_id], "test", clock.now) == 1

    def again(request: Request) -> bool:
        return request.headers.get("rt-delivery-id") == str(delivery_id) and request.number == 2

    second = await rt_receiver.until(again)
    assert second.body == first.body and second.json["notifyId"] == first.json["notifyId"]
    listed = (await own.post("/webhook/delivery/list", {"pager": {"pageSize": 500}})).data["deliveries"]
    assert {delivery["eventType"] for delivery in listed} <= {"ORDER_PAID", "DELIVERY_UPDATED", "REFUND_COMPLETED"}
    assert (await own.post("/webhook/delivery/resend", {"deliveryId": delivery_id})).code == "310272"


async def test_both_receivers_are_told_and_one_that_is_gone_stops_only_itself(service: Service):
    async with (
        listening(2) as [ours, theirs],
        service.client(await service.tenant(balance="100", qps=0, rt_face="signed")) as own,
    ):
        client = RtClient(own.url, own.app_key, own.app_secret, own.http)
        await own.post("/webhook/set", {"callbackUrl": ours.url})
        await client.good("webhook/save", {"webhook": theirs.url})
        order_no = await client.order()
        await comes(theirs, order_no, "ORDER_STATUS", "GOT_RESOURCE")
        await ours.until(lambda request: request.event == "DELIVERY_UPDATED")
        theirs.answers = [410]
        [esim] = await client.bought()

        async def disabled() -> bool | None:
            async with service.database.connection() as connection:
                state = await connection.fetchval(
                    "SELECT rt_state FROM webhook_endpoint WHERE tenant_id = $1", own.tenant_id
                )
            return state == "DISABLED" or None

        assert await found(disabled)
        assert (await own.post("/webhook/query")).data["state"] == "ACTIVE"
        count = len(ours.requests)
        await client.good("esim/cancel", {"iccid": esim["iccid"]})
        await ours.until(lambda request: request.event == "REFUND_COMPLETED")
        assert len(ours.requests) > count
        theirs.answers = [200]
        await client.good("webhook/save", {"webhook": theirs.url})
        order_no = await client.order()
        await comes(theirs, order_no, "ORDER_STATUS", "GOT_RESOURCE")


async def test_a_plan_that_ends_tomorrow_is_told_of_once(
    service: Service, own: ApiClient, dealer: RtClient, rt_receiver: Receiver
):
    rt_receiver.answers = [200]
    [esim] = await dealer.bought()
    await own.post("/test/profile/advance", {"iccid": esim["iccid"], "step": "START"})
    ends_at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=12)
    async with service.database.connection() as connection, connection.transaction():
        keys = await data_key.load(connection, service.settings.master_keys)
        await connection.execute(
            "UPDATE profile SET plan_use_end_at = $2 WHERE profile_id = $1", int(esim["esimTranNo"]), ends_at
        )
        await connection.execute("UPDATE rt_validity SET told_until = now()")  # as if nobody had looked for a day
    look = RtValidity(service.database, keys, clock.now, asyncio.Event())
    await look.look()  # the worker's own may come first
    request = await comes(rt_receiver, esim["orderNo"], "VALIDITY_USAGE", "DAY")
    assert await look.look() == 0
    content = request.json["content"]
    assert (content["remain"], content["totalDuration"], content["iccid"]) == (1, 7, esim["iccid"])
    assert content["expiredTime"] == f"{ends_at:%Y-%m-%dT%H:%M:%S}+0000"
    assert json.loads(request.body)["notifyType"] == "VALIDITY_USAGE"
