"""What is a state called on a page, and does it need attention? The words of the contract, as people read them.

The raw word stays in CSV files, in the API log and in the hint of each badge.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from esim_dealer.wire.vocabulary import ChangeHint

_OTHERWISE = {
    "GIVEN_UP": "Given up",
    "IN_FLIGHT": "Being sent",
    "IN_USE": "In use",
    "NOT_SET": "Not set",
    "ORDER_PAY": "Order",
    "PARTIAL": "Partly delivered",
    "PARTIAL_DELIVERED": "Partly delivered",
    "PARKED": "Unconfirmed",
    "PENDING": "Waiting",
    "READY": "Due",
    "RETRY": "Will be retried",
    "REFUNDING": "Being refunded",
    "REVIEW": "In review",
    "SKIPPED": "Not needed",
    "SUPERSEDED": "Replaced by a newer one",
    "TOPUP": "Top-up",
    "FULFILLING": "Being delivered",
    "ACTIVATING": "Being activated",
    "CALLING": "Being asked",
    "UNKNOWN": "Asked again",
}
HINTS: Mapping[ChangeHint, str] = {
    "ICCID_READY": "ICCID ready",
    "QR_CODE_READY": "QR code ready",
    "ACTIVATION_CODE_READY": "Activation code ready",
    "DELIVERY_STATUS_CHANGED": "Delivery status changed",
    "ORDER_STATUS_CHANGED": "Order status changed",
    "ITEM_STATUS_CHANGED": "Item status changed",
    "PROFILE_LIFECYCLE_CHANGED": "eSIM lifecycle changed",
    "ESIM_STATUS_CHANGED": "Status on the device changed",
    "SMDP_STATUS_CHANGED": "SM-DP+ status changed",
    "PLAN_USE_STARTED": "Plan started",
    "PLAN_USE_ENDED": "Plan ended",
    "USAGE_UPDATED": "Usage updated",
    "PROFILE_CANCELLED": "eSIM cancelled",
    "REFUND_AMOUNT_UPDATED": "Refunded amount updated",
    "ORDER_PAID": "Order paid",
    "REFUND_COMPLETED": "Refund completed",
    "ORDER_SNAPSHOT_SYNC": "Current state sent",
}
"""What a webhook says has changed."""
_SAID = _OTHERWISE | HINTS
_LABELS = {"ipAllow": "IP allowlist", "editsIpAllow": "The dealer may edit its IP allowlist",
           "managesKeys": "The dealer may manage its AppKeys", "markupBasisPoints": "Markup, hundredths of a percent",
           "qps": "Calls a second", "frozen": "Wallet frozen", "fupSpeed": "Speed after the limit"}  # fmt: skip
_TONES = {
    "busy": "PENDING PROCESSING DELIVERING IN_FLIGHT QUEUED REFUNDING PARTIALLY_DELIVERED PARTIAL_DELIVERED WAITING"
    " RUNNING DUE CREATED REQUESTED ASKED CALLING RELEASED PAID FULFILLING ACTIVATING PARTIAL",
    "warning": "PAUSED SUSPENDED FROZEN PARKED UNKNOWN REVIEW DEGRADED PROBING LOW OVERDUE RETRY RETRYING IN_REVIEW"
    " DISABLED",
    "bad": "FAILED FAILING REJECTED GIVEN_UP DEAD DOWN REFUSED ERROR EXHAUSTED BROKEN",
    "done": "REFUNDED CANCELLED ENDED SUPERSEDED SKIPPED OFF OFF_SALE NOT_SET NOT_STARTED",
}
_is_word = re.compile(r"[A-Z][A-Z_]+").fullmatch
_TONE = {word: tone for tone, words in _TONES.items() for word in words.split()}


def text(word: object) -> str:
    """OFF_SALE as "Off sale". What is no word of the contract stays as it is."""
    raw = str(word)
    if raw in _SAID:
        return _SAID[raw]
    return raw.replace("_", " ").capitalize() if _is_word(raw) else raw


def label(name: str) -> str:
    """A field of a form or a file as people say it: ipAllow as "IP allowlist", packageName as "Package name"."""
    if name in _LABELS:
        return _LABELS[name]
    return name if " " in name else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()


def tone(word: object) -> str:
    """How a state is drawn: bad and warning in a colour, for they need attention; busy, good and done (nothing more
    happens, such as REFUNDED) without one."""
    return _TONE.get(str(word).upper().replace(" ", "_").replace("-", "_"), "good")


class OrderState(NamedTuple):
    """An order's state in one word or two. `raw`: its words of the contract."""

    text: str
    tone: str
    raw: str


def order_state(order_status: str, delivery_status: str) -> OrderState:
    """Of orderStatus and deliveryStatus the one that says more."""
    raw = f"orderStatus {order_status}, deliveryStatus {delivery_status}"
    match order_status, delivery_status:
        case "REFUNDED", "FAILED":
            return OrderState("Failed, refunded", tone("REFUNDED"), raw)
        case ("REFUNDED" | "REFUNDING") as word, _:
            return OrderState(text(word), tone(word), raw)
        case "COMPLETED", "PARTIAL":
            return OrderState(text("PARTIAL"), tone("COMPLETED"), raw)
        case _, "FAILED" | "DELIVERED" | "PARTIAL":
            return OrderState(text(delivery_status), tone(delivery_status), raw)
        case _:
            return OrderState(text(order_status), tone(order_status), raw)


def choices(label: str, values: Sequence[str]) -> list[tuple[str, str]]:
    """The options of a filter; `label` is the one that filters nothing."""
    return [("", label), *((value, text(value)) for value in values)]
