"""What may a dealer send to each operation, and what comes back? (specification 4)

Requests hold what the sender wrote: `Money` is the raw literal, a JSON number or string, so that no amount ever passes
through a float. Answers hold decimal strings in major units. Types carry the bounds, so that decoding is validating.
"""

# msgspec hands `frozen` down to subclasses; pyright wants it repeated.
# pyright: reportGeneralTypeIssues=false

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from esim_dealer.wire.snapshot import Plan, Profile, Snapshot
from esim_dealer.wire.vocabulary import (
    AccountType,
    ActivationType,
    AdvanceStep,
    AsyncStatus,
    AttemptError,
    Availability,
    ChangeHint,
    DataType,
    DeliveryState,
    DeliveryTrigger,
    DurationUnit,
    EndpointState,
    EntryType,
    EventType,
    HealthStatus,
    LifecycleStatus,
    LocationType,
    Open,
    OrderStatus,
    PackageStatus,
    PackageType,
    PayMethod,
    PlanMode,
    PlanUseStatus,
    RefundItemStatus,
    RefundStatus,
    ResultCode,
    SmsFailReason,
    SmsStatus,
    TopupStatus,
)

PREFIX = "/open-api/v1"
MAX_BODY_BYTES = 262_144
MAX_PROFILES_PER_ORDER = 500
DEFAULT_PAGE_SIZE = 50

Money = msgspec.Raw
Time = Annotated[datetime, Meta(tz=True)]
TransactionId = Annotated[
    str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:@-]+\Z", description="The dealer's idempotency key")
]
PackageCode = Annotated[str, Meta(min_length=1, max_length=64)]
OrderNo = Annotated[str, Meta(min_length=1, max_length=64)]
ItemNo = Annotated[str, Meta(min_length=1, max_length=64)]
ProfileId = int | Annotated[str, Meta(min_length=1, max_length=20)]
Iccid = Annotated[str, Meta(min_length=1, pattern=r"^[0-9]{18,20}\Z")]
Remark = Annotated[str, Meta(max_length=255)]
Currency = Annotated[str, Meta(min_length=1, max_length=3)]
PageNumber = Annotated[int, Meta(ge=1, le=1_000_000)]
PageSize = Annotated[int, Meta(ge=1, le=500)]
Quantity = Annotated[int, Meta(ge=1, le=100)]
PeriodNumber = Annotated[int, Meta(ge=1, le=3650)]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A request body. Fields it does not name are ignored (specification 1.3)."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `data` of a successful answer."""


class OneProfile(Request):
    """A profile, named by either."""

    profile_id: ProfileId | None = None
    iccid: Iccid | None = None


class Pager(Request):
    """Which page is wanted: by number, or by the previous answer's `pager.next` in `after`."""

    page_num: PageNumber | None = 1
    page_size: PageSize | None = DEFAULT_PAGE_SIZE
    after: Annotated[str, Meta(max_length=200)] | None = None


class Page(Answer):
    """Which page this is, and out of how many rows. `next` is absent on the last page."""

    page_num: int
    page_size: int
    total: int
    next: str | UnsetType = UNSET


class Empty(Request):
    """An operation without parameters."""


# /health


class Health(Answer):
    status: Open[HealthStatus]
    tenant_id: str
    client_name: str


# /account/balance


class Balance(Answer):
    account_type: Open[AccountType]
    currency: str
    balance: str
    credit_limit: str
    available_balance: str
    low_balance_threshold: str
    low_balance: bool
    update_time: datetime


# /region/list


class RegionList(Request):
    type: LocationType | None = None
    keyword: Annotated[str, Meta(max_length=100)] | None = None


class SubRegion(Answer):
    region_code: str
    region_name: str


class Region(Answer):
    region_code: str
    region_name: str
    type: Open[LocationType]
    continent: str
    package_count: int
    sub_regions: tuple[SubRegion, ...] = ()


class Regions(Answer):
    regions: tuple[Region, ...]


# /package/list


class PackageList(Request):
    """Filters are AND-ed; "" counts as absent (specification 2.9)."""

    type: Annotated[str, Meta(max_length=64)] | None = None
    location_code: Annotated[str, Meta(max_length=64)] | None = None
    package_code: Annotated[str, Meta(max_length=64)] | None = None
    keyword: Annotated[str, Meta(max_length=100)] | None = None
    data_type: Annotated[str, Meta(max_length=64)] | None = None
    updated_since: Annotated[str, Meta(max_length=64)] | None = None
    catalog_version: Annotated[str, Meta(max_length=64)] | None = None
    profile_id: ProfileId | None = None
    iccid: Iccid | None = None
    for_package_code: Annotated[str, Meta(max_length=64)] | None = None
    pager: Pager | None = None


