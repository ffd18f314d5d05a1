"""Two instances of this service: what is ordered at B is bought at A."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from dealer_server import clock
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.catalogue.set_status import set_package_status
from dealer_server.operations.suppliers.configure import set_supplier_status
from dealer_server.operations.suppliers.describe import show_suppliers
from dealer_server.rules.catalogue.package import GB
from dealer_server.suppliers.chain.client import Chain, ChainSettings
from dealer_server.suppliers.contract import (
    Applied,
    Bought,
    Done,
    Pending,
    ProfileReport,
    Purchase,
    RechargedEsim,
    Rejected,
    Unasked,
    Unit,
    Unknown,
)
from support.api_client import ApiClient, Service, running_service
from support.money.recharges import recharge
from support.patience import PATIENCE
from support.supplier_setup import free_address, fresh
from support.suppliers.purchases import routed
from support.suppliers.sms import SMS, a_minute_passes, new, rows, sent


@dataclass
class Two:
    """B buys from A as the dealer `account`; `client` is a dealer of B, `at_a` the one that B is at A."""

    a: Service
    b: Service
    at_a: ApiClient
    client: ApiClient
    keys: DataKeys

    async def audits(self) -> list[str]:
        return [*await self.a.audit(), *await self.b.audit()]

    async def purchases(self) -> dict[str, int]:
        [shown] = await show_suppliers(self.b.database, self.keys, "chain:a")
        return shown.purchases

    async def delivered(self, package: str = "TEST-OK") -> tuple[dict[str, Any], dict[str, Any]]:
        """An order of one eSIM at B once it is there, and the one at A."""
        placed = await self.client.order(package)
        assert placed.code == "000000", placed.message
        data = await self.client.delivered(placed.data["orderNo"])
        return data, await self.bought()

    async def bought(self) -> dict[str, Any]:
        """The newest order at A."""
        return (await self.at_a.post("/esim/order/list")).data["orders"][0]

    async def until(self, order_no: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """B's order once something holds of it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                data = (await self.client.post("/esim/query", {"orderNo": order_no})).data
                if holds(data):
                    return data
                await asyncio.sleep(0.02)

    async def balances(self) -> tuple[str, str]:
        """What the dealer has at B, and what B has at A."""
        clients = self.client, self.at_a
        answers = [await client.post("/account/balance") for client in clients]
        return answers[0].data["balance"], answers[1].data["balance"]

    async def given_back(self, balance: str) -> None:
        """Both balances, once they are this: A tells of a failure before it gives the money back."""
        async with asyncio.timeout(PATIENCE):
            while await self.balances() != (balance, balance):
                await asyncio.sleep(0.02)


@pytest.fixture
async def two(postgres: str, template: str) -> AsyncIterator[Two]:
    async with fresh(postgres, template) as a_url, fresh(postgres, template) as b_url, running_service(a_url) as a:
        account = await a.tenant(balance="1000", qps=0)
        events = free_address()
        keys, paths = await routed(b_url, a.url, account)
        async with (
            running_service(b_url, supplier_events=events) as b,
            b.client(await b.tenant(balance="1000", qps=0)) as client,
            a.client(account) as at_a,
        ):
            assert (
                await at_a.post("/webhook/set", {"callbackUrl": f"http://{events}{paths['chain:a']}"})
            ).code == "000000"
            yield Two(a, b, at_a, client, keys)


@asynccontextmanager
async def opened(chain: Chain) -> AsyncIterator[Chain]:
    try:
        yield chain
    finally:
        await chain.close()


def only(order: dict[str, Any]) -> dict[str, Any]:
    """The one eSIM of an order."""
    [item] = order["items"]
    [profile] = item["profiles"]
    return profile


