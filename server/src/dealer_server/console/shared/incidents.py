"""An incident as a page shows it: its sentence, and where something can be done about it."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dealer_server.console.shared.concern import Link
from dealer_server.rules.incidents.incident import Incident
from dealer_server.rules.incidents.receiver import Health, health
from dealer_server.store.webhooks.endpoints import Endpoint

Links = Callable[[Incident], Sequence[Link]]


def receiver_health(endpoint: Endpoint | None, accepted: int = 0, attempts: int = 0) -> Health:
    """In a word; None is a dealer that never set a callback URL. `accepted`: of the attempts that the page shows."""
    if endpoint is None:
        return "Not set"
    return health(endpoint.state, endpoint.consecutive_failures, endpoint.last_success_at, accepted, attempts)


class Act(NamedTuple):
    """What ends an incident, or some of it, by one form; `text` says what it does."""

    label: str
    text: str
    action: str


class Effect(NamedTuple):
    """What an incident stops, and where to see more of it. `bad`: nothing else steps in."""

    label: str
    address: str
    bad: bool = False


class IncidentRow(NamedTuple):
    """`impact`: what it stops."""

    incident: Incident
    links: Sequence[Link]
    impact: Sequence[Effect] = ()
    act: Act | None = None


def rows(incidents: Iterable[Incident], links: Links) -> list[IncidentRow]:
    return [IncidentRow(incident, links(incident)) for incident in incidents]
