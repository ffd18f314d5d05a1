"""What failed to reach dealers, and sending it again: by one, by filter, by time range (decisions 6).

The count is known before anything is sent; the sending itself is the worker's, a job per dealer, which a restart only
interrupts (webhooks/resend.py). Every act is in the audit log.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple, get_args

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.orders import identity
from dealer_server.store.webhooks import log
from dealer_server.store.webhooks import resend as webhook_repush
from dealer_server.store.webhooks.log import Failures, Filter
from dealer_server.store.webhooks.resend import Job, Kind
from esim_dealer.wire.vocabulary import DeliveryState, EventType

Resendable = Literal["FAILED", "SKIPPED", "SUPERSEDED", "DELIVERED"]


class DeliverySelection(NamedTuple):
    """Which deliveries (RESEND) or orders (SYNC): those made from `start` on and before `end`."""

    kind: Kind
    tenant_id: int | None
    start: datetime
    end: datetime
    states: tuple[DeliveryState, ...] = ("FAILED",)
    event_type: EventType | None = None


class Part(NamedTuple):
    """How much of it is one dealer's."""

    tenant_id: int
    name: str
    total: int


async def failures(
    database: Database, tenant_id: int | None, start: datetime | None, end: datetime | None
) -> list[Failures]:
    """What ended FAILED, grouped by dealer, event and what the last attempt met."""
    async with database.connection() as connection:
        return await log.failures(connection, tenant_id, start, end)


async def count(database: Database, chosen: DeliverySelection) -> list[Part]:
    """How much would be sent again, dealer by dealer. Raises OperatorError."""
    _check(chosen)
    async with database.connection() as connection:
        tenants = await store.tenant.listed(connection)
        if chosen.tenant_id is not None:
            tenants = [one for one in tenants if one.tenant_id == chosen.tenant_id]
            if not tenants:
                raise OperatorError(f"no tenant {chosen.tenant_id}")
        parts = [Part(one.tenant_id, one.name, await _count(connection, one.tenant_id, chosen)) for one in tenants]
    return [part for part in parts if part.total]


async def begin(
    database: Database, chosen: DeliverySelection, parts: Sequence[Part], author: str, clock: Clock
) -> list[Job]:
    """A job per dealer, which the worker takes up at once."""
    now = clock()

    async def work(connection: Connection) -> list[Job]:
        jobs = []
        for part in parts:
            states = chosen.states if chosen.kind == "RESEND" else ()
            job = Job(
                *(0, part.tenant_id, chosen.kind, states, chosen.event_type, chosen.start, chosen.end, part.total),
                *(0, 0, author, now, None),
            )
            job = job._replace(job_id=await webhook_repush.add_job(connection, job))
            detail = {"jobId": job.job_id, "count": part.total, "from": chosen.start, "to": chosen.end}
            detail |= {"states": states, "eventType": chosen.event_type}
            await _record(connection, author, f"webhook.{chosen.kind.lower()}", part.tenant_id, detail)
            jobs.append(job)
        return jobs

    return await database.run(work)


async def resend(database: Database, tenant_id: int, delivery_ids: Sequence[int], author: str, clock: Clock) -> int:
    """Lets these deliveries go once more; how many do. Raises OperatorError where one is not this dealer's."""

    async def work(connection: Connection) -> int:
        await _require_endpoint(connection, tenant_id)
        for delivery_id in delivery_ids:
            if await log.find(connection, tenant_id, delivery_id) is None:
                raise OperatorError(f"tenant {tenant_id} has no delivery {delivery_id}")
        await _record(connection, author, "webhook.resend", tenant_id, {"deliveryIds": delivery_ids})
        return await webhook_repush.resend(connection, tenant_id, delivery_ids, clock())

    return await database.run(work)


async def sync(database: Database, tenant_id: int, order_nos: Sequence[str], author: str, clock: Clock) -> int:
    """Sends the snapshots of these orders; how many. Raises OperatorError where one is not this dealer's."""

    async def work(connection: Connection) -> int:
        await _require_endpoint(connection, tenant_id)
        order_ids = []
        for order_no in order_nos:
            order_id = identity.order_id(order_no)
            if order_id is None or not await store.order.exists(connection, tenant_id, order_id):
                raise OperatorError(f"tenant {tenant_id} has no order {order_no}")
            order_ids.append(order_id)
        await _record(connection, author, "webhook.sync", tenant_id, {"orderNos": order_nos})
        return await webhook_repush.sync(connection, tenant_id, order_ids, clock())

    return await database.run(work)


async def jobs(database: Database, limit: int = 50) -> list[Job]:
    async with database.connection() as connection:
        return await webhook_repush.jobs(connection, limit)


async def job(database: Database, job_id: int) -> Job:
    """Raises OperatorError."""
    async with database.connection() as connection:
        found = await webhook_repush.job(connection, job_id)
    if found is None:
        raise OperatorError(f"no job {job_id}")
    return found


async def stop(database: Database, job_id: int, author: str, clock: Clock) -> Job:
    """Ends a job where it is. What it let go already goes. Raises OperatorError."""

    async def work(connection: Connection) -> Job:
        found = await webhook_repush.job(connection, job_id)
        if found is None:
            raise OperatorError(f"no job {job_id}")
        await webhook_repush.end(connection, job_id, clock())
        await _record(connection, author, "webhook.stop", found.tenant_id, {"jobId": job_id, "done": found.done})
        return found

    return await database.run(work)


def _check(chosen: DeliverySelection) -> None:
    if unknown := set(chosen.states) - set(get_args(Resendable)):
        raise OperatorError(f"state {min(unknown)!r}; accepted: {', '.join(get_args(Resendable))}")
    if chosen.event_type not in (None, *get_args(EventType)):
        raise OperatorError(f"event type {chosen.event_type!r}; accepted: {', '.join(get_args(EventType))}")
    if chosen.start >= chosen.end:
        raise OperatorError("the time range is empty: its start is not before its end")


async def _count(connection: Connection, tenant_id: int, chosen: DeliverySelection) -> int:
    if chosen.kind == "SYNC":
        span = identity.ids_between(chosen.start, chosen.end)
        return await webhook_repush.count_orders(connection, tenant_id, *span)
    wanted = Filter(None, chosen.event_type, chosen.states, chosen.start, chosen.end)
    return await log.count(connection, tenant_id, wanted, None)


async def _require_endpoint(connection: Connection, tenant_id: int) -> None:
    endpoint = await store.webhook.endpoint(connection, tenant_id)
    if endpoint is None or endpoint.state != "ACTIVE":
        raise OperatorError(f"tenant {tenant_id} has no callback URL that is set and enabled")


async def _record(connection: Connection, author: str, action: str, tenant_id: int, detail: dict[str, object]) -> None:
    await store.tenant.record_act(connection, author, action, tenant_id, msgspec.json.encode(detail).decode())
