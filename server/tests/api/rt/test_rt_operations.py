"""The RT face, operation by operation: what a client of the family sends and reads (docs/guides/rt-clients.md)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.api_client import ApiClient, Service
from support.patience import found
from support.rt_client import RtClient

GB = 2**30
ESIM = {
    "esimTranNo", "orderNo", "transactionId", "imsi", "iccid", "smsStatus", "msisdn", "ac", "qrCodeUrl", "shortUrl",
    "smdpStatus", "eid", "activeType", "dataType", "activateTime", "installationTime", "expiredTime", "totalVolume",
    "totalDuration", "durationUnit", "orderUsage", "esimStatus", "pin", "puk", "apn", "packageList",
}  # fmt: skip
PACKAGE = {
    "packageCode", "slug", "name", "price", "retailPrice", "currencyCode", "volume", "smsStatus", "dataType",
    "unusedValidTime", "duration", "durationUnit", "location", "locationCode", "description", "activeType", "favorite",
    "speed", "ipExport", "supportTopUpType", "fupPolicy", "locationNetworkList",
}  # fmt: skip


@pytest.fixture(scope="module")
async def own(service: Service) -> AsyncIterator[ApiClient]:
    """The dealer at our own door."""
    async with service.client(await service.tenant(balance="1000", qps=0)) as client:
        await service.change(client.tenant_id, rt_face="signed")
        yield client


@pytest.fixture(scope="module")
def dealer(own: ApiClient) -> RtClient:
    return RtClient(own.url, own.app_key, own.app_secret, own.http)


@pytest.fixture(scope="module", autouse=True)
async def audited(service: Service) -> AsyncIterator[None]:
    yield
    assert await service.audit() == []


async def test_the_balance_is_what_can_be_spent(service: Service, own: ApiClient, dealer: RtClient):
    await service.change(own.tenant_id, credit_limit="5")
    before = float((await own.post("/account/balance")).data["availableBalance"])
    assert await dealer.good("balance/query") == {"balance": round(before * 10_000), "currencyCode": "USD"}
    await service.change(own.tenant_id, credit_limit="0")


async def test_the_package_list_is_whole_and_in_the_family_s_units(dealer: RtClient):
    listed = (await dealer.good("package/list", {}))["packageList"]
    by_code = {package["packageCode"]: package for package in listed}
    assert len(listed) == len(by_code) > 10 and all(set(package) == PACKAGE for package in listed)
    package = by_code["TEST-OK"]
    assert (package["price"], package["volume"], package["duration"], package["durationUnit"]) == (18_000, GB, 7, "DAY")
    assert (package["currencyCode"], package["dataType"], package["favorite"]) == ("USD", 1, False)
    assert package["location"].split(",") and package["locationNetworkList"][0]["operatorList"][0]["operatorName"]


FILTERS: list[tuple[dict[str, Any], Any]] = [
    ({"packageCode": "TEST-OK"}, lambda package: package["packageCode"] == "TEST-OK"),
    ({"slug": "test-ok"}, lambda package: package["slug"] == "test-ok"),
    ({"packageCode": "test-ok"}, lambda package: package["packageCode"] == "TEST-OK"),
    ({"locationCode": "!RG"}, lambda package: "," in package["location"]),
    ({"locationCode": "!GL"}, lambda package: "," in package["location"]),
    ({"dataType": 1}, lambda package: package["dataType"] == 1),
    ({"dataType": "2"}, lambda package: package["dataType"] in (2, 3, 4)),
    ({"type": "TOPUP"}, lambda package: "TOPUP" in package["packageCode"]),
    ({"type": "TOPUP", "packageCode": "TEST-OK"}, lambda package: "TOPUP" in package["packageCode"]),
    ({"type": "BASE", "locationCode": "", "iccid": None}, lambda package: "TOPUP" not in package["packageCode"]),
]


@pytest.mark.parametrize(("filters", "fits"), FILTERS, ids=lambda value: str(value) if isinstance(value, dict) else "")
async def test_packages_are_filtered(dealer: RtClient, filters: dict[str, Any], fits: Any):
    listed = (await dealer.good("package/list", filters))["packageList"]
    assert listed and all(fits(package) for package in listed)


async def test_places_are_listed_under_both_names(dealer: RtClient):
    places = (await dealer.good("location/list", {}))["locationList"]
    assert {place["type"] for place in places} == {1, 2}
    region = next(place for place in places if place["type"] == 2)
    assert region["subLocationList"] == region["subLocation"] and region["subLocation"][0]["type"] == 1


async def test_an_order_at_its_own_price_is_allocated_and_queried(own: ApiClient, dealer: RtClient):
    esims = await dealer.bought(count=2)
    assert len(esims) == 2 and all(set(esim) == ESIM for esim in esims)
    esim = esims[0]
    assert (esim["esimStatus"], esim["smdpStatus"], esim["totalVolume"]) == ("GOT_RESOURCE", "RELEASED", GB)
    assert (esim["totalDuration"], esim["durationUnit"], esim["orderUsage"], esim["eid"]) == (7, "DAY", 0, "")
    assert esim["ac"].startswith("LPA:1$") and esim["expiredTime"].endswith("+0000")
    assert [plan["packageCode"] for plan in esim["packageList"]] == ["TEST-OK"]
    order = (await own.post("/esim/query", {"orderNo": esim["orderNo"]})).data
    [profile, _] = order["items"][0]["profiles"]
    assert (profile["profileId"], profile["iccid"]) == (esim["esimTranNo"], esim["iccid"])
    assert (profile["activationCode"], profile["qrCodeUrl"]) == (esim["ac"], esim["qrCodeUrl"])
    assert (order["amount"], order["transactionId"]) == ("3.60", esim["transactionId"])


async def test_an_order_is_one_however_often_it_is_sent(service: Service, own: ApiClient, dealer: RtClient):
    line = {"packageCode": "test-review", "count": "1"}
    call = {"transactionId": "Order #7 of a shop, with words / and signs, 100 characters at most".ljust(100, "."),
            "packageInfoList": [line]}  # fmt: skip
    first, *again = await asyncio.gather(*[dealer.good("esim/order", call) for _ in range(5)])
    assert {each["orderNo"] for each in again} == {first["orderNo"]} and first["transactionId"] == call["transactionId"]
    await service.change(own.tenant_id, prices={"TEST-REVIEW": "1.70"})
    try:
        repeated = await dealer.good("esim/order", call)  # the price that it leaves out is another by now
        assert repeated["orderNo"] == first["orderNo"]
        code, _ = await dealer.refused("esim/order", {**call, "packageInfoList": [{**line, "count": 2}]})
        assert code == "200008"
    finally:
        await service.change(own.tenant_id, prices={"TEST-REVIEW": "list"})


async def test_an_order_of_one_door_is_repeated_at_the_other(own: ApiClient, dealer: RtClient):
    placed = await own.order(transactionId="both-doors-1")
    line = {"packageCode": "TEST-OK", "count": 1, "price": 18_000}
    call = {"transactionId": "both-doors-1", "packageInfoList": [line], "amount": 18_000}
    assert (await dealer.good("esim/order", call))["orderNo"] == placed.data["orderNo"]


def _order(**changed: Any) -> dict[str, Any]:
    line = {"packageCode": "TEST-OK", "count": 1} | changed.pop("line", {})
    return {"transactionId": "never-placed", "packageInfoList": [line], **changed}


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("esim/order", _order(transactionId=None), "000105", "transactionId is required"),
    ("esim/order", _order(transactionId="x" * 101), "000107", "transactionId"),
    ("esim/order", _order(packageInfoList=[]), "000106", "packageInfoList"),
    ("esim/order", _order(line={"count": 0}), "000105", "packageInfoList[0].count"),
    ("esim/order", _order(line={"count": "many"}), "000105", "packageInfoList[0].count"),
    ("esim/order", _order(line={"packageCode": "NONE-SUCH"}), "310241", "packageInfoList[0].packageCode 'NONE-SUCH'"),
    ("esim/order", _order(line={"price": 17_900}), "200005", "accepted: 18000"),
    ("esim/order", _order(line={"price": 18_001}), "200005", "accepted: 18000"),
    ("esim/order", _order(amount=18_100), "200006", "accepted: 18000"),
    ("esim/order", _order(line={"periodNum": 3}), "200008", "packageInfoList[0].periodNum"),
    ("esim/order", _order(line={"count": 100, "packageCode": "TEST-STOCKOUT"}), "200011", "stock"),
    ("esim/query", {"orderNo": "D000000000000000000"}, "310272", "orderNo names no order of yours"),
    ("esim/query", {"pager": {"pageNum": 1, "pageSize": 4}}, "000105", "pager.pageSize"),
    ("esim/query", {"startTime": "yesterday"}, "000105", "startTime"),
    ("esim/cancel", {}, "000105", "esimTranNo"),
    ("esim/cancel", {"iccid": "8900000000000000000"}, "310403", "profile"),
    ("esim/revoke", {"esimTranNo": "12345"}, "310403", "profile"),
    ("esim/suspend", {"esimTranNo": "12345"}, "310403", "profile"),
    ("esim/sendSms", {"iccid": "8900000000000000000"}, "000105", "message"),
    ("esim/usage/query", {"esimTranNoList": []}, "000106", "esimTranNoList"),
    ("esim/usage/query", {"esimTranNoList": ["1"] * 11}, "000107", "esimTranNoList"),
    ("esim/usage/query", {"esimTranNoList": ["1"]}, "310403", "profile"),
    ("esim/topup", {"iccid": "8900000000000000000", "packageCode": "TEST-TOPUP-OK", "transactionId": "none"},
     "310403", "profile"),
    ("package/list", {"type": "OTHER"}, "000105", "accepted: BASE, TOPUP"),
    ("package/list", {"dataType": 3}, "000105", "dataType"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "call", "number", "words"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
async def test_bad_input_gets_the_family_s_number_and_names(
    dealer: RtClient, operation: str, call: dict[str, Any], number: str, words: str
):
    code, message = await dealer.refused(operation, call)
    assert code == number and words in message, message


async def test_a_daily_package_costs_its_days(own: ApiClient, dealer: RtClient):
    daily = (await dealer.good("package/list", {"dataType": 2}))["packageList"][0]
    line = {"packageCode": daily["slug"], "count": 2, "periodNum": "3"}
    order_no = await dealer.order(packageInfoList=[line], amount=daily["price"] * 6)
    assert (await own.post("/esim/query", {"orderNo": order_no})).data["items"][0]["periodNum"] == 3
    [esim, _] = await dealer.esims(order_no)
    assert (esim["totalDuration"], esim["dataType"]) == (3, daily["dataType"])
    without_days = {"transactionId": "no-days", "packageInfoList": [{"packageCode": daily["slug"], "count": 1}]}
    assert (await dealer.refused("esim/order", without_days))[0] == "000105"


async def test_an_order_that_the_wallet_does_not_cover_is_not_placed(service: Service):
    created = await service.tenant(balance="1", rt_face="signed")
    async with service.client(created) as poor:
        client = RtClient(poor.url, poor.app_key, poor.app_secret, poor.http)
        assert (await client.refused("esim/order", _order()))[0] == "200007"
        await service.change(poor.tenant_id, frozen=True)
        assert (await client.refused("esim/order", _order()))[0] == "200007"
        assert (await client.good("esim/query", {}))["esimList"] == []


async def test_esims_are_found_in_every_way(own: ApiClient, dealer: RtClient):
    [esim] = await dealer.bought()
    none = (await dealer.good("esim/query", {"iccid": "8900000000000000000"}))["esimList"]
    by_number = (await dealer.good("esim/query", {"esimTranNo": esim["esimTranNo"]}))["esimList"]
    assert none == [] and by_number == [await dealer.esim(esim["iccid"])] == [esim]
    window = {"startTime": "2020-01-01T00:00:00+0000", "endTime": "2030-01-01T00:00:00Z", "pager": {"pageSize": 5}}
    page = await dealer.good("esim/query", window)
    assert page["pager"] == {"pageSize": 5, "pageNum": 1, "total": page["pager"]["total"]}
    assert page["esimList"][0] == esim and len(page["esimList"]) <= 5
    later = await dealer.good("esim/query", {"startTime": "2030-01-01T00:00:00Z"})
    assert later == {"esimList": [], "pager": {"pageSize": 50, "pageNum": 1, "total": 0}}


async def test_an_order_in_allocation_is_200010(dealer: RtClient):
    order_no = await dealer.order("TEST-PARTIAL", 2)
    assert (await dealer.refused("esim/query", {"orderNo": order_no}))[0] == "200010"


async def test_cancelling_gives_the_money_back_once(dealer: RtClient):
    [esim] = await dealer.bought()
    before = (await dealer.good("balance/query"))["balance"]
    assert await dealer.good("esim/cancel", {"iccid": esim["iccid"]}) == {}
    assert await dealer.good("esim/cancel", {"esimTranNo": esim["esimTranNo"]}) == {}
    assert (await dealer.good("balance/query"))["balance"] == before + 18_000
    assert (await dealer.esim(esim["iccid"]))["esimStatus"] == "CANCEL"
    assert (await dealer.refused("esim/suspend", {"iccid": esim["iccid"]}))[0] == "200002"


async def test_cancelling_waits_for_a_supplier(dealer: RtClient):
    [esim] = await dealer.bought("TEST-ASYNC")
    before = (await dealer.good("balance/query"))["balance"]
    assert await dealer.good("esim/cancel", {"iccid": esim["iccid"]}) == {}
    assert (await dealer.good("balance/query"))["balance"] == before + 18_000
    [rejected] = await dealer.bought("TEST-REJECT")
    assert (await dealer.refused("esim/cancel", {"iccid": rejected["iccid"]}))[0] == "200002"


async def test_what_was_installed_is_not_cancelled_but_revoked(own: ApiClient, dealer: RtClient):
    [esim] = await dealer.bought()
    await own.post("/test/profile/advance", {"iccid": esim["iccid"], "step": "INSTALL"})
    code, message = await dealer.refused("esim/cancel", {"iccid": esim["iccid"]})
    assert code == "200002" and "INSTALLATION" in message
    before = (await dealer.good("balance/query"))["balance"]
    assert await dealer.good("esim/revoke", {"esimTranNo": esim["esimTranNo"]}) == {}
    assert await dealer.good("esim/revoke", {"iccid": esim["iccid"]}) == {}
    assert (await dealer.esim(esim["iccid"]))["esimStatus"] == "REVOKE"
    assert (await dealer.good("balance/query"))["balance"] == before


async def test_an_esim_is_suspended_and_let_work_again(own: ApiClient, dealer: RtClient):
    [esim] = await dealer.bought()
    await own.post("/test/profile/advance", {"iccid": esim["iccid"], "step": "START"})
    started = await dealer.esim(esim["iccid"])
    assert started["esimStatus"] == "IN_USE" and started["activateTime"]
    assert await dealer.good("esim/suspend", {"iccid": esim["iccid"]}) == {}
    assert (await dealer.esim(esim["iccid"]))["esimStatus"] == "SUSPENDED"
    assert await dealer.good("esim/unsuspend", {"iccid": esim["iccid"]}) == {}
    assert (await dealer.esim(esim["iccid"]))["esimStatus"] == "IN_USE"


async def test_usage_of_several_esims(own: ApiClient, dealer: RtClient):
    used, fresh = await dealer.bought(count=2)
    half = {"iccid": used["iccid"], "step": "USE", "dataUsageBytes": GB // 2}
    await own.post("/test/profile/advance", half)
    numbers = [used["esimTranNo"], fresh["esimTranNo"]]
    usages = (await dealer.good("esim/usage/query", {"esimTranNoList": numbers}))["esimUsageList"]
    assert [(each["esimTranNo"], each["dataUsage"], each["totalData"]) for each in usages] == [
        (numbers[0], GB // 2, GB), (numbers[1], 0, GB)
    ]  # fmt: skip
    await own.post("/test/profile/advance", {"iccid": used["iccid"], "step": "USE"})
    assert (await dealer.esim(used["iccid"]))["esimStatus"] in ("USED_UP", "IN_USE")


async def test_an_sms_reaches_what_is_installed(own: ApiClient, dealer: RtClient):
    [esim] = await dealer.bought()
    await own.post("/test/profile/advance", {"iccid": esim["iccid"], "step": "ENABLE"})
    assert await dealer.good("esim/sendSms", {"iccid": esim["iccid"], "message": "welcome"}) == {}
    soon = await dealer.post("esim/sendSms", {"iccid": esim["iccid"], "message": "again"})
    assert (soon.status, soon.code) == (429, "101013") and soon.headers["Retry-After"]


async def test_a_recharge_answers_the_new_totals(dealer: RtClient):
    [esim] = await dealer.bought()
    [offer] = [
        package
        for package in (await dealer.good("package/list", {"iccid": esim["iccid"], "type": "TOPUP"}))["packageList"]
        if package["packageCode"] == "TEST-TOPUP-OK"
    ]
    call = {"iccid": esim["iccid"], "packageCode": offer["slug"], "transactionId": "up-1", "amount": offer["price"]}
    before = (await dealer.good("balance/query"))["balance"]
    first, second = await dealer.good("esim/topup", call), await dealer.good("esim/topup", call)
    assert first == second and first["transactionId"] == "up-1" and first["iccid"] == esim["iccid"]
    assert first["totalVolume"] == esim["totalVolume"] + offer["volume"]
    assert first["totalDuration"] == esim["totalDuration"] + offer["duration"]
    assert first["topUpEsimTranNo"] not in ("", esim["esimTranNo"]) and first["orderUsage"] == 0
    assert (await dealer.good("balance/query"))["balance"] == before - offer["price"]
    assert [plan["packageCode"] for plan in (await dealer.esim(esim["iccid"]))["packageList"]] == [
        "TEST-OK", "TEST-TOPUP-OK"
    ]  # fmt: skip
    assert await dealer.refused("esim/cancel", {"iccid": esim["iccid"]}) == (
        "200002", "this eSIM cannot be given back: TOPPED_UP (it was recharged, or a recharge of it is pending)"
    )  # fmt: skip
    assert (await dealer.refused("esim/topup", {**call, "amount": offer["price"] + 100}))[0] == "200008"
    fresh = {**call, "transactionId": "up-2", "amount": 1}
    assert await dealer.refused("esim/topup", fresh) == (
        "200006", f"amount is not the sum of price x count x periodNum; accepted: {offer['price']} (ten-thousandths)"
    )  # fmt: skip


async def test_a_recharge_that_its_supplier_refuses_is_given_back(dealer: RtClient):
    [esim] = await dealer.bought()
    before = (await dealer.good("balance/query"))["balance"]
    call = {"iccid": esim["iccid"], "packageCode": "TEST-TOPUP-FAIL", "transactionId": "up-fail"}
    assert (await dealer.refused("esim/topup", call))[0] == "200002"

    async def given_back() -> bool | None:
        return (await dealer.good("balance/query"))["balance"] == before or None

    assert await found(given_back)
