"""What does a notice say? A subject, a sentence and facts, for mails and for the console.

Names that others have given stand in lines of their own, or are isolated, so that one written from right to left does
not turn what is around it.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from dealer_server.rules import dates
from dealer_server.rules.money.money import grouped
from dealer_server.rules.notices.notice import AnyNoticeType

_TURNING = frozenset(chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C))
_RIGHT_TO_LEFT = ("R", "AL", "AN")

LABELS: Mapping[AnyNoticeType, tuple[str, str]] = {
    "LOW_BALANCE": (
        "Low balance",
        "Below your threshold, or below 25 % and 10 % of the balance after your last top-up.",
    ),
    "TOPUP_REVIEWED": ("Top-up reviewed", "A top-up was approved or rejected."),
    "REFUND_REVIEWED": ("Refund reviewed", "The operator approved or rejected a refund that was in review."),
    "RECEIVER_FAILING": ("Endpoint failing", "Your endpoint does not accept webhooks."),
    "CREDENTIALS_CHANGED": ("AppKey changed", "An AppSecret was reset, or an AppKey was disabled or enabled."),
    "PRICE_CHANGED": ("Price changed", "Your price of a package has changed."),
    "PLANS_ENDING": ("Plans ending", "Plans of your customers end tomorrow without a recharge."),
    "SUPPLIER_DOWN": ("Supplier down", "A supplier does not answer or refuses all calls."),
    "STOCK_LOW": ("Low stock", "A package sold from stock is nearly sold out."),
    "QUEUE_OLD": ("Overdue queue", "Refunds or top-ups have waited too long for review."),
    "TOPUP_WAITING": ("Top-up to review", "A dealer asks for a top-up. One notice until the queue is empty again."),
    "REFUND_WAITING": ("Refund to review", "A refund needs a decision. One notice until the queue is empty again."),
    "DEALER_LOW": ("Dealer's balance low", "A dealer's balance is below what the dealer is told of."),
    "DEALER_FAILING": ("Dealer's endpoint failing", "The endpoint of a dealer does not accept webhooks."),
}
"""For people: what each notice is called, and when it is sent."""


class Text(NamedTuple):
    """`facts`: pairs of label and value. `path`: of the console's page about it, `link` what the link says. `urgent`:
    something does not work."""

    subject: str
    sentence: str
    facts: Sequence[tuple[str, str]]
    path: str
    link: str
    urgent: bool = False


def plain(text: object, most: int = 300) -> str:
    """A text that others have given, in one line, without characters that control or turn the text around it."""
    kept = (" " if unicodedata.category(one) in ("Cc", "Zl", "Zp") else one for one in str(text) if one not in _TURNING)
    line = " ".join("".join(kept).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def isolated(text: object) -> str:
    """The same, for the middle of a sentence: isolated where it has letters that are written from right to left."""
    line = plain(text)
    turned = any(unicodedata.bidirectional(one) in _RIGHT_TO_LEFT for one in line)
    return f"\N{FIRST STRONG ISOLATE}{line}\N{POP DIRECTIONAL ISOLATE}" if turned else line


def text_of(notice_type: str, data: Mapping[str, Any]) -> Text:
    """What a notice says; one of another version of this program says its type."""
    write = _TEXTS.get(notice_type)
    return write(data) if write else Text(plain(notice_type), "", [], "/console/notices", "Notices")


def confirmation(mail: str, expires_at: datetime, path: str) -> Text:
    """For the mail with the link that confirms an address."""
    return Text(
        "Confirm your address",
        "Someone asked for notices to be sent to this address. If it was you, confirm it. If not, ignore this email.",
        [("Address", plain(mail)), ("Link valid until", f"{dates.minute(expires_at)} UTC")],
        path,
        "Confirm this address",
    )


def password_reset(name: str, expires_at: datetime, path: str) -> Text:
    """For the mail with the link to choose another password."""
    return Text(
        "Choose a new password",
        "Someone asked for a new password for this user of the console. If it was you, choose one; the link works once."
        " If not, ignore this email: your password stays as it is.",
        [("Name", plain(name)), ("Link valid until", f"{dates.minute(expires_at)} UTC")],
        path,
        "Choose a new password",
    )


def digest_subject(count: int) -> str:
    return f"{count} notice{'' if count == 1 else 's'}"


def _low_balance(data: Mapping[str, Any]) -> Text:
    currency = plain(data["currency"])
    why = f"{data['percent']} % of the balance after your last top-up" if "percent" in data else "your threshold"
    return Text(
        f"Low balance: {_amount(data['availableBalance'], currency)}",
        f"Your balance is below {_amount(data['below'], currency)}, {why}. Orders above your balance are refused.",
        [
            ("Balance", _amount(data["balance"], currency)),
            ("Available", _amount(data["availableBalance"], currency)),
        ],
        "/console/wallet",
        "Open the wallet",
        urgent=True,
    )


def _topup_reviewed(data: Mapping[str, Any]) -> Text:
    amount, approved = _amount(data["amount"], data["currency"]), data["status"] == "APPROVED"
    reason = [("Reason", plain(data["rejectReason"]))] if data.get("rejectReason") else []
    return Text(
        f"Top-up {'approved' if approved else 'rejected'}: {amount}",
        f"Your top-up of {amount} was {'approved and credited' if approved else 'rejected; nothing was credited'}.",
        [
            ("Top-up", plain(data["topupNo"])),
            ("transactionId", plain(data["transactionId"])),
            *reason,
            ("Balance", _amount(data["balance"], data["currency"])),
        ],
        "/console/wallet/topups",
        "Open the top-ups",
        urgent=not approved,
    )


def _refund_reviewed(data: Mapping[str, Any]) -> Text:
    amount, approved = _amount(data["amount"], data["currency"]), data["status"] == "APPROVED"
    reason = [("Reason", plain(data["rejectReason"]))] if data.get("rejectReason") else []
    return Text(
        f"Refund {'approved' if approved else 'rejected'}: {amount}",
        "It is credited to your wallet." if approved else "Nothing was credited.",
        [("Refund", plain(data["refundNo"])), ("Order", plain(data["orderNo"])), *reason],
        f"/console/orders/{quote(plain(data['orderNo']), safe='')}",
        "Open the order",
        urgent=not approved,
    )


def _credentials_changed(data: Mapping[str, Any]) -> Text:
    key = plain(data["name"], 80) or plain(data["appKey"])
    change = str(data["change"])
    said = {
        "RESET": (f"AppSecret of {isolated(key)} was reset", "Calls and webhooks use the new one."),
        "DISABLED": (f"AppKey {isolated(key)} was disabled", "Its calls are refused."),
        "ENABLED": (f"AppKey {isolated(key)} was enabled", "Its calls are accepted again."),
    }
    subject, sentence = said.get(change, (f"AppKey {isolated(key)} was changed", ""))
    until = [("Previous AppSecret valid until", _time(data["previousUntil"]))] if data.get("previousUntil") else []
    return Text(
        subject,
        f"{sentence} If this was not you, tell your operator.".strip(),
        [("AppKey", plain(data["appKey"])), *until],
        "/console/credentials",
        "Open the credentials",
        urgent=change == "DISABLED",
    )


def _receiver_failing(data: Mapping[str, Any]) -> Text:
    disabled = data["state"] == "DISABLED"
    return Text(
        "Your webhook endpoint is paused" if disabled else "Your webhook endpoint is failing",
        "It answered 410, so no more webhooks are sent. Save the callback URL to resume."
        if disabled
        else f"{int(data['failuresInARow']):,} failures in a row. We retry once a minute;"
        " waiting webhooks are sent as soon as it answers.",
        [("Callback URL", plain(data["callbackUrl"], 600))],
        "/console/webhooks",
        "Open the webhooks",
        urgent=True,
    )


def _price_changed(data: Mapping[str, Any]) -> Text:
    count, currency = int(data["count"]), plain(data["currency"])
    packages = list(data["packages"])
    more = [("And", f"{count - len(packages)} more")] if count > len(packages) else []
    only = packages[0] if count == 1 else None
    return Text(
        f"Prices of {count:,} packages have changed"
        if only is None
        else f"Price of {plain(only['packageCode'])}: {_price(only.get('after'), currency)}",
        "New orders use the new prices.",
        [
            *(
                (
                    f"{plain(one['packageName'], 80)} ({plain(one['packageCode'])})",
                    f"{_price(one.get('before'), currency)} → {_price(one.get('after'), currency)}",
                )
                for one in packages
            ),
            *more,
        ],
        "/console",
        "Open the console",
    )


def _price(amount: object, currency: str) -> str:
    return "not on sale" if amount is None else _amount(amount, currency)


def _amount(text: object, currency: object) -> str:
    return f"{grouped(plain(text))} {plain(currency)}"


def _plans_ending(data: Mapping[str, Any]) -> Text:
    count, plans = int(data["count"]), list(data["plans"])
    more = [("And", f"{count - len(plans):,} more")] if count > len(plans) else []
    return Text(
        f"{count:,} plan{'s end' if count > 1 else ' ends'} on {_day(data['date'])}",
        "Data stops when a plan ends. A recharge before then keeps an eSIM in use, where its package allows one.",
        [
            *((f"eSIM {plain(one['profileId'])} (ICCID …{plain(one['iccid'])[-4:]})", _ending(one)) for one in plans),
            *more,
        ],
        "/console/profiles?ends=soon",
        "Open the eSIMs",
    )


def _ending(plan: Mapping[str, Any]) -> str:
    return f"{plain(plan['packageCode'])}, ends {_time(plan['planUseEndTime'])}"


def _supplier_down(data: Mapping[str, Any]) -> Text:
    supplier, paused = plain(data["supplier"]), data["reason"] == "PAUSED"
    return Text(
        f"Supplier {supplier} is {'paused' if paused else 'down'}",
        "It refuses all our calls, so no new purchases are made until you resume it."
        if paused
        else "It has failed its health checks. Orders go to the next supplier of their route, or wait.",
        [("Supplier", supplier), ("Error", plain(data["detail"]) or "–"), ("Since", _time(data["since"]))],
        f"/console/suppliers/{quote(supplier, safe=':')}",
        "Open the supplier",
        urgent=True,
    )


def _stock_low(data: Mapping[str, Any]) -> Text:
    code, free = plain(data["packageCode"]), int(data["free"])
    return Text(
        f"Low stock: {free} left of {code}",
        f"Fewer than {int(data['below'])} eSIMs of this package are available.",
        [("Package", f"{plain(data['packageName'], 80)} ({code})"), ("Left", f"{free}")],
        f"/console/packages/{quote(code, safe=':')}/stock",
        "Upload codes",
        urgent=free == 0,
    )


def _queue_old(data: Mapping[str, Any]) -> Text:
    count, topups = int(data["count"]), data["queue"] == "TOPUPS"
    things = ("top-up" if topups else "refund") + ("s" if count != 1 else "")
    return Text(
        f"{count:,} {things} waited more than {data['hours']:g} h",
        "They have waited longer than that for a decision.",
        [("Oldest since", _time(data["oldestTime"]))],
        "/console/topups" if topups else "/console/refunds",
        "Open the queue",
    )


def _waiting(data: Mapping[str, Any], thing: str, path: str) -> Text:
    count = int(data["count"])
    things = f"{count:,} {thing}{'s' if count != 1 else ''}"
    return Text(
        f"{things} to review",
        f"{'It waits' if count == 1 else 'The oldest waits'} since {_time(data['oldestTime'])}.",
        [],
        path,
        "Open the queue",
    )


def _topup_waiting(data: Mapping[str, Any]) -> Text:
    return _waiting(data, "top-up", "/console/topups")


def _refund_waiting(data: Mapping[str, Any]) -> Text:
    return _waiting(data, "refund", "/console/refunds")


def _dealer_low(data: Mapping[str, Any]) -> Text:
    currency, dealer = plain(data["currency"]), plain(data["dealer"], 80)
    return Text(
        f"Low balance of {isolated(dealer)}: {_amount(data['availableBalance'], currency)}",
        f"It is below {_amount(data['below'], currency)}. The dealer is told too; orders above it are refused.",
        [("Dealer", f"{dealer} ({plain(data['tenantId'])})"), ("Balance", _amount(data["balance"], currency))],
        f"/console/dealers/{quote(plain(data['tenantId']), safe='')}",
        "Open the dealer",
    )


def _dealer_failing(data: Mapping[str, Any]) -> Text:
    tenant_id, disabled = plain(data["tenantId"]), data["state"] == "DISABLED"
    return Text(
        f"The webhook endpoint of dealer {tenant_id} is {'paused' if disabled else 'failing'}",
        "It answered 410, so no more webhooks are sent until its dealer saves the callback URL."
        if disabled
        else f"{int(data['failuresInARow']):,} failures in a row. It is tried once a minute.",
        [("Callback URL", plain(data["callbackUrl"], 600))],
        f"/console/webhooks/endpoints/{quote(tenant_id, safe='')}",
        "Open the endpoint",
        urgent=disabled,
    )


def _day(text: object) -> str:
    return dates.day(date.fromisoformat(str(text)))


def _time(text: object) -> str:
    return f"{dates.minute(datetime.fromisoformat(str(text)))} UTC"


_TEXTS: Mapping[str, Callable[[Mapping[str, Any]], Text]] = {
    "LOW_BALANCE": _low_balance,
    "TOPUP_REVIEWED": _topup_reviewed,
    "REFUND_REVIEWED": _refund_reviewed,
    "RECEIVER_FAILING": _receiver_failing,
    "CREDENTIALS_CHANGED": _credentials_changed,
    "PRICE_CHANGED": _price_changed,
    "PLANS_ENDING": _plans_ending,
    "SUPPLIER_DOWN": _supplier_down,
    "STOCK_LOW": _stock_low,
    "QUEUE_OLD": _queue_old,
    "TOPUP_WAITING": _topup_waiting,
    "REFUND_WAITING": _refund_waiting,
    "DEALER_LOW": _dealer_low,
    "DEALER_FAILING": _dealer_failing,
}
