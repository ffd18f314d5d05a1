"""What does the chart of a wallet show? What it held at the end of each day."""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from dealer_server.rules import axis
from dealer_server.rules.money.money import SCALE


class Curve(NamedTuple):
    """`balances`: at the end of each of `days`, in ten-thousandths; the last one is the present one. `low`: below which
    the balance is low, None for no line. top, bottom: where the axis ends, in major units."""

    days: Sequence[date]
    balances: Sequence[int]
    low: int | None
    top: int
    bottom: int

    @property
    def moved(self) -> bool:
        return len(set(self.balances)) > 1

    def height(self, amount: int) -> float:
        """Of 100, from the bottom of the chart."""
        return 100 * (amount / SCALE - self.bottom) / (self.top - self.bottom)


def curve(days: Sequence[date], balances: Sequence[int], low: int | None) -> Curve:
    """A `low` outside of the axis is left out."""
    top = axis.end(-(-max(0, *balances) // SCALE))
    lowest = min(0, *balances)
    bottom = -axis.end(-(lowest // SCALE)) if lowest else 0
    shown = low is not None and bottom * SCALE <= low <= top * SCALE
    return Curve(days, balances, low if shown else None, top, bottom)


def low_balance(threshold: int, credit_limit: int, limits: Sequence[int]) -> int | None:
    """Below which balance the dealer is told: its threshold is of what is available, the `limits` that count without
    one are of the balance."""
    return threshold - credit_limit if threshold else limits[0] if limits else None
