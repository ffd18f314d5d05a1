"""When does fulfillment look at an order line again?"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from dealer_server.fulfillment.retry import retry_seconds
from dealer_server.rules.orders.model import Item
from dealer_server.store.orders.fulfillment import Claimed, Scheduled
from dealer_server.suppliers.contract import FromStock, Outcome, Pending

SOON_SECONDS = 1.0  # not asked yet: this process is stopping, or does not know the package yet
STOCK_SECONDS = 5.0
POLL_BOUNDS_SECONDS = (0.05, 3_600.0)


def schedule(line: Claimed, item: Item, outcomes: Mapping[int, Outcome], now: datetime) -> Scheduled:
    """As soon as any of its profiles needs it, and never again where none waits for codes. `item`: the line as the
    outcomes (by profileId) left it."""
    waiting = [outcomes.get(profile.profile_id) for profile in item.profiles if profile.waiting]
    if not waiting:
        return Scheduled(line.key, None, answered=True)
    seconds = min([_wait_seconds(outcome, line.claims) for outcome in waiting])
    answered = all(isinstance(outcome, Pending) for outcome in waiting)
    return Scheduled(line.key, now + timedelta(seconds=seconds), answered)


def _wait_seconds(outcome: Outcome | None, claims: int) -> float:
    if outcome is None:
        return SOON_SECONDS
    if isinstance(outcome, Pending):
        shortest, longest = POLL_BOUNDS_SECONDS
        return min(max(outcome.poll_after_seconds, shortest), longest)
    if isinstance(outcome, FromStock):
        return STOCK_SECONDS
    return retry_seconds(claims)