class Operator(Answer):
    operator_name: str
    network_type: str


class Network(Answer):
    location_code: str
    operators: tuple[Operator, ...]


class Package(Answer, kw_only=True):
    package_code: str
    slug: str
    package_name: str
    description: str
    type: Open[PackageType]
    status: Open[PackageStatus]
    location_type: Open[LocationType]
    location_code: str
    locations: tuple[str, ...]
    price: str
    retail_price: str
    currency: str
    data_type: Open[DataType]
    data_bytes: int | None
    fup_speed: str | UnsetType = UNSET
    duration: int
    duration_unit: Open[DurationUnit]
    min_period_num: int
    max_period_num: int
    unused_valid_days: int
    activation_type: Open[ActivationType]
    speed: str
    ip_export: str
    top_up_support: bool
    support_top_up_type: int | UnsetType = UNSET
    top_up_mode: Open[PlanMode] | UnsetType = UNSET
    max_quantity: int
    networks: tuple[Network, ...]
    supported_fields: tuple[str, ...]
    update_time: datetime


class Packages(Answer):
    catalog_version: str
    not_modified: bool
    packages: tuple[Package, ...]
    pager: Page


# /esim/order


class OrderLine(Request):
    package_code: PackageCode
    quantity: Quantity
    price: Money
    period_num: PeriodNumber | None = None


class PlaceOrder(Request):
    transaction_id: TransactionId
    amount: Money
    items: Annotated[tuple[OrderLine, ...], Meta(min_length=1, max_length=100)]
    currency: Currency | None = None
    remark: Remark | None = None


# /esim/order/check


class CheckLine(Request, kw_only=True):
    """A line of an order. Without `price` it is checked at the dealer's price of now."""

    package_code: PackageCode
    quantity: Quantity
    price: Money | UnsetType = UNSET
    period_num: PeriodNumber | None = None


class CheckOrder(Request, kw_only=True):
    """What /esim/order takes. Without `amount` the sum of the lines is checked."""

    transaction_id: TransactionId | None = None
    amount: Money | UnsetType = UNSET
    items: Annotated[tuple[CheckLine, ...], Meta(min_length=1, max_length=100)]
    currency: Currency | None = None
    remark: Remark | None = None


class CheckedItem(Answer, kw_only=True):
    """A line at the dealer's price of now. `price` and `amount` are absent where the package is not on sale."""

    package_code: str
    quantity: int
    period_num: int | UnsetType = UNSET
    price: str | UnsetType = UNSET
    amount: str | UnsetType = UNSET
    availability: Open[Availability]
    stock: int | UnsetType = UNSET


class WouldRefuse(Answer):
    """The envelope that /esim/order would answer now."""

    code: Open[ResultCode]
    message: str
    data: dict[str, Any]


class OrderCheck(Answer, kw_only=True):
    """What would become of an order now: without `wouldRefuse` it would be placed, or repeat one where `duplicate`."""

    currency: str
    amount: str | UnsetType = UNSET
    items: tuple[CheckedItem, ...]
    would_refuse: WouldRefuse | UnsetType = UNSET
    duplicate: bool
    order_no: str | UnsetType = UNSET
    balance: str
    credit_limit: str
    available_balance: str
    balance_after: str | UnsetType = UNSET


# /esim/topup


class RechargeProfile(Request):
    transaction_id: TransactionId
    package_code: PackageCode
    price: Money
    amount: Money
    profile_id: ProfileId | None = None
    iccid: Iccid | None = None
    period_num: PeriodNumber | None = None
    currency: Currency | None = None
    remark: Remark | None = None


# /esim/profile/plans


class ProfilePlans(OneProfile):
    pass


class Plans(Answer, kw_only=True):
    profile_id: int
    iccid: str | UnsetType = UNSET
    plans: tuple[Plan, ...]


# /esim/query


class QueryOrder(Request):
    order_no: OrderNo | None = None
    transaction_id: TransactionId | None = None


# /esim/order/list


class OrderList(Request):
    start_time: Time | None = None
    end_time: Time | None = None
    order_status: OrderStatus | None = None
    updated_since: Time | None = None
    pager: Pager | None = None


