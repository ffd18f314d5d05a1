"""How are dealers told of changed orders? By a DELIVERY_UPDATED and, where they want them, by the RT family's events.

Every transaction that changes orders ends here. The events of the RT family tell one change of one eSIM each, so they
are made from the order before and after, and their bodies are frozen at once; none supersedes another.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.arrays import batch
from dealer_server.db.connection import Connection
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.rules.orders.model import Order
from dealer_server.rules.rt import events
from dealer_server.rules.rt.events import Event
from dealer_server.store.webhooks import bodies, enqueue
from dealer_server.store.webhooks.dialects import RT
from dealer_server.store.webhooks.order_queue import Key, make_next_ready

Change = tuple[Order, Order]


async def tell(
    session: Connection | Session,
    changes: Sequence[Change],
    data_keys: DataKeys,
    now: datetime,
    only_usage: Collection[Key] = (),
    usage_interval: timedelta = enqueue.USAGE_INTERVAL,
) -> None:
    """Enqueues what dealers are told of changed orders. Call it as `enqueue.order_changed`, once in a transaction."""
    versions = [(after.tenant_id, after.order_id, after.version) for _, after in changes]
    in_rt = await enqueue.order_changed(session, versions, now, only_usage, usage_interval)
    if in_rt:
        told = [
            (after, event)
            for before, after in changes
            if (after.tenant_id, after.order_id) in in_rt
            for event in events.of(before, after, now)
        ]
        await add_rt_events(session, told, data_keys, now)


class _RtEvent(NamedTuple):
    """The fields are the columns of _ADD."""

    tenant_id: int
    order_id: int
    version: int
    delivery_id: int
    event_type: str
    body: bytes


_ADD = f"""
INSERT INTO webhook_delivery (tenant_id, order_id, order_version, delivery_id, event_type, body, state, hints,
    created_at)
SELECT tenant_id, order_id, version, delivery_id, event_type, body, 'WAITING', '{{}}', $7
FROM {
    batch(
        "event",
        tenant_id="bigint",
        order_id="bigint",
        version="int",
        delivery_id="bigint",
        event_type="text",
        body="bytea",
    )
}
"""


async def add_rt_events(
    session: Connection | Session, told: Sequence[tuple[Order, Event]], data_keys: DataKeys, now: datetime
) -> None:
    """Enqueues these events, behind what waits of their orders, whose unfinished deliveries must be locked."""
    if not told:
        return
    ids = await enqueue.delivery_ids(session, len(told))
    rows = [
        _RtEvent(
            tenant_id=order.tenant_id,
            order_id=order.order_id,
            version=order.version,
            delivery_id=delivery_id,
            event_type=f"{RT}{event.notify_type}",
            body=bodies.seal(data_keys, event.body, order.tenant_id, delivery_id),
        )
        for delivery_id, (order, event) in zip(ids, told, strict=True)
    ]
    await session.fetch(_ADD, *[list(column) for column in zip(*rows, strict=True)], now)
    await make_next_ready(session, sorted({(row.tenant_id, row.order_id) for row in rows}), now)
