"""What does the statement of a wallet say of a month? Every figure follows from sums of ledger entries."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Literal, NamedTuple

from dealer_server.rules.reports.period import DAY, Period

Kind = Literal["PURCHASE", "RECHARGE", "REFUND", "TOPUP", "ADJUST"]
KINDS: Mapping[Kind, str] = {
    "TOPUP": "Top-ups",
    "REFUND": "Refunds",
    "ADJUST": "Adjustments",
    "PURCHASE": "Purchases",
    "RECHARGE": "Recharges",
}
"""Credits first."""


class DayEntries(NamedTuple):
    """The entries of one kind on one day, and their sum."""

    day: date
    kind: Kind
    entries: int
    amount: int


class Movement(NamedTuple):
    """The entries of one kind, and their sum: below 0 for money that left the wallet."""

    kind: Kind
    entries: int
    amount: int


class DayBalance(NamedTuple):
    """A day with movements: what each kind came to, and the balance at its end."""

    day: date
    entries: int
    amounts: Mapping[Kind, int]
    balance: int


class Account(NamedTuple):
    """A wallet between two days. opening + the amounts of the movements = closing."""

    opening: int
    movements: Sequence[Movement]
    days: Sequence[DayBalance]
    closing: int

    @property
    def entries(self) -> int:
        return sum(movement.entries for movement in self.movements)


def account(opening: int, entries: Iterable[DayEntries], period: Period) -> Account:
    """`opening`: the sum of all entries before the period. Each kind has a movement, also where nothing moved."""
    by_day: dict[date, dict[Kind, DayEntries]] = {}
    for one in entries:
        assert period.first <= one.day <= period.last, "the entries are those of the period"
        by_day.setdefault(one.day, {})[one.kind] = one
    movements = []
    for kind in KINDS:
        found = [kinds[kind] for kinds in by_day.values() if kind in kinds]
        movements.append(Movement(kind, sum(one.entries for one in found), sum(one.amount for one in found)))
    days, balance = list[DayBalance](), opening
    for day in sorted(by_day):
        amounts: dict[Kind, int] = {kind: one.amount for kind, one in by_day[day].items()}
        balance += sum(amounts.values())
        days.append(DayBalance(day, sum(one.entries for one in by_day[day].values()), amounts, balance))
    return Account(opening, movements, days, balance)


def before(period: Period) -> date:
    """The day at whose end the opening balance stood."""
    return period.first - DAY
