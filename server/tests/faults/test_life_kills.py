"""kill -9 while profiles change, as real processes: no change is lost, and none is sent in part."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dealer_server.failpoints import Failpoint
from support.api_client import ApiClient
from support.databases import postgres_folder
from support.faults.refund_kills import KILLED, RefundingDealer, refunding_dealer
from support.money.refunds import profiles, query
from support.processes import environment, running

WORK_POINTS = [
    Failpoint("life.claimed"),
    Failpoint("life.asked"),
    Failpoint("life.written"),
    Failpoint("life.written", 1, 0.0002),
    Failpoint("life.recorded"),
    Failpoint("life.recorded", 2),
]
ENDED = "SELECT count(*) > 0 AND bool_and(plan_use_status = 'ENDED') FROM profile WHERE order_id = $1"


BY_ADDRESS = ("qrCodeUrl", "installPageUrl")


@pytest.fixture
async def refunding(database_url: str) -> AsyncIterator[RefundingDealer]:
    async with refunding_dealer(database_url) as one:
        one.env["DEALER_SUPPLIER_SPEED"] = "20"  # a story takes half a second: several looks
        yield one


def lives(order: dict[str, Any]) -> list[dict[str, Any]]:
    """The profiles, without the address that each process shows of itself."""
    return [{name: value for name, value in one.items() if name not in BY_ADDRESS} for one in profiles(order)]


async def story(client: ApiClient) -> dict[str, Any]:
    line = {"packageCode": "TEST-LIFECYCLE", "quantity": 3, "price": "1.80"}
    return (await client.order(items=[line], amount="5.40")).data


async def told_of(refunding: RefundingDealer, order: dict[str, Any]) -> list[dict[str, Any]]:
    """The profiles as the dealer's last event of the order has them, once all was told."""
    await refunding.until(
        "SELECT count(*) = 0 FROM webhook_delivery WHERE state NOT IN ('DELIVERED', 'SUPERSEDED', 'SKIPPED')"
    )
    return lives([one.json for one in refunding.receiver.requests if one.json["orderNo"] == order["orderNo"]][-1])


async def test_a_profile_lifecycle_survives_kills_of_the_worker(refunding: RefundingDealer):
    async with running("serve", "--port", "0", env=refunding.env) as serve:
        client = await refunding.at(await serve.ready())
        await client.post("/webhook/set", {"callbackUrl": refunding.receiver.url})
        others = await refunding.lanes()
        for point in WORK_POINTS[::3]:
            async with running("work", env=refunding.env, kill_at=str(point)) as work:
                order = await story(client)
                dead = await refunding.lanes() - others
                assert await work.ended() == KILLED, work.said
            await refunding.leases_run_out(dead)
            await refunding.rows(
                "UPDATE profile_life SET due_at = now() WHERE due_at IS NOT NULL AND claim IS NOT NULL"
            )
            async with running("work", env=refunding.env):
                await refunding.until(ENDED, order["orderId"])
                after = lives(await query(client, order))
                assert await told_of(refunding, order) == after
            for one in after:
                assert (one["smdpStatus"], one["esimStatus"], one["usagePercent"]) == ("ENABLED", "USED_UP", 100.0)
            assert await refunding.service.audit() == []


async def test_an_advanced_step_survives_a_kill_of_the_api(refunding: RefundingDealer):
    async with running("work", env=refunding.env):
        async with running("serve", "--port", "0", env=refunding.env, kill_at="life.written") as serve:
            client = await refunding.at(await serve.ready())
            await client.post("/webhook/set", {"callbackUrl": refunding.receiver.url})
            order = await client.delivered((await client.order()).data["orderNo"])
            call = {"profileId": profiles(order)[0]["profileId"], "step": "ENABLE"}
            with suppress(httpx2.HTTPError):
                await client.post("/test/profile/advance", call)
            assert await serve.ended() == KILLED, serve.said
        async with running("serve", "--port", "0", env=refunding.env) as serve:
            client = await refunding.at(await serve.ready())
            assert lives(await query(client, order)) == lives(order), "nothing by halves"
            moved = (await client.post("/test/profile/advance", call)).data
            assert moved["smdpStatus"] == "ENABLED"
            assert await told_of(refunding, order) == lives(await query(client, order))
        assert await refunding.service.audit() == []


@pytest.fixture
def folder() -> Iterator[Path]:
    with postgres_folder() as one:
        yield one


async def test_dev_runs_lifecycles_at_the_speed_that_is_set(folder: Path):
    env = environment(None, DEALER_SUPPLIER_SPEED=None)
    arguments = ("dev", "--json", "--port", "0", "--data", str(folder / "data"), "--speed", "100")
    async with running(*arguments, env=env, ready=False) as process:
        text = await process.line()
        assert text, process.said
        said = json.loads(text)
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
            client = ApiClient(said["baseUrl"], int(said["tenantId"]), said["appKey"], said["appSecret"], http)
            order = await client.delivered((await client.order()).data["orderNo"])
            call = {"iccid": profiles(order)[0]["iccid"]}
            used = (await client.post("/test/profile/advance", call | {"step": "START"})).data
            start, end = (datetime.fromisoformat(used[f"planUse{which}Time"]) for which in ("Start", "End"))
            assert end - start == timedelta(days=7) / 100
            assert (await client.post("/esim/profile/usage", call | {"refresh": True})).data["realTime"] is True
