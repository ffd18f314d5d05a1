"""What is a state called on a page, and does it need attention? The words of the contract, as people read them.

The raw word stays in CSV files, in the API log and in the hint of each badge.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from dealer_server.rules.install.languages import LANGUAGES, Language
from dealer_server.rules.lifecycle.use import Esim, use
from dealer_server.rules.webhooks.answers import NONE
from esim_dealer.wire.vocabulary import ChangeHint

_OTHERWISE = {
    "ADJUST": "Adjustment",
    "AUTO": "Automatic",
    "GIVEN_UP": "Given up",
    "IN_FLIGHT": "Being sent",
    "IN_USE": "In use",
    "NOT_SET": "Not set",
    "ORDER_PAY": "Purchase",
    "PARTIAL": "Partly delivered",
    "PARTIAL_DELIVERED": "Partly delivered",
    "PARKED": "Unconfirmed",
    "PENDING": "Waiting",
    "READY": "Due",
    "RETRY": "Will be retried",
    "REFUNDING": "Being refunded",
    "REVIEW": "In review",
    "SKIPPED": "Not sent",
    "SUPERSEDED": "Replaced by a newer one",
    "TOPUP": "Top-up",
    "FULFILLING": "Being delivered",
    "ACTIVATING": "Being activated",
    "CALLING": "Being asked",
    "CONNECT": "No connection",
    "DNS": "Name not found",
    "RESET": "Connection reset",
    "TLS": "TLS error",
    "UNKNOWN": "Asked again",
    "GOT_RESOURCE": "Allocated",
    "RT_ORDER_STATUS": "RT: order status",
    "RT_SMDP_EVENT": "RT: SM-DP+ status",
    "RT_ESIM_STATUS": "RT: eSIM status",
    "RT_DATA_USAGE": "RT: data usage",
    "RT_VALIDITY_USAGE": "RT: plan ends tomorrow",
    "USDT": "USDT",
}
HINTS: Mapping[ChangeHint, str] = {
    "ICCID_READY": "ICCID ready",
    "QR_CODE_READY": "QR code ready",
    "ACTIVATION_CODE_READY": "Activation code ready",
    "DELIVERY_STATUS_CHANGED": "Delivery status changed",
    "ORDER_STATUS_CHANGED": "Order status changed",
    "ITEM_STATUS_CHANGED": "Item status changed",
    "PROFILE_LIFECYCLE_CHANGED": "eSIM lifecycle changed",
    "ESIM_STATUS_CHANGED": "Device status changed",
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
_LABELS = {
    "low_balance": "Low balance notice below",
    "ipAllow": "IP allowlist",
    "editsIpAllow": "Dealer can edit its IP allowlist",
    "managesKeys": "Dealer can manage AppKeys",
    "markupBasisPoints": "Markup",
    "rtFace": "RT-family API",
    "qps": "Rate limit",
    "frozen": "Wallet frozen",
    "fupSpeed": "Speed after limit",
    "baseUrl": "Base URL",
    "callbackUrl": "Callback URL",
    "message": "Text",
    "payReference": "Payment reference",
    "perSecond": "Rate limit",
    "parallel": "Parallel calls",
    "connectSeconds": "Connect timeout, seconds",
    "readSeconds": "Response timeout, seconds",
    "settleSeconds": "Settle after, seconds",
    "senderIps": "Webhook sender addresses",
    "orderNo": "Order",
    "profileId": "eSIM",
    "refundNo": "Refund",
    "topupNo": "Top-up",
    "appKey": "AppKey",
}
_TONES = {
    "busy": "PENDING PROCESSING DELIVERING IN_FLIGHT QUEUED REFUNDING PARTIALLY_DELIVERED PARTIAL_DELIVERED WAITING"
    " RUNNING DUE CREATED REQUESTED ASKED CALLING RELEASED PAID FULFILLING ACTIVATING PARTIAL INSTALLED",
    "task": "REVIEW IN_REVIEW",
    "warning": "PAUSED SUSPENDED FROZEN PARKED UNKNOWN DEGRADED PROBING LOW OVERDUE RETRY RETRYING"
    " DISABLED HELD NEARLY_USED",
    "bad": "FAILED FAILING GIVEN_UP DEAD DOWN REFUSED ERROR EXHAUSTED BROKEN",
    "lost": "REJECTED",
    "idle": "NOT_INSTALLED NOT_STARTED NOT_SET",
    "done": "USED_UP REFUNDED CANCELLED ENDED SUPERSEDED SKIPPED OFF OFF_SALE",
}
LANGUAGE_NAMES: Mapping[Language, str] = {
    "en": "English",
    "es": "Español",
    "de": "Deutsch",
    "fr": "Français",
    "zh": "中文",
    "ja": "日本語",
}
"""Of the install page."""
assert tuple(LANGUAGE_NAMES) == LANGUAGES, "every language of the install page has a name"
_is_word = re.compile(r"[A-Z][A-Z_]+").fullmatch
_TONE = {word: tone for tone, words in _TONES.items() for word in words.split()}


def text(word: object) -> str:
    """OFF_SALE as "Off sale". What is no word of the contract stays as it is."""
    raw = str(word)
    if raw in _SAID:
        return _SAID[raw]
    return raw.replace("_", " ").capitalize() if _is_word(raw) else raw


def answer(word: str) -> str:
    """What an endpoint answered, by its filter (rules/webhooks/answers.py): HTTP 500; Time-out."""
    if word == NONE:
        return "No response"
    return f"HTTP {word}" if word[:1].isdigit() else text(word)


def label(name: str) -> str:
    """A field of a form or a file as people say it: ipAllow as "IP allowlist", packageName as "Package name"."""
    if name in _LABELS:
        return _LABELS[name]
    if name.startswith("price "):
        return f"Price of {name.removeprefix('price ')}"
    return name if " " in name else re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", name).capitalize()


def tone(word: object) -> str:
    """How a state is drawn: bad, warning and task on a ground of their own, for they need attention; busy, good, idle
    (nothing has happened yet) and done (nothing more happens, such as REFUNDED) as plain text. What failed and needs
    nothing more is "lost". Of several words such as REJECTED OUT_OF_STOCK the first one counts, where they are not one
    state."""
    whole = str(word).upper().replace("-", "_")
    return _TONE.get(whole.replace(" ", "_")) or _TONE.get(whole.partition(" ")[0], "good")


IN_REVIEW = "Refund in review"
"""Of an order or an eSIM whose refund an operator decides about; other refunds under way are credited by themselves."""
FAILED_REFUNDED = "Failed, refunded"
_SHORT = {IN_REVIEW: "In review", FAILED_REFUNDED: "Failed"}


class State(NamedTuple):
    """The state of an order or eSIM in one word or two. `raw`: its words of the contract."""

    text: str
    tone: str
    raw: str

    @property
    def short(self) -> str:
        """On a phone, beside a name; "" where `text` is short enough."""
        return _SHORT.get(self.text, "")


def order_state(order_status: str, delivery_status: str, *, in_review: bool = False) -> State:
    """Of orderStatus and deliveryStatus the one that says more. `in_review`: an operator decides about its refund."""
    raw = f"orderStatus {order_status}, deliveryStatus {delivery_status}"
    match order_status, delivery_status:
        case "REFUNDED", "FAILED":
            return State(FAILED_REFUNDED, "lost", raw)
        case "REFUNDING", _ if in_review:
            return State(IN_REVIEW, tone("REVIEW"), raw)
        case ("REFUNDED" | "REFUNDING") as word, _:
            return State(text(word), tone(word), raw)
        case "COMPLETED", "PARTIAL":
            return State(text("PARTIAL"), tone("COMPLETED"), raw)
        case _, "FAILED" | "DELIVERED" | "PARTIAL":
            return State(text(delivery_status), tone(delivery_status), raw)
        case _:
            return State(text(order_status), tone(order_status), raw)


class _Esim(Esim, Protocol):
    """What of an eSIM its state is made of."""

    @property
    def failed(self) -> bool: ...
    @property
    def refunded(self) -> bool: ...
    @property
    def held(self) -> bool: ...


def esim_state(profile: _Esim, *, suspended: bool = False, in_review: bool = False) -> State:
    """Of its refund, its suspension and its use the one that says most. `in_review`: an operator decides about its
    refund."""
    raw = f"lifecycleStatus {profile.lifecycle_status}, planUseStatus {profile.plan_use_status}"
    if profile.refunded:
        return State(FAILED_REFUNDED, "lost", raw) if profile.failed else State(text("REFUNDED"), "done", raw)
    if profile.held:
        return State(IN_REVIEW, tone("REVIEW"), raw) if in_review else State(text("REFUNDING"), tone("REFUNDING"), raw)
    if profile.failed:
        return State(text("FAILED"), tone("FAILED"), raw)
    if profile.lifecycle_status == "CANCELLED":
        return State(text("CANCELLED"), tone("CANCELLED"), raw)
    if suspended:
        return State(text("SUSPENDED"), tone("SUSPENDED"), raw)
    word = use(profile)
    return State(text(word), tone(word), raw)


class _Item(Protocol):
    """What of an item its state is made of."""

    @property
    def item_status(self) -> str: ...
    @property
    def profiles(self) -> Sequence[_Esim]: ...


def item_state(item: _Item, *, in_review: bool = False) -> State:
    """Of its itemStatus and its eSIMs, so that it agrees with both. Its status tells of their use once any of them is
    used; here it tells of their delivery, for each of them tells of its own use. `in_review`: as of an order."""
    raw = f"itemStatus {item.item_status}"
    if item.item_status == "REFUNDED" and all(profile.failed for profile in item.profiles):
        return State(FAILED_REFUNDED, "lost", raw)
    if item.profiles and all(profile.held for profile in item.profiles):
        if in_review:
            return State(IN_REVIEW, tone("REVIEW"), raw)
        return State(text("REFUNDING"), tone("REFUNDING"), raw)
    word = "DELIVERED" if item.item_status in ("ACTIVATING", "ACTIVATED") else item.item_status
    return State(text(word), tone(word), raw)


def plan_state(status: str, *, refunded: bool, first: bool = False) -> State:
    """Of a plan. `refunded`: its order is. `first`: the eSIM was sold with it, so that it waits for no other plan."""
    if status == "QUEUED" and first:
        return State(text("NOT_STARTED"), tone("NOT_STARTED"), status)
    if status == "FAILED" and refunded:
        return State(FAILED_REFUNDED, tone("REFUNDED"), status)
    return State(text(status), tone(status), status)


def actor(author: str) -> str:
    """Who did something, by the author of the audit log: console:ann as ann, cli:root@vm as root."""
    kind, _, name = author.partition(":")
    if kind == "cli" and name:
        return name.partition("@")[0]
    return name if kind == "console" and name else author.capitalize() if author in ("system", "dealer") else author


def role(name: str) -> str:
    """Of a user: readonly as "Read-only"."""
    return "Read-only" if name == "readonly" else name.capitalize()


def choices(label: str, values: Sequence[str]) -> list[tuple[str, str]]:
    """The options of a filter; `label` is the one that filters nothing."""
    return [("", label), *((value, text(value)) for value in values)]
