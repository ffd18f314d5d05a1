"""kill -9 during refunds: each refund is credited once, and its webhook is sent."""

import secrets
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx2
import pytest

from dealer_server.failpoints import Failpoint
from support.api_client import ApiClient
from support.faults.refund_kills import KILLED, SERVE_POINTS, WORK_POINTS, RefundingDealer, refunding_dealer
from support.processes import running


@pytest.fixture
async def refunding(database_url: str) -> AsyncIterator[RefundingDealer]:
    async with refunding_dealer(database_url) as one:
        yield one


async def bought(client: ApiClient, package: str) -> str:
    order_no = (await client.order(package)).data["orderNo"]
    await client.delivered(order_no)
    return order_no


async def killed_api(refunding: RefundingDealer, point: Failpoint) -> None:
    """The API is killed during a refund; the repeated refund is credited once."""
    call = {"refundTransactionId": f"r-{secrets.token_hex(8)}"}
    async with running("work", env=refunding.env):
        async with running("serve", "--port", "0", env=refunding.env, kill_at=str(point)) as serve:
            client = await refunding.at(await serve.ready())
            await client.post("/webhook/set", {"callbackUrl": refunding.receiver.url})
            call["orderNo"] = await bought(client, "TEST-OK")
            with suppress(httpx2.HTTPError):
                await client.post("/esim/refund", call)
            assert await serve.ended() == KILLED, serve.said
        async with running("serve", "--port", "0", env=refunding.env) as serve:
            client = await refunding.at(await serve.ready())
            again = await client.post("/esim/refund", call)
            assert (again.code, again.data["status"]) == ("000000", "REFUNDED"), again
            refunding.credited += 1
            await refunding.all_is_exact()


async def killed_worker(refunding: RefundingDealer, point: Failpoint) -> None:
    """The worker is killed while a refund waits for its supplier; the next worker completes it."""
    async with running("serve", "--port", "0", env=refunding.env) as serve:
        client = await refunding.at(await serve.ready())
        await client.post("/webhook/set", {"callbackUrl": refunding.receiver.url})
        others = await refunding.lanes()
        async with running("work", env=refunding.env, kill_at=str(point)) as work:
            order_no = await bought(client, "TEST-ASYNC")
            dead = await refunding.lanes() - others
            reply = await client.post("/esim/refund", {"orderNo": order_no})
            assert reply.data["status"] == "REFUNDING"
            refunding.credited += 1
            assert await work.ended() == KILLED, work.said
        await refunding.leases_run_out(dead)
        async with running("work", env=refunding.env):
            await refunding.all_is_exact()


async def test_a_refund_survives_a_kill_at_each_failpoint(refunding: RefundingDealer):
    for point in SERVE_POINTS[::2]:
        await killed_api(refunding, point)
    for point in WORK_POINTS[::3]:
        await killed_worker(refunding, point)


@pytest.mark.soak
async def test_a_hundred_kills_credit_nothing_twice_and_lose_nothing(refunding: RefundingDealer):
    for number in range(100):
        if number % 3:
            await killed_worker(refunding, WORK_POINTS[number % len(WORK_POINTS)])
        else:
            await killed_api(refunding, SERVE_POINTS[number % len(SERVE_POINTS)])
