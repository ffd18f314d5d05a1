"""Voids at a supplier that takes its time: each is asked once, by whichever worker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from dealer_server import clock
from dealer_server.fulfillment.void_queue import VoidQueue
from dealer_server.rules.refunds.refund import Way
from dealer_server.store.tenants import data_key
from dealer_server.suppliers.contract import Caps, Outcome, Unit, Unknown, VoidDone, VoidOutcome, VoidUnit
from support.api_client import Service, running_service
from support.money.refunds import bought, profiles
from support.patience import PATIENCE
from support.supplier_setup import fresh


class Slow:
    """The simulated network on a day when each void takes until the test lets it go on."""

    code = "simulated"
    caps = Caps(parallel=2)
    reports = None

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.waiting: list[asyncio.Event] = []

    async def allocate(self, unit: Unit, now: datetime) -> Outcome:
        return Unknown("it makes nothing")

    def way(self, package_code: str, for_refund: bool) -> Way:
        return "SUPPLIER"

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        self.asked.append(unit.profile_id)
        answered = asyncio.Event()
        self.waiting.append(answered)
        await answered.wait()
        return VoidDone()

    def answer(self) -> None:
        for one in self.waiting:
            one.set()
        self.waiting.clear()


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = clock.now()

    def __call__(self) -> datetime:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def nobody() -> None:
    """Whom the queue would wake."""


@asynccontextmanager
async def working(service: Service, supplier: Slow, time: Time) -> AsyncIterator[None]:
    """A worker's queue for this supplier."""
    async with service.database.connection() as connection:
        keys = await data_key.load(connection, service.settings.master_keys)
    session = service.database.session()
    task = asyncio.create_task(VoidQueue(supplier, session, keys, time, nobody, nobody).run())
    try:
        yield
    finally:
        supplier.answer()
        task.cancel()
        await asyncio.wait([task])


async def until_asked(supplier: Slow, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(supplier.asked) < count:
            await asyncio.sleep(0.01)


async def test_each_void_is_asked_once_although_all_together_take_longer_than_a_lease(postgres: str, template: str):
    async with (
        fresh(postgres, template) as url,
        running_service(url, worker=False) as service,
        service.client(await service.tenant(balance="1000", qps=0)) as dealer,
    ):
        async with running_service(url):
            order = await bought(dealer, "TEST-ASYNC", 6)
        wanted = {int(one["profileId"]) for one in profiles(order)}
        for profile_id in wanted:
            await dealer.post("/esim/profile/cancel", {"profileId": profile_id})
        first, second, time = Slow(), Slow(), Time()
        async with working(service, first, time):
            await until_asked(first, 2)
            time.passes(40)
            first.answer()
            await until_asked(first, 4)
            time.passes(40)
            async with working(service, second, time):
                await until_asked(second, 2)
                for slow in (first, second):
                    slow.answer()
                await voided(service, len(wanted))
        assert sorted(first.asked + second.asked) == sorted(wanted)
        # The workers' clock was ahead, which the audit sees.
        assert [code for code in await service.audit() if code != "A25"] == []


async def voided(service: Service, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            async with service.database.connection() as connection:
                if count == await connection.fetchval("SELECT count(*) FROM void_request WHERE outcome = 'VOIDED'"):
                    return
            await asyncio.sleep(0.02)
