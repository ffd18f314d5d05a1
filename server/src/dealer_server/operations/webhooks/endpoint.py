"""Where does a dealer receive webhooks, and what was sent there? (specification 4.5, decisions 4 and 6)"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.paging import paged, utc, window
from dealer_server.rules.delivery import endpoint
from dealer_server.rules.delivery.endpoint import Policy
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.refusal import CallbackUrlRefused, OrderNotFound, StatusForbids
from dealer_server.store.webhooks import log
from dealer_server.store.webhooks import resend as webhook_repush
from dealer_server.store.webhooks import webhook as rows
from dealer_server.store.webhooks.log import Filter
from esim_dealer.wire import calls
from esim_dealer.wire.calls import SetWebhook, Webhook, WebhookState

SKIPPED_AT_ONCE = 5_000  # the worker gives up the rest

__all__ = ["Policy", "list_deliveries", "resend", "set_webhook", "webhook_state"]


async def set_webhook(
    database: Database, policy: Policy, tenant_id: int, call: SetWebhook, now: datetime, author: str | None = None
) -> Webhook:
    """/webhook/set: puts the callback URL in place and enables it, also after a 410; "" or null removes it.

    What waits for a URL that is removed is SKIPPED. Whether the host resolves is seen when something is sent.
    `author`: a person, whose act is written down; calls of the interface are none. Raises 310501.
    """
    url = call.callback_url or ""
    if url and (fault := endpoint.fault(url, policy)):
        raise CallbackUrlRefused(f"callbackUrl: {fault}")

    async def work(connection: Connection) -> None:
        before = await rows.endpoint(connection, tenant_id)
        await rows.set_endpoint(connection, tenant_id, url, now)
        if not url:
            await rows.skip_unfinished(connection, now, SKIPPED_AT_ONCE, tenant_id)
        if author is not None:
            detail = {"before": {"callbackUrl": before.url if before else ""}, "after": {"callbackUrl": url}}
            text = msgspec.json.encode(detail).decode()
            await store.tenant.record_act(connection, author, "webhook.set", tenant_id, text)

    await database.run(work)
    return Webhook(callback_url=url, enabled=bool(url), update_time=snapshot.whole_seconds(now))


async def webhook_state(database: Database, tenant_id: int) -> WebhookState:
    """/webhook/query."""
    async with database.connection() as connection:
        found = await rows.endpoint(connection, tenant_id)
    if found is None:
        return WebhookState(callback_url="", enabled=False, state="NOT_SET", consecutive_failures=0)
    state = WebhookState(
        callback_url=found.url,
        enabled=found.state == "ACTIVE",
        state=found.state,
        consecutive_failures=found.consecutive_failures,
    )
    if found.last_success_at is None:
        return state
    return msgspec.structs.replace(state, last_success_time=snapshot.whole_seconds(found.last_success_at))


async def list_deliveries(database: Database, tenant_id: int, call: calls.DeliveryList) -> calls.Deliveries:
    """/webhook/delivery/list: newest first, each with its attempts of the last 30 days. Raises 000108."""
    pager = call.pager or calls.Pager()
    order_id = None if call.order_no is None else identity.order_id(call.order_no)
    if call.order_no is not None and order_id is None:
        return calls.Deliveries(deliveries=(), pager=paged(pager, 0, None))
    wanted = Filter(
        order_id,
        call.event_type,
        (call.status,) if call.status else (),
        utc("startTime", call.start_time),
        utc("endTime", call.end_time),
    )
    async with database.connection() as connection:
        found = await log.page(connection, tenant_id, wanted, window(pager))
        total = await log.count(connection, tenant_id, wanted)
        page = found[: pager.page_size]
        attempts = await log.attempts(connection, tenant_id, [one.delivery_id for one in page])
    after = page[-1].delivery_id if len(found) > len(page) else None
    return calls.Deliveries(
        deliveries=tuple(_delivery(one, attempts[one.delivery_id]) for one in page), pager=paged(pager, total, after)
    )


async def resend(
    database: Database, tenant_id: int, call: calls.ResendDelivery, now: datetime, author: str | None = None
) -> calls.Delivery:
    """/webhook/delivery/resend: the delivery, about to go once more with the same bytes and RT-Delivery-ID.

    Also one that was delivered, and past an open breaker. One that waits for a retry goes now instead. A person's
    (`author`) resend stands in the audit log.
    Raises 310272 for no delivery of this dealer, 200002 without an active callback URL.
    """
    delivery_id = identity.profile_id(call.delivery_id)

    async def work(connection: Connection) -> calls.Delivery:
        if delivery_id is None or await log.find(connection, tenant_id, delivery_id) is None:
            raise OrderNotFound("deliveryId names no delivery of yours; /webhook/delivery/list shows them")
        endpoint = await rows.endpoint(connection, tenant_id)
        if endpoint is None or endpoint.state != "ACTIVE":
            raise StatusForbids("no callback URL is set and enabled, so there is nowhere to send to; use /webhook/set")
        await webhook_repush.resend(connection, tenant_id, [delivery_id], now)
        found = await log.find(connection, tenant_id, delivery_id)
        assert found is not None, "deliveries are never deleted"
        if author is not None:
            detail = msgspec.json.encode({"deliveryId": str(delivery_id)}).decode()
            await store.tenant.record_act(connection, author, "webhook.resend", tenant_id, detail)
        return _delivery(found, (await log.attempts(connection, tenant_id, [delivery_id]))[delivery_id])

    return await database.run(work)


def _delivery(one: log.Delivery, attempts: Sequence[log.Attempt]) -> calls.Delivery:
    return calls.Delivery(
        delivery_id=str(one.delivery_id),
        order_no=identity.order_no(one.order_id),
        event_type=one.event_type,
        trigger=one.trigger,
        status=one.state,
        order_version=one.order_version,
        change_hints=tuple(one.hints or ()),
        attempt_count=one.attempt_count,
        next_attempt_time=snapshot.whole_seconds(one.next_attempt_at) if one.next_attempt_at else UNSET,
        create_time=snapshot.whole_seconds(one.created_at),
        attempts=tuple(_attempt(attempt) for attempt in attempts),
    )


def _attempt(one: log.Attempt) -> calls.Attempt:
    return calls.Attempt(
        number=one.number,
        time=snapshot.whole_seconds(one.started_at),
        http_status=UNSET if one.http_status is None else one.http_status,
        duration_ms=one.duration_ms,
        error=one.error or UNSET,
        answer_head=one.answer_head or UNSET,
    )
