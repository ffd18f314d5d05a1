"""A COMMIT of money is never cancelled: while a standby has not got it nothing is seen, and later it is there once.

The standby does not exist: `synchronous_standby_names = 'ghost'`.
"""

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import asyncpg
import httpx2
import pytest

from dealer_server import clock
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.topups.review import approve_topup
from support.api_client import ApiClient, Reply, Service, http_client, running_service
from support.faults.postgres_machine import Machine, Watch, connected, order_in_commit, until
from support.patience import PATIENCE
from support.processes import environment, running


@dataclass
class Bank:
    """A service that only answers calls, another one of the same database, a dealer, and a look into that database."""

    machine: Machine
    service: Service
    second: Service
    client: ApiClient
    look: asyncpg.Connection

    async def entries(self, kind: str) -> int:
        """How many entries of this kind the dealer's ledger shows."""
        sql = "SELECT count(*) FROM ledger_entry WHERE tenant_id = $1 AND entry_type = $2"
        return await self.look.fetchval(sql, self.client.tenant_id, kind) or 0

    async def balance(self) -> str:
        return (await self.client.post("/account/balance")).data["balance"]

    async def commits(self) -> int:
        """How many sessions are in the middle of a COMMIT that waits for the standby."""
        sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"
        return await self.look.fetchval(sql) or 0


@pytest.fixture
async def bank(machine: Machine) -> AsyncIterator[Bank]:
    async with (
        machine.database() as url,
        connected(url) as look,
        running_service(url, worker=False) as service,
        running_service(url, worker=False) as second,
        service.client(await service.tenant(balance="1000", qps=0)) as client,
    ):
        yield Bank(machine, service, second, client, look)
        assert await service.audit() == []


# Refunds


def refund(client: ApiClient, order_no: str) -> asyncio.Task[Reply]:
    return asyncio.create_task(client.post("/esim/refund", {"orderNo": order_no}))


@asynccontextmanager
async def waiting(client: ApiClient, seconds: float) -> AsyncIterator[ApiClient]:
    """The same dealer, whose client waits for so long."""
    async with http_client(seconds) as http:
        yield replace(client, http=http)


async def gone(asking: asyncio.Task) -> None:
    """The client hangs up."""
    asking.cancel()
    await asyncio.wait([asking])


async def timed_out(asking: asyncio.Task) -> None:
    """The client's own deadline passes."""
    with pytest.raises(httpx2.ReadTimeout):
        await asking


@pytest.mark.parametrize("leave", [gone, timed_out])
async def test_a_refund_is_invisible_until_the_standby_has_it_and_is_credited_once(bank: Bank, leave):
    order_no = (await bank.client.order()).data["orderNo"]
    seconds = 2 if leave is timed_out else PATIENCE
    async with bank.machine.ghost_standby(), waiting(bank.client, seconds) as client:
        asking = refund(client, order_no)
        await Watch(bank.look).somebody_waits("SyncRep")
        await leave(asking)
        credited, balance = await bank.entries("REFUND"), await bank.balance()
        shown = (await bank.client.post("/esim/query", {"orderNo": order_no})).data
        assert (shown["refundAmount"], shown["orderStatus"]) == (0, "PAID")
        assert await bank.commits() == 1, "nobody cancelled it"
        again = refund(replace(bank.client, url=bank.second.url), order_no)
        await Watch(bank.look).somebody_waits()
        assert (await bank.entries("REFUND"), await bank.balance()) == (credited, balance) and not again.done()
    reply = await again
    if reply.code == "900001":  # it waited for the lock for as long as a call may: the dealer asks again
        reply = await refund(bank.client, order_no)
    assert (reply.code, reply.data["status"], reply.data["duplicate"]) == ("000000", "REFUNDED", True)
    assert await bank.entries("REFUND") == credited + 1
    assert float(await bank.balance()) == pytest.approx(float(balance) + 1.80)


async def test_a_refund_with_an_interrupted_commit_is_not_reported_before_the_standby_has_it(bank: Bank):
    """PostgreSQL shows such a commit at once. Whoever repeats the call waits until the standby has it."""
    order_no = (await bank.client.order()).data["orderNo"]
    async with bank.machine.ghost_standby():
        asking = refund(bank.client, order_no)
        await Watch(bank.look).somebody_waits("SyncRep")
        credited = await bank.entries("REFUND")
        await bank.look.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            " AND datname = current_database()"
        )

        async def shown() -> bool:
            return await bank.entries("REFUND") == credited + 1

        await until(shown)
        again = refund(replace(bank.client, url=bank.second.url), order_no)
        await Watch(bank.look).somebody_waits("SyncRep")
        assert not again.done()
    first, second = await asking, await again
    assert (first.code, first.data) == ("900001", {"outcome": "UNKNOWN"}), first
    assert (second.code, second.data["duplicate"]) == ("000000", True)
    assert await bank.entries("REFUND") == credited + 1


# Top-ups


async def asked(bank: Bank) -> str:
    """The number of a top-up that waits for an operator."""
    call = {"transactionId": f"u-{secrets.token_hex(6)}", "amount": "50"}
    return (await bank.client.post("/account/topup", call)).data["topupNo"]


def approval(bank: Bank, topup_no: str) -> asyncio.Task:
    return asyncio.create_task(approve_topup(bank.service.database, topup_no, "ops", clock.now))


async def test_an_approval_is_invisible_until_the_standby_has_it_and_credits_once(bank: Bank):
    topup_no = await asked(bank)
    async with bank.machine.ghost_standby():
        asking = approval(bank, topup_no)
        await Watch(bank.look).somebody_waits("SyncRep")
        await gone(asking)
        credited, balance = await bank.entries("TOPUP"), await bank.balance()
        assert await bank.commits() == 1, "nobody cancelled it"
        again = approval(bank, topup_no)
        await Watch(bank.look).somebody_waits()
        shown = (await bank.client.post("/account/topup/query", {"topupNo": topup_no})).data
        assert shown["status"] == "PENDING" and await bank.balance() == balance and not again.done()
    with pytest.raises(OperatorError, match="APPROVED already"):
        await again
    assert await bank.entries("TOPUP") == credited + 1
    assert float(await bank.balance()) == float(balance) + 50


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_an_approval_completes_when_its_command_is_interrupted(bank: Bank, number: signal.Signals):
    topup_no = await asked(bank)
    env = environment(bank.service.database.dsn)
    async with bank.service.client(await bank.service.tenant(balance="1000", qps=0)) as other:
        async with bank.machine.ghost_standby():
            _, asking = await order_in_commit(other, Watch(bank.look))
            async with running("topup", "approve", topup_no, env=env, ready=False) as command:
                await Watch(bank.look).somebody_waits("SyncRep", 2)
                command.signal(number)
                assert await command.ended() == -number
            assert await bank.entries("TOPUP") == 0 and await bank.commits() == 2, "nobody cancelled it"
        assert (await asking).code == "000000"

    async def credited() -> bool:
        return await bank.entries("TOPUP") == 1

    await until(credited)
    assert await bank.balance() == "1050.00"