async def test_an_order_at_b_is_bought_at_a_once_and_delivered_with_the_codes_of_a(two: Two):
    data, bought = await two.delivered()
    assert data["orderStatus"] == "COMPLETED"
    for field in ("iccid", "activationCode", "smdpStatus", "esimStatus"):
        assert only(bought)[field] == only(data)[field]
    assert only(bought)["qrCodeUrl"] != only(data)["qrCodeUrl"]
    assert await two.balances() == ("998.20", "998.20")
    assert await two.purchases() == {"DONE": 1}
    assert await two.audits() == []


async def test_what_a_delivers_later_comes_when_a_tells(two: Two):
    data, bought = await two.delivered("TEST-DELAY")
    assert only(bought)["iccid"] == only(data)["iccid"]
    assert await two.audits() == []


async def test_use_at_a_is_seen_at_b(two: Two):
    data, bought = await two.delivered()
    there = int(only(bought)["profileId"])
    for step in ("DOWNLOAD", "INSTALL", "ENABLE", "START"):
        assert (await two.at_a.post("/test/profile/advance", {"profileId": there, "step": step})).code == "000000"
    used = {"profileId": there, "step": "USE", "dataUsageBytes": 2**29}
    assert (await two.at_a.post("/test/profile/advance", used)).code == "000000"
    seen = only(await two.until(data["orderNo"], lambda order: only(order)["dataUsageBytes"] == 2**29))
    assert (seen["lifecycleStatus"], seen["planUseStatus"], seen["usagePercent"]) == ("ACTIVATED", "STARTED", 50)
    assert seen["planUseEndTime"] == only(await two.bought())["planUseEndTime"]
    assert await two.audits() == []


async def delivered_at_a_alone(two: Two) -> tuple[str, dict[str, Any]]:
    """The orderNo at B, and the order at A, of which B does not know yet that it is delivered: B asks no more. Where B
    was faster, another one is placed."""
    known = set[str]()
    async with asyncio.timeout(PATIENCE):
        while True:
            placed = await two.client.order("TEST-DELAY")
            while not (
                new := {one["orderNo"] for one in (await two.at_a.post("/esim/order/list")).data["orders"]} - known
            ):
                await asyncio.sleep(0.02)
            known |= new
            await set_supplier_status(two.b.database, "chain:a", "PAUSED", "test")
            bought = await two.at_a.delivered(new.pop())
            at_b = (await two.client.post("/esim/query", {"orderNo": placed.data["orderNo"]})).data
            if at_b["deliveryStatus"] != "DELIVERED":
                return placed.data["orderNo"], bought
            await set_supplier_status(two.b.database, "chain:a", "ACTIVE", "test")


async def test_an_esim_that_is_in_use_before_b_has_its_codes_is_so_at_b_soon(two: Two):
    order_no, bought = await delivered_at_a_alone(two)
    used = {"profileId": int(only(bought)["profileId"]), "step": "USE", "dataUsageBytes": 2**29}
    assert (await two.at_a.post("/test/profile/advance", used)).code == "000000"
    await set_supplier_status(two.b.database, "chain:a", "ACTIVE", "test")
    seen = only(await two.until(order_no, lambda order: only(order).get("dataUsageBytes") == 2**29))
    assert (seen["lifecycleStatus"], seen["planUseStatus"], seen["activated"]) == ("ACTIVATED", "STARTED", True)
    assert await two.audits() == []


async def test_an_sms_at_b_is_sent_at_a_once_and_b_knows_what_became_of_it(two: Two):
    data, bought = await two.delivered()
    there = only(bought)["profileId"]
    assert (await two.at_a.post("/test/profile/advance", {"profileId": there, "step": "ENABLE"})).code == "000000"
    await two.until(data["orderNo"], lambda order: only(order)["lifecycleStatus"] == "ACTIVATED")
    call = new(only(data))
    assert (await two.client.post(SMS, call)).data["status"] == "PENDING"
    done = (await sent(two.client, call)).data
    assert (done["status"], done["duplicate"]) == ("SENT", True)
    [(sms_id,)] = await rows(two.b, "SELECT sms_id FROM sms")
    at_a = await rows(two.a, "SELECT profile_id, status, transaction_id FROM sms")
    assert at_a == [(int(there), "SENT", f"m-{sms_id}")]
    assert await two.audits() == []


