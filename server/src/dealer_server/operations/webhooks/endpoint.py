"""Where does a dealer receive webhooks, and what was sent there? (specification 4.5 and 4.6)"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import UNSET

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.paging import paged, utc, wanted, window
from dealer_server.operations.webhooks.delivery_counts import DeliveryCounts
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.refusal import CallbackUrlRefused, OrderNotFound, StatusForbids
from dealer_server.rules.webhooks import endpoint
from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.store.webhooks import endpoints, log, upkeep
from dealer_server.store.webhooks import resend as webhook_resend
from dealer_server.store.webhooks.dialects import is_rt
from dealer_server.store.webhooks.endpoints import Endpoint
from dealer_server.store.webhooks.log import Filter
from esim_dealer.wire import calls
from esim_dealer.wire.calls import SetWebhook, Webhook, WebhookState

MOST_SKIPPED = 5_000  # per call; the worker skips the rest


async def set_webhook(
    database: Database, policy: Policy, tenant_id: int, call: SetWebhook, now: datetime, author: str | None = None
) -> Webhook:
    """/webhook/set: sets and enables the callback URL, also after a 410; "" or null removes it.

    Deliveries that wait for a removed URL are SKIPPED. The host is not resolved here. `author` is the user of the
    console whose act goes to the audit log; None for a call of the API. Raises 310501.
    """
    url = call.callback_url or ""
    if url and (fault := endpoint.fault(url, policy)):
        raise CallbackUrlRefused(f"callbackUrl: {fault}")

    async def work(connection: Connection) -> bool:
        before = await endpoints.find(connection, tenant_id)
        await endpoints.set_url(connection, tenant_id, url, now, standard_headers=call.standard_headers)
        if not url:
            await upkeep.skip_unfinished(connection, now, MOST_SKIPPED, tenant_id)
        after = await endpoints.find(connection, tenant_id)
        if author is not None:
            await store.audit_log.record_act(connection, author, "webhook.set", tenant_id, _changes(before, after))
        return after is not None and after.standard_headers

    standard = await database.run(work)
    return Webhook(
        callback_url=url, enabled=bool(url), standard_headers=standard, update_time=snapshot.whole_seconds(now)
    )


def _changes(before: Endpoint | None, after: Endpoint | None) -> dict[str, dict[str, str | bool]]:
    """For the audit log: the URL, and whether standard headers are sent where that has changed."""
    headers = [endpoint is not None and endpoint.standard_headers for endpoint in (before, after)]
    return {
        when: {"callbackUrl": endpoint.url if endpoint else ""}
        | ({"standardHeaders": standard} if headers[0] != headers[1] else {})
        for when, endpoint, standard in zip(("before", "after"), (before, after), headers, strict=True)
    }


def refuse_rt_url(url: str, policy: Policy) -> None:
    """Raises 310501."""
    if url and (fault := endpoint.fault(url, policy)):
        raise CallbackUrlRefused(f"webhook: {fault}")


async def set_rt_url(database: Database, tenant_id: int, url: str, now: datetime, author: str | None = None) -> None:
    """Where events go in the RT family's dialect; "" removes it, and skips what waits for it. The caller has checked
    the URL (`refuse_rt_url`) and that CHECK_HEALTH is taken there."""

    async def work(connection: Connection) -> None:
        before = await endpoints.find(connection, tenant_id)
        await endpoints.set_rt_url(connection, tenant_id, url, now)
        if not url:
            while await upkeep.skip_unfinished(connection, now, MOST_SKIPPED, tenant_id) == MOST_SKIPPED:
                pass
        if author is not None:
            detail = {"before": {"rtUrl": before.rt_url if before else ""}, "after": {"rtUrl": url}}
            await store.audit_log.record_act(connection, author, "webhook.set", tenant_id, detail)

    await database.run(work)


async def rt_url(database: Database, tenant_id: int) -> str:
    """Where events go in the RT family's dialect; "" for nowhere."""
    async with database.connection() as connection:
        endpoint = await endpoints.find(connection, tenant_id)
    return endpoint.rt_url if endpoint else ""


async def webhook_state(database: Database, tenant_id: int) -> WebhookState:
    """/webhook/query."""
    async with database.connection() as connection:
        endpoint = await endpoints.find(connection, tenant_id)
    if endpoint is None:
        return WebhookState(callback_url="", enabled=False, state="NOT_SET", consecutive_failures=0)
    return WebhookState(
        callback_url=endpoint.url,
        enabled=endpoint.state == "ACTIVE",
        standard_headers=endpoint.standard_headers,
        state=endpoint.state,
        consecutive_failures=endpoint.consecutive_failures,
        last_success_time=snapshot.whole_seconds(endpoint.last_success_at) if endpoint.last_success_at else UNSET,
    )


