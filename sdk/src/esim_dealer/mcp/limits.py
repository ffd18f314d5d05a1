"""How much may an agent move in a day? Kept in a file, so that a restart or a second process does not begin anew."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

from esim_dealer.order import money

_SCHEMA = """
CREATE TABLE IF NOT EXISTS action (
  transaction_id TEXT PRIMARY KEY,
  day TEXT NOT NULL,
  amount TEXT NOT NULL
)
"""

LOCKED_SECONDS = 5


class LimitReached(Exception):
    """The day's limit leaves no room for the action. Nothing was done."""


class LimitsUnavailable(Exception):
    """The file of the limits is gone, or cannot be read or written. Nothing was done."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What was confirmed on one day: orders, recharges and refunds alike."""

    amount: Decimal
    count: int


@dataclass(frozen=True, slots=True)
class DailyLimits:
    """`amount` in the wallet's currency and `count`, per day in UTC; `file` holds what was confirmed.

    Each method waits while another process writes the file, and raises LimitsUnavailable.
    """

    file: Path
    amount: Decimal
    count: int

    def check(self) -> None:
        """Whether the file can be used. It is made here, where a server starts, and nowhere else: made anew after it
        was lost, it would begin the day anew."""
        with self._explained():
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.file.touch(mode=0o600)
        with self._opened() as database:
            database.execute(_SCHEMA)

    def moved(self, day: date) -> Moved:
        with self._opened() as database:
            return _moved(database, day)

    def require_room(self, amount: Decimal, day: date) -> None:
        """Raises LimitReached."""
        self._require_room(self.moved(day), amount)

    def reserve(self, transaction_id: str, amount: Decimal, day: date) -> bool:
        """Count an action before it is carried out. False: it was counted before, and is not counted again.

        Raises LimitReached.
        """
        with self._opened() as database:
            database.execute("BEGIN IMMEDIATE")  # another process that reserves waits
            try:
                known = "SELECT 1 FROM action WHERE transaction_id = ?"
                if database.execute(known, (transaction_id,)).fetchone() is not None:
                    return False
                self._require_room(_moved(database, day), amount)
                row = (transaction_id, day.isoformat(), str(amount))
                database.execute("INSERT INTO action VALUES (?, ?, ?)", row)
                return True
            finally:
                database.execute("COMMIT")

    def release(self, transaction_id: str) -> None:
        """The action was refused: it does not count."""
        with self._opened() as database:
            database.execute("DELETE FROM action WHERE transaction_id = ?", (transaction_id,))

    def _require_room(self, moved: Moved, amount: Decimal) -> None:
        if amount < 0:
            raise ValueError(f"amount {amount}: an action moves 0 or more")
        if moved.count >= self.count:
            raise LimitReached(f"{moved.count} of {self.count} actions of today (UTC) are used; see --daily-count")
        if moved.amount + amount > self.amount:
            raise LimitReached(
                f"{amount} does not fit: {moved.amount} of {self.amount} of today (UTC) are used; see --daily-amount"
            )

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        existing = f"{self.file.absolute().as_uri()}?mode=rw"  # a bare name would make the file where it is gone
        with (
            self._explained(),
            closing(sqlite3.connect(existing, uri=True, timeout=LOCKED_SECONDS, isolation_level=None)) as database,
        ):
            yield database

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raises LimitsUnavailable."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise LimitsUnavailable(f"the file of the daily limits, {self.file}, cannot be used: {error}") from error


def _moved(database: sqlite3.Connection, day: date) -> Moved:
    """Raises sqlite3.DataError where an amount cannot be read."""
    rows = database.execute("SELECT amount FROM action WHERE day = ?", (day.isoformat(),)).fetchall()
    try:
        amounts = [money(amount) for (amount,) in rows]
    except (TypeError, ValueError) as error:
        raise sqlite3.DataError(str(error)) from error
    return Moved(sum(amounts, Decimal(0)), len(amounts))