async def test_an_sms_that_a_refuses_failed_at_b_and_was_surely_not_sent(two: Two):
    data, bought = await two.delivered()
    there = only(bought)["profileId"]
    await two.at_a.post("/test/profile/advance", {"profileId": there, "step": "ENABLE"})
    await two.until(data["orderNo"], lambda order: only(order)["lifecycleStatus"] == "ACTIVATED")
    await rows(two.a, "UPDATE profile SET plan_use_status = 'ENDED' WHERE profile_id = $1", int(there))
    done = (await sent(two.client, new(only(data)))).data
    assert (done["status"], done["failReason"]) == ("FAILED", "NOT_SENT")
    assert await rows(two.b, "SELECT detail FROM sms") == [("refused with 200002",)]
    assert await rows(two.a, "SELECT count(*) FROM sms") == [(0,)]


async def test_an_sms_waits_until_a_takes_one_more(two: Two):
    data, bought = await two.delivered()
    there = only(bought)["profileId"]
    await two.at_a.post("/test/profile/advance", {"profileId": there, "step": "ENABLE"})
    await two.until(data["orderNo"], lambda order: only(order)["lifecycleStatus"] == "ACTIVATED")
    assert (await two.at_a.post(SMS, new(only(bought)))).code == "000000"
    call = new(only(data))
    await two.client.post(SMS, call)
    async with asyncio.timeout(PATIENCE):
        while await rows(two.b, "SELECT claims, claim, in_doubt FROM sms") != [(1, None, False)]:
            await asyncio.sleep(0.02)
    assert (await two.client.post(SMS, call)).data["status"] == "PENDING"
    await a_minute_passes(two.a)
    await rows(two.b, "UPDATE sms SET due_at = now()")
    assert (await sent(two.client, call)).data["status"] == "SENT"
    assert await rows(two.a, "SELECT count(*) FROM sms") == [(2,)]


async def test_what_the_pace_leaves_no_time_for_is_not_taken_for_asked(two: Two):
    for _ in range(3):
        await two.delivered()
    orders = (await two.at_a.post("/esim/order/list")).data["orders"]
    bought = [
        Bought(number, order["transactionId"], "TEST-OK", only(order)["iccid"])
        for number, order in enumerate(orders, 1)
    ]
    settings = ChainSettings(base_url=two.a.url, app_key=two.at_a.app_key, app_secret=two.at_a.app_secret)
    async with opened(Chain("chain:a", settings, refresh_seconds=0)) as hurried:
        told = await hurried.refresh(bought, clock.now())
    assert {one.iccid for one in told if isinstance(one, ProfileReport)} == {bought[0].iccid}
    assert [one for one in told if isinstance(one, Unasked)] == [Unasked(2), Unasked(3)]
    async with opened(Chain("chain:a", settings)) as patient:
        told = await patient.refresh(bought, clock.now())
    assert {one.iccid for one in told if isinstance(one, ProfileReport)} == {one.iccid for one in bought}
    assert not any(isinstance(one, Unasked) for one in told)


async def test_a_cancellation_is_passed_on_without_money(two: Two):
    data, _ = await two.delivered()
    answer = await two.client.post("/esim/profile/cancel", {"profileId": int(only(data)["profileId"])})
    assert answer.data["asyncStatus"] == "PENDING"
    await two.until(data["orderNo"], lambda order: only(order)["cancelled"])
    assert only(await two.bought())["cancelled"]
    assert await two.balances() == ("998.20", "998.20")
    assert await two.audits() == []


