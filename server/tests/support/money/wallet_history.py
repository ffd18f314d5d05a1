"""Is there one order of everything that was done to a wallet in which every answer is right?

A wallet is a counter: the versions of its ledger are that order. What is left to check is that each answer fits its
place in it, and that what was answered before something else was asked also stands before it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

NEVER = float("inf")


class Shown(NamedTuple):
    """An entry of the ledger as a statement shows it; amounts in ten-thousandths."""

    version: int
    entry_type: str
    amount: int
    balance_after: int


class Entry(NamedTuple):
    """An entry of the ledger."""

    version: int
    entry_type: str
    reference: int
    amount: int
    balance_after: int

    @property
    def shown(self) -> Shown:
        return Shown(self.version, self.entry_type, self.amount, self.balance_after)


class Movement(NamedTuple):
    """What an answer said was booked: a debit of an order, or the credit of a refund."""

    entry_type: str
    reference: int
    amount: int


class Call(NamedTuple):
    """A call and its answer. Times are of one monotonic clock.

    `returned` NEVER: it promised nothing; what it asked for may be booked at any time after it was called, or never.
    `wrote` is what it booked (`repeats`: it or one before it), `balance` what it saw in the wallet, `entries` what it
    saw of the ledger, newest first.
    """

    what: str
    called: float
    returned: float
    wrote: Movement | None = None
    balance: int | None = None
    entries: tuple[Shown, ...] = ()
    repeats: bool = False


def faults(ledger: Sequence[Entry], calls: Sequence[Call]) -> list[str]:
    """What is wrong with a history; nothing where it can be explained. The ledger is in the order of its versions."""
    chained = list(_chain(ledger))
    if chained:
        return chained
    versions = {(one.entry_type, one.reference): one.version for one in ledger}
    return [
        *_bookings(ledger, versions, calls),
        *_reads(ledger, calls),
        *_real_time(ledger, versions, calls),
    ]


def _chain(ledger: Sequence[Entry]) -> Iterator[str]:
    balance = 0
    for number, entry in enumerate(ledger, 1):
        balance += entry.amount
        if entry.version != number or entry.balance_after != balance:
            yield f"{entry} does not follow from the one before"


def _bookings(ledger: Sequence[Entry], versions: Mapping[tuple[str, int], int], calls: Sequence[Call]) -> Iterator[str]:
    """Every acknowledged movement is booked once and as it was said; no other is."""
    if len(versions) != len(ledger):
        yield "a movement is booked twice"
    asked: set[tuple[str, int]] = set()
    for call in calls:
        if call.wrote is None:
            continue
        key = (call.wrote.entry_type, call.wrote.reference)
        asked.add(key)
        version = versions.get(key)
        if version is None and call.returned < NEVER:
            yield f"{call} was acknowledged and is not booked"
        if version is not None and ledger[version - 1].amount != call.wrote.amount:
            yield f"{call} was booked as {ledger[version - 1]}"
    for entry in ledger:
        if entry.entry_type != "ADJUST" and (entry.entry_type, entry.reference) not in asked:
            yield f"nobody asked for {entry}"


def _reads(ledger: Sequence[Entry], calls: Sequence[Call]) -> Iterator[str]:
    """What was seen of the ledger stands there, without a gap."""
    for call in calls:
        if call.entries:
            newest = call.entries[0].version
            if list(call.entries) != [one.shown for one in reversed(ledger[newest - len(call.entries) : newest])]:
                yield f"{call} saw what the ledger does not say"


def _real_time(
    ledger: Sequence[Entry], versions: Mapping[tuple[str, int], int], calls: Sequence[Call]
) -> Iterator[str]:
    """Each call gets the earliest place that its answer and all answers before it allow; none may come too late.

    Taken in the order of their answers, so that all that must stand before a call has its place already.
    """
    called: dict[int, float] = {}
    for call in calls:
        if call.wrote and (version := versions.get(call.wrote[:2])):
            called[version] = min(call.called, called.get(version, NEVER))
    returned: list[float] = []
    reached: list[int] = []  # by the time of each answer: the furthest place that is surely taken
    for call in sorted(calls, key=lambda call: call.returned):
        if call.returned == NEVER:
            break
        before = bisect_left(returned, call.called)
        floor = reached[before - 1] if before else 0
        place = _place(ledger, versions, call, floor)
        if place is None:
            yield f"{call} does not fit behind entry {floor}, which was there when it was called"
            continue
        if called.get(place, 0) > call.returned:
            yield f"{call} saw entry {place} before anybody asked for it"
        returned.append(call.returned)
        reached.append(max(place, reached[-1] if reached else 0))


def _place(ledger: Sequence[Entry], versions: Mapping[tuple[str, int], int], call: Call, floor: int) -> int | None:
    """The version after which the call's answer is true, at `floor` or later; a booking comes behind it, not at it."""
    if call.wrote is not None:
        version = versions.get(call.wrote[:2], 0)
        return version if version > floor or (version and call.repeats) else None
    if call.entries:
        return call.entries[0].version if call.entries[0].version >= floor else None
    if call.balance is None:
        return floor
    later = ledger[max(floor, 1) - 1 :]
    return next((entry.version for entry in later if entry.balance_after == call.balance), None)
