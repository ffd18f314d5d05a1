"""Which calls of the API did made-up dealers make? One bought each order, and some asked for it afterwards."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

from dealer_server.dev.history import Dealer
from dealer_server.rules.access import latency_histogram
from dealer_server.rules.orders import identity
from dealer_server.store.past.orders import PastOrder
from dealer_server.store.tenants.served_call import ServedCall

ORDER, QUERY = "/open-api/v1/esim/order", "/open-api/v1/esim/query"
_WRITE_SECONDS, _READ_SECONDS = 0.006, 0.002  # the median
_DEVIATION = 0.5  # of the logarithm
_MOST_READS = 4
_BODY_BYTES, _WRITTEN_BYTES, _READ_BYTES = (150, 190), (640, 720), (1_350, 1_520)


class Call(NamedTuple):
    at: datetime
    writes: bool
    seconds: float
    chance: Random  # of the order, for what else there is to say


def made(orders: Iterable[PastOrder], now: datetime) -> list[Call]:
    """The calls until `now`, the oldest first."""
    found: list[Call] = []
    for past in orders:
        at, chance = identity.created_at(past.order.order_id), Random(past.order.order_id)
        found.append(_call(at, _WRITE_SECONDS, chance, writes=True))
        asked = [at + timedelta(seconds=chance.uniform(1, 90)) for _ in range(chance.randrange(_MOST_READS))]
        found += [_call(asked_at, _READ_SECONDS, chance, writes=False) for asked_at in asked if asked_at < now]
    return sorted(found, key=lambda call: call.at)


def _call(at: datetime, median: float, chance: Random, *, writes: bool) -> Call:
    return Call(at, writes, median * chance.lognormvariate(0, _DEVIATION), chance)


def spreads(calls: Iterable[Call]) -> Mapping[tuple[datetime, bool], list[int]]:
    """Calls by how long they took (rules/access/latency_histogram.py), by minute and whether they wrote."""
    found: Mapping[tuple[datetime, bool], list[int]] = defaultdict(lambda: [0] * latency_histogram.BUCKETS)
    for call in calls:
        minute = call.at.replace(second=0, microsecond=0)
        found[minute, call.writes][latency_histogram.bucket(call.seconds)] += 1
    return found


def served(dealer: Dealer, tenant_id: int, calls: Sequence[Call]) -> list[ServedCall]:
    """As the API log shows them."""
    return [
        ServedCall(
            tenant_id=tenant_id,
            at=call.at,
            path=ORDER if call.writes else QUERY,
            request_id=str(uuid.UUID(int=call.chance.getrandbits(128), version=4)),
            trace_id=f"{call.chance.getrandbits(48):012x}-{number:x}",
            address=address(dealer),
            microseconds=int(call.seconds * 1_000_000),
            body_bytes=call.chance.randint(*_BODY_BYTES),
            answer_bytes=call.chance.randint(*(_WRITTEN_BYTES if call.writes else _READ_BYTES)),
        )
        for number, call in enumerate(calls, 1)
    ]


def address(dealer: Dealer) -> str:
    """The dealer's server, at an address kept for documentation (RFC 5737)."""
    return f"203.0.113.{dealer.seed}"