class Orders(Answer):
    orders: tuple[Snapshot, ...]
    pager: Page


# /esim/profile/list


class ProfileList(Request):
    order_no: OrderNo | None = None
    transaction_id: TransactionId | None = None
    item_no: ItemNo | None = None
    profile_id: ProfileId | None = None
    iccid: Iccid | None = None
    package_code: PackageCode | None = None
    lifecycle_status: LifecycleStatus | tuple[LifecycleStatus, ...] | None = None
    plan_use_status: PlanUseStatus | None = None
    cancelled: bool | None = None
    start_time: Time | None = None
    end_time: Time | None = None
    updated_since: Time | None = None
    pager: Pager | None = None


class ProfileRecord(Answer):
    order_no: str
    transaction_id: str
    item_no: str
    package_code: str
    profile: Profile


class Profiles(Answer):
    records: tuple[ProfileRecord, ...]
    pager: Page


# /webhook/set, /webhook/query


class SetWebhook(Request):
    """`callbackUrl` must be named; "" or null removes it. Without `standardHeaders` they stay as they are."""

    callback_url: Annotated[str, Meta(max_length=512)] | None
    standard_headers: bool | None = None


class Webhook(Answer, kw_only=True):
    callback_url: str
    enabled: bool
    standard_headers: bool = False
    update_time: datetime | UnsetType = UNSET


class WebhookState(Answer, kw_only=True):
    callback_url: str
    enabled: bool
    standard_headers: bool = False
    state: Open[EndpointState]
    consecutive_failures: int
    last_success_time: datetime | UnsetType = UNSET


# /webhook/test


class WebhookTest(Answer, kw_only=True):
    """What the receiver said to a sample event. Delivered: it answered 2xx in time."""

    delivered: bool
    http_status: int | UnsetType = UNSET
    duration_ms: int
    error: Open[AttemptError] | UnsetType = UNSET


# /webhook/delivery/list, /webhook/delivery/resend


class DeliveryList(Request):
    order_no: OrderNo | None = None
    event_type: EventType | None = None
    status: DeliveryState | None = None
    start_time: Time | None = None
    end_time: Time | None = None
    pager: Pager | None = None


class ResendDelivery(Request):
    delivery_id: int | Annotated[str, Meta(min_length=1, max_length=20)]


class Attempt(Answer, kw_only=True):
    """One try. `answerHead` is the beginning of what the receiver answered, 2 KiB at most."""

    number: int
    time: datetime
    http_status: int | UnsetType = UNSET
    duration_ms: int
    error: Open[AttemptError] | UnsetType = UNSET
    answer_head: str | UnsetType = UNSET


class Delivery(Answer, kw_only=True):
    """One event on its way to the dealer; `deliveryId` is its RT-Delivery-ID. Attempts are kept for 30 days."""

    delivery_id: str
    order_no: str
    event_type: Open[EventType]
    trigger: Open[DeliveryTrigger]
    status: Open[DeliveryState]
    order_version: int
    change_hints: tuple[Open[ChangeHint], ...] = ()
    attempt_count: int
    next_attempt_time: datetime | UnsetType = UNSET
    create_time: datetime
    attempts: tuple[Attempt, ...] = ()


class Deliveries(Answer):
    """`pager.total` counts to 10 000 and says 10 001 where there are more."""

    deliveries: tuple[Delivery, ...]
    pager: Page


# /esim/refund

NOT_ACCEPTED = "Not accepted here: 000111"
NotAccepted = Annotated[Any, Meta(description=NOT_ACCEPTED)]


class RefundProfile(OneProfile):
    """`profileId`, `iccid`, or both where they agree."""

    esim_tran_no: NotAccepted = UNSET


class RefundItem(Request):
    """One line. Without `profiles` all of it."""

    item_no: ItemNo
    profiles: Annotated[tuple[RefundProfile, ...], Meta(max_length=100)] | None = None
    esim_tran_no: NotAccepted = UNSET


class RefundOrder(Request):
    """Without `items` the whole order. `refundTransactionId` makes a repeat safe for ever."""

    order_no: OrderNo | None = None
    transaction_id: TransactionId | None = None
    remark: Remark | None = None
    items: Annotated[tuple[RefundItem, ...], Meta(max_length=100)] | None = None
    refund_transaction_id: TransactionId | None = None
    esim_tran_no: NotAccepted = UNSET
    profiles: NotAccepted = UNSET


