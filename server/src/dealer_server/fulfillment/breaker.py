"""Keeps new purchases from a supplier that does not answer; what may be there already is still asked about."""

from datetime import datetime, timedelta

from dealer_server.suppliers.contract import Outcome, Rejected, Unknown

FAILURES = 5
OPEN_SECONDS = 30.0


class Breaker:
    """Opens for half a minute after five failures in a row: unknown outcomes and refused connections."""

    def __init__(self) -> None:
        self._failures = 0
        self._open_until: datetime | None = None

    def closed(self, now: datetime) -> bool:
        return self._open_until is None or now >= self._open_until

    def saw(self, outcome: Outcome, now: datetime) -> bool:
        """Whether the supplier answers again after it was left alone."""
        failed = isinstance(outcome, Unknown) or (isinstance(outcome, Rejected) and outcome.code == "TEMPORARY")
        again = not failed and self._failures >= FAILURES
        self._failures = self._failures + 1 if failed else 0
        self._open_until = now + timedelta(seconds=OPEN_SECONDS) if self._failures >= FAILURES else None
        return again
