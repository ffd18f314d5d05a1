"""Where a dealer's webhooks go: the callback URL, a sample event, and every delivery with its attempts."""

from collections.abc import Sequence
from typing import get_args

from dealer_server.console.dealer import permissions
from dealer_server.console.dealer.permissions import PAGE, SECRETS
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Answer, NotFound, Page, Redirect, RequestContext, Route
from dealer_server.db.connection import Connection
from dealer_server.operations.webhooks import endpoint as webhook
from dealer_server.rules.orders import identity
from dealer_server.store.console import api_log, dealer
from dealer_server.store.webhooks import endpoints, log
from dealer_server.store.webhooks.log import Delivery
from dealer_server.webhooks import test_event
from dealer_server.webhooks.test_event import TestResult
from esim_dealer.wire import calls
from esim_dealer.wire.vocabulary import DeliveryState, EventType

EVENTS = get_args(EventType)
STATES = get_args(DeliveryState)


async def webhooks(context: RequestContext) -> Page:
    return await _page(context, None)


async def _page(context: RequestContext, tried: TestResult | None) -> Page:
    """`tried`: what the receiver said to the sample event."""
    async with context.parts.database.connection() as connection:
        endpoint = await endpoints.find(connection, context.tenant_id)
        found, following = await _deliveries(connection, context)
    return permissions.page(
        context,
        "webhooks",
        endpoint=endpoint,
        tried=tried,
        deliveries=found,
        pages=params.pager(context, "/console/webhooks", following),
        events=EVENTS,
        states=STATES,
        filtered=any(context.query.get(name) for name in ("order", "event", "status")),
        https=context.parts.callbacks.require_https,
    )


async def _deliveries(connection: Connection, context: RequestContext) -> tuple[Sequence[Delivery], int | None]:
    """A page of what was asked for, and where the next one goes on. What names an order is looked for there alone."""
    tenant_id = context.tenant_id
    if sought := params.text(context.query, "order"):
        order_id = identity.order_id(sought)
        found = [] if order_id is None else await dealer.deliveries_of(connection, tenant_id, order_id, PAGE)
        return found, None
    state, event = params.one_of(context.query, "status", STATES), params.one_of(context.query, "event", EVENTS)
    before = params.number(context.query, "before") or 2**53
    if state == "FAILED":
        return await dealer.deliveries_failed(connection, tenant_id, before, event, PAGE)
    return await dealer.deliveries(connection, tenant_id, before, event, state, PAGE)


async def set_url(context: RequestContext) -> Redirect:
    """Sets the callback URL, or removes it where it is empty, as /webhook/set does."""
    parts, url = context.parts, params.text(context.form, "callback_url") or ""
    wanted = permissions.call(calls.SetWebhook, callbackUrl=url)
    await webhook.set_webhook(parts.database, parts.callbacks, context.tenant_id, wanted, context.now, context.author)
    return Redirect("/console/webhooks", "Webhooks go there from now on" if url else "No webhooks are sent any more")


async def test(context: RequestContext) -> Answer:
    """Sends a sample event, as /webhook/test does, and shows what came of it."""
    parts, tenant_id = context.parts, context.tenant_id
    async with parts.database.connection() as connection:
        currency = (await dealer.wallet(connection, tenant_id)).currency
    tried = await test_event.send(parts.database, parts.master_keys, parts.outbound, tenant_id, currency, context.now)
    if tried.test.delivered:
        async with parts.database.connection() as connection:
            await api_log.record_steps(connection, [(tenant_id, "WEBHOOK")], context.now)
    return await _page(context, tried)


async def one(context: RequestContext) -> Page:
    delivery_id = _delivery_id(context)
    async with context.parts.database.connection() as connection:
        found = await log.find(connection, context.tenant_id, delivery_id)
        if found is None:
            raise NotFound
        attempts = (await log.attempts(connection, context.tenant_id, [delivery_id]))[delivery_id]
    live = found.state in ("WAITING", "READY", "IN_FLIGHT", "RETRY")
    return permissions.page(context, "delivery", one=found, attempts=attempts, moving=live)


async def resend(context: RequestContext) -> Redirect:
    """The same bytes once more, as /webhook/delivery/resend does."""
    delivery_id = _delivery_id(context)
    wanted = permissions.call(calls.ResendDelivery, deliveryId=delivery_id)
    await webhook.resend(context.parts.database, context.tenant_id, wanted, context.now, context.author)
    return Redirect(f"/console/webhooks/{delivery_id}", "It is sent once more")


def _delivery_id(context: RequestContext) -> int:
    """Raises NotHere."""
    delivery_id = identity.profile_id(context.path["delivery_id"])
    if delivery_id is None:
        raise NotFound
    return delivery_id


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/webhooks", SECRETS, webhooks, "Webhooks"),
    Route("POST", "/console/webhooks/url", SECRETS, set_url),
    Route("POST", "/console/webhooks/test", SECRETS, test),
    Route("GET", "/console/webhooks/{delivery_id}", SECRETS, one),
    Route("POST", "/console/webhooks/{delivery_id}/resend", SECRETS, resend),
)
