"""Webhooks of days that are over, written as the worker would have left them: a new `dealer-server dev` begins with
them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.db.sealing import DataKeys
from dealer_server.rules.orders import snapshot
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.webhooks.change_hints import change_hints
from dealer_server.store.past.orders import PastOrder, Told
from dealer_server.store.webhooks import bodies, endpoints
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import AttemptError

_DELIVERY = (
    *("tenant_id", "delivery_id", "order_id", "event_type", "order_version", "state", "hints", "body"),
    *("attempt_count", "created_at", "finished_at", "delivered_at"),
)
_ATTEMPT = (
    *("tenant_id", "delivery_id", "number", "started_at", "duration_ms", "remote_address", "http_status", "error"),
    *("answer_head", "answer_fields"),
)
_IDS = """
SELECT nextval(pg_get_serial_sequence('webhook_delivery', 'delivery_id')) AS delivery_id FROM generate_series(1, $1)
"""
_SUCCEEDED = "UPDATE webhook_endpoint SET last_success_at = $2 WHERE tenant_id = $1"


class PastAttempt(NamedTuple):
    """`answer_fields`: of the header of the response, where it is no success."""

    started_at: datetime
    ended_at: datetime
    http_status: int
    error: AttemptError | None = None
    answer_head: str | None = None
    answer_fields: str | None = None


class PastReceiver(NamedTuple):
    """Where a dealer receives webhooks since a moment; what happened before was told to nobody. `attempts`: those of a
    delivery, by its id and the time of its event. The last one was accepted."""

    url: str
    since: datetime
    attempts: Callable[[int, datetime], Sequence[PastAttempt]]


class PastDealer(NamedTuple):
    tenant_id: int
    orders: Sequence[PastOrder]
    receiver: PastReceiver | None


async def write(connection: Connection, keys: DataKeys, links: Links, dealers: Sequence[PastDealer]) -> None:
    """Writes the deliveries of these orders in the caller's transaction, for dealers who have none."""
    told = sorted(
        ((one, dealer) for dealer in dealers for order in dealer.orders for one in order.told),
        key=lambda pair: pair[0].at,
    )
    ids = [row["delivery_id"] for row in await connection.fetch(_IDS, len(told))]
    deliveries: list[tuple[Any, ...]] = []
    attempts: list[tuple[Any, ...]] = []
    sent: dict[int, Snapshot] = {}
    succeeded: dict[int, datetime] = {}
    for delivery_id, (one, (tenant_id, _, receiver)) in zip(ids, told, strict=True):
        common = (tenant_id, delivery_id, one.order.order_id, one.event_type, one.order.version)
        if receiver is None or one.at < receiver.since:
            deliveries.append((*common, "SKIPPED", None, None, 0, one.at, one.at, None))
            continue
        event = _event(one, tenant_id, links, sent.get(one.order.order_id))
        if not event.change_hints:
            deliveries.append((*common, "SUPERSEDED", [], None, 0, one.at, one.at, None))
            continue
        if one.event_type == "DELIVERY_UPDATED":
            sent[one.order.order_id] = event
        made = receiver.attempts(delivery_id, one.at)
        ended_at = succeeded[tenant_id] = made[-1].ended_at
        body = bodies.seal(keys, encoder.encode(event), tenant_id, delivery_id)
        hints = list(event.change_hints)
        deliveries.append((*common, "DELIVERED", hints, body, len(made), one.at, ended_at, ended_at))
        attempts += [
            (tenant_id, delivery_id, number, each.started_at,
             round((each.ended_at - each.started_at).total_seconds() * 1000), "127.0.0.1", each.http_status, each.error,
             each.answer_head, each.answer_fields)
            for number, each in enumerate(made, 1)
        ]  # fmt: skip
    await connection.copy_records_to_table("webhook_delivery", records=deliveries, columns=_DELIVERY)
    await connection.copy_records_to_table("webhook_attempt", records=attempts, columns=_ATTEMPT)
    for tenant_id, _, receiver in dealers:
        if receiver is not None:
            await endpoints.set_url(connection, tenant_id, receiver.url, receiver.since)
            await connection.execute(_SUCCEEDED, tenant_id, succeeded.get(tenant_id))


def _event(told: Told, tenant_id: int, links: Links, before: Snapshot | None) -> Snapshot:
    """`before`: the update of the same order that was delivered before."""
    order = msgspec.structs.replace(told.order, tenant_id=tenant_id)
    if told.event_type == "ORDER_PAID":
        return snapshot.order_paid(order)
    if told.event_type == "REFUND_COMPLETED":
        return snapshot.refund_completed(order, links)
    event = snapshot.delivery_updated(order, links)
    return msgspec.structs.replace(event, change_hints=change_hints(before, event))
