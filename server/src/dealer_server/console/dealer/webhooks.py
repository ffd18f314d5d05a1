"""Where a dealer's webhooks go: the callback URL, a sample event, and every delivery with its attempts."""

from collections.abc import Sequence
from typing import get_args

from dealer_server.console import asked
from dealer_server.console.dealer import own
from dealer_server.console.dealer.own import PAGE, SECRETS
from dealer_server.console.visit import Answer, Go, NotHere, Page, Route, Visit
from dealer_server.operations import webhook
from dealer_server.rules import identity
from dealer_server.store import console_api_log, console_dealer, webhook_log
from dealer_server.store import webhook as rows
from dealer_server.store.database import Connection
from dealer_server.store.webhook_log import Delivery
from dealer_server.webhook import trial
from dealer_server.webhook.trial import Tried
from esim_dealer.wire import calls
from esim_dealer.wire.vocabulary import DeliveryState, EventType

EVENTS = get_args(EventType)
STATES = get_args(DeliveryState)


async def webhooks(visit: Visit) -> Page:
    return await _page(visit, None)


async def _page(visit: Visit, tried: Tried | None) -> Page:
    """`tried`: what the receiver said to the sample event."""
    async with visit.parts.database.connection() as connection:
        endpoint = await rows.endpoint(connection, visit.tenant_id)
        found, following = await _deliveries(connection, visit)
    return own.page(
        visit,
        "webhooks",
        endpoint=endpoint,
        tried=tried,
        deliveries=found,
        pages=asked.pager(visit, "/console/webhooks", following),
        events=EVENTS,
        states=STATES,
        filtered=any(visit.query.get(name) for name in ("order", "event", "status")),
        https=visit.parts.callbacks.require_https,
    )


async def _deliveries(connection: Connection, visit: Visit) -> tuple[Sequence[Delivery], int | None]:
    """A page of what was asked for, and where the next one goes on. What names an order is looked for there alone."""
    tenant_id = visit.tenant_id
    if sought := asked.text(visit.query, "order"):
        order_id = identity.order_id(sought)
        found = [] if order_id is None else await console_dealer.deliveries_of(connection, tenant_id, order_id, PAGE)
        return found, None
    state, event = asked.one_of(visit.query, "status", STATES), asked.one_of(visit.query, "event", EVENTS)
    before = asked.number(visit.query, "before") or 2**53
    if state == "FAILED":
        return await console_dealer.deliveries_failed(connection, tenant_id, before, event, PAGE)
    return await console_dealer.deliveries(connection, tenant_id, before, event, state, PAGE)


async def set_url(visit: Visit) -> Go:
    """Sets the callback URL, or removes it where it is empty, as /webhook/set does."""
    parts, url = visit.parts, asked.text(visit.form, "callback_url") or ""
    wanted = own.call(calls.SetWebhook, callbackUrl=url)
    await webhook.set_webhook(parts.database, parts.callbacks, visit.tenant_id, wanted, visit.now, visit.author)
    return Go("/console/webhooks", "Webhooks go there from now on" if url else "No webhooks are sent any more")


async def test(visit: Visit) -> Answer:
    """Sends a sample event, as /webhook/test does, and shows what came of it."""
    parts, tenant_id = visit.parts, visit.tenant_id
    async with parts.database.connection() as connection:
        currency = (await console_dealer.wallet(connection, tenant_id)).currency
    tried = await trial.send(parts.database, parts.master_keys, parts.outbound, tenant_id, currency, visit.now)
    if tried.test.delivered:
        async with parts.database.connection() as connection:
            await console_api_log.record_steps(connection, [(tenant_id, "WEBHOOK")], visit.now)
    return await _page(visit, tried)


async def one(visit: Visit) -> Page:
    delivery_id = _delivery_id(visit)
    async with visit.parts.database.connection() as connection:
        found = await webhook_log.find(connection, visit.tenant_id, delivery_id)
        if found is None:
            raise NotHere
        attempts = (await webhook_log.attempts(connection, visit.tenant_id, [delivery_id]))[delivery_id]
    live = found.state in ("WAITING", "READY", "IN_FLIGHT", "RETRY")
    return own.page(visit, "delivery", one=found, attempts=attempts, moving=live)


async def resend(visit: Visit) -> Go:
    """The same bytes once more, as /webhook/delivery/resend does."""
    delivery_id = _delivery_id(visit)
    wanted = own.call(calls.ResendDelivery, deliveryId=delivery_id)
    await webhook.resend(visit.parts.database, visit.tenant_id, wanted, visit.now, visit.author)
    return Go(f"/console/webhooks/{delivery_id}", "It is sent once more")


def _delivery_id(visit: Visit) -> int:
    """Raises NotHere."""
    delivery_id = identity.profile_id(visit.path["delivery_id"])
    if delivery_id is None:
        raise NotHere
    return delivery_id


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/webhooks", SECRETS, webhooks, "Webhooks"),
    Route("POST", "/console/webhooks/url", SECRETS, set_url),
    Route("POST", "/console/webhooks/test", SECRETS, test),
    Route("GET", "/console/webhooks/{delivery_id}", SECRETS, one),
    Route("POST", "/console/webhooks/{delivery_id}/resend", SECRETS, resend),
)