async def test_a_suspension_is_passed_on_and_ended_again(two: Two):
    data, _ = await two.delivered()
    named = {"profileId": int(only(data)["profileId"])}
    asked = await two.client.post("/esim/profile/suspend", named)
    assert (asked.data["asyncStatus"], asked.data["suspended"]) == ("PENDING", False)
    seen = only(await two.until(data["orderNo"], lambda order: only(order).get("suspended", False)))
    assert only(await two.bought())["suspended"] and seen["esimStatus"] == "GOT_RESOURCE"
    assert (await two.client.post("/esim/profile/suspend", named)).data["asyncStatus"] == "COMPLETED"
    assert (await two.client.post("/esim/profile/unsuspend", named)).data["asyncStatus"] == "PENDING"
    await two.until(data["orderNo"], lambda order: "suspended" not in only(order))
    assert "suspended" not in only(await two.bought())
    assert await two.audits() == []


async def test_a_suspension_at_a_is_seen_at_b_and_can_be_ended_there(two: Two):
    data, bought = await two.delivered()
    there = {"profileId": int(only(bought)["profileId"])}
    assert (await two.at_a.post("/test/profile/advance", there | {"step": "START"})).code == "000000"
    await two.until(data["orderNo"], lambda order: only(order).get("esimStatus") == "IN_USE")
    await asyncio.sleep(1.1)  # suspendedAt is in whole seconds; it counts if B heard of the use before
    assert (await two.at_a.post("/esim/profile/suspend", there)).code == "000000"
    seen = only(await two.until(data["orderNo"], lambda order: only(order).get("suspended", False)))
    assert (seen["esimStatus"], seen["planUseStatus"]) == ("IN_USE", "STARTED")
    assert seen["suspendedAt"] == only(await two.bought())["suspendedAt"]
    await asyncio.sleep(1.1)  # updateTime is in whole seconds
    assert (await two.at_a.post("/test/profile/advance", there | {"step": "ENABLE"})).code == "000000"
    seen = only(await two.until(data["orderNo"], lambda order: only(order).get("smdpStatus") == "ENABLED"))
    assert seen["esimStatus"] == "IN_USE" and seen["suspendedAt"] == only(await two.bought())["suspendedAt"]
    assert (await two.client.post("/esim/profile/unsuspend", {"iccid": seen["iccid"]})).data["asyncStatus"] == "PENDING"
    await two.until(data["orderNo"], lambda order: "suspended" not in only(order))
    assert "suspended" not in only(await two.bought())
    assert await two.audits() == []


async def test_a_suspension_that_a_refuses_is_refused_at_b(two: Two):
    data, bought = await two.delivered()
    assert (await two.at_a.post("/webhook/set", {"callbackUrl": ""})).code == "000000"
    over = {"profileId": int(only(bought)["profileId"]), "step": "EXPIRE"}
    assert (await two.at_a.post("/test/profile/advance", over)).code == "000000"
    named = {"profileId": int(only(data)["profileId"])}
    assert (await two.client.post("/esim/profile/suspend", named)).data["asyncStatus"] == "PENDING"
    async with asyncio.timeout(PATIENCE):
        while (refused := await two.client.post("/esim/profile/suspend", named)).code == "000000":
            await asyncio.sleep(0.02)
    assert (refused.code, refused.data["reason"]) == ("200002", "REFUSED_BY_SUPPLIER")
    assert await two.audits() == []


async def test_a_refund_is_passed_on_and_both_get_their_money_back(two: Two):
    data, _ = await two.delivered()
    answer = await two.client.post("/esim/refund", {"orderNo": data["orderNo"]})
    assert answer.data["status"] == "REFUNDING"
    await two.until(data["orderNo"], lambda order: order["orderStatus"] == "REFUNDED")
    assert (await two.bought())["orderStatus"] == "REFUNDED"
    await two.given_back("1000.00")
    assert await two.audits() == []


