"""How does an operator see what failed and send it again? By id, or by filter and time range as a job.

A job's count is known before anything is sent. The worker sends, one job per dealer, and continues it after a restart
(webhooks/resend.py). Every act is in the audit log.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, get_args

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.orders import identity
from dealer_server.store.webhooks import endpoints, log
from dealer_server.store.webhooks import resend as webhook_resend
from dealer_server.store.webhooks.dialects import EVENT_TYPES
from dealer_server.store.webhooks.log import Failures, Filter
from dealer_server.store.webhooks.resend import Job, Kind
from esim_dealer.wire.vocabulary import DeliveryState, EventType

Resendable = Literal["FAILED", "SKIPPED", "SUPERSEDED", "DELIVERED"]


class DeliverySelection(NamedTuple):
    """Which deliveries (RESEND) or orders (SYNC): those created from `start` on and before `end`."""

    kind: Kind
    tenant_id: int | None
    start: datetime
    end: datetime
    states: tuple[DeliveryState, ...] = ("FAILED",)
    event_type: EventType | None = None


class Part(NamedTuple):
    """One dealer's part of a selection."""

    tenant_id: int
    name: str
    total: int


async def failures(
    database: Database, tenant_id: int | None, start: datetime | None, end: datetime | None
) -> list[Failures]:
    """FAILED deliveries, grouped by dealer, event type and result of the last attempt."""
    async with database.connection() as connection:
        return await log.failures(connection, tenant_id, start, end)


async def count(database: Database, selection: DeliverySelection) -> list[Part]:
    """How much would be sent again, dealer by dealer. Raises OperatorError."""
    _check(selection)
    async with database.connection() as connection:
        by_id = {tenant.tenant_id: tenant for tenant in await store.tenant.listed(connection)}
        tenants = list(by_id.values())
        if selection.tenant_id is not None:
            tenants = [tenant for tenant in tenants if tenant.tenant_id == selection.tenant_id]
            if not tenants:
                raise OperatorError(f"no tenant {selection.tenant_id}")
        parts = [
            Part(tenant.tenant_id, tenant.name, await _count(connection, tenant.tenant_id, selection))
            for tenant in tenants
        ]
    return [part for part in parts if part.total]


async def begin(
    database: Database, selection: DeliverySelection, parts: Sequence[Part], author: str, clock: Clock
) -> list[Job]:
    """Creates one job per dealer, which the worker starts at once."""
    now = clock()

    async def work(connection: Connection) -> list[Job]:
        return [await _begin(connection, selection, part, author, now) for part in parts]

    return await database.run(work)


async def _begin(connection: Connection, selection: DeliverySelection, part: Part, author: str, now: datetime) -> Job:
    states = selection.states if selection.kind == "RESEND" else ()
    job = Job(
        job_id=0,
        tenant_id=part.tenant_id,
        kind=selection.kind,
        states=states,
        event_type=selection.event_type,
        start_at=selection.start,
        end_at=selection.end,
        total=part.total,
        reached=0,
        done=0,
        author=author,
        created_at=now,
        finished_at=None,
    )
    job = job._replace(job_id=await webhook_resend.add_job(connection, job))
    detail = {"jobId": job.job_id, "count": part.total, "from": selection.start, "to": selection.end}
    detail |= {"states": states, "eventType": selection.event_type}
    await _record(connection, author, f"webhook.{selection.kind.lower()}", part.tenant_id, detail)
    return job


async def all_failed(database: Database, tenant_id: int, author: str, clock: Clock) -> int:
    """A dealer has all its FAILED deliveries sent once more, by one job at a time; how many. Raises OperatorError."""
    now = clock()
    everything = DeliverySelection("RESEND", tenant_id, datetime.fromtimestamp(0, UTC), now)

    async def work(connection: Connection) -> int:
        await _require_endpoint(connection, tenant_id)
        if await webhook_resend.is_running(connection, tenant_id):
            raise OperatorError("Failed webhooks are being sent again already. Try again when that is over.")
        total = await log.count(connection, tenant_id, Filter(states=everything.states, end=now), None)
        await _begin(connection, everything, Part(tenant_id, "", total), author, now)
        return total

    return await database.run(work)


