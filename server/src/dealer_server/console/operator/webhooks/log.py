"""The log of all webhook deliveries, of all dealers or of one, and the page of each."""

from collections.abc import Awaitable, Callable, Mapping
from typing import get_args

from dealer_server.console.find import choice, dates, files, tabs
from dealer_server.console.find.choice import Choice
from dealer_server.console.operator import codes
from dealer_server.console.operator.webhooks.endpoints import ENDPOINTS, answer_faults, day, options, with_health
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.params import CREATED, NEWEST_FIRST, PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_SUPPORT, OPERATORS, permissions
from dealer_server.console.shared.request_context import Download, Html, NotFound, Redirect, RequestContext
from dealer_server.console.shared.timeline import event_text
from dealer_server.console.shared.webhook_headers import webhook_headers
from dealer_server.db.connection import Connection
from dealer_server.operations.webhooks import resend
from dealer_server.operations.webhooks.resend import Resendable
from dealer_server.rules.orders import identity
from dealer_server.rules.webhooks import answers
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import orders
from dealer_server.store.console import webhooks as store
from dealer_server.store.console.pages import ListPage
from dealer_server.store.console.webhooks import DeliveryRow, Wanted
from dealer_server.store.webhooks import answers as latest
from dealer_server.store.webhooks import endpoints, log, signer
from dealer_server.store.webhooks.dialects import EVENT_TYPES, RT
from esim_dealer.wire.vocabulary import DeliveryState

WEBHOOKS = "/console/webhooks"
DELIVERY = "/console/deliveries/{tenant_id}/{delivery_id}"
STATES: tuple[DeliveryState, ...] = get_args(DeliveryState)
FINISHED: tuple[str, ...] = get_args(Resendable)
TABS: tuple[tuple[str, DeliveryState], ...] = (
    ("Retrying", "RETRY"), ("Undelivered", "FAILED"), ("Delivered", "DELIVERED"),
)  # fmt: skip
PRESETS: tabs.Presets = (
    *((name, {"status": state}) for name, state in TABS[:2]),
    ("With failed attempts", {"attempts": "failed"}),
    *((name, {"status": state}) for name, state in TABS[2:]),
)
FILTERS = ("attempts", "dealer", "status", "event", "answer", "from", "to")
WORST = 3
"""Endpoints above the log."""
COLUMNS: Mapping[str, Callable[[DeliveryRow], str]] = {
    "deliveryId": lambda row: str(row.delivery_id),
    "createTime": lambda row: f"{row.created_at:%Y-%m-%dT%H:%M:%SZ}",
    "tenantId": lambda row: str(row.tenant_id),
    "dealer": lambda row: row.dealer,
    "orderNo": lambda row: identity.order_no(row.order_id),
    "eventType": lambda row: row.event_type,
    "status": lambda row: row.state,
    "attempts": lambda row: str(row.attempt_count),
    "httpStatus": lambda row: str(row.http_status or ""),
    "error": lambda row: row.error or "",
    "durationMs": lambda row: "" if row.duration_ms is None else str(row.duration_ms),
}


