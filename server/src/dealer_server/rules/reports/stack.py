"""What does the chart of a report that is grouped show? The groups that sold most, and all others together, by day."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from dealer_server.rules import axis

LAYERS = 5
OTHERS = "Other"


class Layer(NamedTuple):
    """The revenue of each day, in ten-thousandths."""

    name: str
    revenues: Sequence[int]


class Stack(NamedTuple):
    """Layers of bars, the lowest first."""

    layers: Sequence[Layer]

    @property
    def sums(self) -> Sequence[int]:
        """Of each day."""
        return [sum(of_day) for of_day in zip(*(layer.revenues for layer in self.layers), strict=True)]

    @property
    def scale(self) -> int:
        """Where the axis ends, in major units."""
        return axis.end(-(-max(self.sums) // 10_000))


def stack(names: Mapping[object, str], sold: Iterable[tuple[object, date, int]], total: Mapping[date, int]) -> Stack:
    """`names`: of the groups that sold most, by value; `sold`: what each of them sold on a day; `total`: what all did,
    of each day that is shown."""
    by_value: dict[object, dict[date, int]] = {value: {} for value in names}
    for value, day, revenue in sold:
        by_value[value][day] = by_value[value].get(day, 0) + revenue
    layers = [Layer(name, [by_value[value].get(day, 0) for day in total]) for value, name in names.items()]
    others = [max(of_day - sum(layer.revenues[at] for layer in layers), 0) for at, of_day in enumerate(total.values())]
    return Stack([*layers, *([Layer(OTHERS, others)] if any(others) else [])])