async def test_a_refund_that_a_refuses_is_rejected_at_b(two: Two):
    """It was used at A, and B has not heard of it yet when the refund is asked for."""
    data, bought = await two.delivered()
    assert (await two.at_a.post("/webhook/set", {"callbackUrl": ""})).code == "000000"
    used = {"profileId": int(only(bought)["profileId"]), "step": "USE", "dataUsageBytes": 1}
    assert (await two.at_a.post("/test/profile/advance", used)).code == "000000"
    assert (await two.client.post("/esim/refund", {"orderNo": data["orderNo"]})).data["status"] == "REFUNDING"
    await two.until(data["orderNo"], lambda order: order["orderStatus"] == "COMPLETED")
    assert await two.balances() == ("998.20", "998.20")
    assert await two.audits() == []


async def test_what_fails_at_a_fails_at_b_and_is_given_back_twice(two: Two):
    placed = await two.client.order("TEST-FAIL")
    await two.until(placed.data["orderNo"], lambda order: order["orderStatus"] == "REFUNDED")
    await two.given_back("1000.00")
    assert await two.purchases() == {"REJECTED": 1}
    assert await two.audits() == []


async def test_an_order_that_failed_is_named_also_where_that_is_the_first_answer(two: Two):
    """Asked for once more with the same key, it would be answered with the order that failed."""
    placed = await two.at_a.order("TEST-FAIL")
    order = await two.at_a.delivered(placed.data["orderNo"])
    unit = Unit(order["transactionId"], 1, "TEST-FAIL", 1, 1, 1, None, clock.now())
    settings = ChainSettings(base_url=two.a.url, app_key=two.at_a.app_key, app_secret=two.at_a.app_secret)
    async with opened(Chain("chain:a", settings)) as chain:
        found = await chain.allocate(Purchase(unit, "TEST-FAIL", "QUERY"), clock.now())
    assert isinstance(found, Rejected) and found.supplier_ref == order["orderNo"]


async def test_a_refusal_before_the_order_is_looked_for_says_nothing_of_it(two: Two):
    """The order is there, its answer was lost; then the package leaves their list, or they no longer accept us."""
    unit = Unit("u-lost-1", 1, "TEST-OK", 1, 1, 1, None, clock.now())
    lost = Purchase(unit, "TEST-OK", cost=18_000, cost_currency="USD")
    settings = ChainSettings(base_url=two.a.url, app_key=two.at_a.app_key, app_secret=two.at_a.app_secret)
    async with opened(Chain("chain:a", settings)) as before:
        assert isinstance(await before.allocate(lost, clock.now()), Done | Pending)
    await set_package_status(two.a.database, ["TEST-OK"], "OFF_SALE", "test", clock.now)
    async with asyncio.timeout(PATIENCE):
        while (await two.at_a.post("/package/list", {"packageCode": "TEST-OK"})).data["packages"]:
            await asyncio.sleep(0.02)
    async with opened(Chain("chain:a", settings)) as restarted:
        assert isinstance(await restarted.probe(lost, clock.now()), Done | Pending)
    async with opened(Chain("chain:a", msgspec.structs.replace(settings, app_secret="another-secret"))) as refused:
        assert isinstance(await refused.probe(lost, clock.now()), Unknown)
        assert isinstance(await refused.allocate(lost, clock.now()), Rejected)


async def test_an_order_that_would_come_back_to_where_it_came_from_is_refused(postgres: str, template: str):
    """A buys from B what B buys from A."""
    async with fresh(postgres, template) as a_url, fresh(postgres, template) as b_url:
        async with running_service(a_url, worker=False) as a, running_service(b_url, worker=False) as b:
            at_a, at_b = await a.tenant(balance="1000", qps=0), await b.tenant(balance="1000", qps=0)
            await routed(b_url, a.url, at_a)
            await routed(a_url, b.url, at_b, code="chain:b")
            dealer = await b.tenant(balance="1000", qps=0)
            places = a.url.rpartition(":")[2], b.url.rpartition(":")[2]
        async with (
            running_service(a_url, port=int(places[0])) as a,
            running_service(b_url, port=int(places[1])) as b,
            b.client(dealer) as client,
        ):
            placed = await client.order()
            two = Two(a, b, client, client, None)  # type: ignore[arg-type]
            await two.until(placed.data["orderNo"], lambda order: order["orderStatus"] == "REFUNDED")
            assert await two.audits() == []
            async with b.database.connection() as connection:
                reasons = await connection.fetch("SELECT reason FROM purchase ORDER BY created_at")
            assert ["a loop of instances" in row[0] for row in reasons] == [False, True]