async def resend(database: Database, tenant_id: int, delivery_ids: Sequence[int], author: str, clock: Clock) -> int:
    """Enqueues these deliveries once more; how many. Raises OperatorError if one is not this dealer's."""

    async def work(connection: Connection) -> int:
        await _require_endpoint(connection, tenant_id)
        for delivery_id in delivery_ids:
            if await log.find(connection, tenant_id, delivery_id) is None:
                raise OperatorError(f"tenant {tenant_id} has no delivery {delivery_id}")
        await _record(connection, author, "webhook.resend", tenant_id, {"deliveryIds": delivery_ids})
        return await webhook_resend.resend(connection, tenant_id, delivery_ids, clock())

    return await database.run(work)


async def sync(database: Database, tenant_id: int, order_nos: Sequence[str], author: str, clock: Clock) -> int:
    """Enqueues snapshots of these orders; how many. Raises OperatorError if one is not this dealer's."""

    async def work(connection: Connection) -> int:
        await _require_endpoint(connection, tenant_id)
        order_ids = []
        for order_no in order_nos:
            order_id = identity.order_id(order_no)
            if order_id is None or not await store.order.exists(connection, tenant_id, order_id):
                raise OperatorError(f"tenant {tenant_id} has no order {order_no}")
            order_ids.append(order_id)
        await _record(connection, author, "webhook.sync", tenant_id, {"orderNos": order_nos})
        return await webhook_resend.sync(connection, tenant_id, order_ids, clock())

    return await database.run(work)


async def jobs(database: Database, limit: int = 50) -> list[Job]:
    async with database.connection() as connection:
        return await webhook_resend.jobs(connection, limit)


async def job(database: Database, job_id: int) -> Job:
    """Raises OperatorError."""
    async with database.connection() as connection:
        return await _job(connection, job_id)


async def stop(database: Database, job_id: int, author: str, clock: Clock) -> Job:
    """Stops a job. Deliveries that it has enqueued are sent all the same. Raises OperatorError."""

    async def work(connection: Connection) -> Job:
        stopped = await _job(connection, job_id)
        await webhook_resend.finish_job(connection, job_id, clock())
        await _record(connection, author, "webhook.stop", stopped.tenant_id, {"jobId": job_id, "done": stopped.done})
        return stopped

    return await database.run(work)


async def _job(connection: Connection, job_id: int) -> Job:
    job = await webhook_resend.job(connection, job_id)
    if job is None:
        raise OperatorError(f"no job {job_id}")
    return job


def _check(selection: DeliverySelection) -> None:
    if unknown := set(selection.states) - set(get_args(Resendable)):
        raise OperatorError(f"state {min(unknown)!r}; accepted: {', '.join(get_args(Resendable))}")
    if selection.event_type not in (None, *EVENT_TYPES):
        raise OperatorError(f"event type {selection.event_type!r}; accepted: {', '.join(EVENT_TYPES)}")
    if selection.start >= selection.end:
        raise OperatorError("the time range is empty: its start is not before its end")


async def _count(connection: Connection, tenant_id: int, selection: DeliverySelection) -> int:
    if selection.kind == "SYNC":
        first, end = identity.ids_between(selection.start, selection.end)
        return await webhook_resend.count_orders(connection, tenant_id, first, end)
    matching = Filter(
        event_type=selection.event_type, states=selection.states, start=selection.start, end=selection.end
    )
    return await log.count(connection, tenant_id, matching, None)


async def _require_endpoint(connection: Connection, tenant_id: int) -> None:
    endpoint = await endpoints.find(connection, tenant_id)
    if endpoint is None or "ACTIVE" not in (endpoint.state, endpoint.rt_state):
        raise OperatorError(f"tenant {tenant_id} has no callback URL that is set and enabled")


async def _record(connection: Connection, author: str, action: str, tenant_id: int, detail: dict[str, object]) -> None:
    await store.audit_log.record_act(connection, author, action, tenant_id, detail)
