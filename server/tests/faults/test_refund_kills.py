"""kill -9 around the money that goes back: whatever dies where, each refund is credited once, and told once."""

import secrets
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx2
import pytest

from dealer_server.failpoints import Failpoint
from support.api_client import ApiClient
from support.faults.refund_kills import KILLED, SERVE_POINTS, WORK_POINTS, Till, till_on
from support.processes import running


@pytest.fixture
async def till(database_url: str) -> AsyncIterator[Till]:
    async with till_on(database_url) as one:
        yield one


async def bought(door: ApiClient, package: str) -> str:
    order_no = (await door.order(package)).data["orderNo"]
    await door.delivered(order_no)
    return order_no


async def killed_api(till: Till, point: Failpoint) -> None:
    """The API dies over a refund; the same refund asked for again is credited once."""
    call = {"refundTransactionId": f"r-{secrets.token_hex(8)}"}
    async with running("work", env=till.env):
        async with running("serve", "--port", "0", env=till.env, kill_at=str(point)) as serve:
            door = await till.at(await serve.ready())
            await door.post("/webhook/set", {"callbackUrl": till.receiver.url})
            call["orderNo"] = await bought(door, "TEST-OK")
            with suppress(httpx2.HTTPError):
                await door.post("/esim/refund", call)
            assert await serve.ended() == KILLED, serve.said
        async with running("serve", "--port", "0", env=till.env) as serve:
            door = await till.at(await serve.ready())
            again = await door.post("/esim/refund", call)
            assert (again.code, again.data["status"]) == ("000000", "REFUNDED"), again
            till.credited += 1
            await till.all_is_exact()


async def killed_worker(till: Till, point: Failpoint) -> None:
    """The worker dies over a refund that waits for its supplier; the next one brings it to its end."""
    async with running("serve", "--port", "0", env=till.env) as serve:
        door = await till.at(await serve.ready())
        await door.post("/webhook/set", {"callbackUrl": till.receiver.url})
        others = await till.lanes()
        async with running("work", env=till.env, kill_at=str(point)) as work:
            order_no = await bought(door, "TEST-ASYNC")
            dead = await till.lanes() - others
            reply = await door.post("/esim/refund", {"orderNo": order_no})
            assert reply.data["status"] == "REFUNDING"
            till.credited += 1
            assert await work.ended() == KILLED, work.said
        await till.leases_run_out(dead)
        async with running("work", env=till.env):
            await till.all_is_exact()


async def test_a_refund_survives_every_death(till: Till):
    for point in SERVE_POINTS[::2]:
        await killed_api(till, point)
    for point in WORK_POINTS[::3]:
        await killed_worker(till, point)


@pytest.mark.soak
async def test_a_hundred_deaths_credit_nothing_twice_and_lose_nothing(till: Till):
    for number in range(100):
        if number % 3:
            await killed_worker(till, WORK_POINTS[number % len(WORK_POINTS)])
        else:
            await killed_api(till, SERVE_POINTS[number % len(SERVE_POINTS)])