async def recharged(two: Two, data: dict[str, Any], package: str = "TEST-TOPUP-OK") -> dict[str, Any]:
    """The order of a recharge at B, once it is applied."""
    reply = await recharge(two.client, data, package)
    assert reply.code == "000000", reply
    return await two.client.delivered(reply.data["orderNo"])


@pytest.mark.parametrize("package", ["TEST-TOPUP-OK", "TEST-TOPUP-DELAY"])
async def test_a_recharge_at_b_is_applied_at_a_once(two: Two, package: str):
    data, _ = await two.delivered()
    await recharged(two, data, package)
    there = await two.bought()
    assert (there["orderType"], there["items"][0]["topUp"]["planNo"]) == ("TOPUP", 2)
    assert there["transactionId"].startswith("t-")
    assert only((await two.client.post("/esim/query", {"orderNo": data["orderNo"]})).data)["remainDataBytes"] == 2 * GB
    assert await two.balances() == ("997.00", "997.00")
    assert await two.audits() == []


async def test_use_and_end_of_what_was_recharged_are_told_through_both(two: Two):
    data, bought = await two.delivered()
    there = int(only(bought)["profileId"])

    async def advance(step: str, **call: Any) -> None:
        reply = await two.at_a.post("/test/profile/advance", {"profileId": there, "step": step} | call)
        assert reply.code == "000000", reply

    await advance("USE")
    await two.until(data["orderNo"], lambda order: only(order)["planUseStatus"] == "ENDED")
    await recharged(two, data)
    found = only(await two.until(data["orderNo"], lambda order: only(order)["planUseStatus"] == "STARTED"))
    at_a = only((await two.at_a.post("/esim/query", {"orderNo": bought["orderNo"]})).data)
    for field in ("esimStatus", "dataUsageBytes", "remainDataBytes", "planUseEndTime"):
        assert found[field] == at_a[field], field
    await advance("USE", dataUsageBytes=2 * GB - 5)
    await two.until(data["orderNo"], lambda order: only(order)["remainDataBytes"] == 5)
    await advance("USE")
    ended = only(await two.until(data["orderNo"], lambda order: only(order)["planUseStatus"] == "ENDED"))
    assert (ended["esimStatus"], ended["remainDataBytes"]) == ("USED_UP", 0)
    assert await two.audits() == []


async def test_a_recharge_that_fails_at_a_is_given_back_twice(two: Two):
    data, _ = await two.delivered()
    reply = await recharge(two.client, data, "TEST-TOPUP-FAIL")
    await two.until(reply.data["orderNo"], lambda order: order["orderStatus"] == "REFUNDED")
    await two.given_back("998.20")
    assert await two.audits() == []


async def test_an_esim_that_a_does_not_recharge_costs_nothing(two: Two):
    """It was cancelled at A, and B has not heard of it."""
    data, bought = await two.delivered()
    assert (await two.at_a.post("/webhook/set", {"callbackUrl": ""})).code == "000000"
    assert (await two.at_a.post("/esim/profile/cancel", {"iccid": only(bought)["iccid"]})).code == "000000"
    reply = await recharge(two.client, data)
    await two.until(reply.data["orderNo"], lambda order: order["orderStatus"] == "REFUNDED")
    await two.given_back("998.20")
    assert await two.audits() == []


