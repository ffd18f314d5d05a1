"""Does the refund policy cover an eSIM as it is now? What was used or installed is refunded by an operator alone."""

from typing import Literal

from dealer_server.rules.lifecycle.use import Esim, is_installed

Objection = Literal["USED", "INSTALLED"]
POLICY = "eSIMs that were used or installed are not refunded."


def objection(esim: Esim) -> Objection | None:
    """What speaks against a refund; None where the policy covers it."""
    if esim.data_usage_bytes or esim.plan_use_status != "NOT_STARTED":
        return "USED"
    return "INSTALLED" if is_installed(esim) else None
