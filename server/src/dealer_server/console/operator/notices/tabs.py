"""The tabs of the operator's notices: those that are open, resolved or both, and the emails that tell of them."""

from collections.abc import Sequence
from typing import Literal

from dealer_server.console.auth.notices import NOTICES
from dealer_server.console.shared import params

State = Literal["open", "resolved", "all"]
STATES: tuple[State, ...] = ("open", "resolved", "all")
EMAILS, MAILS = "emails", "/console/mails"


def tabs(kind: str | None = None) -> Sequence[tuple[str, str]]:
    """Pairs of a tab's word and its address. `kind`: of the notices that are listed."""
    states = [(one, params.address(NOTICES, {"state": one if one != "open" else None, "kind": kind})) for one in STATES]
    return [*states, (EMAILS, MAILS)]
