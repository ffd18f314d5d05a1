"""What becomes of a delivered profile, through the public client: /esim/profile/usage, /test/profile/advance, and what
the dealer is told of it."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from dealer_server.operations.catalogue.load_stock import load_stock
from dealer_server.store.tenants import data_key
from support.api_client import ApiClient, Reply, Service, running_service
from support.money.refunds import bought, named, profiles, query, refund
from support.patience import PATIENCE
from support.store_fixture import stock_csv
from support.webhook_fixture import Receiver

pytestmark = pytest.mark.usefixtures("exact")

GB = 2**30
STEPS = ("DOWNLOAD", "INSTALL", "ENABLE", "START", "USE", "EXPIRE", "DELETE")
PATHS = ("/esim/profile/usage", "/test/profile/advance")
NOBODYS = "8900000000000000009"


def iccid(order: dict[str, Any], number: int = 0) -> str:
    return profiles(order)[number]["iccid"]


async def advance(dealer: ApiClient, order: dict[str, Any], step: str, **call: Any) -> dict[str, Any]:
    reply = await dealer.post("/test/profile/advance", {"iccid": iccid(order), "step": step} | call)
    assert reply.code == "000000", reply
    return reply.data


async def usage(dealer: ApiClient, order: dict[str, Any], **call: Any) -> dict[str, Any]:
    reply = await dealer.post("/esim/profile/usage", {"iccid": iccid(order)} | call)
    assert reply.code == "000000", reply
    return reply.data


async def stock_order(service: Service, dealer: ApiClient) -> dict[str, Any]:
    async with service.database.connection() as connection:
        keys = await data_key.load(connection, service.settings.master_keys)
        free = await connection.fetchval("SELECT count(*) FROM stock_profile WHERE taken_by IS NULL")
        first = await connection.fetchval("SELECT count(*) FROM stock_profile")
    if not free:
        await load_stock(service.database, keys, "DEMO-STOCK", stock_csv(5, first), "test")
    placed = await dealer.order(items=[{"packageCode": "DEMO-STOCK", "quantity": 1, "price": "2.50"}], amount="2.50")
    return await dealer.delivered(placed.data["orderNo"])


# The steps and what they tell


async def test_each_step_changes_the_profile_and_sends_its_hints(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    await receiver.received(2)
    story = [
        ("DOWNLOAD", {}, {"lifecycleStatus": "ACTIVATING", "smdpStatus": "DOWNLOAD"},
         ["ITEM_STATUS_CHANGED", "PROFILE_LIFECYCLE_CHANGED", "SMDP_STATUS_CHANGED"]),
        ("INSTALL", {}, {"lifecycleStatus": "ACTIVATING", "smdpStatus": "INSTALLATION"}, ["SMDP_STATUS_CHANGED"]),
        ("ENABLE", {}, {"lifecycleStatus": "ACTIVATED", "smdpStatus": "ENABLED", "activated": True},
         ["ITEM_STATUS_CHANGED", "PROFILE_LIFECYCLE_CHANGED", "SMDP_STATUS_CHANGED"]),
        ("START", {}, {"esimStatus": "IN_USE", "planUseStatus": "STARTED"},
         ["ESIM_STATUS_CHANGED", "PLAN_USE_STARTED"]),
        ("USE", {"dataUsageBytes": 100}, {"dataUsageBytes": 100, "remainDataBytes": GB - 100}, ["USAGE_UPDATED"]),
        ("USE", {"dataUsageBytes": GB // 2}, {"dataUsageBytes": GB // 2, "usagePercent": 50.0}, ["USAGE_UPDATED"]),
        ("USE", {}, {"esimStatus": "USED_UP", "planUseStatus": "ENDED", "remainDataBytes": 0, "usagePercent": 100.0},
         ["ESIM_STATUS_CHANGED", "PLAN_USE_ENDED", "USAGE_UPDATED"]),
        ("DELETE", {}, {"smdpStatus": "DELETED", "lifecycleStatus": "ACTIVATED"}, ["SMDP_STATUS_CHANGED"]),
    ]  # fmt: skip
    for number, (step, call, shown, hints) in enumerate(story, 3):
        answered = await advance(dealer, order, step, **call)
        assert {name: answered[name] for name in shown} == shown, step
        last = (await receiver.received(number))[-1]
        assert (last.event, last.json["changeHints"]) == ("DELIVERY_UPDATED", hints), step
        assert profiles(last.json) == [answered] == profiles(await query(dealer, order))
        last.verified(dealer.app_secret)


async def test_a_repeated_step_changes_nothing_and_sends_nothing(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    await receiver.received(2)
    for step in ("ENABLE", "DOWNLOAD", "INSTALL", "ENABLE"):
        assert (await advance(dealer, order, step))["smdpStatus"] == "ENABLED"
        await receiver.received(3)
    await advance(dealer, order, "DELETE")
    assert (await receiver.received(4))[-1].json["changeHints"] == ["SMDP_STATUS_CHANGED"]
    assert len(receiver.requests) == 4


async def test_usage_events_have_an_interval(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    await receiver.received(2)
    await advance(dealer, order, "USE", dataUsageBytes=100)
    assert "USAGE_UPDATED" in (await receiver.received(3))[-1].json["changeHints"]
    await advance(dealer, order, "USE", dataUsageBytes=200)
    await advance(dealer, order, "USE", dataUsageBytes=300)
    assert (await usage(dealer, order))["dataUsageBytes"] == 300
    await advance(dealer, order, "USE", dataUsageBytes=GB * 4 // 5)
    last = (await receiver.received(4))[-1]
    assert last.json["changeHints"] == ["USAGE_UPDATED"], "80 % is worth an event of its own"
    assert profiles(last.json)[0]["usagePercent"] == 80.0 and len(receiver.requests) == 4


async def test_usage_events_are_sent_at_once_where_the_interval_is_zero(
    service: Service, database_url: str, receiver: Receiver
):
    async with (
        running_service(database_url, worker=False, usage_event_seconds=0) as at_once,
        at_once.client(await at_once.tenant(balance="1000", qps=0)) as dealer,
    ):
        await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
        order = await bought(dealer)
        await receiver.received(2)
        for number, used in enumerate((100, 200, 300), 3):
            await advance(dealer, order, "USE", dataUsageBytes=used)
            last = (await receiver.received(number))[-1].json
            assert "USAGE_UPDATED" in last["changeHints"] and profiles(last)[0]["dataUsageBytes"] == used


async def test_usage_never_goes_down(dealer: ApiClient):
    order = await bought(dealer)
    await advance(dealer, order, "USE", dataUsageBytes=500)
    assert (await advance(dealer, order, "USE", dataUsageBytes=300))["dataUsageBytes"] == 500
    assert (await advance(dealer, order, "USE", dataUsageBytes=0))["dataUsageBytes"] == 500


@pytest.mark.parametrize(("first", "word"), [("START", "USED_EXPIRED"), (None, "UNUSED_EXPIRED")])
async def test_a_plan_expires(dealer: ApiClient, first: str | None, word: str):
    order = await bought(dealer)
    if first:
        await advance(dealer, order, first)
    expired = await advance(dealer, order, "EXPIRE")
    assert (expired["esimStatus"], expired["planUseStatus"]) == (word, "ENDED")
    assert "planUseEndTime" in expired and ("planUseStartTime" in expired) == bool(first)
    assert (await usage(dealer, order))["planUseStatus"] == "ENDED"


async def test_an_item_is_activated_once_all_its_profiles_are(dealer: ApiClient):
    order = await bought(dealer, quantity=2)
    await advance(dealer, order, "ENABLE")
    assert (await query(dealer, order))["items"][0]["itemStatus"] == "ACTIVATING"
    await dealer.post("/test/profile/advance", {"profileId": profiles(order)[1]["profileId"], "step": "ENABLE"})
    assert (await query(dealer, order))["items"][0]["itemStatus"] == "ACTIVATED"


async def test_the_lifecycle_package_goes_through_its_whole_life(
    service: Service, dealer: ApiClient, receiver: Receiver
):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer, "TEST-LIFECYCLE", quantity=3)
    async with asyncio.timeout(PATIENCE):
        while {profile["planUseStatus"] for profile in profiles(await query(dealer, order))} != {"ENDED"}:
            await asyncio.sleep(0.02)
    after = await query(dealer, order)
    assert after["items"][0]["itemStatus"] == "ACTIVATED" and after["orderStatus"] == "COMPLETED"
    for profile in profiles(after):
        assert (profile["lifecycleStatus"], profile["activated"], profile["cancelled"]) == ("ACTIVATED", True, False)
        assert (profile["smdpStatus"], profile["esimStatus"]) == ("ENABLED", "USED_UP")
        assert (profile["dataUsageBytes"], profile["remainDataBytes"], profile["usagePercent"]) == (GB, 0, 100.0)
        assert profile["planUseStartTime"] <= profile["planUseEndTime"]
    async with asyncio.timeout(PATIENCE):
        while {profile["planUseStatus"] for profile in profiles(receiver.requests[-1].json)} != {"ENDED"}:
            await receiver.received(len(receiver.requests) + 1)
    hints = {hint for request in receiver.requests for hint in request.json["changeHints"]}
    assert hints >= {"PROFILE_LIFECYCLE_CHANGED", "SMDP_STATUS_CHANGED", "ESIM_STATUS_CHANGED", "USAGE_UPDATED"}
    assert hints & {"PLAN_USE_STARTED", "PLAN_USE_ENDED"}, "where both happen between two looks, it has ended"
    async with service.database.connection() as connection:
        left = await connection.fetchval(
            "SELECT count(*) FROM profile_life WHERE order_id = $1 AND due_at IS NOT NULL", order["orderId"]
        )
    assert left == 0, "nothing more after the end"


# Money


async def test_a_used_or_installed_profile_is_not_refunded(dealer: ApiClient):
    order = await bought(dealer, quantity=3)
    used, installed, deleted = ({"iccid": iccid(order, number)} for number in range(3))
    await dealer.post("/test/profile/advance", used | {"step": "USE", "dataUsageBytes": 1})
    await dealer.post("/test/profile/advance", installed | {"step": "INSTALL"})
    await dealer.post("/test/profile/advance", deleted | {"step": "DELETE"})
    for profile, reason in ((used, "USED"), (installed, "ACTIVATED"), (deleted, "INSTALLED")):
        reply = await refund(dealer, order, items=named(order, profile))
        assert (reply.code, reply.data["profiles"][0]["reason"]) == ("200003", reason)


async def test_a_profile_that_expired_unused_is_not_refunded(dealer: ApiClient):
    order = await bought(dealer)
    await advance(dealer, order, "EXPIRE")
    assert (await refund(dealer, order)).data["profiles"][0]["reason"] == "USED"


# Usage


async def test_usage_shows_the_last_report(dealer: ApiClient):
    order = await bought(dealer)
    before = await usage(dealer, order)
    assert before.pop("lastUpdateTime") >= order["createTime"]
    assert before == {
        "profileId": int(profiles(order)[0]["profileId"]),
        "iccid": iccid(order),
        "lifecycleStatus": "DELIVERED",
        "planUseStatus": "NOT_STARTED",
        "dataTotalBytes": GB,
        "dataUsageBytes": 0,
        "remainDataBytes": GB,
        "usagePercent": 0.0,
        "realTime": False,
    }
    await advance(dealer, order, "USE", dataUsageBytes=GB // 4)
    after = await usage(dealer, order)
    start, end = (datetime.fromisoformat(after[f"planUse{which}Time"]) for which in ("Start", "End"))
    assert end - start == timedelta(days=7) / 200, "simulated plans run so many times faster"
    assert (after["dataUsageBytes"], after["remainDataBytes"], after["usagePercent"]) == (GB // 4, GB * 3 // 4, 25.0)
    by_id = await dealer.post("/esim/profile/usage", {"profileId": profiles(order)[0]["profileId"]})
    assert by_id.data == after


async def test_a_refresh_asks_the_supplier_once_a_minute(service: Service, dealer: ApiClient):
    order = await bought(dealer)
    first = await usage(dealer, order, refresh=True)
    assert first["realTime"] is True and first["dataUsageBytes"] == 0

    async def asked_at() -> Any:
        async with service.database.connection() as connection:
            return await connection.fetchval("SELECT asked_at FROM profile_life WHERE iccid = $1", iccid(order))

    before = await asked_at()
    second = await usage(dealer, order, refresh=True)
    assert second["realTime"] is True and await asked_at() == before
    assert (await usage(dealer, order))["realTime"] is False
    async with service.database.connection() as connection:
        earlier = before - timedelta(minutes=1)
        await connection.execute("UPDATE profile_life SET asked_at = $2 WHERE iccid = $1", iccid(order), earlier)
    assert (await usage(dealer, order, refresh=True))["realTime"] is True and await asked_at() > before


async def test_a_refresh_without_an_answer_is_not_real_time(service: Service, dealer: ApiClient):
    order = await bought(dealer)
    async with service.database.connection() as connection:  # nobody follows that supplier
        await connection.execute("UPDATE profile_life SET supplier = 'gone' WHERE iccid = $1", iccid(order))
    assert (await usage(dealer, order, refresh=True))["realTime"] is False


async def test_a_void_profile_shows_its_usage(dealer: ApiClient):
    order = await bought(dealer)
    await advance(dealer, order, "USE", dataUsageBytes=5)
    await dealer.post("/esim/profile/cancel", {"iccid": iccid(order)})
    after = await usage(dealer, order, refresh=True)
    assert (after["lifecycleStatus"], after["dataUsageBytes"]) == ("CANCELLED", 5)


async def test_an_unlimited_plan_cannot_be_used_up(service: Service, dealer: ApiClient):
    order = await bought(dealer)
    async with service.database.connection() as connection:
        await connection.execute("UPDATE profile SET data_total_bytes = NULL WHERE iccid = $1", iccid(order))
    reply = await dealer.post("/test/profile/advance", {"iccid": iccid(order), "step": "USE"})
    assert reply.code == "000105" and "dataUsageBytes" in reply.message
    await advance(dealer, order, "USE", dataUsageBytes=5 * GB)
    after = await usage(dealer, order)
    assert (after["dataTotalBytes"], after["dataUsageBytes"], after["planUseStatus"]) == (None, 5 * GB, "STARTED")
    assert "remainDataBytes" not in after and "usagePercent" not in after


# Refusals


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ({}, "000105", "profileId"),
        ({"profileId": None, "iccid": None}, "000105", "profileId"),
        ({"profileId": 1, "iccid": NOBODYS}, "000111", "profileId and iccid"),
        ({"profileId": ""}, "000106", "profileId"),
        ({"profileId": 1.5}, "000108", "profileId"),
        ({"iccid": "12"}, "000108", "iccid"),
        ({"profileId": 1}, "310404", ""),
        ({"profileId": "x"}, "310404", ""),
        ({"iccid": NOBODYS}, "310404", ""),
    ],
)
async def test_a_malformed_call_names_the_parameter(dealer: ApiClient, path: str, call: Any, code: str, message: str):
    reply = await dealer.post(path, {"step": "DOWNLOAD"} | call)
    assert reply.code == code and message in reply.message, reply


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ({}, "000105", "step"),
        ({"step": None}, "000106", "step"),
        ({"step": "FLY"}, "000108", "DOWNLOAD, INSTALL, ENABLE"),
        ({"step": "USE", "dataUsageBytes": -1}, "000108", "dataUsageBytes"),
        ({"step": "USE", "dataUsageBytes": 2**53}, "000108", "dataUsageBytes"),
        ({"step": "START", "dataUsageBytes": 1}, "000111", "dataUsageBytes"),
    ],
)
async def test_a_malformed_step_names_the_parameter(dealer: ApiClient, call: Any, code: str, message: str):
    reply = await dealer.post("/test/profile/advance", {"iccid": NOBODYS} | call)
    assert reply.code == code and message in reply.message, reply


async def test_refresh_is_true_or_false(dealer: ApiClient):
    assert (await dealer.post("/esim/profile/usage", {"iccid": NOBODYS, "refresh": "yes"})).code == "000108"


async def test_a_void_profile_cannot_be_advanced(dealer: ApiClient):
    order = await bought(dealer)
    await dealer.post("/esim/profile/cancel", {"iccid": iccid(order)})
    for step in STEPS:
        reply = await dealer.post("/test/profile/advance", {"iccid": iccid(order), "step": step})
        assert (reply.status, reply.code) == (409, "200002")


async def test_a_profile_that_a_refund_holds_cannot_be_advanced(service: Service, dealer: ApiClient):
    order = await bought(dealer, "TEST-REVIEW")
    assert (await refund(dealer, order)).data["status"] == "REFUNDING"
    reply = await dealer.post("/test/profile/advance", {"iccid": iccid(order), "step": "ENABLE"})
    assert (reply.status, reply.code) == (409, "200004")


@pytest.mark.parametrize("path", PATHS)
async def test_profiles_from_stock_have_no_usage(service: Service, dealer: ApiClient, path: str):
    order = await stock_order(service, dealer)
    reply = await dealer.post(path, {"iccid": iccid(order), "step": "ENABLE", "refresh": True})
    assert (reply.status, reply.code) == (501, "200022")
    assert "esimStatus" not in profiles(await query(dealer, order))[0]


@pytest.mark.parametrize("path", PATHS)
async def test_profiles_of_other_dealers_are_not_found(dealer: ApiClient, stranger: ApiClient, path: str):
    order = await bought(dealer)
    ids = ({"iccid": iccid(order)}, {"profileId": profiles(order)[0]["profileId"]})
    for theirs, nobodys in zip(ids, ({"iccid": NOBODYS}, {"profileId": 1}), strict=True):

        async def refusal(call: dict[str, Any]) -> Reply:
            return await stranger.post(path, {"step": "ENABLE", "refresh": True} | call)

        foreign, unknown = await refusal(theirs), await refusal(nobodys)
        assert (foreign.status, foreign.code, foreign.message, foreign.data) == (
            404,
            "310404",
            unknown.message,
            unknown.data,
        )
    assert profiles(await query(dealer, order)) == profiles(order)
