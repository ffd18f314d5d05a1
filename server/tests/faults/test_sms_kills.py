"""kill -9 around an SMS: none is sent twice, and none that may have been sent is called not sent."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest

from support.api_client import ApiClient, Service, running_service
from support.money.refunds import bought, profiles
from support.processes import environment, running
from support.rt_family import running_upstream
from support.supplier_setup import Source, fresh, hop, set_up
from support.suppliers.purchases import routed
from support.suppliers.sms import SMS, a_minute_passes, installed, new, rows, sent

KILLED = -9


@dataclass
class Sending:
    """A profile on a device, and how often its supplier has sent an SMS to it."""

    service: Service
    client: ApiClient
    profile: dict[str, Any]
    count: Callable[[], Awaitable[int]]

    async def killed_at(self, point: str) -> tuple[str, str | None, int]:
        """What becomes of an SMS whose worker is killed there: its status and failReason, and how often it was
        sent."""
        env, before, call = environment(self.service.settings.database_url), await self.count(), new(self.profile)
        await a_minute_passes(self.service)
        async with running("work", env=env, kill_at=point) as work:
            assert (await self.client.post(SMS, call)).data["status"] == "PENDING"
            assert await work.ended() == KILLED, work.said
        await rows(self.service, "UPDATE sms SET due_at = now() WHERE due_at IS NOT NULL")
        async with running("work", env=env):
            done = (await sent(self.client, call)).data
        return done["status"], done.get("failReason"), await self.count() - before


@asynccontextmanager
async def sending(
    url: str, count: Callable[[], Awaitable[int]], enable: Callable[[dict[str, Any]], Awaitable[None]]
) -> AsyncIterator[Sending]:
    """With an API and no worker."""
    async with running_service(url) as service:
        created = await service.tenant(balance="1000", qps=0)
        async with service.client(created) as client:
            profile = profiles(await bought(client))[0]
            await enable(profile)
            await client.post("/esim/profile/usage", {"iccid": profile["iccid"], "refresh": True})
            [[shown]] = [one["items"][0]["profiles"] for one in (await client.post("/esim/order/list")).data["orders"]]
            assert shown["lifecycleStatus"] == "ACTIVATED"
    async with running_service(url, worker=False) as service, service.client(created) as client:
        yield Sending(service, client, profile, count)
        assert await service.audit() == []


@pytest.fixture
async def at_rt(postgres: str, template: str) -> AsyncIterator[Sending]:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(fresh(postgres, template))
        upstream = await stack.enter_async_context(running_upstream())
        near = Source("rt:near", "rt_upstream", upstream.settings)
        await set_up(url, [near], {"TEST-OK": [hop("rt:near", "JC016")]})

        async def count() -> int:
            return len(upstream.sms)

        async def enable(profile: dict[str, Any]) -> None:
            for esim in upstream.book.esims():
                esim.smdpStatus = "ENABLED"

        yield await stack.enter_async_context(sending(url, count, enable))


@pytest.fixture
async def at_chain(postgres: str, template: str) -> AsyncIterator[Sending]:
    async with AsyncExitStack() as stack:
        there_url, url = [await stack.enter_async_context(fresh(postgres, template)) for _ in range(2)]
        there = await stack.enter_async_context(running_service(there_url))
        account = await there.tenant(balance="1000", qps=0)
        at_there = await stack.enter_async_context(there.client(account))
        await routed(url, there.url, account)

        async def count() -> int:
            await a_minute_passes(there)
            return (await rows(there, "SELECT count(*) FROM sms"))[0][0]

        async def enable(profile: dict[str, Any]) -> None:
            await at_there.post("/test/profile/advance", {"iccid": profile["iccid"], "step": "ENABLE"})

        yield await stack.enter_async_context(sending(url, count, enable))


async def test_a_killed_worker_repeats_no_sms_at_a_supplier_that_knows_no_repeat(at_rt: Sending):
    assert await at_rt.killed_at("sms.claimed") == ("FAILED", "UNKNOWN", 0)
    assert await at_rt.killed_at("sms.answered") == ("FAILED", "UNKNOWN", 1)
    assert await at_rt.killed_at("sms.recorded") == ("SENT", None, 1)


async def test_a_killed_worker_sends_each_sms_once_at_a_supplier_that_knows_a_repeat(at_chain: Sending):
    for point in ("sms.claimed", "sms.answered", "sms.recorded"):
        assert await at_chain.killed_at(point) == ("SENT", None, 1), point


@pytest.mark.parametrize(("point", "duplicate"), [("sms.written", False), ("sms.committed", True)])
async def test_a_call_whose_server_was_killed_is_repeated_safely(
    service: Service, dealer: ApiClient, point: str, duplicate: bool
):
    call, env = new(await installed(dealer)), environment(service.settings.database_url)
    async with running("serve", "--port", "0", env=env, kill_at=point) as serve:
        client = replace(dealer, url=await serve.ready())
        with suppress(httpx2.HTTPError):
            await client.post(SMS, call)
        assert await serve.ended() == KILLED, serve.said
    again = await dealer.post(SMS, call)
    assert (again.code, again.data["duplicate"]) == ("000000", duplicate)
    assert await rows(service, "SELECT count(*) FROM sms WHERE tenant_id = $1", dealer.tenant_id) == [(1,)]
