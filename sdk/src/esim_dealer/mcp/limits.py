"""How much may an agent move in a day? Kept in a file, so that a restart or a second process does not begin anew."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS action (
  transaction_id TEXT PRIMARY KEY,
  day TEXT NOT NULL,
  amount TEXT NOT NULL
)
"""


class LimitReached(Exception):
    """The day's limit leaves no room for the action. Nothing was done."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What was confirmed on one day: orders, recharges and refunds alike."""

    amount: Decimal
    count: int


@dataclass(frozen=True, slots=True)
class DailyLimits:
    """`amount` in the wallet's currency and `count`, per day in UTC; `file` holds what was confirmed."""

    file: Path
    amount: Decimal
    count: int

    def moved(self, day: date) -> Moved:
        with closing(self._open()) as database:
            return _moved(database, day)

    def require_room(self, amount: Decimal, day: date) -> None:
        """Raises LimitReached."""
        self._require_room(self.moved(day), amount)

    def reserve(self, transaction_id: str, amount: Decimal, day: date) -> None:
        """Count an action before it is carried out; one that was counted before is not counted again.

        Raises LimitReached.
        """
        with closing(self._open()) as database:
            database.execute("BEGIN IMMEDIATE")  # another process that reserves waits
            try:
                known = "SELECT 1 FROM action WHERE transaction_id = ?"
                if database.execute(known, (transaction_id,)).fetchone() is None:
                    self._require_room(_moved(database, day), amount)
                    row = (transaction_id, day.isoformat(), str(amount))
                    database.execute("INSERT INTO action VALUES (?, ?, ?)", row)
            finally:
                database.execute("COMMIT")

    def release(self, transaction_id: str) -> None:
        """The action was refused: it does not count."""
        with closing(self._open()) as database:
            database.execute("DELETE FROM action WHERE transaction_id = ?", (transaction_id,))

    def _require_room(self, moved: Moved, amount: Decimal) -> None:
        if moved.count >= self.count:
            raise LimitReached(f"{moved.count} of {self.count} actions of today (UTC) are used; see --daily-count")
        if moved.amount + amount > self.amount:
            raise LimitReached(
                f"{amount} does not fit: {moved.amount} of {self.amount} of today (UTC) are used; see --daily-amount"
            )

    def _open(self) -> sqlite3.Connection:
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.file.touch(mode=0o600)
        database = sqlite3.connect(self.file, timeout=30, isolation_level=None)
        database.execute(_SCHEMA)
        return database


def _moved(database: sqlite3.Connection, day: date) -> Moved:
    amounts = database.execute("SELECT amount FROM action WHERE day = ?", (day.isoformat(),)).fetchall()
    return Moved(sum((Decimal(amount) for (amount,) in amounts), Decimal(0)), len(amounts))