@page(WEBHOOKS, OPERATORS, "operator/webhooks.html", MenuEntry("Webhooks", "webhook", 100), listing=True)
async def webhooks(context: RequestContext) -> Html:
    order, seen = params.order(context, WEBHOOKS, CREATED, NEWEST_FIRST), params.number(context.query, "before")
    faults, found = params.faults(context.query, status=STATES, event=EVENT_TYPES), ListPage[DeliveryRow]((), None)
    faults |= answer_faults(context.query)
    of = day(context)
    async with context.parts.database.connection() as connection:
        dealer, wanted = await _wanted(connection, context)
        if not faults:
            found = await store.deliveries(
                connection, wanted, seen, PAGE_SIZE, context.now, oldest_first=not order.descending
            )
        packages = await orders.packages_of(connection, [(one.tenant_id, one.order_id) for one in found.rows])
        counts = await store.counts(connection, wanted.tenant_id)
        worst = await store.endpoints(connection, 0, WORST + 1, of.start)
        found_answers = await (
            latest.of_all(connection, of.start)
            if dealer.tenant_id is None
            else latest.hours(connection, dealer.tenant_id, of.start)
        )
    filters = {name: value for name, value in params.filters(context).items() if value}
    known = {} if filters.keys() - {"status", "attempts", "sort", "dealer"} else counts
    listed = {name: known[state] for name, state in (("All", "ALL"), *TABS) if state in known}
    total = None if wanted.tried else known.get(wanted.state or "ALL")
    return Html(
        ended_well=not counts["RETRY"] and not counts["FAILED"],
        deliveries=found.rows,
        packages=packages,
        dealer=dealer,
        faults=faults,
        filtered=bool(faults) or wanted != Wanted(),
        tabs=await tabs.of(context, WEBHOOKS, PRESETS, listed, store.COUNTED),
        history=answers.history(found_answers, of),
        dates=dates.of(context, WEBHOOKS),
        events=EVENT_TYPES,
        states=STATES,
        answers=options(wanted.answer or ""),
        endpoints=with_health(worst[:WORST]),
        more_endpoints=len(worst) > WORST,
        order=order,
        pager=params.pager(
            context, WEBHOOKS, found.next, shown=len(found.rows), word="delivery", total=total, most=store.COUNTED
        ),
        event_text=event_text,
        export=params.address(f"{WEBHOOKS}.csv", filters),
    )


@download(f"{WEBHOOKS}.csv", OPERATORS, listing=True)
async def export(context: RequestContext) -> Download:
    """All deliveries of the log, the newest first; who takes the file is in the audit log."""
    async with context.parts.database.connection() as connection:
        wanted = (await _wanted(connection, context))[1]
    await params.record_export(context, "webhooks.export", wanted.tenant_id, FILTERS)

    def read(connection: Connection, seen: int | None, size: int) -> Awaitable[ListPage[DeliveryRow]]:
        return store.deliveries(connection, wanted, seen, size, context.now)

    return files.download(context, "webhooks", COLUMNS, read)


async def _wanted(connection: Connection, context: RequestContext) -> tuple[Choice, Wanted]:
    """The dealer that is named, and all filters."""
    query = context.query
    dealer = await choice.dealer(connection, query.get("dealer"))
    return dealer, Wanted(
        tenant_id=dealer.tenant_id,
        state=params.one_of(query, "status", STATES),
        event_type=params.one_of(query, "event", EVENT_TYPES),
        start=params.day(query, "from"),
        end=params.day(query, "to", after=True),
        tried=query.get("attempts") == "failed",
        answer=answer if (answer := params.text(query, "answer")) and answers.known(answer) else None,
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
        signs = await signer.load(connection, tenant_id)
        packages = await orders.packages(connection, tenant_id, delivery.order_id)
    body = bodies.get(delivery_id, b"")
    own = not delivery.event_type.startswith(RT)
    return Html(
        delivery=delivery,
        packages=packages,
        dealer=dealer,
        url="" if endpoint is None else endpoint.url if own else endpoint.rt_url,
        attempts=codes.without_codes(attempts[delivery_id], body),
        body=codes.indented(body),
        headers=webhook_headers(
            delivery,
            signs.app_key if signs else "",
            standard=bool(endpoint and endpoint.standard_headers),
        ),
        event_text=event_text,
        finished=delivery.state in FINISHED,
    )


@action(f"{DELIVERY}/resend", OPERATOR_SUPPORT)
async def resend_delivery(context: RequestContext) -> Redirect:
    """`back`: the log, with its filters, where it was sent from there."""
    tenant_id, delivery_id = _key(context)
    await resend.resend(context.parts.database, tenant_id, [delivery_id], context.author, lambda: context.now)
    back = context.form.get("back", "")
    here = back if back.startswith((f"{WEBHOOKS}?", f"{ENDPOINTS}/")) or back == WEBHOOKS else ""
    return Redirect(
        here or DELIVERY.format(tenant_id=tenant_id, delivery_id=delivery_id), f"Delivery {delivery_id} is sent again"
    )


def _key(context: RequestContext) -> tuple[int, int]:
    """Raises NotFound."""
    return params.path_number(context, "tenant_id"), params.path_number(context, "delivery_id")
