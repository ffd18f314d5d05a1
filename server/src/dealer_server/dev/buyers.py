"""To which buyers did the demo dealer mail their eSIMs? To most of those it names; the others wait."""

import unicodedata
from collections.abc import Iterator, Sequence
from datetime import timedelta
from random import Random

from dealer_server.store.past.buyer_mails import PastMail
from dealer_server.store.past.orders import PastOrder

MAILED = 0.8
"""Of the orders with a buyer."""
MAILED_AFTER = timedelta(seconds=40)


def mails(orders: Sequence[PastOrder]) -> Iterator[PastMail]:
    for past in orders:
        order = past.order
        if past.remark and past.delivered_at and Random(f"mail of {order.order_id}").random() < MAILED:
            at, address = past.delivered_at + MAILED_AFTER, _address(past.remark)
            yield from (PastMail(order.order_id, one.profile_id, address, at) for one in order.profiles)


def _address(name: str) -> str:
    """ana.costa@example.com"""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return f"{plain.lower().replace(' ', '.')}@example.com"
