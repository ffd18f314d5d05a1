"""Why does an eSIM take so long? In words for its dealer, who is told of no supplier's name and of no message of it."""

from collections.abc import Mapping

_REFUSALS: Mapping[str, str] = {
    "OUT_OF_STOCK": "out of stock",
    "CONFIG": "the supplier refused it; the operator looks into it",
    "BAD_REQUEST": "the supplier refused it",
    "CONFLICT": "the supplier had a conflict and is asked anew",
    "INSUFFICIENT_FUNDS": "the supplier does not take orders at present",
    "NOT_ALLOWED": "the supplier refused it",
    "TEMPORARY": "the supplier was busy",
}
_STATES: Mapping[str, str] = {
    "PENDING": "the supplier is making it",
    "UNKNOWN": "the supplier has not confirmed it yet",
    "PARKED": "the operator is finding out whether it was made",
    "SENT": "the supplier is being asked",
}


def refused_text(code: str) -> str:
    """Of the code with which a supplier refused; "" for one that says nothing to a dealer."""
    return _REFUSALS.get(code, "")


def delay_text(state: str, reason: str, ailing: str) -> str:
    """Of a purchase in this state. `reason`: as it is stored, its code first. `ailing`: "down" or "paused", of its
    supplier. "" where there is nothing to tell."""
    if state == "PLANNED" and ailing:
        return "the supplier does not answer at present" if ailing == "down" else "the supplier is paused at present"
    code = reason.partition(":")[0]
    return refused_text(code) if state == "PLANNED" else _STATES.get(state, "")
