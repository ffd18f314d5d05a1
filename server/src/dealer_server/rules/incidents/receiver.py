"""How is a dealer's receiver of webhooks? By its attempts, and not by what became of deliveries in the end."""

from datetime import datetime
from typing import Literal, NamedTuple

from dealer_server.rules.incidents.health import is_degraded, share_text
from dealer_server.rules.incidents.incident import WEIGHTS, Incident, harm, many
from esim_dealer.wire.vocabulary import EndpointState

Health = Literal["Failing", "Paused", "Degraded", "Healthy", "Not tried", "Not set"]
ORDER: tuple[Health, ...] = ("Failing", "Paused", "Degraded", "Not tried", "Healthy", "Not set")
"""The worst first."""
COUNTED = 1_000
TOLD_FROM = 3
"""Failures in a row: a single one may be a hiccup that the next attempt makes good."""


class Receiver(NamedTuple):
    """`failures`: attempts in a row. `unheard`: webhooks that the dealer has not accepted since its last success,
    COUNTED at most, the oldest of them written at `unheard_since`. `accepted`: of its `attempts` of the last 24 hours,
    where they were counted. `cause`: what was answered to most of those that failed, "" where it is not told.
    `degraded_since`: of one that answers, None where it is not told."""

    tenant_id: int
    dealer: str
    state: EndpointState
    failures: int
    last_success_at: datetime | None = None
    unheard: int = 0
    unheard_since: datetime | None = None
    next_at: datetime | None = None
    accepted: int = 0
    attempts: int = 0
    cause: str = ""
    degraded_since: datetime | None = None


def health(
    state: EndpointState, failures: int, last_success_at: datetime | None, accepted: int = 0, attempts: int = 0
) -> Health:
    """`accepted`: of its `attempts` of the last 24 hours (rules/incidents/health.py)."""
    if state == "NOT_SET":
        return "Not set"
    if state == "DISABLED":
        return "Paused"
    if failures:
        return "Failing"
    if is_degraded(accepted, attempts):
        return "Degraded"
    return "Healthy" if accepted or last_success_at is not None else "Not tried"


def incident(receiver: Receiver, now: datetime, *, own: bool = False) -> Incident | None:
    """What is wrong with a receiver, None for nothing. `own`: it is told to its dealer."""
    whose = "Your endpoint" if own else f"The endpoint of {receiver.dealer}"
    subject, unheard = str(receiver.tenant_id), receiver.unheard
    told = f"{many(unheard, 'webhook', COUNTED)} not delivered" if unheard else ""
    match health(receiver.state, receiver.failures, receiver.last_success_at):
        case "Paused":
            text = f"{whose} answered 410, so nothing is sent to it"
            hurt = harm("RECEIVER", max(unheard, 1), receiver.unheard_since, now)
            return Incident("RECEIVER", subject, "fault", text, None, told, hurt)
        case "Failing" if receiver.failures >= TOLD_FROM or own:
            row = f"{many(receiver.failures, 'failure')} in a row"
            since = receiver.unheard_since
            hurt = harm("RECEIVER", max(unheard, 1), since, now)
            detail = f"{told}, {row}" if told else row
            text = f"{whose} has been failing"
            return Incident("RECEIVER", subject, "fault", text, since, detail, hurt, next_at=receiver.next_at)
        case _ if is_degraded(receiver.accepted, receiver.attempts):
            share = share_text(receiver.accepted, receiver.attempts)
            detail = f"{share} of {many(receiver.attempts, 'attempt')} accepted in the last 24 hours"
            detail += f", mostly failed: {receiver.cause}" if receiver.cause else ""
            hurt = WEIGHTS["RECEIVER"] * (receiver.attempts - receiver.accepted)
            since = receiver.degraded_since
            text = f"{whose} {'has been' if since else 'is'} degraded"
            return Incident("RECEIVER", subject, "degraded", text, since, detail, hurt)
        case _:
            return None
