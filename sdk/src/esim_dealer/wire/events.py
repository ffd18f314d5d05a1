"""Which events does the service send? One row per event type: its words, its hints, an example (specification 6).

How one is added: docs/guides/add-a-webhook-event.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from msgspec.structs import replace

from esim_dealer.wire.snapshot import InstallUrls, OrderItem, Profile, Snapshot
from esim_dealer.wire.vocabulary import ChangeHint, EventType


@dataclass(frozen=True, slots=True)
class EventDescription:
    """`hints`: those that every event of the type carries; empty where they are what changed since the last one.

    `example` is a body as it is sent, `order_version` the RT-Order-Version it is sent with.
    """

    summary: str
    description: str
    hints: tuple[ChangeHint, ...]
    example: Snapshot
    order_version: int


_PAID_AT = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
_CARDDATA = "LPA%3A1%24smdp.example.com%24TN2026-11200815-30AB41"
_ITEM = OrderItem(item_no="21732573000004100", package_code="TEST-OK", quantity=1, item_status="PAID")
_PAID = Snapshot(
    event_type="ORDER_PAID",
    order_type="BASE",
    transaction_id="shop-20261120-0001",
    order_no="D261120081530000041",
    order_id=217325730000041,
    pay_status="PAID",
    delivery_status="PENDING",
    order_status="PAID",
    currency="USD",
    amount="1.80",
    change_hints=("ORDER_PAID",),
    items=(_ITEM,),
    create_time=_PAID_AT,
    update_time=_PAID_AT,
)
_PROFILE = Profile(
    profile_id="217325730000087",
    iccid="8999900000000000410",
    qr_code_url="https://api.example.com/qr/10001/217325730000087/q7Jx2mVt9ZbK4nRw",
    install_page_url="https://api.example.com/i/10001-217325730000087-q7Jx2mVt9ZbK4nRw",
    activation_code="LPA:1$smdp.example.com$TN2026-11200815-30AB41",
    smdp_address="smdp.example.com",
    matching_id="TN2026-11200815-30AB41",
    install_urls=InstallUrls(
        ios=f"https://esimsetup.apple.com/esim_qrcode_provisioning?carddata={_CARDDATA}",
        android=f"https://esimsetup.android.com/esim_qrcode_provisioning?carddata={_CARDDATA}",
    ),
    lifecycle_status="DELIVERED",
    esim_status="GOT_RESOURCE",
    smdp_status="RELEASED",
    plan_use_status="NOT_STARTED",
    data_usage_bytes=0,
    remain_data_bytes=1_073_741_824,
    usage_percent=0.0,
)
_DELIVERED = replace(
    _PAID,
    event_type="DELIVERY_UPDATED",
    order_type="BASE",
    delivery_status="DELIVERED",
    order_status="COMPLETED",
    change_hints=(
        "ICCID_READY",
        "QR_CODE_READY",
        "ACTIVATION_CODE_READY",
        "DELIVERY_STATUS_CHANGED",
        "ORDER_STATUS_CHANGED",
        "ITEM_STATUS_CHANGED",
        "PROFILE_LIFECYCLE_CHANGED",
        "ESIM_STATUS_CHANGED",
        "SMDP_STATUS_CHANGED",
    ),
    items=(replace(_ITEM, item_status="DELIVERED", profiles=(_PROFILE,)),),
    update_time=_PAID_AT + timedelta(seconds=1),
)
_CANCELLED = replace(_PROFILE, lifecycle_status="CANCELLED", esim_status="CANCEL", cancelled=True)
_REFUND_HINTS: tuple[ChangeHint, ...] = ("REFUND_COMPLETED", "REFUND_AMOUNT_UPDATED")
_REFUNDED = replace(
    _DELIVERED,
    event_type="REFUND_COMPLETED",
    order_type="BASE",
    pay_status="REFUNDED",
    order_status="REFUNDED",
    refund_amount=Decimal("1.80"),
    change_hints=_REFUND_HINTS,
    items=(replace(_ITEM, item_status="REFUNDED", profiles=(_CANCELLED,)),),
    update_time=_PAID_AT + timedelta(minutes=5),
)

EVENTS: Mapping[EventType, EventDescription] = {
    "ORDER_PAID": EventDescription(
        summary="An order is paid",
        description="Payment succeeded and fulfillment starts. Items carry no profiles yet.",
        hints=("ORDER_PAID",),
        example=_PAID,
        order_version=1,
    ),
    "DELIVERY_UPDATED": EventDescription(
        summary="Delivery or a profile changed",
        description=(
            "Something of the order or its profiles changed: codes ready, installed, activated, data used, cancelled."
            " `changeHints` say what. The body is the order as it stood when the event was first sent."
        ),
        hints=(),
        example=_DELIVERED,
        order_version=2,
    ),
    "REFUND_COMPLETED": EventDescription(
        summary="A refund is credited",
        description="The wallet was credited. `refundAmount` is what the order was refunded in all.",
        hints=_REFUND_HINTS,
        example=_REFUNDED,
        order_version=3,
    ),
}
