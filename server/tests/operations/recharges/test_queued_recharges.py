"""Recharges that begin when the plan before them ends, through the public client (specification 4.14)."""

import asyncio
from typing import Any

import pytest

from support.api_client import ApiClient
from support.money.recharges import advance, balance, over, plans, recharge, recharged, shown
from support.money.refunds import bought, profiles, query, refund, settled
from support.patience import PATIENCE
from support.webhook_fixture import Receiver, Request

GB = 2**30
QUEUE, ASYNC = "TEST-TOPUP-QUEUE", "TEST-TOPUP-ASYNC"


pytestmark = pytest.mark.usefixtures("exact")


def statuses(found: list[dict[str, Any]]) -> list[str]:
    return [plan["status"] for plan in found]


async def test_a_queued_plan_begins_when_the_one_before_it_is_used_up(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    assert "plans" not in await shown(dealer, order)
    await recharged(dealer, order, QUEUE)
    await advance(dealer, order, "START")
    waiting = await advance(dealer, order, "USE", dataUsageBytes=GB // 2)
    assert (waiting["remainDataBytes"], statuses(waiting["plans"])) == (GB // 2, ["ACTIVE", "QUEUED"])
    used = await advance(dealer, order, "USE")
    assert (used["planUseStatus"], used["dataUsageBytes"], used["remainDataBytes"]) == ("STARTED", 0, GB)
    first, second = used["plans"]
    assert (first["status"], first["dataUsageBytes"], first["endTime"]) == ("ENDED", GB, second["startTime"])
    assert (second["mode"], second["status"], second["startTime"]) == ("QUEUE", "ACTIVE", used["planUseStartTime"])
    assert await plans(dealer, order) == used["plans"]
    ended = await advance(dealer, order, "USE")
    assert (ended["planUseStatus"], ended["esimStatus"], statuses(ended["plans"])) == (
        "ENDED",
        "USED_UP",
        ["ENDED", "ENDED"],
    )

    def says_ended(request: Request) -> bool:
        return request.json["orderNo"] == order["orderNo"] and "PLAN_USE_ENDED" in request.json.get("changeHints", ())

    told = (await receiver.until(says_ended)).json
    assert profiles(told)[0]["plans"] == ended["plans"]


async def test_a_plan_that_waits_is_refunded_at_once(dealer: ApiClient):
    order = await bought(dealer)
    before = await balance(dealer)
    queued = await recharged(dealer, order, QUEUE)
    refunded = await refund(dealer, queued)
    assert (refunded.code, refunded.data["status"]) == ("000000", "REFUNDED"), refunded
    assert await balance(dealer) == before
    assert statuses((await shown(dealer, order))["plans"]) == ["QUEUED", "CANCELLED"]
    await advance(dealer, order, "START")
    assert (await advance(dealer, order, "USE"))["planUseStatus"] == "ENDED"
    assert (await refund(dealer, queued)).data["duplicate"] is True


async def test_a_plan_whose_refund_is_asked_of_the_supplier_does_not_begin_meanwhile(dealer: ApiClient):
    order = await bought(dealer)
    before = await balance(dealer)
    queued = await recharged(dealer, order, ASYNC)
    refunded = await refund(dealer, queued)
    assert (refunded.code, refunded.data["status"]) == ("000000", "REFUNDING"), refunded
    await advance(dealer, order, "START")
    ended = await advance(dealer, order, "USE")
    assert ended["planUseStatus"] == ended["plans"][0]["status"] == "ENDED"
    assert ended["plans"][1]["status"] in ("QUEUED", "CANCELLED")  # the supplier may have answered by then
    await settled(dealer, queued)
    assert await balance(dealer) == before
    assert statuses((await shown(dealer, order))["plans"]) == ["ENDED", "CANCELLED"]


async def test_a_plan_behind_one_that_is_held_waits_and_is_not_over(dealer: ApiClient):
    order = await bought(dealer)
    held = await recharged(dealer, order, ASYNC)
    behind = await recharged(dealer, order, QUEUE)
    assert (await refund(dealer, held)).data["status"] == "REFUNDING"
    await advance(dealer, order, "START")
    seen = [statuses((await advance(dealer, order, "USE"))["plans"])]
    while seen[-1] != ["ENDED", "CANCELLED", "ACTIVE"]:
        seen.append(statuses((await shown(dealer, order))["plans"]))
    assert {each[2] for each in seen} <= {"QUEUED", "ACTIVE"}
    assert (await query(dealer, behind))["items"][0]["topUp"]["status"] == "ACTIVE"


async def test_a_plan_that_ended_with_its_esim_is_not_refunded(dealer: ApiClient):
    order = await bought(dealer)
    queued = await recharged(dealer, order, QUEUE)
    assert statuses((await advance(dealer, order, "EXPIRE"))["plans"]) == ["ENDED", "ENDED"]
    refused = await refund(dealer, queued)
    assert (refused.code, refused.data["profiles"][0]["reason"]) == ("200003", "APPLIED"), refused


async def test_a_recharge_says_how_its_plan_stands_and_of_which_esim(dealer: ApiClient):
    order = await bought(dealer)
    esim = profiles(order)[0]
    queued = await recharge(dealer, order, QUEUE)
    [item] = queued.data["items"]
    named = {"profileId": esim["profileId"], "iccid": esim["iccid"], "planNo": 2}
    assert item["topUp"] == {**named, "status": "PENDING"}
    await dealer.delivered(queued.data["orderNo"])
    seen = [(await query(dealer, queued.data))["items"][0]["topUp"]]
    for step in ("START", "USE", "USE"):
        await advance(dealer, order, step)
        seen.append((await query(dealer, queued.data))["items"][0]["topUp"])
    assert seen == [{**named, "status": status} for status in ("QUEUED", "QUEUED", "ACTIVE", "ENDED")]


async def test_the_refund_of_a_recharge_names_its_esim(dealer: ApiClient):
    order = await bought(dealer)
    esim = profiles(order)[0]
    added, queued = await recharged(dealer, order, "TEST-TOPUP-OK"), await recharged(dealer, order, QUEUE)
    refused = await refund(dealer, added)
    assert refused.data["profiles"] == [{"profileId": int(esim["profileId"]), "reason": "APPLIED"}], refused
    named = [{"itemNo": queued["items"][0]["itemNo"], "profiles": [{"iccid": esim["iccid"]}]}]
    refunded = await refund(dealer, queued, items=named)
    assert refunded.code == "000000", refunded
    assert refunded.data["items"][0]["profileIds"] == [int(esim["profileId"])]
    assert refunded.data["items"][0]["iccids"] == [esim["iccid"]]


async def test_a_plan_that_has_begun_is_not_refunded(dealer: ApiClient):
    order = await bought(dealer)
    queued = await recharged(dealer, order, QUEUE)
    await advance(dealer, order, "START")
    await advance(dealer, order, "USE")
    refused = await refund(dealer, queued)
    assert (refused.code, refused.data["profiles"][0]["reason"]) == ("200003", "APPLIED"), refused


async def test_the_plans_of_an_esim_that_is_cancelled_are_void(dealer: ApiClient):
    order = await bought(dealer)
    queued = await recharged(dealer, order, QUEUE)
    before = await balance(dealer)
    assert (await dealer.post("/esim/profile/cancel", {"iccid": profiles(order)[0]["iccid"]})).code == "000000"
    refused = await refund(dealer, queued)
    assert (refused.code, refused.data["profiles"][0]["reason"]) == ("200003", "CANCELLED"), refused
    assert (await balance(dealer), statuses(await plans(dealer, order))) == (before, ["CANCELLED", "CANCELLED"])


async def test_refund_against_use_of_a_queued_plan(dealer: ApiClient):
    """Whichever comes first: it is refunded and never begins, or it begins and is not refunded."""
    for _ in range(8):
        order = await bought(dealer)
        before = await balance(dealer)
        queued = await recharged(dealer, order, QUEUE)
        await advance(dealer, order, "START")
        tried, _ = await asyncio.gather(refund(dealer, queued), advance(dealer, order, "USE"))
        profile = await shown(dealer, order)
        if tried.code == "000000":
            assert (statuses(profile["plans"]), await balance(dealer)) == (["ENDED", "CANCELLED"], before)
        else:
            assert (tried.code, statuses(profile["plans"])) == ("200003", ["ENDED", "ACTIVE"])


async def test_an_esim_is_refunded_once_its_queued_plan_is(dealer: ApiClient):
    order = await bought(dealer)
    queued = await recharged(dealer, order, QUEUE)
    assert (await refund(dealer, order)).data["profiles"][0]["reason"] == "TOPPED_UP"
    assert (await refund(dealer, queued)).code == "000000"
    assert (await refund(dealer, order)).code == "000000"
    assert (await query(dealer, order))["orderStatus"] == "REFUNDED"


async def test_package_list_says_how_a_package_is_added(dealer: ApiClient):
    listed = (await dealer.post("/package/list", {"type": "TOPUP", "forPackageCode": "TEST-OK"})).data["packages"]
    modes = {package["packageCode"]: package["topUpMode"] for package in listed}
    assert (modes["TEST-TOPUP-OK"], modes[QUEUE], modes[ASYNC]) == ("ADD", "QUEUE", "QUEUE")


async def test_several_are_used_one_after_the_other(dealer: ApiClient):
    order = await bought(dealer)
    for _ in range(3):
        await recharged(dealer, order, QUEUE)
    await advance(dealer, order, "START")
    for used in range(1, 5):
        profile = await advance(dealer, order, "USE")
        assert statuses(profile["plans"]) == ["ENDED"] * used + ["ACTIVE"] * (used < 4) + ["QUEUED"] * (3 - used)
    assert (profile["planUseStatus"], sum(plan["dataUsageBytes"] for plan in profile["plans"])) == ("ENDED", 4 * GB)
    again = await recharge(dealer, order, QUEUE)
    begun = await dealer.delivered(again.data["orderNo"])
    assert begun["items"][0]["topUp"]["planNo"] == 5
    assert (await shown(dealer, order))["planUseStatus"] == "STARTED"


async def test_recharges_refunds_use_and_cancel_at_once_leave_the_money_exact(dealer: ApiClient):
    """The audit at the end says that each plan is paid for once, or given back."""
    for _ in range(6):
        order = await bought(dealer)
        named = {"iccid": profiles(order)[0]["iccid"]}
        waiting = [await recharged(dealer, order, package) for package in (QUEUE, ASYNC)]
        await advance(dealer, order, "START")
        replies = await asyncio.gather(
            *[recharge(dealer, order, package) for package in (QUEUE, ASYNC, "TEST-TOPUP-OK", "TEST-TOPUP-DELAY")],
            *[refund(dealer, recharge) for recharge in (*waiting, *waiting, order)],
            dealer.post("/test/profile/advance", named | {"step": "USE"}),
            dealer.post("/test/profile/advance", named | {"step": "USE"}),
            dealer.post("/esim/profile/cancel", named),
        )
        assert {reply.code for reply in replies} <= {"000000", "200002", "200003", "200004"}, replies
        for placed in [*waiting, *[reply.data for reply in replies[:4] if reply.code == "000000"]]:
            await over(dealer, placed)


async def test_a_scripted_esim_goes_on_with_its_queued_plan(dealer: ApiClient):
    order = await bought(dealer, "TEST-LIFECYCLE")
    await recharged(dealer, order, QUEUE)
    async with asyncio.timeout(PATIENCE):
        while (profile := await shown(dealer, order))["planUseStatus"] != "ENDED":
            await asyncio.sleep(0.02)
    assert [(plan["status"], plan["dataUsageBytes"]) for plan in profile["plans"]] == [("ENDED", GB), ("ENDED", GB)]
