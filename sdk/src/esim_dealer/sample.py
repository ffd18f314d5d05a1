"""What does a webhook look like? A sample of each event type, truly signed, to try a receiver with."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from msgspec.structs import replace

from esim_dealer.exchange import Credentials, SignedRequest, sign
from esim_dealer.wire import signing
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.snapshot import OrderItem, Profile, Snapshot
from esim_dealer.wire.vocabulary import EventType

_PAID_AT = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
_VERSIONS: dict[EventType, int] = {"ORDER_PAID": 1, "DELIVERY_UPDATED": 2, "REFUND_COMPLETED": 3}


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
    request.headers[signing.ORDER_VERSION] = str(_VERSIONS[event_type])
    request.headers[signing.TEST] = "true"
    return request


def snapshot(event_type: EventType, order_no: str) -> Snapshot:
    """An order of one eSIM as that event shows it (specification 6.2)."""
    item = OrderItem(item_no="1", package_code="TEST-OK", quantity=1, item_status="PAID")
    profile = Profile(
        profile_id="1",
        iccid="8900000000000000003",
        qr_code_url=f"https://dealer.invalid/qr/{order_no}",
        activation_code=f"LPA:1$dealer.invalid${order_no}",
        lifecycle_status="DELIVERED",
        plan_use_status="NOT_STARTED",
    )
    paid = Snapshot(
        event_type="ORDER_PAID",
        transaction_id=f"sample-{order_no}",
        order_no=order_no,
        order_id=1,
        pay_status="PAID",
        delivery_status="PENDING",
        order_status="PAID",
        currency="USD",
        amount="1.80",
        change_hints=("ORDER_PAID",),
        items=(item,),
        create_time=_PAID_AT,
        update_time=_PAID_AT,
    )
    delivered = replace(
        paid,
        event_type="DELIVERY_UPDATED",
        delivery_status="DELIVERED",
        order_status="COMPLETED",
        change_hints=("ICCID_READY", "QR_CODE_READY", "ACTIVATION_CODE_READY", "DELIVERY_STATUS_CHANGED"),
        items=(replace(item, item_status="DELIVERED", profiles=(profile,)),),
        update_time=_PAID_AT + timedelta(seconds=1),
    )
    voided = replace(profile, lifecycle_status="CANCELLED", cancelled=True)
    refunded = replace(
        delivered,
        event_type="REFUND_COMPLETED",
        pay_status="REFUNDED",
        order_status="REFUNDED",
        refund_amount=Decimal("1.80"),
        change_hints=("REFUND_COMPLETED", "REFUND_AMOUNT_UPDATED"),
        items=(replace(item, item_status="REFUNDED", profiles=(voided,)),),
        update_time=_PAID_AT + timedelta(minutes=5),
    )
    return {"ORDER_PAID": paid, "DELIVERY_UPDATED": delivered, "REFUND_COMPLETED": refunded}[event_type]
