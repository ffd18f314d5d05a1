"""Clients of the RT family as they are, pointed at us: a public one with its transport redirected, our own supplier
kind for that family, and the habits that public clients have."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import esimaccess_python as public
import httpx
import pytest

from dealer_server.rules.catalogue.package import GB
from dealer_server.suppliers.contract import Bought, Done, Pending, Purchase, Unit, VoidDone, VoidUnit
from dealer_server.suppliers.rt.upstream import RtSettings, RtUpstream
from support.api_client import ApiClient, Service
from support.patience import found
from support.rt_client import PREFIX, RtClient
from support.webhook_fixture import Receiver


@pytest.fixture(scope="module")
async def own(service: Service) -> AsyncIterator[ApiClient]:
    async with service.client(await service.tenant(balance="1000", qps=0, rt_face="signed")) as client:
        yield client


@pytest.fixture(scope="module")
def dealer(own: ApiClient) -> RtClient:
    return RtClient(own.url, own.app_key, own.app_secret, own.http)


@pytest.fixture(scope="module", autouse=True)
async def audited(service: Service) -> AsyncIterator[None]:
    yield
    assert await service.audit() == []


class Redirected(httpx.HTTPTransport):
    """Sends every request to our address, and leaves all else of it as it is."""

    def __init__(self, url: str):
        super().__init__()
        self._to = httpx.URL(url)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(scheme=self._to.scheme, host=self._to.host, port=self._to.port)
        return super().handle_request(request)


async def test_a_public_client_works_with_nothing_but_its_address_changed(service: Service, receiver: Receiver):
    created = await service.tenant(balance="100", qps=0, ip_allow=["127.0.0.1"], rt_face="access-code")
    with public.authenticate(created.app_key) as http:
        http._transport = Redirected(service.url)  # type: ignore[attr-defined]
        await asyncio.to_thread(_buys_and_gives_back, public.Package(http), receiver.url)
    [health, *told] = await receiver.received(3)
    assert health.json["notifyType"] == "CHECK_HEALTH"
    assert "ORDER_STATUS" in {request.json["notifyType"] for request in told}


def _buys_and_gives_back(client: Any, url: str) -> None:
    def good(said: dict[str, Any]) -> Any:
        assert said["success"] is True, said
        return said["obj"]

    assert good(client.balance())["balance"] == 1_000_000
    assert good(client.set_webhook(url)) == {} and good(client.query_webhook())["webhook"] == url
    listed = good(client.list(locationCode=None, type="", packageCode="", iccid=""))["packageList"]
    package = next(each for each in listed if each["packageCode"] == "TEST-OK")
    order = {"packageCode": package["packageCode"], "count": 1, "price": package["price"]}
    order_no = good(client.order("public-1", [order], amount=package["price"]))["orderNo"]
    assert good(client.order("public-1", [order], amount=package["price"]))["orderNo"] == order_no
    page = public.PageParam(pageSize=5, pageNum=1)
    while (said := client.query(page, orderNo=order_no, iccid=""))["errorCode"] == "200010":
        pass
    [esim] = good(said)["esimList"]
    assert good(client.query(page, iccid=esim["iccid"]))["esimList"] == [esim]
    # It has no call for usage of its own: the one that the family documents, by the same transport.
    usage = client.client.post(f"https://api.esimaccess.com{PREFIX}esim/usage/query",
                               json={"esimTranNoList": [esim["esimTranNo"]]}).json()  # fmt: skip
    assert good(usage)["esimUsageList"][0]["totalData"] == GB
    assert good(client.suspend(esim["iccid"])) == {} and good(client.unsuspend(esim["iccid"])) == {}
    [offer] = [each for each in good(client.list(type="TOPUP", packageCode="TEST-OK"))["packageList"]
               if each["packageCode"] == "TEST-TOPUP-OK"]  # fmt: skip
    topped = good(client.topup(esim["iccid"], offer["packageCode"], "public-up-1", offer["price"]))
    assert topped["totalVolume"] == 2 * GB
    assert client.cancel(esim["iccid"])["errorCode"] == "200002"  # it was recharged
    assert good(client.revoke(esim["iccid"])) == {}
    second = good(client.order("public-2", [{**order, "price": None}]))["orderNo"]
    while (said := client.query(page, orderNo=second))["errorCode"] == "200010":
        pass
    [esim] = good(said)["esimList"]
    assert good(client.cancel(esim["iccid"])) == {}
    assert good(client.balance())["balance"] == 1_000_000 - package["price"] - offer["price"]
    assert client.sendSms(esim["iccid"], "hello")["errorCode"] == "000105"  # it forgets its body


async def test_our_own_client_of_the_family_buys_from_us(own: ApiClient, dealer: RtClient):
    settings = RtSettings(base_url=own.url, access_code=own.app_key, secret_key=own.app_secret, per_second=1_000.0)
    upstream = RtUpstream("ourselves", settings)
    now = datetime.now(UTC)
    unit = Unit("u-217325730170001-0-1", 217_325_730_000_001, "TEST-OK", 1, 1, 1, GB, now)
    purchase = Purchase(unit, "TEST-OK", cost=18_000)
    try:
        assert (await upstream.health()).up
        assert {package["packageCode"] for package in await upstream.packages()} >= {"TEST-OK"}
        fits = await upstream.recharges(["TEST-OK"])
        assert "TEST-TOPUP-OK" in {package["packageCode"] for package in fits["TEST-OK"]}
        placed = await upstream.allocate(purchase, now)
        assert isinstance(placed, Pending)

        async def allocated() -> Done | None:
            outcome = await upstream.probe(purchase, datetime.now(UTC))
            return outcome if isinstance(outcome, Done) else None

        done = await found(allocated)  # by the list of all orders since its payment
        [esim] = await dealer.esims(placed.supplier_ref or "")
        assert done.iccid == esim["iccid"]
        bought = Bought(1, unit.unit_key, "TEST-OK", done.iccid, done.supplier_ref, done.unit_ref)
        [report] = await upstream.refresh([bought], now)
        assert report.report.esim_status == "GOT_RESOURCE" and report.report.data_total_bytes == GB
        taken_back = VoidUnit(1, "TEST-OK", done.iccid, True, now, supplier_ref=done.supplier_ref)
        assert await upstream.void(taken_back, now) == VoidDone()
    finally:
        await upstream.close()
    assert (await dealer.esim(done.iccid))["esimStatus"] == "CANCEL"


# The habits


async def test_habit_an_upper_case_signature(dealer: RtClient):
    headers = dealer.headers(b"{}")
    assert headers["RT-Signature"].isupper() or headers["RT-Signature"].isdigit()
    assert (await dealer.post("balance/query", b"{}")).success


async def test_habit_the_balance_with_an_empty_body_and_no_content_type(dealer: RtClient):
    request = dealer.http.build_request("POST", f"{dealer.url}{PREFIX}balance/query", headers=dealer.headers(b""))
    assert "content-type" not in request.headers and request.headers["content-length"] == "0"
    assert (await dealer.http.send(request)).json()["obj"]["balance"] > 0


KEYS_WITHOUT_VALUE = [
    ("package/list", {"locationCode": None, "type": None, "packageCode": None, "slug": None, "iccid": None}),
    ("package/list", {"locationCode": "", "type": "", "packageCode": "", "slug": "", "iccid": "", "dataType": ""}),
    ("esim/query", {"orderNo": None, "iccid": None, "startTime": None, "endTime": None, "pager": None}),
    ("esim/query", {"orderNo": "", "iccid": "", "pager": {"pageNum": 1, "pageSize": 5, "total": None}}),
    ("esim/query", {"pager": {"pageNum": "", "pageSize": None}}),
    ("location/list", {"anything": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "call"), KEYS_WITHOUT_VALUE, ids=str)
async def test_habit_keys_sent_as_null_or_empty(dealer: RtClient, operation: str, call: dict[str, Any]):
    assert (await dealer.good(operation, call)).keys() & {"packageList", "esimList", "locationList"}


async def test_habit_pages_of_five_until_one_is_shorter(dealer: RtClient):
    order_no = await dealer.order(count=12)
    expected = {esim["iccid"] for esim in await dealer.esims(order_no)}
    for size, pages in ((5, 3), (50, 1)):
        seen: list[str] = []
        for number in range(1, 100):
            pager = {"pageNum": str(number), "pageSize": str(size)}
            page = (await dealer.good("esim/query", {"orderNo": order_no, "pager": pager}))["esimList"]
            seen += [esim["iccid"] for esim in page]
            if len(page) < size:
                break
        assert number == pages and set(seen) == expected and len(seen) == 12


async def test_habit_cancel_and_recharge_by_iccid(dealer: RtClient):
    recharged, cancelled = await dealer.bought(count=2)
    call = {"iccid": recharged["iccid"], "esimTranNo": "", "packageCode": "TEST-TOPUP-OK", "transactionId": "habit-up"}
    assert (await dealer.good("esim/topup", call))["totalVolume"] == 2 * GB
    assert await dealer.good("esim/cancel", {"iccid": cancelled["iccid"], "esimTranNo": None}) == {}


async def test_habit_a_call_is_tried_three_times(dealer: RtClient):
    """What was repeated after a 5xx is done once."""
    call = {"transactionId": "habit-retry", "packageInfoList": [{"packageCode": "TEST-OK", "count": 1}]}
    before = (await dealer.good("balance/query"))["balance"]
    answers = [await dealer.good("esim/order", call) for _ in range(3)]
    assert len({answer["orderNo"] for answer in answers}) == 1
    assert (await dealer.good("balance/query"))["balance"] == before - 18_000


async def test_habit_usage_is_read_from_a_list_in_obj(dealer: RtClient):
    [esim] = await dealer.bought()
    said = await dealer.post("esim/usage/query", json.dumps({"esimTranNoList": [esim["esimTranNo"]]}).encode())
    [usage] = said.obj["esimUsageList"]
    assert usage.keys() == {"esimTranNo", "dataUsage", "totalData", "lastUpdateTime"}
