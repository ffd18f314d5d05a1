"""When is a failed webhook attempt retried, and after how many attempts has the delivery failed? (specification 6.7)"""

from collections.abc import Sequence

# The delay before each attempt, in seconds.
SCHEDULE_SECONDS = (0, 5, 30, 120, 600, 3_600, 21_600, 86_400)
JITTER = 0.1


def delay_seconds(
    attempts: int, fraction: float, retry_after: float | None = None, schedule: Sequence[float] = SCHEDULE_SECONDS
) -> float | None:
    """The delay after so many failed attempts; None after the last.

    `fraction` in [0, 1) is a random number that spreads the delay by +-10 %. `retry_after` is the receiver's header in
    seconds: it may lengthen the delay, at most to the next one of the schedule.
    """
    if attempts >= len(schedule):
        return None
    delay = schedule[attempts] * (1 + JITTER * (2 * fraction - 1))
    if retry_after is None or retry_after <= delay:
        return delay
    longest = schedule[min(attempts + 1, len(schedule) - 1)]
    return max(delay, min(retry_after, longest))
