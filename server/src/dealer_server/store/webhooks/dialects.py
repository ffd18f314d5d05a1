"""Which of a dealer's two receivers is a delivery for: that of our own events, or that of the RT family's?

The row of an endpoint has a URL and a state for each; failures in a row, and with them the circuit breaker, are counted
together (docs/decisions/0050-rt-webhooks.md).
"""

from typing import get_args

from dealer_server.rules.rt import events
from esim_dealer.wire.vocabulary import EventType

RT = "RT_"
"""With this the event types of the RT family's dialect begin in webhook_delivery."""

EVENT_TYPES: tuple[str, ...] = (*get_args(EventType), *[f"{RT}{told}" for told in events.TOLD])
"""Of all deliveries."""


def is_rt(event_type: str) -> bool:
    return event_type.startswith(RT)


def state_of(delivery: str, endpoint: str) -> str:
    """SQL: the state of the receiver of a delivery, by the names of both rows."""
    return f"CASE WHEN starts_with({delivery}.event_type, '{RT}') THEN {endpoint}.rt_state ELSE {endpoint}.state END"


def url_of(delivery: str, endpoint: str) -> str:
    """SQL: its URL."""
    return f"CASE WHEN starts_with({delivery}.event_type, '{RT}') THEN {endpoint}.rt_url ELSE {endpoint}.url END"


def any_active(endpoint: str) -> str:
    """SQL: whether either receives anything."""
    return f"'ACTIVE' IN ({endpoint}.state, {endpoint}.rt_state)"