async def list_deliveries(
    database: Database, counts: DeliveryCounts, tenant_id: int, call: calls.DeliveryList
) -> calls.Deliveries:
    """/webhook/delivery/list: newest first, each with its attempts of the last 30 days. Raises 000108."""
    pager = wanted(call.pager)
    order_id = None if call.order_no is None else identity.order_id(call.order_no)
    if call.order_no is not None and order_id is None:
        return calls.Deliveries(deliveries=(), pager=paged(pager, 0, None))
    matching = Filter(
        order_id=order_id,
        event_type=call.event_type,
        states=(call.status,) if call.status else (),
        start=utc("startTime", call.start_time),
        end=utc("endTime", call.end_time),
        own_only=True,
    )
    async with database.connection() as connection:
        deliveries = await log.page(connection, tenant_id, matching, window(pager))
        total = await counts.count(connection, tenant_id, matching)
        page = deliveries[: pager.page_size]
        attempts = await log.attempts(connection, tenant_id, [delivery.delivery_id for delivery in page])
    after = page[-1].delivery_id if len(deliveries) > len(page) else None
    return calls.Deliveries(
        deliveries=tuple(_delivery(delivery, attempts[delivery.delivery_id]) for delivery in page),
        pager=paged(pager, total, after),
    )


async def resend(
    database: Database, tenant_id: int, call: calls.ResendDelivery, now: datetime, author: str | None = None
) -> calls.Delivery:
    """/webhook/delivery/resend: enqueues the delivery once more, with the same bytes and RT-Delivery-ID; returns it.

    A delivered one may be sent again too, and an open circuit breaker lets it pass. One in RETRY becomes due now.
    `author` is the user of the console whose act goes to the audit log; None for a call of the API.
    Raises 310272 if the dealer has no such delivery, 200002 without an active callback URL.
    """
    delivery_id = identity.profile_id(call.delivery_id)
    unknown = OrderNotFound("deliveryId names no delivery of yours; /webhook/delivery/list shows them")

    async def work(connection: Connection) -> calls.Delivery:
        found = None if delivery_id is None else await log.find(connection, tenant_id, delivery_id)
        if found is None or delivery_id is None or (author is None and is_rt(found.event_type)):
            raise unknown
        endpoint = await endpoints.find(connection, tenant_id)
        if endpoint is None or endpoint.state_for(found.event_type) != "ACTIVE":
            raise StatusForbids("no callback URL is set and enabled, so there is nowhere to send to; use /webhook/set")
        await webhook_resend.resend(connection, tenant_id, [delivery_id], now)
        delivery = await log.find(connection, tenant_id, delivery_id)
        if delivery is None:  # it has just been deleted: it is too old (operations/retention/sweep.py)
            raise unknown
        if author is not None:
            detail = {"deliveryId": str(delivery_id)}
            await store.audit_log.record_act(connection, author, "webhook.resend", tenant_id, detail)
        return _delivery(delivery, (await log.attempts(connection, tenant_id, [delivery_id]))[delivery_id])

    return await database.run(work)


def _delivery(delivery: log.Delivery, attempts: Sequence[log.Attempt]) -> calls.Delivery:
    return calls.Delivery(
        delivery_id=str(delivery.delivery_id),
        order_no=identity.order_no(delivery.order_id),
        event_type=delivery.event_type,
        trigger=delivery.trigger,
        status=delivery.state,
        order_version=delivery.order_version,
        change_hints=tuple(delivery.hints or ()),
        attempt_count=delivery.attempt_count,
        next_attempt_time=snapshot.whole_seconds(delivery.next_attempt_at) if delivery.next_attempt_at else UNSET,
        create_time=snapshot.whole_seconds(delivery.created_at),
        attempts=tuple(_attempt(attempt) for attempt in attempts),
    )


def _attempt(attempt: log.Attempt) -> calls.Attempt:
    return calls.Attempt(
        number=attempt.number,
        time=snapshot.whole_seconds(attempt.started_at),
        http_status=UNSET if attempt.http_status is None else attempt.http_status,
        duration_ms=attempt.duration_ms,
        error=attempt.error or UNSET,
        answer_head=attempt.answer_head or UNSET,
    )
