"""What does the code mean with which a supplier refused? In words for the dealer, who is told of no supplier's name,
and for operators, with what to do first."""

from collections.abc import Mapping
from typing import NamedTuple


class Refused(NamedTuple):
    """What a supplier answered, for operators. `words`: what it means, `first`: what to do first; "" where the code
    says nothing. `raw`: code and message, as the supplier gave them."""

    words: str
    first: str
    raw: str


class _Meaning(NamedTuple):
    for_dealers: str
    for_operators: str
    first: str


ONLY_REFUSED = "the supplier refused it"
_ASKED_AGAIN = "Nothing to do at first: it is asked again. Pause the supplier if this goes on."
_MEANINGS: Mapping[str, _Meaning] = {
    "OUT_OF_STOCK": _Meaning(
        "out of stock", "out of stock", "Ask the supplier for stock, or put another one before it in the routes."
    ),
    "CONFIG": _Meaning(
        "the supplier refused it; the operator looks into it",
        "the supplier does not accept our settings or the route",
        "Compare the package's code and cost in its route with the supplier's, then test the connection.",
    ),
    "BAD_REQUEST": _Meaning(
        ONLY_REFUSED,
        "the supplier does not accept the order as it was sent",
        "Compare the package's code in its route with the supplier's, then ask the supplier.",
    ),
    "CONFLICT": _Meaning(
        "the supplier had a conflict and is asked anew",
        "the supplier has another order or eSIM under the same number",
        "Ask the supplier what it has under this number, then retry the item.",
    ),
    "INSUFFICIENT_FUNDS": _Meaning(
        "the supplier does not take orders at present",
        "our balance at the supplier is too low",
        "Top up our balance at the supplier.",
    ),
    "NOT_ALLOWED": _Meaning(
        ONLY_REFUSED,
        ONLY_REFUSED,
        "Ask the supplier why, or put another one before it in the routes.",
    ),
    "TEMPORARY": _Meaning("the supplier was busy", "the supplier was busy", _ASKED_AGAIN),
}


def refused_text(code: str) -> str:
    """For the dealer; "" for a code that says nothing to it."""
    return _MEANINGS[code].for_dealers if code in _MEANINGS else ""


def refused(reason: str) -> Refused:
    """`reason`: as it is stored, its code first. Also of a purchase that failed in another way: it has no code."""
    meaning = _MEANINGS.get(reason.partition(":")[0])
    return Refused(meaning.for_operators, meaning.first, reason) if meaning else Refused("", "", reason)
