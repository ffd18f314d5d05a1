"""Client of the eSIM Dealer Open API v1: buy eSIM data packages, receive signed webhooks.

from esim_dealer import Dealer, Line

with Dealer() as dealer:
    order = dealer.order("my-order-1", [Line.of(dealer.package("TEST-OK"))])
    order = dealer.wait_for_delivery(order.order_no)
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from esim_dealer.answered import Answered
    from esim_dealer.client import AsyncDealer, Dealer
    from esim_dealer.errors import (
        AmountMismatch,
        AuthenticationError,
        ClientClosed,
        ClockSkew,
        Conflict,
        ConnectionFailed,
        DealerError,
        DeliveryFailed,
        DeliveryTimedOut,
        ExpectedPrice,
        InsufficientBalance,
        InvalidRequest,
        MalformedWebhook,
        NotConfigured,
        NotFound,
        NotOnSale,
        NotSupported,
        OutcomeUnknown,
        OutOfStock,
        PermissionDenied,
        PriceChanged,
        RateLimited,
        RequestIdUsed,
        ScopeMissing,
        ServerError,
        ServiceUnavailable,
        SignatureMismatch,
        StaleTimestamp,
        TransactionIdReused,
        UnreadableAnswer,
        UpstreamFailed,
        WalletFrozen,
        WebhookError,
        WrongSignature,
    )
    from esim_dealer.exchange import Clock, RetryPolicy
    from esim_dealer.inbox import Inbox
    from esim_dealer.order import Line
    from esim_dealer.webhook import Event, Notice, verify, verify_notice
    from esim_dealer.wire.calls import (
        Attempt,
        Balance,
        Delivery,
        Entry,
        Health,
        OrderCheck,
        Package,
        Plans,
        ProfileRecord,
        Refund,
        Region,
        Sms,
        Suspended,
        Topup,
        Usage,
        Voided,
        WebhookTest,
    )
    from esim_dealer.wire.snapshot import OrderItem, Plan, Profile, Snapshot
    from esim_dealer.wire.vocabulary import ChangeHint, EventType, NoticeType

# Imported when first asked for: who needs only the contract, as a server does, need not load an HTTP client.
_HOMES = {
    "esim_dealer.answered": ["Answered"],
    "esim_dealer.client": ["AsyncDealer", "Dealer"],
    "esim_dealer.errors": [
        "AmountMismatch",
        "AuthenticationError",
        "ClientClosed",
        "ClockSkew",
        "Conflict",
        "ConnectionFailed",
        "DealerError",
        "DeliveryFailed",
        "DeliveryTimedOut",
        "ExpectedPrice",
        "InsufficientBalance",
        "InvalidRequest",
        "MalformedWebhook",
        "NotConfigured",
        "NotFound",
        "NotOnSale",
        "NotSupported",
        "OutcomeUnknown",
        "OutOfStock",
        "PermissionDenied",
        "PriceChanged",
        "RateLimited",
        "RequestIdUsed",
        "ScopeMissing",
        "ServerError",
        "ServiceUnavailable",
        "SignatureMismatch",
        "StaleTimestamp",
        "TransactionIdReused",
        "UnreadableAnswer",
        "UpstreamFailed",
        "WalletFrozen",
        "WebhookError",
        "WrongSignature",
    ],
    "esim_dealer.exchange": ["Clock", "RetryPolicy"],
    "esim_dealer.inbox": ["Inbox"],
    "esim_dealer.order": ["Line"],
    "esim_dealer.webhook": ["Event", "Notice", "verify", "verify_notice"],
    "esim_dealer.wire.calls": [
        "Attempt",
        "Balance",
        "Delivery",
        "Entry",
        "Health",
        "OrderCheck",
        "Package",
        "ProfileRecord",
        "Refund",
        "Region",
        "Sms",
        "Plans",
        "Suspended",
        "Topup",
        "Usage",
        "Voided",
        "WebhookTest",
    ],
    "esim_dealer.wire.snapshot": ["OrderItem", "Plan", "Profile", "Snapshot"],
    "esim_dealer.wire.vocabulary": ["ChangeHint", "EventType", "NoticeType"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("esim-dealer")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


__all__ = [
    "AmountMismatch",
    "Answered",
    "AsyncDealer",
    "Attempt",
    "AuthenticationError",
    "Balance",
    "ChangeHint",
    "ClientClosed",
    "Clock",
    "ClockSkew",
    "Conflict",
    "ConnectionFailed",
    "Dealer",
    "DealerError",
    "Delivery",
    "DeliveryFailed",
    "DeliveryTimedOut",
    "Entry",
    "Event",
    "EventType",
    "ExpectedPrice",
    "Health",
    "Inbox",
    "InsufficientBalance",
    "InvalidRequest",
    "Line",
    "MalformedWebhook",
    "NotConfigured",
    "NotFound",
    "NotOnSale",
    "NotSupported",
    "Notice",
    "NoticeType",
    "OrderCheck",
    "OrderItem",
    "OutOfStock",
    "OutcomeUnknown",
    "Package",
    "PermissionDenied",
    "Plan",
    "Plans",
    "PriceChanged",
    "Profile",
    "ProfileRecord",
    "RateLimited",
    "Refund",
    "Region",
    "RequestIdUsed",
    "RetryPolicy",
    "ScopeMissing",
    "ServerError",
    "ServiceUnavailable",
    "SignatureMismatch",
    "Sms",
    "Snapshot",
    "StaleTimestamp",
    "Suspended",
    "Topup",
    "TransactionIdReused",
    "UnreadableAnswer",
    "UpstreamFailed",
    "Usage",
    "Voided",
    "WalletFrozen",
    "WebhookError",
    "WebhookTest",
    "WrongSignature",
    "__version__",
    "verify",
    "verify_notice",
]
