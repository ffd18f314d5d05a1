"""Which headers does an attempt of a webhook carry? Those that are kept, and what stands for the others."""

from typing import NamedTuple

from dealer_server.store.webhooks.log import Delivery
from esim_dealer.wire import signing

NEW = "new at each attempt"


class Header(NamedTuple):
    """`note`: what stands for a value that is not kept."""

    name: str
    value: str
    note: str = ""


def webhook_headers(delivery: Delivery, app_key: str, *, standard: bool, whose: str = "your") -> list[Header]:
    """What each attempt carries; of its last one the number. `standard`: those of Standard Webhooks too."""
    return [
        Header("Content-Type", "application/json"),
        Header(signing.ACCESS_CODE, app_key),
        Header(signing.REQUEST_ID, "", f"a UUID, {NEW}"),
        Header(signing.TIMESTAMP, "", f"milliseconds, {NEW}"),
        Header(signing.SIGNATURE, "", f"HMAC-SHA256 with {whose} AppSecret, {NEW}"),
        *delivery_headers(delivery),
        *([Header(signing.STANDARD_ID, str(delivery.delivery_id))] if standard else ()),
        *([Header(signing.STANDARD_TIMESTAMP, "", f"seconds, {NEW}")] if standard else ()),
        *([Header(signing.STANDARD_SIGNATURE, "", f"of Standard Webhooks, {NEW}")] if standard else ()),
    ]


def delivery_headers(delivery: Delivery) -> list[Header]:
    """Those that a receiver recognizes the delivery by."""
    return [
        Header(signing.DELIVERY_ID, str(delivery.delivery_id)),
        Header(signing.DELIVERY_ATTEMPT, str(delivery.attempt_count or 1)),
        Header(signing.ORDER_VERSION, str(delivery.order_version)),
    ]
