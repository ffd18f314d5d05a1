"""What do dealers sell who have been in business for a while? Made-up orders of the last days, so that the console of a
new `dealer-server dev` has something to show. `dealer-server audit` finds nothing wrong with them.
"""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

from dealer_server.dev.lives import Sold
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.orders import identity

POPULAR = (
    *("FR-3GB-30D", "EU-35-5GB-30D", "JP-1GB-7D", "ES-3GB-30D", "TH-10GB-30D", "US-5GB-30D", "EU-35-10GB-30D"),
    *("IT-1GB-7D", "TR-3GB-30D", "GB-1GB-7D", "ID-5GB-30D", "ASIA-13-5GB-30D", "AE-1GB-7D", "MX-3GB-30D"),
)
"""The packages that are sold, the most popular first."""
GROWTH = 1.01  # from one day to the next
WEEKEND = 1.35
DELIVERED_SECONDS = range(1, 6)
IDS_OF_A_SECOND = 900_000


class Dealer(NamedTuple):
    """A dealer whose business is the same in each new data folder. `orders_a_day`: on the last day. `balance`: what is
    left of the money, in USD. `seed`: ten apart, as ids of a second follow from them. `tops_up`: by how many USD at a
    time; `asks`: a top-up waits for review. `receives_days`: since when the dealer receives webhooks, 0: not at all;
    `refuses_each`: of so many webhooks one is refused at its first attempt, 0: none."""

    name: str
    orders_a_day: float
    balance: int
    seed: int
    tops_up: int
    receives_days: int = 0
    refuses_each: int = 0
    asks: bool = False


DEMO = Dealer("Demo dealer", 20, balance=1_000, seed=20, tops_up=500, receives_days=21, refuses_each=37)
OTHERS = (
    Dealer("Alpine Travel", 28, balance=2_480, seed=30, tops_up=1_000, receives_days=14),
    Dealer("Harbour Mobile", 9, balance=315, seed=40, tops_up=250, receives_days=9, refuses_each=11, asks=True),
)
ALL = (DEMO, *OTHERS)


def sold(dealer: Dealer, packages: Mapping[str, Package], days: int, now: datetime) -> list[Sold]:
    """The dealer's orders of so many days before `now`, the oldest first."""
    chance = Random(dealer.seed)
    choices = [packages[code] for code in POPULAR]
    weights = [1 / (rank + 2) for rank in range(len(choices))]
    orders: dict[int, Sold] = {}
    end = now - timedelta(minutes=1)  # by `now` the last one is delivered
    for hour in range(24 * days, 0, -1):
        begin = end - timedelta(hours=hour)
        expected = dealer.orders_a_day / 24 / GROWTH ** (hour / 24) * _busy(begin)
        for _ in range(_poisson(chance, expected)):
            second = int((begin + timedelta(seconds=chance.uniform(0, 3600))).timestamp())
            order_id = identity.first_id_at(second) + chance.randrange(dealer.seed, IDS_OF_A_SECOND, 100)
            [package] = chance.choices(choices, weights)
            [quantity] = chance.choices((1, 2, 3, 4), (80, 14, 4, 2))
            orders[order_id] = Sold(order_id, chance.choice(DELIVERED_SECONDS), package, quantity)
    return [orders[order_id] for order_id in sorted(orders)]


def _busy(at: datetime) -> float:
    """How busy an hour is beside the day's mean."""
    day = WEEKEND if at.weekday() >= 5 else 1.0
    return day * (1 - 0.75 * math.cos((at.hour - 3) / 24 * math.tau))


def _poisson(chance: Random, expected: float) -> int:
    """How many of many unlikely things happen."""
    count, product, end = 0, chance.random(), math.exp(-expected)
    while product > end:
        count, product = count + 1, product * chance.random()
    return count
