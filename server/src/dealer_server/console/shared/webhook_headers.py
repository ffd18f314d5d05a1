"""Which headers does an attempt of a webhook carry? Those whose values are kept: others are new at each attempt."""

from dealer_server.store.webhooks.log import Delivery
from esim_dealer.wire import signing

Header = tuple[str, str]
"""A name and its value."""


def webhook_headers(delivery: Delivery, app_key: str, *, standard: bool) -> list[Header]:
    """`standard`: those of Standard Webhooks too. Of the attempts, the number of the last one."""
    return [
        ("Content-Type", "application/json"),
        (signing.ACCESS_CODE, app_key),
        *delivery_headers(delivery),
        *([(signing.STANDARD_ID, str(delivery.delivery_id))] if standard else ()),
    ]


def delivery_headers(delivery: Delivery) -> list[Header]:
    """Those that a receiver recognizes the delivery by."""
    return [
        (signing.DELIVERY_ID, str(delivery.delivery_id)),
        (signing.DELIVERY_ATTEMPT, str(delivery.attempt_count or 1)),
        (signing.ORDER_VERSION, str(delivery.order_version)),
    ]
