"""What does each delivery say? The order as it is now, with its difference to the last snapshot delivered as hints.

The content is frozen at the first attempt; every later attempt sends the same bytes.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import structlog

from dealer_server.db.sealing import CannotOpen, DataKeys
from dealer_server.db.session import Session
from dealer_server.rules.orders import snapshot
from dealer_server.rules.orders.model import Order
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.webhooks.change_hints import change_hints
from dealer_server.store.orders import order as orders
from dealer_server.store.webhooks import bodies
from dealer_server.store.webhooks.claim import Claimed, Frozen
from dealer_server.store.webhooks.order_queue import Key
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.snapshot import Snapshot

log = structlog.get_logger()

UNREADABLE = (CannotOpen, ValueError, LookupError)  # the order's rows are not what was written there
_UNKNOWN = datetime.min.replace(tzinfo=UTC)


class _Sent(Snapshot, frozen=True, kw_only=True, rename="camel"):
    """A snapshot as some release sent it: older ones lack these fields, which no hint looks at."""

    amount: str = ""
    create_time: datetime = _UNKNOWN
    update_time: datetime = _UNKNOWN


_snapshots = msgspec.json.Decoder(_Sent)


class Content(NamedTuple):
    """The content of a delivery: the body to send, and the row that freezes it."""

    delivery: Claimed
    body: bytes | None  # None if the dealer has received exactly this already
    frozen: Frozen


class Preparer:
    """Prepares claimed deliveries, inside the transaction that claims them."""

    def __init__(self, data_keys: DataKeys, links: Links):
        self._data_keys = data_keys
        self._links = links

    async def prepare(self, session: Session, deliveries: Sequence[Claimed]) -> list[Content]:
        """The content of each delivery; those that cannot be prepared are logged and left out."""
        fresh = [delivery for delivery in deliveries if delivery.body is None]
        loaded = await self._load(session, {(delivery.tenant_id, delivery.order_id) for delivery in fresh})
        contents = []
        for delivery in deliveries:
            key = (delivery.tenant_id, delivery.order_id)
            try:
                contents.append(self._content(delivery, loaded.get(key)))
            except Exception:
                log.exception("webhook_not_prepared", tenant_id=delivery.tenant_id, delivery_id=delivery.delivery_id)
        return contents

    async def _load(self, session: Session, keys: set[Key]) -> Mapping[Key, Order]:
        """The orders; if one of them cannot be read they are loaded one by one, and it alone is left out."""
        if not keys:
            return {}
        try:
            return await orders.load(session, list(keys), self._data_keys)
        except UNREADABLE:
            readable: dict[Key, Order] = {}
            for key in keys:
                try:
                    readable |= await orders.load(session, [key], self._data_keys)
                except UNREADABLE:
                    log.exception("webhook_order_unreadable", tenant_id=key[0], order_id=key[1])
            return readable

    def _content(self, delivery: Claimed, order: Order | None) -> Content:
        tenant_id, delivery_id = delivery.tenant_id, delivery.delivery_id
        if delivery.body is not None:
            body = bodies.unseal(self._data_keys, delivery.body, tenant_id, delivery_id)
            return Content(delivery, body, Frozen(tenant_id, delivery_id, delivery.order_version, None, None))
        assert order is not None, "a delivery without a readable order"
        if delivery.event_type == "ORDER_PAID":
            event, version = snapshot.order_paid(order), delivery.order_version
        else:
            assert delivery.event_type == "DELIVERY_UPDATED", "a REFUND_COMPLETED is frozen when the refund is credited"
            event, version = snapshot.delivery_updated(order, self._links), order.version
            hints = change_hints(self._open_baseline(delivery), event)
            if not hints and delivery.trigger == "AUTO" and not delivery.in_doubt:
                return Content(delivery, None, Frozen(tenant_id, delivery_id, version, "", None))
            event = msgspec.structs.replace(event, change_hints=hints or ("ORDER_SNAPSHOT_SYNC",))
        body = encoder.encode(event)
        sealed = bodies.seal(self._data_keys, body, tenant_id, delivery_id)
        hints = ",".join(event.change_hints or ())
        return Content(delivery, body, Frozen(tenant_id, delivery_id, version, hints, sealed))

    def _open_baseline(self, delivery: Claimed) -> Snapshot | None:
        baseline_id, body = delivery.baseline_id, delivery.baseline_body
        if baseline_id is None or body is None:
            return None
        sent = _snapshots.decode(bodies.unseal(self._data_keys, body, delivery.tenant_id, baseline_id))
        return Snapshot(**msgspec.structs.asdict(sent))  # structs of two types are never equal
