"""Which words may stand in a call, an answer or an event? (specification 2, 3, 6 and 7)"""

from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    _T = TypeVar("_T")
    Open = _T | str
    """A word of an answer or an event: one of these today. A newer service may send others, so a type checker asks for
    the case of any text; what is sent, and the documented schema, have these words only."""
else:

    class Open:
        def __class_getitem__(cls, words: Any) -> Any:
            return words


EventType = Literal["ORDER_PAID", "DELIVERY_UPDATED", "REFUND_COMPLETED"]
ChangeHint = Literal[
    "ICCID_READY",
    "QR_CODE_READY",
    "ACTIVATION_CODE_READY",
    "DELIVERY_STATUS_CHANGED",
    "ORDER_STATUS_CHANGED",
    "ITEM_STATUS_CHANGED",
    "PROFILE_LIFECYCLE_CHANGED",
    "ESIM_STATUS_CHANGED",
    "SMDP_STATUS_CHANGED",
    "PLAN_USE_STARTED",
    "PLAN_USE_ENDED",
    "USAGE_UPDATED",
    "PROFILE_CANCELLED",
    "REFUND_AMOUNT_UPDATED",
    "ORDER_PAID",
    "REFUND_COMPLETED",
    "ORDER_SNAPSHOT_SYNC",
]

HealthStatus = Literal["UP"]
PayStatus = Literal["PAID", "REFUNDED"]
DeliveryStatus = Literal["PENDING", "PARTIAL", "DELIVERED", "FAILED"]
OrderStatus = Literal["PAID", "FULFILLING", "COMPLETED", "REFUNDING", "REFUNDED"]
ItemStatus = Literal["PAID", "PENDING", "DELIVERED", "ACTIVATING", "ACTIVATED", "FAILED", "REFUNDED"]
LifecycleStatus = Literal["PENDING", "DELIVERED", "ACTIVATING", "ACTIVATED", "CANCELLED"]
PlanUseStatus = Literal["NOT_STARTED", "STARTED", "ENDED"]
OrderType = Literal["BASE", "TOPUP"]
PlanMode = Literal["ADD", "QUEUE"]
PlanStatus = Literal["PENDING", "QUEUED", "ACTIVE", "ENDED", "FAILED", "CANCELLED"]
RefundStatus = Literal["REFUNDED", "REFUNDING", "REJECTED"]
RefundItemStatus = Literal["PENDING", "COMPLETED", "REJECTED"]
AsyncStatus = Literal["COMPLETED", "PENDING"]
Availability = Literal["AVAILABLE", "OUT_OF_STOCK", "NOT_ON_SALE", "NOT_FOUND"]

AdvanceStep = Literal["DOWNLOAD", "INSTALL", "ENABLE", "START", "USE", "EXPIRE", "DELETE"]

AccountType = Literal["BALANCE"]
EntryType = Literal["ORDER_PAY", "REFUND", "TOPUP", "ADJUST"]
TopupStatus = Literal["PENDING", "APPROVED", "REJECTED", "CANCELLED"]
PayMethod = Literal["BANK_TRANSFER", "CARD", "USDT", "OTHER"]

PackageType = Literal["BASE", "TOPUP"]
PackageStatus = Literal["ON_SALE", "OFF_SALE"]
LocationType = Literal["COUNTRY", "REGION", "GLOBAL"]
DataType = Literal["TOTAL", "DAILY_REDUCED", "DAILY_CUTOFF", "DAILY_UNLIMITED"]
ActivationType = Literal["FIRST_INSTALL", "FIRST_NETWORK"]
DurationUnit = Literal["DAY"]

DeliveryState = Literal["WAITING", "READY", "IN_FLIGHT", "RETRY", "DELIVERED", "FAILED", "SUPERSEDED", "SKIPPED"]
DeliveryTrigger = Literal["AUTO", "RESEND", "SYNC", "TEST"]
AttemptError = Literal[
    "DNS",
    "CONNECT",
    "TLS",
    "TIMEOUT",
    "RESET",
    "PROTOCOL",
    "REDIRECT",
    "GONE",
    "STATUS",
    "ADDRESS_REFUSED",
    "LOST",
    "STOPPED",
    "INTERNAL",
]
EndpointState = Literal["ACTIVE", "DISABLED", "NOT_SET"]
NoticeType = Literal[
    "LOW_BALANCE",
    "TOPUP_REVIEWED",
    "REFUND_REVIEWED",
    "RECEIVER_FAILING",
    "CREDENTIALS_CHANGED",
    "PRICE_CHANGED",
    "PLANS_ENDING",
    "TEST",
]
Scope = Literal["read", "order", "money"]
SmsStatus = Literal["PENDING", "SENT", "FAILED"]
SmsFailReason = Literal["NOT_SENT", "UNKNOWN"]

# Raw words of the eSIM and of the SM-DP+ (specification 3.6). Others that suppliers send are passed on as they are.
SMDP_STATUSES = ("RELEASED", "DOWNLOAD", "INSTALLATION", "ENABLED", "DISABLED", "DELETED")
ESIM_STATUSES = (
    "GOT_RESOURCE",
    "IN_USE",
    "USED_UP",
    "UNUSED_EXPIRED",
    "USED_EXPIRED",
    "CANCEL",
    "SUSPENDED",
    "REVOKED",
)

ResultCode = Literal[
    "000000",
    "000001",
    "000101",
    "000102",
    "000103",
    "000104",
    "000105",
    "000106",
    "000107",
    "000108",
    "000109",
    "000110",
    "000111",
    "000112",
    "101001",
    "101002",
    "101003",
    "101004",
    "101005",
    "101006",
    "101007",
    "101013",
    "900001",
    "900002",
    "200002",
    "200003",
    "200004",
    "200005",
    "200006",
    "200007",
    "200008",
    "200010",
    "200011",
    "200014",
    "200015",
    "200020",
    "200021",
    "200022",
    "310241",
    "310272",
    "310274",
    "310402",
    "310403",
    "310404",
    "310405",
    "310501",
]
SUCCESS: ResultCode = "000000"
SUCCESS_MESSAGE = "success"
