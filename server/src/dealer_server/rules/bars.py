"""How often did something go well in a period, and how often not, by hour or day? What a chart of bars shows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.rules.incidents.health import share_text
from dealer_server.rules.period import HOUR, Period, starts


class Bar(NamedTuple):
    """`start`: when it began."""

    start: datetime
    good: int = 0
    bad: int = 0


class Bars(NamedTuple):
    """`hourly`: each is an hour; else a day."""

    bars: Sequence[Bar]
    good: int
    bad: int
    hourly: bool

    @property
    def total(self) -> int:
        return self.good + self.bad

    @property
    def share(self) -> str:
        """Of what went well."""
        return share_text(self.good, self.total)

    @property
    def bad_share(self) -> str:
        return share_text(self.bad, self.total)


def bars(found: Iterable[Bar], of: Period) -> Bars:
    """Of what began within the period; those without any too."""
    good, bad = Counter[int](), Counter[int]()
    for one in found:
        if of.start <= one.start < of.end:
            at = (one.start - of.start) // of.bucket
            good[at] += one.good
            bad[at] += one.bad
    drawn = [Bar(start, good[at], bad[at]) for at, start in enumerate(starts(of))]
    return Bars(drawn, good.total(), bad.total(), of.bucket == HOUR)
