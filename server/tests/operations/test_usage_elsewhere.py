"""Usage and the life of profiles on other services than the usual one: a slower network, no worker, production."""

import asyncio

import pytest

from support.api_client import running_service
from support.money.refunds import bought, profiles
from support.patience import PATIENCE
from support.webhook_fixture import listening

PATHS = ("/esim/profile/usage", "/test/profile/advance")
NOBODYS = "8900000000000000009"


async def test_a_slow_lifecycle_sends_each_step(database_url: str):
    """Half a second between its steps, and a look every 0.1 s."""
    async with (
        running_service(database_url, supplier_speed=2.0) as slow,
        slow.client(await slow.tenant(balance="100", qps=0)) as dealer,
        listening(1) as [receiver],
    ):
        await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
        await bought(dealer, "TEST-LIFECYCLE")
        async with asyncio.timeout(PATIENCE):
            while not any("PLAN_USE_ENDED" in one.json["changeHints"] for one in receiver.requests):
                await receiver.received(len(receiver.requests) + 1)
        hints = [hint for one in receiver.requests for hint in one.json["changeHints"]]
        assert hints.count("PLAN_USE_STARTED") == hints.count("PLAN_USE_ENDED") == 1
        assert hints.index("PLAN_USE_STARTED") < hints.index("USAGE_UPDATED")
        assert await slow.audit() == []


async def test_plans_and_unused_profiles_expire_on_time(database_url: str):
    """Seven days in a sixth of a second, 180 in four."""
    async with (
        running_service(database_url, supplier_speed=3_600_000.0) as fast,
        fast.client(await fast.tenant(balance="100", qps=0)) as dealer,
    ):
        order = await bought(dealer, quantity=2)
        used, _ = (one["iccid"] for one in profiles(order))
        await dealer.post("/test/profile/advance", {"iccid": used, "step": "START"})
        async with asyncio.timeout(PATIENCE):
            while {one["planUseStatus"] for one in profiles(order)} != {"ENDED"}:
                await asyncio.sleep(0.02)
                order = (await dealer.post("/esim/query", {"orderNo": order["orderNo"]})).data
        assert [one["esimStatus"] for one in profiles(order)] == ["USED_EXPIRED", "UNUSED_EXPIRED"]
        assert [one["lifecycleStatus"] for one in profiles(order)] == ["ACTIVATED", "DELIVERED"]
        assert await fast.audit() == []


@pytest.mark.parametrize("path", [*PATHS, "/esim/profile/suspend", "/esim/profile/unsuspend"])
async def test_a_profile_without_codes_has_no_usage_and_is_not_suspended(database_url: str, path: str):
    async with (
        running_service(database_url, worker=False) as idle,
        idle.client(await idle.tenant(balance="100", qps=0)) as dealer,
    ):
        placed = (await dealer.order()).data
        named = {"profileId": profiles(placed)[0]["profileId"]}
        reply = await dealer.post(path, named | {"step": "ENABLE"})
        assert (reply.status, reply.code) == (409, "200010")
        await dealer.post("/esim/profile/cancel", named)


async def test_a_refresh_without_a_worker_returns_the_last_report(database_url: str):
    async with (
        running_service(database_url) as service,
        service.client(await service.tenant(balance="100", qps=0)) as dealer,
    ):
        order = await bought(dealer)
    async with running_service(database_url, worker=False) as idle:
        async with idle.client(await idle.tenant(balance="100", qps=0)) as other:
            dealer.url, dealer.http = idle.url, other.http
            reply = await dealer.post("/esim/profile/usage", {"iccid": profiles(order)[0]["iccid"], "refresh": True})
        assert (reply.code, reply.data["realTime"], reply.data["dataUsageBytes"]) == ("000000", False, 0)


async def test_production_has_no_advance_operation(database_url: str):
    changed = {"environment": "production", "webhook_allow_loopback": False}
    async with (
        running_service(database_url, worker=False, **changed) as real,
        real.client(await real.tenant(balance="100", qps=0)) as dealer,
    ):
        reply = await dealer.post("/test/profile/advance", {"iccid": NOBODYS, "step": "ENABLE"})
        assert (reply.status, reply.code) == (404, "000112")
        assert (await dealer.post("/esim/profile/usage", {"iccid": NOBODYS})).code == "310404"
