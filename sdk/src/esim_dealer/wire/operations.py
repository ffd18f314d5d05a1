"""Which operations does the API have? One declaration each, for client and server (specification 4)."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from esim_dealer.wire import calls
from esim_dealer.wire.snapshot import Profile, Snapshot
from esim_dealer.wire.vocabulary import Scope

Q = TypeVar("Q", bound=calls.Request)
A = TypeVar("A", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Operation(Generic[Q, A]):
    """`POST {base address}/open-api/v1{path}`: the request it takes, and the `data` it answers.

    `scope`: which AppKeys may call it. read: what only looks; order: what changes orders, eSIMs and webhooks; money:
    what asks for money. `writes`: after a lost answer, the call may have been carried out. `test_only`: served in the
    test environment only.
    """

    path: str
    scope: Scope
    request: type[Q]
    answer: type[A]
    writes: bool = False
    test_only: bool = False


HEALTH = Operation("/health", "read", calls.Empty, calls.Health)
BALANCE = Operation("/account/balance", "read", calls.Empty, calls.Balance)
PACKAGE_LIST = Operation("/package/list", "read", calls.PackageList, calls.Packages)
REGION_LIST = Operation("/region/list", "read", calls.RegionList, calls.Regions)
ORDER = Operation("/esim/order", "order", calls.PlaceOrder, Snapshot, writes=True)
RECHARGE = Operation("/esim/topup", "order", calls.RechargeProfile, Snapshot, writes=True)
ORDER_CHECK = Operation("/esim/order/check", "read", calls.CheckOrder, calls.OrderCheck)
QUERY = Operation("/esim/query", "read", calls.QueryOrder, Snapshot)
ORDER_LIST = Operation("/esim/order/list", "read", calls.OrderList, calls.Orders)
PROFILE_LIST = Operation("/esim/profile/list", "read", calls.ProfileList, calls.Profiles)
PLANS = Operation("/esim/profile/plans", "read", calls.ProfilePlans, calls.Plans)
REFUND = Operation("/esim/refund", "money", calls.RefundOrder, calls.Refund, writes=True)
CANCEL = Operation("/esim/profile/cancel", "order", calls.VoidProfile, calls.Voided, writes=True)
REVOKE = Operation("/esim/profile/revoke", "order", calls.VoidProfile, calls.Voided, writes=True)
SUSPEND = Operation("/esim/profile/suspend", "order", calls.SuspendProfile, calls.Suspended, writes=True)
UNSUSPEND = Operation("/esim/profile/unsuspend", "order", calls.SuspendProfile, calls.Suspended, writes=True)
USAGE = Operation("/esim/profile/usage", "read", calls.ProfileUsage, calls.Usage)
SMS = Operation("/esim/profile/sms", "order", calls.SendSms, calls.Sms, writes=True)
STATEMENT = Operation("/account/statement", "read", calls.Statement, calls.Entries)
TOPUP = Operation("/account/topup", "money", calls.RequestTopup, calls.Topup, writes=True)
TOPUP_QUERY = Operation("/account/topup/query", "read", calls.QueryTopup, calls.Topup)
TOPUP_CANCEL = Operation("/account/topup/cancel", "money", calls.CancelTopup, calls.Topup, writes=True)
WEBHOOK_SET = Operation("/webhook/set", "order", calls.SetWebhook, calls.Webhook, writes=True)
WEBHOOK_QUERY = Operation("/webhook/query", "read", calls.Empty, calls.WebhookState)
WEBHOOK_TEST = Operation("/webhook/test", "order", calls.Empty, calls.WebhookTest)
DELIVERY_LIST = Operation("/webhook/delivery/list", "read", calls.DeliveryList, calls.Deliveries)
DELIVERY_RESEND = Operation("/webhook/delivery/resend", "order", calls.ResendDelivery, calls.Delivery, writes=True)
ADVANCE = Operation("/test/profile/advance", "order", calls.AdvanceProfile, Profile, writes=True, test_only=True)

OPERATIONS: tuple[Operation[Any, Any], ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Operation)
)
"""All of them, in the order of the documentation."""
