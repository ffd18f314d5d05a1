"""How long until something that failed is tried again?"""

FIRST_SECONDS, LONGEST_SECONDS = 5.0, 600.0
FIRST_AFTER_LOCK_SECONDS = 1.0


def retry_seconds(failures: int, first_seconds: float = FIRST_SECONDS) -> float:
    """The wait after so many failures in a row: 5 s, doubled each time, 10 min at most."""
    return min(first_seconds * 2 ** min(failures - 1, 20), LONGEST_SECONDS)


def lock_retry_seconds(failures: int) -> float:
    """The same where only a lock was in the way: 1 s at first."""
    return retry_seconds(failures, FIRST_AFTER_LOCK_SECONDS)
