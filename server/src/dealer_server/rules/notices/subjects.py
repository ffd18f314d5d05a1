"""What is a notice to operators about? Notices of one subject are one line of the inbox, and end together."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dealer_server.rules.incidents.incident import Incident, Kind


class Subject(NamedTuple):
    """As an incident names it (rules/incidents/incident.py)."""

    kind: Kind
    name: str = ""


def subject(notice_type: str, data: Mapping[str, Any]) -> Subject | None:
    """None of a notice to dealers, and of one of another version of this program."""
    match notice_type:
        case "SUPPLIER_DOWN":
            return Subject("SUPPLIER", str(data["supplier"]))
        case "STOCK_LOW":
            return Subject("STOCK", str(data["packageCode"]))
        case "QUEUE_OLD":
            return Subject("TOPUPS" if data["queue"] == "TOPUPS" else "REFUNDS")
        case "TOPUP_WAITING":
            return Subject("TOPUPS")
        case "REFUND_WAITING":
            return Subject("REFUNDS")
        case "DEALER_LOW":
            return Subject("BALANCE", str(data["tenantId"]))
        case "DEALER_FAILING":
            return Subject("RECEIVER", str(data["tenantId"]))
        case _:
            return None


def covers(of: Incident, told: Subject) -> bool:
    """Whether an incident is about what was told: one without a subject is about all of its kind."""
    return (told.kind == of.kind and of.subject in ("", told.name)) or (
        told.kind == "BALANCE" and told.name in of.balances
    )


GROUPS: Mapping[str, Sequence[Kind]] = {
    "To review": ("REFUNDS", "TOPUPS", "VOIDS", "FAILED"),
    "Supply": ("SUPPLIER", "STOCK", "UNCONFIRMED"),
    "Dealers": (
        "BALANCE",
        "RECEIVER",
        "SUSPENDED",
        "FROZEN",
        "CREDENTIALS",
        "CALLS",
        "SECRET",
        "PLANS",
        "RETURNED",
        "UNMAILED",
    ),
    "Platform": ("WORKER", "MAILS", "TWO_FACTOR"),
}
"""What kinds of subjects an inbox may be filtered by."""


def group(kind: Kind) -> str:
    return next(name for name, kinds in GROUPS.items() if kind in kinds)
