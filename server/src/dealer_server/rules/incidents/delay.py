"""Why does an eSIM take so long? In words for its dealer, who is told of no supplier's name and of no message of it."""

from collections.abc import Mapping

from dealer_server.rules.incidents.refused import refused_text

_STATES: Mapping[str, str] = {
    "PENDING": "the supplier is making it",
    "UNKNOWN": "the supplier has not confirmed it yet",
    "PARKED": "the operator is finding out whether it was made",
    "SENT": "the supplier is being asked",
}


def delay_text(state: str, reason: str, ailing: str) -> str:
    """Of a purchase in this state. `reason`: as it is stored, its code first. `ailing`: "down" or "paused", of its
    supplier. "" where there is nothing to tell."""
    if state == "PLANNED" and ailing:
        return "the supplier does not answer at present" if ailing == "down" else "the supplier is paused at present"
    code = reason.partition(":")[0]
    return refused_text(code) if state == "PLANNED" else _STATES.get(state, "")
