"""Where does the axis of a chart begin and end?"""

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

Number = float | Decimal
_UNITS, _TENTHS = (2, 4, 6, 8, 10), (10, 12, 16, 20, 24, 30, 40, 50, 60, 80, 100)


class Axis(NamedTuple):
    """`bottom`: below 0 where a value is."""

    top: int
    bottom: int = 0

    @property
    def marks(self) -> tuple[int, int, int]:
        """The numbers beside it, the highest first."""
        return self.top, (self.top + self.bottom) // 2, self.bottom

    def height(self, value: Number) -> float:
        """Of 100, from the bottom of the chart."""
        return 100 * (float(value) - self.bottom) / (self.top - self.bottom)


def axis(values: Iterable[Number | None]) -> Axis:
    """One that holds all values; None is no value."""
    known = [0, *(value for value in values if value is not None)]
    lowest = math.floor(min(known))
    return Axis(end(math.ceil(max(known))), -end(-lowest) if lowest else 0)


def end(most: int) -> int:
    """A round even number that is no less, so that half of it is a number too."""
    if most <= _UNITS[-1]:
        return next(step for step in _UNITS if step >= most)
    tenth = 10 ** (len(str(most)) - 2)
    return next(step * tenth for step in _TENTHS if step * tenth >= most)
