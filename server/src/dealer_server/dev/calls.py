"""How long did the API answer the calls of made-up orders? One call buys, and some ask for the order afterwards."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from random import Random

from dealer_server.rules.access import latency_histogram
from dealer_server.rules.orders import identity
from dealer_server.store.past.orders import PastOrder

Spreads = Mapping[tuple[datetime, bool], list[int]]
"""Calls by how long they took (rules/access/latency_histogram.py), by minute and whether they wrote."""

_WRITE_SECONDS, _READ_SECONDS = 0.006, 0.002  # the median
_DEVIATION = 0.5  # of the logarithm
_MOST_READS = 4


def spreads(orders: Iterable[PastOrder], now: datetime) -> Spreads:
    """Of the calls until `now`."""
    found: Spreads = defaultdict(lambda: [0] * latency_histogram.BUCKETS)
    for past in orders:
        at, chance = identity.created_at(past.order.order_id), Random(past.order.order_id)
        _count(found, at, _WRITE_SECONDS, chance, writes=True)
        for _ in range(chance.randrange(_MOST_READS)):
            if (asked_at := at + timedelta(seconds=chance.uniform(1, 90))) < now:
                _count(found, asked_at, _READ_SECONDS, chance, writes=False)
    return found


def _count(found: Spreads, at: datetime, median: float, chance: Random, *, writes: bool) -> None:
    seconds = median * chance.lognormvariate(0, _DEVIATION)
    found[at.replace(second=0, microsecond=0), writes][latency_histogram.bucket(seconds)] += 1
