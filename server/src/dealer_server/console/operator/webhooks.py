"""Webhooks: the health of each dealer's endpoint, failed deliveries, and sending them again."""

from datetime import UTC, datetime
from typing import get_args

from dealer_server.console.find import choice, tabs
from dealer_server.console.operator import codes
from dealer_server.console.operator.incidents import findings
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.params import CREATED, NEWEST_FIRST, PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_SUPPORT, OPERATORS, permissions
from dealer_server.console.shared.request_context import Html, NotFound, Redirect, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.webhooks import resend
from dealer_server.operations.webhooks.resend import DeliverySelection, Resendable
from dealer_server.rules.incidents.receiver import health
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import orders, search
from dealer_server.store.console import webhooks as console_webhooks
from dealer_server.store.webhooks import endpoints, log
from dealer_server.store.webhooks.dialects import EVENT_TYPES, RT

WEBHOOKS, FAILED, DELIVERY = (
    "/console/webhooks",
    "/console/webhooks/failed",
    "/console/deliveries/{tenant_id}/{delivery_id}",
)
STATES: tuple[str, ...] = get_args(Resendable)
EVENTS = EVENT_TYPES
FIELDS = ("kind", "dealer", "from", "to", "state", "event")
JOBS = 10
MOST_ENDPOINTS = 1_000_000


@page(WEBHOOKS, OPERATORS, "operator/webhooks.html", MenuEntry("Webhooks", "webhook", 100))
async def webhooks(context: RequestContext) -> Html:
    """`all`: dealers without an endpoint too. `resend`: somebody is to be resent something."""
    offset, every = min(params.number(context.query, "before") or 0, MOST_ENDPOINTS), "all" in context.query
    async with context.parts.database.connection() as connection:
        found = await console_webhooks.endpoints(connection, offset, PAGE_SIZE + 1, with_none=every)
        without, failed = (
            await console_webhooks.dealers_with_none(connection),
            await console_webhooks.count_failed(connection),
        )
        incidents = await findings.of_receivers(connection, context)
    jobs = await resend.jobs(context.parts.database, JOBS)
    async with context.parts.database.connection() as connection:
        names = await search.names(connection, [job.tenant_id for job in jobs if job.tenant_id])
    following = offset + PAGE_SIZE if len(found) > PAGE_SIZE else None
    return Html(
        incidents=incidents,
        endpoints=[
            (row, health(row.state, row.consecutive_failures, row.last_success_at)) for row in found[:PAGE_SIZE]
        ],
        every=every,
        without=without,
        failed=failed,
        sample=console_webhooks.SAMPLE,
        jobs=jobs,
        names=names,
        states=STATES,
        events=EVENTS,
        pager=params.pager(
            context, WEBHOOKS, following, shown=min(len(found), PAGE_SIZE), word="dealer" if every else "endpoint"
        ),
    )


@page(FAILED, OPERATORS, "operator/failed.html", listing=True)
async def failed(context: RequestContext) -> Html:
    seen, order = params.number(context.query, "before"), params.order(context, FAILED, CREATED, NEWEST_FIRST)
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, context.query.get("dealer"))
        rows = await console_webhooks.failed(
            connection, dealer.tenant_id, seen, PAGE_SIZE + 1, oldest_first=not order.descending
        )
    following = rows[PAGE_SIZE - 1].delivery_id if len(rows) > PAGE_SIZE else None
    return Html(
        deliveries=rows[:PAGE_SIZE],
        dealer=dealer,
        tabs=await tabs.of(context, FAILED, []),
        pager=params.pager(context, FAILED, following, shown=min(len(rows), PAGE_SIZE), word="delivery"),
        order=order,
    )


@page(DELIVERY, OPERATORS, "operator/delivery.html", within=WEBHOOKS)
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
        endpoint = await endpoints.find(connection, tenant_id)
    body = bodies.get(delivery_id, b"")
    own = not delivery.event_type.startswith(RT)
    return Html(
        delivery=delivery,
        dealer=dealer,
        url="" if endpoint is None else endpoint.url if own else endpoint.rt_url,
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
    selection = await _selection(context)
    counted = await resend.count(context.parts.database, selection)
    form = {name: context.form.get(name, "") for name in FIELDS}
    return Html(selection=selection, counted=counted, total=sum(part.total for part in counted), form=form)


@action(f"{WEBHOOKS}/begin", OPERATOR_SUPPORT)
async def begin(context: RequestContext) -> Redirect:
    selection = await _selection(context)
    counted = await resend.count(context.parts.database, selection)
    await resend.begin(context.parts.database, selection, counted, context.author, lambda: context.now)
    return Redirect(WEBHOOKS, "The deliveries are being resent")


@action(f"{WEBHOOKS}/jobs/{{job_id}}/stop", OPERATOR_SUPPORT)
async def stop(context: RequestContext) -> Redirect:
    job_id = params.path_number(context, "job_id")
    await resend.stop(context.parts.database, job_id, context.author, lambda: context.now)
    return Redirect(WEBHOOKS, f"Job {job_id} is stopped")


async def _selection(context: RequestContext) -> DeliverySelection:
    """Raises OperatorError."""
    form = context.form
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, form.get("dealer"))
    start, end = params.day(form, "from"), params.day(form, "to", after=True)
    if form.get("kind") == "SYNC" and start is None:
        raise OperatorError("Snapshots of orders are sent for a time range: choose the first day", "from")
    return DeliverySelection(
        "SYNC" if form.get("kind") == "SYNC" else "RESEND",
        dealer.required if dealer.text else None,
        start or datetime.fromtimestamp(0, UTC),
        end or context.now,
        (form.get("state") or "FAILED",),  # type: ignore[arg-type]
        form.get("event") or None,  # type: ignore[arg-type]
    )