async def test_a_recharge_whose_answer_was_lost_is_found_by_its_transaction_id(two: Two):
    _, bought = await two.delivered()
    esim = RechargedEsim(1, only(bought)["iccid"], bought["transactionId"], unit_ref=only(bought)["profileId"])
    unit = Unit("t-lost-1", 1, "TEST-TOPUP-OK", 1, 1, 1, GB, clock.now(), recharges=esim)
    lost = Purchase(unit, "TEST-TOPUP-OK", cost=12_000, cost_currency="USD")
    settings = ChainSettings(base_url=two.a.url, app_key=two.at_a.app_key, app_secret=two.at_a.app_secret)
    async with opened(Chain("chain:a", settings)) as chain:
        assert isinstance(await chain.allocate(lost, clock.now()), Pending | Applied)
        async with asyncio.timeout(PATIENCE):
            while not isinstance(await chain.probe(lost, clock.now()), Applied):
                await asyncio.sleep(0.02)
    assert (await two.balances())[1] == "997.00"


async def test_the_price_that_a_asks_for_a_recharge_now_is_told(two: Two):
    _, bought = await two.delivered()
    esim = RechargedEsim(1, only(bought)["iccid"], bought["transactionId"], unit_ref=only(bought)["profileId"])
    unit = Unit("t-price-1", 1, "TEST-TOPUP-OK", 1, 1, 1, GB, clock.now(), recharges=esim)
    settings = ChainSettings(base_url=two.a.url, app_key=two.at_a.app_key, app_secret=two.at_a.app_secret)
    async with opened(Chain("chain:a", settings)) as chain:
        dear = Purchase(unit, "TEST-TOPUP-OK", cost=13_000, cost_currency="USD")
        refused = await chain.allocate(dear, clock.now())
    assert isinstance(refused, Rejected) and (refused.code, refused.asks) == ("CONFIG", 12_000)


