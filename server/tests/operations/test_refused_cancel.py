"""A supplier refuses a cancellation: the dealer gets that answer each time, and nothing else changes."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.fulfillment import void_queue
from dealer_server.rules.refunds.refund import Way
from dealer_server.store.tenants import data_key
from dealer_server.suppliers.contract import Caps, NotVoided, Outcome, Unit, Unknown, VoidOutcome, VoidUnit
from support.api_client import ApiClient, Service, running_service
from support.money.refunds import bought, profiles, query, refund, settled

CANCEL = "/esim/profile/cancel"
REFUSED = {"reason": "REFUSED_BY_SUPPLIER"}


class Refusing:
    """The simulated network on a day when it voids nothing."""

    code = "simulated"
    caps = Caps(parallel=1)
    reports = None

    async def allocate(self, unit: Unit, now: datetime) -> Outcome:
        return Unknown("it makes nothing either")

    def way(self, package_code: str, for_refund: bool) -> Way:
        return "SUPPLIER"

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        return NotVoided("the plan has begun")


@pytest.fixture(scope="module")
async def alone(database_url: str) -> AsyncIterator[Service]:
    """The API; what its worker would do, the tests do."""
    async with running_service(database_url, worker=False) as service:
        yield service


@pytest.fixture
async def dealer(alone: Service) -> AsyncIterator[ApiClient]:
    async with alone.client(await alone.tenant(balance="1000", qps=0)) as client:
        yield client


async def delivered(service: Service, dealer: ApiClient, quantity: int = 1) -> dict[str, Any]:
    """An order from a time when a worker ran."""
    async with running_service(service.database.dsn):
        return await bought(dealer, "TEST-ASYNC", quantity)


async def answered(service: Service) -> int:
    """Suppliers are asked what is due, and refuse; how many voids that were."""
    async with service.database.connection() as connection:
        keys = await data_key.load(connection, service.settings.master_keys)
    [queue] = void_queue.queues(service.database, {"simulated": Refusing()}, keys, clock.now, nobody, nobody)
    try:
        return await queue.run_once()
    finally:
        await queue._session.close()


def nobody() -> None:
    """Whom the queue would wake."""


async def test_a_cancellation_that_the_supplier_refuses_stays_refused(alone: Service, dealer: ApiClient):
    order = await delivered(alone, dealer)
    [profile] = profiles(order)
    named = {"profileId": int(profile["profileId"])}
    asked = await dealer.post(CANCEL, named)
    assert (asked.code, asked.data["asyncStatus"]) == ("000000", "PENDING")
    assert (await dealer.post(CANCEL, named)).data == asked.data, "repeating is success while it waits"
    before = await query(dealer, order)
    assert await answered(alone) == 1
    for path, call in ((CANCEL, named), ("/esim/profile/revoke", {"iccid": profile["iccid"]})):
        refused = await dealer.post(path, call)
        assert (refused.status, refused.code) == (409, "200002"), refused
        assert refused.data == {"profileId": int(profile["profileId"]), **REFUSED}
        assert "supplier refused" in refused.message
    assert await query(dealer, order) == before, "nothing of it is shown"
    assert await answered(alone) == 0, "and nobody is asked again"
    assert await alone.audit() == []


async def test_a_profile_that_cannot_be_cancelled_can_still_be_refunded(alone: Service, dealer: ApiClient):
    order = await delivered(alone, dealer, quantity=2)
    first, second = (int(one["profileId"]) for one in profiles(order))
    await dealer.post(CANCEL, {"profileId": first})
    assert await answered(alone) == 1
    held = await refund(dealer, order)
    assert (held.code, held.data["status"]) == ("000000", "REFUNDING"), held
    assert (await dealer.post(CANCEL, {"profileId": first})).code == "200004"
    assert (await dealer.post(CANCEL, {"profileId": second})).code == "200004"
    async with running_service(alone.database.dsn):
        after = await settled(dealer, order)
    assert (after["orderStatus"], after["refundAmount"]) == ("REFUNDED", 3.6)
    assert (await dealer.post(CANCEL, {"profileId": first})).data["asyncStatus"] == "COMPLETED"
    assert await alone.audit() == []
