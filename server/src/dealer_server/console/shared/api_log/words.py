"""How are the calls of the API, the checks that refuse them and the result codes told of in words?"""

from collections.abc import Mapping
from typing import NamedTuple

# In the order in which a call is checked: it has passed all before the one it failed at.
CHECKS = (
    ("path", "Path"),
    ("query string", "No query string"),
    ("method", "Method POST"),
    ("size", "Body size"),
    ("content type", "Content-Type"),
    ("failed authentications", "Address not locked out"),
    ("headers", "Headers present"),
    ("header form", "Header format"),
    ("active", "Dealer and credential active"),
    ("address", "IP allowlist"),
    ("timestamp", "RT-Timestamp within 5 minutes"),
    ("signature", "X-Signature"),
    ("request id", "RT-RequestID used once"),
    ("QPS", "Rate limit"),
    ("JSON", "JSON"),
    ("parameters", "Parameters"),
    ("operation", "Operation"),
)
MEANINGS: Mapping[str, str] = {
    "000001": "Server error",
    "000101": "Header missing",
    "000102": "Header malformed",
    "000103": "Not a POST",
    "000104": "Body is not JSON",
    "000105": "Parameter missing",
    "000106": "Parameter empty",
    "000107": "Parameter too long",
    "000108": "Parameter invalid",
    "000109": "Content-Type wrong",
    "000110": "Body too large",
    "000111": "Parameter not accepted",
    "000112": "Path unknown",
    "101001": "Timestamp too far off",
    "101002": "Address not allowed",
    "101003": "Signature wrong",
    "101004": "RT-RequestID used before",
    "101005": "AppKey unknown",
    "101006": "Dealer or AppKey disabled",
    "101007": "Scope missing",
    "101013": "Too many calls",
    "900001": "Busy or in maintenance",
    "900002": "Supplier failed",
    "200002": "Status forbids it",
    "200003": "Nothing to refund",
    "200004": "Refund in progress",
    "200005": "Price differs",
    "200006": "Amount differs",
    "200007": "Balance too low",
    "200008": "Lines inconsistent",
    "200010": "No codes yet",
    "200011": "Out of stock",
    "200014": "Not on sale",
    "200015": "Currency differs",
    "200020": "Wallet frozen",
    "200021": "Too many top-ups waiting",
    "200022": "Not supported by the supplier",
    "310241": "Package unknown",
    "310272": "Order or delivery unknown",
    "310274": "Item not in the order",
    "310402": "transactionId used before",
    "310403": "Profile not in the item",
    "310404": "eSIM unknown",
    "310405": "Top-up unknown",
    "310501": "Callback URL refused",
}
"""What result codes mean, in a few words."""
API = "/open-api/v1"
"""What paths begin with."""
SLOW_MS = 1_000
"""Calls that took longer stand out."""
OPERATIONS: Mapping[str, str] = {
    "/health": "Check the connection",
    "/account/balance": "Read the balance",
    "/account/statement": "Read the statement",
    "/account/topup": "Request a top-up",
    "/account/topup/query": "Read a top-up",
    "/account/topup/cancel": "Withdraw a top-up",
    "/package/list": "List packages",
    "/region/list": "List regions",
    "/esim/order": "Place an order",
    "/esim/order/check": "Check an order",
    "/esim/order/list": "List orders",
    "/esim/query": "Read an order",
    "/esim/topup": "Recharge an eSIM",
    "/esim/refund": "Request a refund",
    "/esim/profile/list": "List eSIMs",
    "/esim/profile/plans": "List the plans of an eSIM",
    "/esim/profile/usage": "Read the usage of an eSIM",
    "/esim/profile/cancel": "Cancel an eSIM",
    "/esim/profile/revoke": "Revoke an eSIM",
    "/esim/profile/suspend": "Suspend an eSIM",
    "/esim/profile/unsuspend": "Resume an eSIM",
    "/esim/profile/sms": "Send an SMS",
    "/webhook/set": "Set the callback URL",
    "/webhook/query": "Read the callback URL",
    "/webhook/test": "Send a test event",
    "/webhook/delivery/list": "List webhook deliveries",
    "/webhook/delivery/resend": "Resend a webhook",
    "/test/profile/advance": "Advance a test eSIM",
}
"""What each path does, without what it begins with."""


class Log(NamedTuple):
    """Whose log, and where its pages are. `dealer`: the dealer's name, for an operator."""

    tenant_id: int
    path: str
    dealer: str = ""


def meaning(code: str) -> str:
    """Signature wrong (101003)."""
    return f"{MEANINGS.get(code, 'Refused')} ({code})"


def place(path: str) -> str:
    """A path without what all begin with."""
    return path.removeprefix(API)


def operation(path: str) -> str:
    """Place an order; "" of a path that is none of ours."""
    return OPERATIONS.get(place(path), "")
