"""A dealer's webhooks: the callback URL, a test event, and every delivery with its attempts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from dealer_server.console.dealer import findings, samples
from dealer_server.console.find import dates
from dealer_server.console.shared import params
from dealer_server.console.shared.calls import blaming, call
from dealer_server.console.shared.incidents import receiver_health
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.params import PAGE_SIZE, SHORT_PAGE, Pager
from dealer_server.console.shared.permissions import DEALER_DEVELOPERS
from dealer_server.console.shared.rendering import indented, many
from dealer_server.console.shared.request_context import Html, NotFound, Redirect, RequestContext
from dealer_server.console.shared.timeline import event_text
from dealer_server.console.shared.webhook_headers import webhook_headers
from dealer_server.db.connection import Connection
from dealer_server.operations.webhooks import endpoint as webhook
from dealer_server.operations.webhooks import resend as bulk
from dealer_server.rules.bars import Bar, bars
from dealer_server.rules.orders import identity
from dealer_server.rules.period import period
from dealer_server.rules.refusal import CallbackUrlRefused
from dealer_server.rules.webhooks import answers
from dealer_server.store.console import api_log, dealer, orders
from dealer_server.store.console import webhooks as console_webhooks
from dealer_server.store.console.dealer import Counts, Span
from dealer_server.store.console.pages import ListPage
from dealer_server.store.notices import recipients
from dealer_server.store.orders.listing import Window
from dealer_server.store.tenants import credential
from dealer_server.store.webhooks import endpoints, log, recent, signer
from dealer_server.store.webhooks.dialects import EVENT_TYPES, is_rt
from dealer_server.store.webhooks.log import Delivery, Filter
from dealer_server.store.webhooks.recent import Hour
from dealer_server.webhooks import rt_health, sample_event
from dealer_server.webhooks.sample_event import TestResult
from esim_dealer.wire import calls
from esim_dealer.wire import events as wire_events
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.vocabulary import DeliveryState, EventType

EVENTS = EVENT_TYPES
STATES = get_args(DeliveryState)
PENDING = "PENDING"
"""As a filter: whatever is still to be sent."""
TRIED = "tried"
"""The tab of deliveries that had a failed attempt."""
NEEDED = tuple(state for state in STATES if state != "SKIPPED")
FILTERS: Mapping[str, tuple[DeliveryState, ...]] = {
    **{state: (state,) for state in STATES},
    PENDING: ("WAITING", "READY", "IN_FLIGHT", "RETRY"),
}

EXAMPLE_URL = b"https://api.example.com"
"""What addresses of the examples begin with."""
TABS = ("", "FAILED", "PENDING", TRIED, "SKIPPED")
MOST_RESENT, MOST_SHOWN, WORST, MOST_COUNTED = 50, 20_000, 5, 1_000
"""Webhooks that one form sends again, characters of a body on a page, failed ones that stand first, and the
newest that are counted."""
WEBHOOKS, TEMPLATE = "/console/webhooks", "dealer/webhooks.html"


class EventRow(NamedTuple):
    """An event type: when it is sent, the hints that each carries (none: what changed), and a body as it is sent."""

    event_type: EventType
    summary: str
    description: str
    hints: Sequence[str]
    example: str


@page(WEBHOOKS, DEALER_DEVELOPERS, TEMPLATE, MenuEntry("Webhooks", "webhook", 100))
async def webhooks(context: RequestContext) -> Html:
    return await _webhooks(context)


async def _webhooks(context: RequestContext, result: TestResult | None = None) -> Html:
    """`result`: what the receiver answered to the test event."""
    last_day = period("24h", None, None, context.now)
    async with context.parts.database.connection() as connection:
        endpoint = await endpoints.find(connection, context.tenant_id)
        found = await _deliveries(connection, context)
        worst = await _failed(connection, context)
        answered = await _answers(connection, context.tenant_id, [*worst, *found.rows])
        notice_url = await recipients.url(connection, context.tenant_id)
        incidents = await findings.of_receiver(connection, context)
        access = await dealer.access_terms(connection, context.tenant_id)
        keys = await credential.of_tenant(connection, context.tenant_id)
        failed = await dealer.failed_deliveries(connection, context.tenant_id, MOST_RESENT)
        counted = await dealer.delivery_counts(connection, context.tenant_id, MOST_COUNTED)
        packages = await dealer.packages(connection, context.tenant_id, [one.order_id for one in (*worst, *found.rows)])
        waiting = await recent.unfinished(connection, context.tenant_id, MOST_RESENT)
        found_hours = await recent.hours(connection, context.tenant_id, last_day.start)
    day = bars((Bar(one.hour, one.delivered, one.failed) for one in found_hours), last_day)
    status = params.one_of(context.query, "status", tuple(FILTERS)) or ""
    tab = TRIED if _is_tried(context) else status if status in TABS else ""
    return Html(
        endpoint=endpoint,
        signing=min(keys, key=lambda key: (key.status != "ACTIVE", not key.signs_webhooks), default=None),
        catalogue=_catalogue(context.parts.settings.base_url),
        day=day,
        average=_average(found_hours),
        rt_face=access.rt_face,
        rt_events=access.rt_face != "off" or bool(endpoint and endpoint.rt_url),
        health=receiver_health(endpoint, day.good, day.total),
        incidents=incidents,
        notice_url=notice_url,
        test_result=result,
        worst=worst,
        deliveries=found.rows,
        **answered,
        ended_well=not waiting and not failed,
        failed_count=min(failed, MOST_RESENT),
        more_failed=failed > MOST_RESENT,
        packages=packages,
        pages=_pager(context, found, counted),
        events=EVENTS,
        event_text=event_text,
        status=status,
        tab=tab,
        tabs=[(name, _tab(name)) for name in TABS],
        counts=_told(counted) | {"FAILED": _capped(failed), "PENDING": _capped(waiting)},
        dates=dates.of(context, WEBHOOKS),
        filtered=_is_filtered(context),
        https=context.parts.callbacks.require_https,
    )


def _catalogue(base_url: str) -> list[EventRow]:
    """As the reference has it."""
    return [
        EventRow(name, event.summary, event.description.replace("`", ""), event.hints,
                 indented(encoder.encode(event.example).replace(EXAMPLE_URL, base_url.encode())))
        for name, event in wire_events.EVENTS.items()
    ]  # fmt: skip


async def _answers(connection: Connection, tenant_id: int, rows: Sequence[Delivery]) -> dict[str, Any]:
    """The last attempt of each delivery, of several the last one that failed, and what the dealer calls the orders."""
    several = [delivery.delivery_id for delivery in rows if delivery.attempt_count > 1]
    return {
        "last": await log.last_attempts(connection, tenant_id, [delivery.delivery_id for delivery in rows]),
        "failed": await log.last_attempts(connection, tenant_id, several, failed=True),
        "references": await orders.references(connection, tenant_id, [delivery.order_id for delivery in rows]),
    }


def _average(found: Iterable[Hour]) -> int:
    """Of an answer, in milliseconds."""
    found = list(found)
    attempts = sum(one.delivered + one.failed for one in found)
    return sum(one.took_ms for one in found) // attempts if attempts else 0


def _is_filtered(context: RequestContext) -> bool:
    return any(context.query.get(name) for name in ("attempts", "order", "event", "status", "from", "to"))


def _is_tried(context: RequestContext) -> bool:
    """Whether those are asked for that had a failed attempt."""
    return context.query.get("attempts") == "failed"


def _capped(count: int) -> str:
    return f"{min(count, MOST_RESENT):,}{'+' if count > MOST_RESENT else ''}"


def _told(counted: Counts) -> dict[str, str]:
    """By tab."""
    by_tab = {"": counted.needed, TRIED: counted.tried, "SKIPPED": counted.skipped}
    return {tab: _some(count, counted) for tab, count in by_tab.items()}


def _some(count: int, counted: Counts) -> str:
    """How many; "" where it is not known, because older ones were not counted."""
    if not counted.more:
        return f"{count:,}"
    return f"{MOST_COUNTED:,}+" if count >= MOST_COUNTED else ""


def _pager(context: RequestContext, found: ListPage[Delivery], counted: Counts) -> Pager:
    unknown = _is_filtered(context) or (counted.more and counted.needed < MOST_COUNTED)
    return params.pager(
        context,
        WEBHOOKS,
        found.next,
        shown=len(found.rows),
        word="delivery",
        total=None if unknown else min(counted.needed, MOST_COUNTED),
        most=MOST_COUNTED if counted.more else 0,
        size=SHORT_PAGE,
    )


def _tab(name: str) -> str:
    """The address of a tab."""
    return params.address(WEBHOOKS, {"attempts": "failed"} if name == TRIED else {"status": name})


async def _failed(connection: Connection, context: RequestContext) -> Sequence[Delivery]:
    """The newest that failed, which stand before all others where nothing is asked for."""
    if _is_filtered(context) or context.query.get("before"):
        return ()
    failed = Filter(states=("FAILED",))
    return (await dealer.list_deliveries(connection, context.tenant_id, Span(0, 2**53), failed, WORST)).rows


async def _deliveries(connection: Connection, context: RequestContext) -> ListPage[Delivery]:
    """Those of one order are on one page, all of them. Else what was not sent is shown where it is asked for."""
    tenant_id = context.tenant_id
    status, event = context.query.get("status", ""), params.one_of(context.query, "event", EVENTS)
    start, end = params.day(context.query, "from"), params.day(context.query, "to", after=True)
    wanted = Filter(event_type=event, states=FILTERS.get(status, ()), start=start, end=end, tried=_is_tried(context))
    if named := params.text(context.query, "order"):
        order_id = identity.order_id(named)
        if order_id is None:
            order_id = (await api_log.orders_named(connection, tenant_id, {named})).get(named)
        if order_id is None:
            return ListPage([], None)
        of_order = wanted._replace(order_id=order_id)
        return ListPage(await log.page(connection, tenant_id, of_order, Window(PAGE_SIZE, 0, None)), None)
    span = Span(*await console_webhooks.ids_between(connection, start, end, context.now))
    wanted = wanted._replace(states=wanted.states or NEEDED)
    span = span.until(params.number(context.query, "before"))
    return await dealer.list_deliveries(connection, tenant_id, span, wanted, SHORT_PAGE)


@action(f"{WEBHOOKS}/url", DEALER_DEVELOPERS)
async def set_url(context: RequestContext) -> Redirect:
    """Sets the callback URL, or removes it where it is empty, as /webhook/set does."""
    parts, url = context.parts, params.text(context.form, "callback_url") or ""
    request = call(calls.SetWebhook, callbackUrl=url, standardHeaders=context.form.get("standard_headers") == "on")
    with blaming("callback_url", CallbackUrlRefused):
        await webhook.set_webhook(
            parts.database, parts.callbacks, context.tenant_id, request, context.now, context.author
        )
    return Redirect(WEBHOOKS, "Webhooks are sent to this URL from now on" if url else "No webhooks are sent any more")


@action(f"{WEBHOOKS}/rt-url", DEALER_DEVELOPERS)
async def set_rt_url(context: RequestContext) -> Redirect:
    """Sets the URL of the RT family's events, or removes it where it is empty, as webhook/save of the RT face does."""
    parts, url = context.parts, params.text(context.form, "rt_url") or ""
    with blaming("rt_url", CallbackUrlRefused):
        webhook.refuse_rt_url(url, parts.callbacks)
        if url:
            keys, now = parts.master_keys, context.now
            await rt_health.check(parts.database, keys, parts.outbound, context.tenant_id, url, now)
    await webhook.set_rt_url(parts.database, context.tenant_id, url, context.now, context.author)
    said = "Events of the RT family are sent to this URL from now on" if url else "They are not sent any more"
    return Redirect(WEBHOOKS, said)


