"""Stops new purchases at a supplier that does not answer. Purchases that may have been made there are still asked
about."""

from datetime import datetime, timedelta

from dealer_server.suppliers.contract import Outcome, Rejected, Unknown

FAILURES = 5
OPEN_SECONDS = 30.0
REFUSALS = 5  # of the whole supplier, in a row: it is paused


class Breaker:
    """Opens for half a minute after five failures in a row: unknown outcomes and refused connections."""

    def __init__(self) -> None:
        self._failures = 0
        self._open_until: datetime | None = None

    def closed(self, now: datetime) -> bool:
        return self._open_until is None or now >= self._open_until

    def record(self, outcome: Outcome, now: datetime) -> bool:
        """Whether the supplier answers again after a time without new purchases."""
        failed = _unanswered(outcome)
        again = not failed and self._failures >= FAILURES
        self._failures = self._failures + 1 if failed else 0
        self._open_until = now + timedelta(seconds=OPEN_SECONDS) if self._failures >= FAILURES else None
        return again


class Refusals:
    """Counts how often in a row a supplier refused us as a whole: our certificate, our credentials. A call without an
    answer neither counts nor ends the row."""

    def __init__(self) -> None:
        self._count = 0
        self._reason = ""

    def record(self, outcome: Outcome) -> None:
        if isinstance(outcome, Rejected) and outcome.whole:
            self._count += 1
            self._reason = f"{outcome.code}: {outcome.message}"
        elif not _unanswered(outcome):
            self._count = 0

    def too_many(self) -> str | None:
        """Why the supplier is to be paused, once; None where it is not."""
        if self._count < REFUSALS:
            return None
        self._count = 0
        return self._reason


def _unanswered(outcome: Outcome) -> bool:
    return isinstance(outcome, Unknown) or (isinstance(outcome, Rejected) and outcome.code == "TEMPORARY")