async def test_a_recharge_that_a_queues_begins_here_when_it_begins_there(two: Two):
    data, bought = await two.delivered()
    there = int(only(bought)["profileId"])

    async def use(**call: Any) -> None:
        reply = await two.at_a.post("/test/profile/advance", {"profileId": there, "step": "USE"} | call)
        assert reply.code == "000000", reply

    await recharged(two, data, "TEST-TOPUP-QUEUE")
    await use(dataUsageBytes=GB // 2)
    found = only(await two.until(data["orderNo"], lambda order: only(order)["dataUsageBytes"] == GB // 2))
    assert [(plan["status"], plan["dataUsageBytes"]) for plan in found["plans"]] == [("ACTIVE", GB // 2), ("QUEUED", 0)]
    await use()
    begun = only(await two.until(data["orderNo"], lambda order: only(order)["plans"][1]["status"] == "ACTIVE"))
    await use(dataUsageBytes=GB * 4 // 5)
    found = only(await two.until(data["orderNo"], lambda order: only(order)["dataUsageBytes"] == GB * 4 // 5))
    at_a = only((await two.at_a.post("/esim/query", {"orderNo": bought["orderNo"]})).data)
    for field in ("esimStatus", "planUseStatus", "planUseStartTime", "planUseEndTime", "remainDataBytes"):
        assert found[field] == at_a[field], field
    assert begun["planUseStatus"] == "STARTED"
    assert [plan["dataUsageBytes"] for plan in found["plans"]] == [GB, GB * 4 // 5]
    assert await two.audits() == []


async def test_a_recharge_that_a_adds_while_another_is_queued_begins_nothing_here(two: Two):
    data, bought = await two.delivered()
    there = int(only(bought)["profileId"])

    async def same(used: int) -> list[dict[str, Any]]:
        """The plans at B, which are those at A, once so much of all of them is used."""

        def is_told(order: dict[str, Any]) -> bool:
            return sum([plan["dataUsageBytes"] for plan in only(order)["plans"]]) == used

        here = only(await two.until(data["orderNo"], is_told))
        at_a = only((await two.at_a.post("/esim/query", {"orderNo": bought["orderNo"]})).data)
        assert (here["remainDataBytes"], here["esimStatus"]) == (at_a["remainDataBytes"], at_a["esimStatus"])
        for mine, theirs in zip(here["plans"], at_a["plans"], strict=True):
            assert (mine["status"], mine["dataUsageBytes"]) == (theirs["status"], theirs["dataUsageBytes"])
        return here["plans"]

    async def use(number: int) -> None:
        call = {"profileId": there, "step": "USE", "dataUsageBytes": number}
        assert (await two.at_a.post("/test/profile/advance", call)).code == "000000"

    await recharged(two, data, "TEST-TOPUP-QUEUE")
    await recharged(two, data)
    await use(GB // 10)
    assert [plan["status"] for plan in await same(GB // 10)] == ["ACTIVE", "QUEUED", "QUEUED"]
    await use(2 * GB)
    await use(GB // 2)
    assert [plan["dataUsageBytes"] for plan in await same(2 * GB + GB // 2)] == [GB, GB // 2, GB]
    assert await two.audits() == []


async def test_a_recharge_that_a_adds_to_a_plan_which_b_has_not_heard_of_is_added_to_it_here_too(two: Two):
    data, bought = await two.delivered()
    there = int(only(bought)["profileId"])

    async def use(number: int) -> None:
        call = {"profileId": there, "step": "USE", "dataUsageBytes": number}
        assert (await two.at_a.post("/test/profile/advance", call)).code == "000000"

    def plans(order: dict[str, Any]) -> list[tuple[Any, ...]]:
        names = ("status", "dataTotalBytes", "dataUsageBytes")
        return [tuple(plan.get(name) for name in names) for plan in only(order)["plans"]]

    async def both_show(*expected: tuple[str, int, int]) -> None:
        await two.until(data["orderNo"], lambda order: plans(order) == [*expected])
        assert plans((await two.at_a.post("/esim/query", {"orderNo": bought["orderNo"]})).data) == [*expected]

    await recharged(two, data, "TEST-TOPUP-QUEUE")
    events = (await two.at_a.post("/webhook/query")).data["callbackUrl"]
    silent = f"http://{free_address()}/"
    assert (await two.at_a.post("/webhook/set", {"callbackUrl": silent})).code == "000000"
    await use(GB)
    await recharged(two, data)  # what B knows at that time is that plan 1 is not in use yet
    assert (await two.at_a.post("/webhook/set", {"callbackUrl": events})).code == "000000"
    await both_show(("ENDED", GB, GB), ("ACTIVE", GB, 0), ("QUEUED", GB, 0))
    await use(GB * 3 // 2)
    await both_show(("ENDED", GB, GB), ("ENDED", GB, GB), ("ACTIVE", GB, GB // 2))
    assert await two.audits() == []


@pytest.mark.parametrize("package", ["TEST-TOPUP-QUEUE", "TEST-TOPUP-ASYNC"])
async def test_a_queued_recharge_is_given_back_at_both(two: Two, package: str):
    data, bought = await two.delivered()
    order = await recharged(two, data, package)
    refunded = await two.client.post("/esim/refund", {"orderNo": order["orderNo"]})
    assert (refunded.code, refunded.data["status"]) == ("000000", "REFUNDING"), refunded
    await two.until(order["orderNo"], lambda order: order["orderStatus"] == "REFUNDED")
    await two.given_back("998.20")
    for client, number in ((two.client, data["orderNo"]), (two.at_a, bought["orderNo"])):
        esim = only((await client.post("/esim/query", {"orderNo": number})).data)
        assert [plan["status"] for plan in esim["plans"]] == ["QUEUED", "CANCELLED"]
    assert await two.audits() == []