class RefundedItem(Answer):
    item_no: str
    refund_status: Open[RefundItemStatus]
    profile_ids: tuple[int, ...]
    iccids: tuple[str, ...]


class Refund(Answer):
    """`refundAmount` is this request's, `totalRefundAmount` the order's."""

    refund_no: str
    order_no: str
    transaction_id: str
    status: Open[RefundStatus]
    refund_amount: str
    total_refund_amount: str
    currency: str
    items: tuple[RefundedItem, ...]
    duplicate: bool


# /esim/profile/cancel, /esim/profile/revoke


class VoidProfile(OneProfile):
    """Exactly one of the two."""


class Voided(Answer, kw_only=True):
    order_no: str
    item_no: str
    profile_id: int
    iccid: str | UnsetType = UNSET
    async_status: Open[AsyncStatus]
    cancelled: bool
    lifecycle_status: Open[LifecycleStatus]


# /esim/profile/suspend, /esim/profile/unsuspend


class SuspendProfile(OneProfile):
    """Exactly one of the two."""


class Suspended(Answer, kw_only=True):
    order_no: str
    item_no: str
    profile_id: int
    iccid: str
    async_status: Open[AsyncStatus]
    cancelled: bool
    lifecycle_status: Open[LifecycleStatus]
    suspended: bool


# /esim/profile/usage


class ProfileUsage(OneProfile):
    """Exactly one of the first two. `refresh` has the supplier asked, at most once a minute."""

    refresh: bool | None = None


class Usage(Answer, kw_only=True):
    """`realTime`: the supplier was asked within the last minute, and has answered since."""

    profile_id: int
    iccid: str
    lifecycle_status: Open[LifecycleStatus]
    plan_use_status: Open[PlanUseStatus]
    plan_use_start_time: datetime | UnsetType = UNSET
    plan_use_end_time: datetime | UnsetType = UNSET
    data_total_bytes: int | None
    data_usage_bytes: int
    remain_data_bytes: int | UnsetType = UNSET
    usage_percent: float | UnsetType = UNSET
    real_time: bool
    last_update_time: datetime


# /esim/profile/sms


class SendSms(Request, kw_only=True):
    """`profileId` or `iccid`, exactly one of the two."""

    transaction_id: TransactionId
    profile_id: ProfileId | None = None
    iccid: Iccid | None = None
    message: Annotated[str, Meta(min_length=1, max_length=500)]

    def __repr__(self) -> str:
        return f"SendSms(transaction_id={self.transaction_id!r})"  # the text stays out of logs


class Sms(Answer, kw_only=True):
    """`failReason` where `status` is FAILED."""

    sms_no: str
    status: Open[SmsStatus]
    fail_reason: Open[SmsFailReason] | UnsetType = UNSET
    duplicate: bool


# /test/profile/advance


class AdvanceProfile(OneProfile, kw_only=True):
    """Exactly one of the first two. `dataUsageBytes` is for USE: the total used by then; without it, everything."""

    step: AdvanceStep
    data_usage_bytes: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None


# /account/statement


class Statement(Request):
    start_time: Time | None = None
    end_time: Time | None = None
    entry_type: EntryType | None = None
    pager: Pager | None = None


class Entry(Answer, kw_only=True):
    """One movement of money. `amount` is signed; the entries of a wallet sum to its balance."""

    entry_no: str
    entry_type: Open[EntryType]
    amount: str
    balance_after: str
    currency: str
    order_no: str | UnsetType = UNSET
    topup_no: str | UnsetType = UNSET
    create_time: datetime


class Entries(Answer):
    entries: tuple[Entry, ...]
    pager: Page


# /account/topup, /account/topup/query, /account/topup/cancel


class RequestTopup(Request):
    transaction_id: TransactionId
    amount: Money
    currency: Currency | None = None
    pay_method: PayMethod | None = None
    pay_reference: Annotated[str, Meta(max_length=128)] | None = None
    remark: Remark | None = None


class QueryTopup(Request):
    topup_no: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    transaction_id: TransactionId | None = None


class CancelTopup(Request):
    """At least one of the two; both must name the same request."""

    topup_no: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    transaction_id: TransactionId | None = None


class Topup(Answer, kw_only=True):
    topup_no: str
    transaction_id: str
    amount: str
    currency: str
    status: Open[TopupStatus]
    reject_reason: str | UnsetType = UNSET
    create_time: datetime
    review_time: datetime | UnsetType = UNSET
    duplicate: bool
