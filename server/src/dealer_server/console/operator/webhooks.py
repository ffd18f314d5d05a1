"""Webhooks: how each dealer's endpoint fares, what has failed, and sending it again."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import get_args

from dealer_server.console import asked
from dealer_server.console.operator import codes, own
from dealer_server.console.operator.own import LOOK, PAGE, PUSH
from dealer_server.console.visit import Answer, Go, NotHere, Page, Route, Visit
from dealer_server.operations import repush
from dealer_server.operations.repush import Chosen, Resendable
from dealer_server.operations.tenant import OperatorError
from dealer_server.store import console_dealers, console_orders, console_webhooks, webhook_log
from esim_dealer.wire.vocabulary import EventType

STATES: tuple[str, ...] = get_args(Resendable)
EVENTS: tuple[str, ...] = get_args(EventType)
KINDS = ("RESEND", "SYNC")
JOBS = 10


async def webhooks(visit: Visit) -> Page:
    after = asked.number(visit.query, "before")
    async with visit.parts.database.connection() as connection:
        found = await console_webhooks.health(connection, after, PAGE + 1)
        dealers = await console_dealers.names(connection)
    following = found[PAGE - 1].tenant_id if len(found) > PAGE else None
    return own.page(
        visit,
        "webhooks",
        health=found[:PAGE],
        sample=console_webhooks.SAMPLE,
        jobs=await repush.jobs(visit.parts.database, JOBS),
        names=dict(dealers),
        dealers=dealers,
        states=STATES,
        events=EVENTS,
        pager=asked.pager(visit, "/console/webhooks", following),
    )


async def failed(visit: Visit) -> Page:
    tenant_id = asked.number(visit.query, "dealer")
    async with visit.parts.database.connection() as connection:
        found = await console_webhooks.failed(connection, tenant_id, asked.number(visit.query, "before"), PAGE + 1)
        dealers = await console_dealers.names(connection, tenant_id)
    following = found[PAGE - 1].delivery_id if len(found) > PAGE else None
    return own.page(
        visit,
        "failed",
        deliveries=found[:PAGE],
        dealers=dealers,
        tenant_id=tenant_id,
        pager=asked.pager(visit, "/console/webhooks/failed", following),
    )


async def delivery(visit: Visit) -> Page:
    """One delivery: what was sent, and what each attempt met."""
    tenant_id, delivery_id = asked.named(visit, "tenant_id"), asked.named(visit, "delivery_id")
    async with visit.parts.database.connection() as connection:
        dealer = await console_dealers.dealer(connection, tenant_id)
        found = await webhook_log.find(connection, tenant_id, delivery_id)
        if dealer is None or found is None:
            raise NotHere
        attempts = await webhook_log.attempts(connection, tenant_id, [delivery_id])
        shown = [delivery_id] if own.may(visit).codes else []
        bodies = await console_orders.bodies(connection, tenant_id, shown, visit.parts.data_keys)
    body = bodies.get(delivery_id, b"")
    return own.page(
        visit, "delivery", delivery=found, dealer=dealer, attempts=codes.answered(attempts[delivery_id], body),
        body=codes.indented(body),
        finished=found.state in STATES,
    )  # fmt: skip


async def resend(visit: Visit) -> Answer:
    tenant_id, delivery_id = asked.named(visit, "tenant_id"), asked.named(visit, "delivery_id")
    await repush.resend(visit.parts.database, tenant_id, [delivery_id], visit.author, lambda: visit.now)
    return Go(f"/console/deliveries/{tenant_id}/{delivery_id}", "The delivery goes once more")


def _chosen(form: Mapping[str, str], now: datetime) -> Chosen:
    """Raises OperatorError."""
    start, end = asked.day(form, "from"), asked.day(form, "to", after=True)
    if form.get("kind") == "SYNC" and start is None:
        raise OperatorError("Snapshots of orders are sent for a time range: say from which day on")
    return Chosen(
        "SYNC" if form.get("kind") == "SYNC" else "RESEND",
        asked.number(form, "dealer"),
        start or datetime.fromtimestamp(0, UTC),
        end or now,
        (form.get("state") or "FAILED",),  # type: ignore[arg-type]
        form.get("event") or None,  # type: ignore[arg-type]
    )


async def count(visit: Visit) -> Answer:
    """How much would be sent again, before anything is."""
    chosen = _chosen(visit.form, visit.now)
    parts = await repush.count(visit.parts.database, chosen)
    form = {name: visit.form.get(name, "") for name in ("kind", "dealer", "from", "to", "state", "event")}
    return own.page(visit, "repush", chosen=chosen, counted=parts, total=sum(part.total for part in parts), form=form)


async def begin(visit: Visit) -> Answer:
    chosen = _chosen(visit.form, visit.now)
    parts = await repush.count(visit.parts.database, chosen)
    await repush.begin(visit.parts.database, chosen, parts, visit.author, lambda: visit.now)
    return Go("/console/webhooks", "The worker sends them again")


async def stop(visit: Visit) -> Answer:
    job_id = asked.named(visit, "job_id")
    await repush.stop(visit.parts.database, job_id, visit.author, lambda: visit.now)
    return Go("/console/webhooks", f"Job {job_id} is stopped")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/webhooks", LOOK, webhooks, "Webhooks"),
    Route("GET", "/console/webhooks/failed", LOOK, failed),
    Route("POST", "/console/webhooks/count", PUSH, count),
    Route("POST", "/console/webhooks/begin", PUSH, begin),
    Route("POST", "/console/webhooks/jobs/{job_id}/stop", PUSH, stop),
    Route("GET", "/console/deliveries/{tenant_id}/{delivery_id}", LOOK, delivery),
    Route("POST", "/console/deliveries/{tenant_id}/{delivery_id}/resend", PUSH, resend),
)
