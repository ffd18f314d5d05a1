"""When is a failed delivery tried again, and when given up? (specification 6.5 rule 7, decisions 6)"""

from collections.abc import Sequence

# The wait before each automatic attempt, in seconds; the first goes at once.
SCHEDULE_SECONDS = (0, 5, 30, 120, 600, 3_600, 21_600, 86_400)
JITTER = 0.1


def delay_seconds(
    attempts: int, fraction: float, retry_after: float | None = None, schedule: Sequence[float] = SCHEDULE_SECONDS
) -> float | None:
    """How long to wait after `attempts` failed ones, or None when they were the last.

    `fraction` in [0, 1) spreads the wait by +-10 %. The receiver's Retry-After (seconds) may lengthen it, to the next
    slot of the schedule at most.
    """
    if attempts >= len(schedule):
        return None
    wait = schedule[attempts] * (1 + JITTER * (2 * fraction - 1))
    if retry_after is None or retry_after <= wait:
        return wait
    longest = schedule[min(attempts + 1, len(schedule) - 1)]
    return max(wait, min(retry_after, longest))
