"""What does a dealer see of an order? (specification 2.3 to 2.5)

One shape for order query, order creation and every webhook. A field that is UNSET does not appear on the wire.
"""

from datetime import datetime
from decimal import Decimal

import msgspec
from msgspec import UNSET, UnsetType

from esim_dealer.wire.vocabulary import (
    ChangeHint,
    DeliveryStatus,
    EventType,
    ItemStatus,
    LifecycleStatus,
    Open,
    OrderStatus,
    OrderType,
    PackageType,
    PayStatus,
    PlanMode,
    PlanStatus,
    PlanUseStatus,
)


class InstallUrls(msgspec.Struct, frozen=True, rename="camel"):
    """Universal links that open the phone's own eSIM installer."""

    ios: str
    android: str


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One plan of an eSIM: the one it was sold with, or a recharge (specification 4.14)."""

    plan_no: int
    type: Open[PackageType]
    mode: Open[PlanMode] | UnsetType = UNSET
    package_code: str
    order_no: str
    status: Open[PlanStatus]
    data_total_bytes: int | UnsetType | None = UNSET
    data_usage_bytes: int = 0
    start_time: datetime | UnsetType = UNSET
    end_time: datetime | UnsetType = UNSET


class Profile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One eSIM (specification 2.5). What its package's supplier does not report is absent."""

    profile_id: str
    iccid: str | UnsetType = UNSET
    qr_code_url: str | UnsetType = UNSET
    install_page_url: str | UnsetType = UNSET
    activation_code: str | UnsetType = UNSET
    smdp_address: str | UnsetType = UNSET
    matching_id: str | UnsetType = UNSET
    install_urls: InstallUrls | UnsetType = UNSET
    lifecycle_status: Open[LifecycleStatus]
    esim_status: str | UnsetType = UNSET
    smdp_status: str | UnsetType = UNSET
    plan_use_status: Open[PlanUseStatus]
    plan_use_start_time: datetime | UnsetType = UNSET
    plan_use_end_time: datetime | UnsetType = UNSET
    data_usage_bytes: int | UnsetType = UNSET
    remain_data_bytes: int | UnsetType = UNSET
    usage_percent: float | UnsetType = UNSET
    activated: bool = False
    cancelled: bool = False
    suspended: bool | UnsetType = UNSET
    suspended_at: datetime | UnsetType = UNSET
    plans: tuple[Plan, ...] | UnsetType = UNSET

    @property
    def id(self) -> int:
        """The profileId as a number, as the answers of refund, cancel and usage have it. Calls take either."""
        return int(self.profile_id)


class AddedPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A recharge of an eSIM that was sold before: the plan it adds."""

    profile_id: str
    iccid: str | UnsetType = UNSET
    plan_no: int
    status: Open[PlanStatus]


class OrderItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One line of an order (specification 2.4). `profiles` is absent in the ORDER_PAID event, and in a recharge, which
    has `topUp`."""

    item_no: str
    package_code: str
    quantity: int
    period_num: int | UnsetType = UNSET
    item_status: Open[ItemStatus]
    profiles: tuple[Profile, ...] | UnsetType = UNSET
    top_up: AddedPlan | UnsetType = UNSET


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An order in full (specification 2.3), never a delta.

    `eventType` and `changeHints` stand in webhooks only, `duplicate` in answers of /esim/order only. `refundAmount` is
    a JSON number, `amount` a decimal string.
    """

    event_type: Open[EventType] | UnsetType = UNSET
    order_type: Open[OrderType] = "BASE"
    transaction_id: str
    order_no: str
    order_id: int
    pay_status: Open[PayStatus]
    delivery_status: Open[DeliveryStatus]
    order_status: Open[OrderStatus]
    currency: str
    amount: str
    refund_amount: Decimal | UnsetType = UNSET
    change_hints: tuple[Open[ChangeHint], ...] | UnsetType = UNSET
    items: tuple[OrderItem, ...]
    duplicate: bool | UnsetType = UNSET
    create_time: datetime
    update_time: datetime