@action(f"{WEBHOOKS}/test", DEALER_DEVELOPERS, TEMPLATE)
async def test(context: RequestContext) -> Html:
    """Sends a test event, as /webhook/test does, and shows the answer."""
    parts, tenant_id = context.parts, context.tenant_id
    async with parts.database.connection() as connection:
        currency = (await dealer.wallet(connection, tenant_id)).currency
    result = await sample_event.send(
        parts.database, parts.master_keys, parts.outbound, tenant_id, currency, context.now
    )
    if result.test.delivered:
        async with parts.database.connection() as connection:
            await api_log.record_steps(connection, [(tenant_id, "WEBHOOK")], context.now)
    return await _webhooks(context, result)


@page(f"{WEBHOOKS}/{{delivery_id}}", DEALER_DEVELOPERS, "dealer/delivery.html")
async def show_delivery(context: RequestContext) -> Html:
    delivery_id = _delivery_id(context)
    async with context.parts.database.connection() as connection:
        delivery = await log.find(connection, context.tenant_id, delivery_id)
        if delivery is None:
            raise NotFound
        attempts = (await log.attempts(connection, context.tenant_id, [delivery_id]))[delivery_id]
        bodies = await orders.bodies(connection, context.tenant_id, [delivery_id], context.parts.data_keys)
        endpoint = await endpoints.find(connection, context.tenant_id)
        signer_of = await signer.load(connection, context.tenant_id)
        named = await orders.references(connection, context.tenant_id, [delivery.order_id])
        packages = await orders.packages(connection, context.tenant_id, delivery.order_id)
    moving = delivery.state in ("WAITING", "READY", "IN_FLIGHT", "RETRY")
    body = bodies.get(delivery_id, b"")
    app_key = signer_of.app_key if signer_of else ""
    url = "" if endpoint is None else endpoint.rt_url if is_rt(delivery.event_type) else endpoint.url
    return Html(
        delivery=delivery,
        packages=packages,
        attempts=attempts,
        moving=moving,
        event_text=event_text,
        reference=named[delivery.order_id].own if delivery.order_id in named else "",
        advice=answers.advice(answers.word(attempts[-1].http_status, attempts[-1].error)) if attempts else "",
        body=body.decode(),
        shown=indented(body),
        most_shown=MOST_SHOWN,
        headers=webhook_headers(delivery, app_key, standard=bool(endpoint and endpoint.standard_headers)),
        curl=samples.webhook_curl(delivery, app_key, url, body.decode()) if body else "",
    )


