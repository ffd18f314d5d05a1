"""What time is it? The database's time, in every process. Read at the edges only and passed inward as a value."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
STEP_SECONDS = 1.0
APART_SECONDS = 5.0


def now() -> datetime:
    """This machine's time: for programs that have no database."""
    return datetime.now(UTC)


class DatabaseClock:
    """The database's time: as it was measured last, carried on by this process's monotonic clock.

    The wall clock of this machine is compared with it, to report one that is wrong, and used until the first
    measurement.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time):
        self.monotonic = monotonic
        self._wall = wall
        self._offset = wall() - monotonic()
        self._measured = False
        self._latest = 0.0
        self.ahead_seconds = 0.0
        """How far this machine's wall clock was ahead of the database's when that was measured; negative: behind."""

    def now(self) -> datetime:
        """Never earlier than before, unless the database's time itself was set back by a second or more."""
        at = self._offset + self.monotonic()
        if at < self._latest:
            at = self._latest
        else:
            self._latest = at
        return datetime.fromtimestamp(at, UTC)

    def measured(self, database: float, sent: float) -> None:
        """Takes a measurement: the database's time was `database` between `sent`, by the monotonic clock, and
        now. An offset within these bounds is kept: a slow answer says less than the quicker ones before.
        """
        received = self.monotonic()
        earliest, latest = database - received, database - sent
        before = self._offset if self._measured else (earliest + latest) / 2
        offset = min(max(before, earliest), latest)
        if offset <= self._offset - STEP_SECONDS:
            self._latest = 0.0  # another database server took over, or its clock was set: do not wait for the old time
        self._offset, self._measured = offset, True
        self.ahead_seconds = self._wall() - (offset + received)

    @property
    def apart(self) -> bool:
        """Whether this machine's clock differs from the database's by more than APART_SECONDS."""
        return abs(self.ahead_seconds) > APART_SECONDS
