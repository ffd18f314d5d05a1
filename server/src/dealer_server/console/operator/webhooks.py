"""Webhooks: the health of each dealer's endpoint, failed deliveries, and sending them again."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import get_args

from dealer_server.console.operator import codes
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_SUPPORT, OPERATORS, permissions
from dealer_server.console.shared.request_context import Html, NotFound, Redirect, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.webhooks import resend
from dealer_server.operations.webhooks.resend import DeliverySelection, Resendable
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import orders
from dealer_server.store.console import webhooks as console_webhooks
from dealer_server.store.webhooks import log
from esim_dealer.wire.vocabulary import EventType

WEBHOOKS, FAILED, DELIVERY = (
    "/console/webhooks",
    "/console/webhooks/failed",
    "/console/deliveries/{tenant_id}/{delivery_id}",
)
STATES: tuple[str, ...] = get_args(Resendable)
EVENTS: tuple[str, ...] = get_args(EventType)
FIELDS = ("kind", "dealer", "from", "to", "state", "event")
JOBS = 10


@page(WEBHOOKS, OPERATORS, "operator/webhooks.html", MenuEntry("Webhooks", "webhook", 100))
async def webhooks(context: RequestContext) -> Html:
    after = params.number(context.query, "before")
    async with context.parts.database.connection() as connection:
        endpoints = await console_webhooks.endpoints(connection, after, PAGE_SIZE + 1)
        dealers = await console_dealers.names(connection)
    following = endpoints[PAGE_SIZE - 1].tenant_id if len(endpoints) > PAGE_SIZE else None
    return Html(
        endpoints=endpoints[:PAGE_SIZE],
        sample=console_webhooks.SAMPLE,
        jobs=await resend.jobs(context.parts.database, JOBS),
        names=dict(dealers),
        dealers=dealers,
        states=STATES,
        events=EVENTS,
        pager=params.pager(context, WEBHOOKS, following),
    )


@page(FAILED, OPERATORS, "operator/failed.html")
async def failed(context: RequestContext) -> Html:
    tenant_id, before = params.number(context.query, "dealer"), params.number(context.query, "before")
    async with context.parts.database.connection() as connection:
        rows = await console_webhooks.failed(connection, tenant_id, before, PAGE_SIZE + 1)
        dealers = await console_dealers.names(connection, tenant_id)
    following = rows[PAGE_SIZE - 1].delivery_id if len(rows) > PAGE_SIZE else None
    return Html(
        deliveries=rows[:PAGE_SIZE],
        dealers=dealers,
        tenant_id=tenant_id,
        pager=params.pager(context, FAILED, following),
    )


@page(DELIVERY, OPERATORS, "operator/delivery.html")
async def show_delivery(context: RequestContext) -> Html:
    """The body that was sent, and the answer to each attempt."""
    tenant_id, delivery_id = _key(context)
    async with context.parts.database.connection() as connection:
        dealer = await console_dealers.dealer(connection, tenant_id)
        delivery = await log.find(connection, tenant_id, delivery_id)
        if dealer is None or delivery is None:
            raise NotFound
        attempts = await log.attempts(connection, tenant_id, [delivery_id])
        readable = [delivery_id] if permissions(context.user).codes else []
        bodies = await orders.bodies(connection, tenant_id, readable, context.parts.data_keys)
    body = bodies.get(delivery_id, b"")
    return Html(
        delivery=delivery,
        dealer=dealer,
        attempts=codes.without_codes(attempts[delivery_id], body),
        body=codes.indented(body),
        finished=delivery.state in STATES,
    )


@action(f"{DELIVERY}/resend", OPERATOR_SUPPORT)
async def resend_delivery(context: RequestContext) -> Redirect:
    tenant_id, delivery_id = _key(context)
    await resend.resend(context.parts.database, tenant_id, [delivery_id], context.author, lambda: context.now)
    return Redirect(DELIVERY.format(tenant_id=tenant_id, delivery_id=delivery_id), "The delivery is sent again")


def _key(context: RequestContext) -> tuple[int, int]:
    """Raises NotFound."""
    return params.path_number(context, "tenant_id"), params.path_number(context, "delivery_id")


# Sending many again


@action(f"{WEBHOOKS}/count", OPERATOR_SUPPORT, "operator/resend.html")
async def count(context: RequestContext) -> Html:
    """How many would be sent again, before anything is."""
    selection = _selection(context.form, context.now)
    counted = await resend.count(context.parts.database, selection)
    form = {name: context.form.get(name, "") for name in FIELDS}
    return Html(selection=selection, counted=counted, total=sum(part.total for part in counted), form=form)


@action(f"{WEBHOOKS}/begin", OPERATOR_SUPPORT)
async def begin(context: RequestContext) -> Redirect:
    selection = _selection(context.form, context.now)
    counted = await resend.count(context.parts.database, selection)
    await resend.begin(context.parts.database, selection, counted, context.author, lambda: context.now)
    return Redirect(WEBHOOKS, "The worker sends them again")


@action(f"{WEBHOOKS}/jobs/{{job_id}}/stop", OPERATOR_SUPPORT)
async def stop(context: RequestContext) -> Redirect:
    job_id = params.path_number(context, "job_id")
    await resend.stop(context.parts.database, job_id, context.author, lambda: context.now)
    return Redirect(WEBHOOKS, f"Job {job_id} is stopped")


def _selection(form: Mapping[str, str], now: datetime) -> DeliverySelection:
    """Raises OperatorError."""
    start, end = params.day(form, "from"), params.day(form, "to", after=True)
    if form.get("kind") == "SYNC" and start is None:
        raise OperatorError("Snapshots of orders are sent for a time range: choose the first day")
    return DeliverySelection(
        "SYNC" if form.get("kind") == "SYNC" else "RESEND",
        params.number(form, "dealer"),
        start or datetime.fromtimestamp(0, UTC),
        end or now,
        (form.get("state") or "FAILED",),  # type: ignore[arg-type]
        form.get("event") or None,  # type: ignore[arg-type]
    )
