"""What does a row of a report come to, and what the whole of it?"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from dealer_server.rules.money import percent


class Sums(NamedTuple):
    """Amounts in ten-thousandths of one currency. sold, refunded: eSIMs and recharges; costed: purchases whose cost is
    known."""

    sold: int = 0
    revenue: int = 0
    refunded: int = 0
    refunds: int = 0
    costed: int = 0
    cost: int = 0

    @property
    def net(self) -> int:
        """What dealers paid and did not get back."""
        return self.revenue - self.refunds

    @property
    def margin(self) -> int:
        return self.net - self.cost

    @property
    def complete(self) -> bool:
        """Whether the cost of all that was sold and not given back is known."""
        return 0 < self.costed >= self.sold - self.refunded

    @property
    def margin_percent(self) -> str:
        """Of what dealers paid, for people; "" where that is nothing."""
        return percent.tenths(self.margin, self.net)

    def margin_is_weak(self, whole: "Sums") -> bool:
        """Whether less than four fifths of the share are left that are left of the whole; beside a loss none is."""
        return whole.margin > 0 and 10 * self.margin * whole.net < 8 * whole.margin * self.net

    def plus(self, other: "Sums") -> "Sums":
        return Sums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class DaySums(NamedTuple):
    day: date
    currency: str
    sums: Sums


def total(sums: Iterable[Sums]) -> Sums:
    """Of one currency."""
    found = Sums()
    for one in sums:
        found = found.plus(one)
    return found


def totals(days: Iterable[DaySums]) -> dict[str, Sums]:
    """By currency, the one in which most was sold first."""
    found: dict[str, Sums] = {}
    for one in days:
        found[one.currency] = found.get(one.currency, Sums()).plus(one.sums)
    return dict(sorted(found.items(), key=lambda item: (-item[1].sold, item[0])))


def series(days: Iterable[DaySums], currency: str, wanted: Sequence[date]) -> list[Sums]:
    """The sums of each day that is wanted, in one currency."""
    known: Mapping[date, Sums] = {one.day: one.sums for one in days if one.currency == currency}
    return [known.get(day, Sums()) for day in wanted]
