"""What does a webhook look like? A sample of each event type, truly signed, to try a receiver with."""

from msgspec.structs import replace

from esim_dealer.exchange import Credentials, SignedRequest, sign
from esim_dealer.wire import signing
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.events import EVENTS
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import EventType


def signed_sample(
    url: str,
    event_type: EventType,
    credentials: Credentials,
    *,
    order_no: str,
    delivery_id: str,
    now_ms: int,
    request_id: str,
    timeout_seconds: float,
) -> SignedRequest:
    """The request as the service would POST it to `url`, marked RT-Test."""
    body = encoder.encode(snapshot(event_type, order_no))
    request = sign(url, body, credentials, now_ms=now_ms, request_id=request_id, timeout_seconds=timeout_seconds)
    request.headers[signing.DELIVERY_ID] = delivery_id
    request.headers[signing.DELIVERY_ATTEMPT] = "1"
    request.headers[signing.ORDER_VERSION] = str(EVENTS[event_type].order_version)
    request.headers[signing.TEST] = "true"
    return request


def snapshot(event_type: EventType, order_no: str) -> Snapshot:
    """An order of one eSIM as that event shows it (specification 6.2)."""
    return replace(EVENTS[event_type].example, order_no=order_no, transaction_id=f"sample-{order_no}")
