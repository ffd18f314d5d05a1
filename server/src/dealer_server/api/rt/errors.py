"""How is a refusal written in the RT family's form? Its number, its message in the family's names, its HTTP status."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dealer_server.rules import refusal
from dealer_server.rules.money import money
from dealer_server.rules.refunds.refund import REASON_TEXTS

NUMBERS: Mapping[str, str] = {
    "000108": "000105",
    "000109": "000102",
    "000110": "000107",
    "000111": "000105",
    "101004": "101003",
    "101005": "101003",
    "101006": "101003",
    "101007": "101003",
    "200003": "200002",
    "200004": "200002",
    "200014": "310243",
    "200015": "200008",
    "200020": "200007",
    "200021": "200002",
    "200022": "200002",
    "310274": "310403",
    "310402": "200008",
    "310404": "310403",
    "310405": "310272",
    "310501": "000105",
    "900002": "900001",
}
"""Our numbers that the family does not have, as its own; all others are the same."""

_UNDERSTOOD = 200
_STATUS = {"000001": 500, "000103": 405, "000110": 413, "000112": 404, "101013": 429, "900001": 503, "900002": 503}
"""By our number; every other call was understood, and is answered 200."""
_NAMES = (
    (re.compile(r"\bitems\b(?=\[|\.| )"), "packageInfoList"),
    (re.compile(r"(?<=\]\.)quantity\b"), "count"),
    (re.compile(r"\bcallbackUrl\b"), "webhook"),
    (re.compile(r"\bX-Signature\b"), "RT-Signature"),
    (re.compile(r"\bprofileId\b"), "esimTranNo"),
    (re.compile(r"/package/list with type TOPUP"), "package/list with type TOPUP"),
)


def number(code: str) -> str:
    return NUMBERS.get(code, code)


def status(code: str) -> int:
    return _STATUS.get(code, _UNDERSTOOD)


def message(why: refusal.Refusal) -> str:
    """What is wrong and what is accepted, in the names of the family's parameters and in its unit of money. What our
    answer has in `data` stands in the message: theirs has no place for it."""
    words = _WORDS.get(why.code)
    if words is not None and (text := words(why.data)):
        return text
    text = why.message
    for ours, theirs in _NAMES:
        text = ours.sub(theirs, text)
    return text


def _price(data: Mapping[str, Any]) -> str:
    if "lines" in data:
        line = data["lines"][0]
        units = money.parse_fine(line["expectedPrice"])
        where = f"packageInfoList[{line['index']}].price is not your price of {line['packageCode']}"
        return f"{where}; accepted: {units} (ten-thousandths of {line['currency']})"
    return ""


def _amount(data: Mapping[str, Any]) -> str:
    if "expectedAmount" in data:
        units = money.parse_fine(data["expectedAmount"])
        return f"amount is not the sum of price x count x periodNum; accepted: {units} (ten-thousandths)"
    return ""


def _not_refundable(data: Mapping[str, Any]) -> str:
    """A call of the family names one eSIM."""
    if "profiles" in data:
        reason = data["profiles"][0]["reason"]
        return f"this eSIM cannot be given back: {reason} ({REASON_TEXTS[reason]})"
    return ""


def _no_order(data: Mapping[str, Any]) -> str:
    """A call of the family names an order by orderNo alone."""
    return "orderNo names no order of yours"


_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "200003": _not_refundable,
    "200005": _price,
    "200006": _amount,
    "310272": _no_order,
    "000112": lambda _: (
        "No such path. Operations are POST {base}/api/v1/open/..., as /docs/guides/rt-clients lists them."
    ),
}
