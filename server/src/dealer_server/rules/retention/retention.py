"""What may be deleted once it is old, and which old deliveries are still needed: those that later hints start from."""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple

from esim_dealer.wire.vocabulary import EventType

Kind = Literal[
    "webhook_attempt",
    "webhook_delivery",
    "supplier_call",
    "supplier_event",
    "sms",
    "notice",
    "served_call",
    "buyer_mail",
]
"""The table whose rows go; of `sms` the text alone, so that its transactionId is known for ever."""


class PastDelivery(NamedTuple):
    """A delivery that the sweep has reached. `delivered`: at some time. `finished_at`: None while it is unfinished."""

    delivery_id: int
    order_id: int
    event_type: EventType
    order_version: int
    attempted: bool
    delivered: bool
    finished_at: datetime | None


def deletable(deliveries: Iterable[PastDelivery], limit: datetime) -> list[int]:
    """The ids of those that were finished before `limit` and are not needed.

    Of each order two are needed at most: its baseline, which is the last update delivered, and the last update
    attempted after it, which the dealer may have received although it was never acknowledged. Either may be replaced by
    an update that `deliveries` does not hold: then one more than needed is kept, never one less.
    """
    baseline: dict[int, PastDelivery] = {}
    in_doubt: dict[int, PastDelivery] = {}
    known = sorted(deliveries, key=lambda one: (one.order_version, one.delivery_id))
    for one in known:
        if one.event_type == "DELIVERY_UPDATED" and one.delivered:
            baseline[one.order_id] = one
        elif one.event_type == "DELIVERY_UPDATED" and one.attempted:
            in_doubt[one.order_id] = one
    needed = {one.delivery_id for one in baseline.values()}
    for order_id, one in in_doubt.items():
        last = baseline.get(order_id)
        if last is None or one.order_version > last.order_version:
            needed.add(one.delivery_id)
    return [
        one.delivery_id
        for one in known
        if one.finished_at is not None and one.finished_at < limit and one.delivery_id not in needed
    ]
