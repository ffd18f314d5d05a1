"""Where can an operator do something about an incident?"""

from collections.abc import Sequence
from urllib.parse import quote

from dealer_server.console.shared.concern import Link
from dealer_server.console.shared.permissions import Permissions
from dealer_server.rules.incidents.incident import Incident

MOST = 2
"""Of more suppliers their list is the link."""


def links(incident: Incident, may: Permissions) -> Sequence[Link]:
    """The most useful one first. Pages that this user may not open are left out."""
    subject = quote(incident.subject, safe=":")
    dealer, waiting = f"/console/dealers/{subject}", f"/console/waiting?supplier={subject}"
    of_dealer = f"?dealer={subject}" if subject else ""
    match incident.kind:
        case "WORKER":
            return [Link("View open orders", "/console/orders?status=FULFILLING")]
        case "SUPPLIER":
            lines = [Link("View items", waiting)] if incident.waits else []
            return [*lines, *_suppliers(incident.subject.split(","))]
        case "UNCONFIRMED":
            label = "Settle" if may.terms else "View purchases"
            return [Link(label, "/console/suppliers#unknown"), Link("View items", f"{waiting}&state=PARKED")]
        case "FAILED":
            return [Link("View orders", "/console/orders?status=FAILED")]
        case "RECEIVER" if not subject:
            return [Link("View endpoints", "/console/webhooks/endpoints")]
        case "RECEIVER":
            if incident.level != "fault":
                return [Link("View endpoint", f"/console/webhooks/endpoints/{subject}"), Link("View dealer", dealer)]
            failed = Link("View failed deliveries", f"/console/webhooks?dealer={subject}&status=FAILED")
            return [
                failed,
                *[Link("Resend", f"/console/webhooks/resend?dealer={subject}")] * may.support,
                Link("View dealer", dealer),
            ]
        case "REFUNDS":
            return [Link("Review" if may.money else "View refunds", f"/console/refunds{of_dealer}")]
        case "VOIDS":
            return [Link("View refunds", "/console/refunds?status=REFUNDING")]
        case "TOPUPS":
            return [Link("Review" if may.money else "View top-ups", f"/console/topups{of_dealer}")]
        case "STOCK" if subject and may.terms:
            return [Link("Upload codes", f"/console/packages/{subject}/stock")]
        case "STOCK":
            return [Link("View stock", "/console/suppliers#stock")]
        case "SUSPENDED" | "FROZEN":
            return [
                Link("Edit terms", f"{dealer}#field-{'status' if incident.kind == 'SUSPENDED' else 'frozen'}")
            ] * may.terms
        case "BALANCE":
            return [Link("View dealer", dealer), Link("View statement", f"{dealer}/statement")]
        case "MAILS":
            return [Link("View emails", "/console/mails?status=FAILED")]
        case "TWO_FACTOR":
            return [Link("Set up", "/console/account/totp")]
        case "CREDENTIALS" | "CALLS" | "SECRET" | "PLANS" | "RETURNED" | "UNMAILED":
            return []


def _suppliers(codes: Sequence[str]) -> list[Link]:
    if len(codes) > MOST:
        return [Link("View suppliers", "/console/suppliers")]
    return [
        Link(f"View {code}" if codes[1:] else "View supplier", f"/console/suppliers/{quote(code, safe=':')}")
        for code in codes
    ]