@action(f"{WEBHOOKS}/resend-failed", DEALER_DEVELOPERS)
async def resend_failed(context: RequestContext) -> Redirect:
    """All that failed, each as /webhook/delivery/resend does, the oldest first. Many are left to a job."""
    database, tenant_id = context.parts.database, context.tenant_id
    async with database.connection() as connection:
        failed = Filter(states=("FAILED",))
        found = await dealer.list_deliveries(connection, tenant_id, Span(0, 2**53), failed, MOST_RESENT)
    if found.next is not None:
        count = await bulk.all_failed(database, tenant_id, context.author, lambda: context.now)
        return Redirect(WEBHOOKS, f"{many(count, 'webhook')} are being sent again, the oldest first")
    for delivery in reversed(found.rows):
        request = call(calls.ResendDelivery, deliveryId=str(delivery.delivery_id))
        await webhook.resend(database, tenant_id, request, context.now, context.author)
    count = len(found.rows)
    return Redirect(WEBHOOKS, f"{many(count, 'webhook')} {'is' if count == 1 else 'are'} sent again")


@action(f"{WEBHOOKS}/{{delivery_id}}/resend", DEALER_DEVELOPERS)
async def resend(context: RequestContext) -> Redirect:
    """Sends the same bytes again, as /webhook/delivery/resend does."""
    delivery_id = _delivery_id(context)
    request = call(calls.ResendDelivery, deliveryId=delivery_id)
    await webhook.resend(context.parts.database, context.tenant_id, request, context.now, context.author)
    return Redirect(f"{WEBHOOKS}/{delivery_id}", "It is sent again")


def _delivery_id(context: RequestContext) -> int:
    """Raises NotFound."""
    delivery_id = identity.profile_id(context.path["delivery_id"])
    if delivery_id is None:
        raise NotFound
    return delivery_id
