"""What does the chart of a report that is grouped show? The groups that sold most, and all others together, by day, or
by week where days are many."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

LAYERS = 5
MOST_DAYS = 92  # that are bars of their own
OTHERS = "Other"


class Layer(NamedTuple):
    """The revenue of each bar, in ten-thousandths."""

    name: str
    revenues: Sequence[int]


class Stack(NamedTuple):
    """Layers of bars, the lowest first. `starts`: the first day of each bar."""

    layers: Sequence[Layer]
    starts: Sequence[date]
    weekly: bool


def stack(names: Mapping[object, str], sold: Iterable[tuple[object, date, int]], total: Mapping[date, int]) -> Stack:
    """`names`: of the groups that sold most, by value; `sold`: what each of them sold on a day; `total`: what all did,
    of each day that is shown, the oldest first."""
    weekly = len(total) > MOST_DAYS
    first = next(iter(total))
    bar_of = {day: max(first, day - timedelta(days=day.weekday())) if weekly else day for day in total}
    starts = list(dict.fromkeys(bar_of.values()))
    by_value: dict[object, dict[date, int]] = {value: dict.fromkeys(starts, 0) for value in names}
    for value, day, revenue in sold:
        by_value[value][bar_of[day]] += revenue
    of_all = dict.fromkeys(starts, 0)
    for day, revenue in total.items():
        of_all[bar_of[day]] += revenue
    layers = [Layer(name, list(by_value[value].values())) for value, name in names.items()]
    others = [max(of_bar - sum(layer.revenues[at] for layer in layers), 0) for at, of_bar in enumerate(of_all.values())]
    return Stack([*layers, *([Layer(OTHERS, others)] if any(others) else [])], starts, weekly)
