"""Who is told that a receiver fails? Dealer and operators, when its breaker opens or it answers 410, once an hour."""

from collections.abc import Sequence
from datetime import datetime

from dealer_server.rules.notices.notice import NewNotice, of_dealer
from dealer_server.store.webhooks.circuit_breaker import EndpointChange, EndpointResults


def notices(results: Sequence[EndpointResults], changes: Sequence[EndpointChange], now: datetime) -> list[NewNotice]:
    """`changes`: what these results changed."""
    urls = {result.tenant_id: result.url for result in results}
    told = list[NewNotice]()
    for change in changes:
        disabled = change.state == "DISABLED"
        if disabled or change.breaker_opened:
            state = "DISABLED" if disabled else "FAILING"
            data = {"callbackUrl": urls[change.tenant_id], "state": state, "failuresInARow": change.failures}
            fact = f"{state}:{now:%Y-%m-%dT%H}:{urls[change.tenant_id]}"
            failing = NewNotice(change.tenant_id, "RECEIVER_FAILING", fact, data)
            told += [failing, *filter(None, [of_dealer(failing, "")])]
    return told
