"""What do suppliers' answers mean for an order line? Pure: which profiles get codes or fail, and when to look again."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from dealer_server.rules.delivery.delivery import Codes, Failed
from dealer_server.rules.orders.model import Item
from dealer_server.store.orders.fulfillment import Claimed, Scheduled
from dealer_server.suppliers.contract import Done, FromStock, Outcome, Pending, Rejected, Unit

SOON_SECONDS = 1.0  # not asked yet: this process is stopping, or does not know the package yet
STOCK_SECONDS = 5.0
POLL_BOUNDS_SECONDS = (0.05, 3_600.0)
RETRY_SECONDS, RETRY_LONGEST_SECONDS = 5.0, 600.0


def found(
    outcomes: Mapping[int, Outcome], units: Mapping[int, Unit], token: Callable[[], str]
) -> dict[int, Codes | Failed]:
    """What is settled by the answers alone. `token` makes the secret part of a QR link."""
    settled: dict[int, Codes | Failed] = {}
    for profile_id, outcome in outcomes.items():
        if isinstance(outcome, Done):
            settled[profile_id] = Codes(
                outcome.iccid,
                outcome.activation_code,
                token(),
                outcome.esim_status,
                outcome.smdp_status,
                units[profile_id].data_bytes,
            )
        elif isinstance(outcome, Rejected) and outcome.code != "TEMPORARY":
            settled[profile_id] = Failed()
    return settled


def schedule(line: Claimed, item: Item, outcomes: Mapping[int, Outcome], now: datetime) -> Scheduled:
    """When fulfillment looks at the line again, given the item as the answers left it: as soon as any profile wants it,
    and never again where none waits for codes."""
    waiting = [
        outcomes.get(profile.profile_id)
        for profile in item.profiles
        if profile.lifecycle_status == "PENDING" and not profile.failed and not profile.held
    ]
    if not waiting:
        return Scheduled(line.key, None, True)
    seconds = min([_wait_seconds(outcome, line.claims) for outcome in waiting])
    answered = all(isinstance(outcome, Pending) for outcome in waiting)
    return Scheduled(line.key, now + timedelta(seconds=seconds), answered)


def retry_seconds(claims: int) -> float:
    """The wait after so many claims in a row that led to nothing: 5 s, doubled each time, 10 min at most."""
    return min(RETRY_SECONDS * 2 ** min(claims - 1, 20), RETRY_LONGEST_SECONDS)


def _wait_seconds(outcome: Outcome | None, claims: int) -> float:
    if outcome is None:
        return SOON_SECONDS
    if isinstance(outcome, Pending):
        shortest, longest = POLL_BOUNDS_SECONDS
        return min(max(outcome.poll_after_seconds, shortest), longest)
    if isinstance(outcome, FromStock):
        return STOCK_SECONDS
    return retry_seconds(claims)
