"""Webhooks: how each dealer's endpoint fares, what has failed, and sending it again."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import get_args

from dealer_server.console.operator import codes, permissions
from dealer_server.console.operator.permissions import LOOK, PAGE, PUSH
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Answer, NotFound, Page, Redirect, RequestContext, Route
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.webhooks import resend as repush
from dealer_server.operations.webhooks.resend import DeliverySelection, Resendable
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import orders
from dealer_server.store.console import webhooks as console_webhooks
from dealer_server.store.webhooks import log
from esim_dealer.wire.vocabulary import EventType

STATES: tuple[str, ...] = get_args(Resendable)
EVENTS: tuple[str, ...] = get_args(EventType)
KINDS = ("RESEND", "SYNC")
JOBS = 10


async def webhooks(context: RequestContext) -> Page:
    after = params.number(context.query, "before")
    async with context.parts.database.connection() as connection:
        found = await console_webhooks.health(connection, after, PAGE + 1)
        dealers = await console_dealers.names(connection)
    following = found[PAGE - 1].tenant_id if len(found) > PAGE else None
    return permissions.page(
        context,
        "webhooks",
        health=found[:PAGE],
        sample=console_webhooks.SAMPLE,
        jobs=await repush.jobs(context.parts.database, JOBS),
        names=dict(dealers),
        dealers=dealers,
        states=STATES,
        events=EVENTS,
        pager=params.pager(context, "/console/webhooks", following),
    )


async def failed(context: RequestContext) -> Page:
    tenant_id = params.number(context.query, "dealer")
    async with context.parts.database.connection() as connection:
        found = await console_webhooks.failed(connection, tenant_id, params.number(context.query, "before"), PAGE + 1)
        dealers = await console_dealers.names(connection, tenant_id)
    following = found[PAGE - 1].delivery_id if len(found) > PAGE else None
    return permissions.page(
        context,
        "failed",
        deliveries=found[:PAGE],
        dealers=dealers,
        tenant_id=tenant_id,
        pager=params.pager(context, "/console/webhooks/failed", following),
    )


async def delivery(context: RequestContext) -> Page:
    """One delivery: what was sent, and what each attempt met."""
    tenant_id, delivery_id = params.named(context, "tenant_id"), params.named(context, "delivery_id")
    async with context.parts.database.connection() as connection:
        dealer = await console_dealers.dealer(connection, tenant_id)
        found = await log.find(connection, tenant_id, delivery_id)
        if dealer is None or found is None:
            raise NotFound
        attempts = await log.attempts(connection, tenant_id, [delivery_id])
        shown = [delivery_id] if permissions.permissions(context).codes else []
        bodies = await orders.bodies(connection, tenant_id, shown, context.parts.data_keys)
    body = bodies.get(delivery_id, b"")
    return permissions.page(
        context, "delivery", delivery=found, dealer=dealer, attempts=codes.answered(attempts[delivery_id], body),
        body=codes.indented(body),
        finished=found.state in STATES,
    )  # fmt: skip


async def resend(context: RequestContext) -> Answer:
    tenant_id, delivery_id = params.named(context, "tenant_id"), params.named(context, "delivery_id")
    await repush.resend(context.parts.database, tenant_id, [delivery_id], context.author, lambda: context.now)
    return Redirect(f"/console/deliveries/{tenant_id}/{delivery_id}", "The delivery goes once more")


def _chosen(form: Mapping[str, str], now: datetime) -> DeliverySelection:
    """Raises OperatorError."""
    start, end = params.day(form, "from"), params.day(form, "to", after=True)
    if form.get("kind") == "SYNC" and start is None:
        raise OperatorError("Snapshots of orders are sent for a time range: say from which day on")
    return DeliverySelection(
        "SYNC" if form.get("kind") == "SYNC" else "RESEND",
        params.number(form, "dealer"),
        start or datetime.fromtimestamp(0, UTC),
        end or now,
        (form.get("state") or "FAILED",),  # type: ignore[arg-type]
        form.get("event") or None,  # type: ignore[arg-type]
    )


async def count(context: RequestContext) -> Answer:
    """How much would be sent again, before anything is."""
    chosen = _chosen(context.form, context.now)
    parts = await repush.count(context.parts.database, chosen)
    form = {name: context.form.get(name, "") for name in ("kind", "dealer", "from", "to", "state", "event")}
    return permissions.page(
        context, "repush", chosen=chosen, counted=parts, total=sum(part.total for part in parts), form=form
    )


async def begin(context: RequestContext) -> Answer:
    chosen = _chosen(context.form, context.now)
    parts = await repush.count(context.parts.database, chosen)
    await repush.begin(context.parts.database, chosen, parts, context.author, lambda: context.now)
    return Redirect("/console/webhooks", "The worker sends them again")


async def stop(context: RequestContext) -> Answer:
    job_id = params.named(context, "job_id")
    await repush.stop(context.parts.database, job_id, context.author, lambda: context.now)
    return Redirect("/console/webhooks", f"Job {job_id} is stopped")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/webhooks", LOOK, webhooks, "Webhooks"),
    Route("GET", "/console/webhooks/failed", LOOK, failed),
    Route("POST", "/console/webhooks/count", PUSH, count),
    Route("POST", "/console/webhooks/begin", PUSH, begin),
    Route("POST", "/console/webhooks/jobs/{job_id}/stop", PUSH, stop),
    Route("GET", "/console/deliveries/{tenant_id}/{delivery_id}", LOOK, delivery),
    Route("POST", "/console/deliveries/{tenant_id}/{delivery_id}/resend", PUSH, resend),
)
