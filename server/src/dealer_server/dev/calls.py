"""Which calls of the API did made-up dealers make? One bought each order, and some asked for it afterwards."""

import hashlib
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

import msgspec

from dealer_server.dev.history import Dealer
from dealer_server.rules.access import latency_histogram
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.rules.refusal import PackageUnknown, ParameterInvalid, Refusal, SignatureMismatch
from dealer_server.store.console.api_log import RefusedCall
from dealer_server.store.past.orders import PastOrder
from dealer_server.store.tenants.served_call import ServedCall

ORDER, QUERY = "/open-api/v1/esim/order", "/open-api/v1/esim/query"
_WRITE_SECONDS, _READ_SECONDS = 0.006, 0.002  # the median
_DEVIATION = 0.5  # of the logarithm
_MOST_READS = 4
_BODY_BYTES, _WRITTEN_BYTES, _READ_BYTES = (150, 190), (640, 720), (1_350, 1_520)
_ONE_OF = 25  # orders, before which there was a mistake
_MISTAKES: tuple[tuple[Refusal, str, dict[str, object]], ...] = (
    (PackageUnknown("items[0].packageCode 'FR-3GB-30DAYS' does not exist"), "operation",
     {"packageCode": "FR-3GB-30DAYS"}),
    (ParameterInvalid("Expected `int` >= 1 - at `$.items[0].quantity`"), "parameters", {"quantity": 0}),
    (SignatureMismatch(), "signature", {}),
)  # fmt: skip


class Call(NamedTuple):
    at: datetime
    writes: bool
    seconds: float
    chance: Random  # of the order, for what else there is to say
    order: Order


def made(orders: Iterable[PastOrder], now: datetime) -> list[Call]:
    """The calls until `now`, the oldest first."""
    found: list[Call] = []
    for past in orders:
        at, chance = identity.created_at(past.order.order_id), Random(past.order.order_id)
        found.append(_call(past.order, at, _WRITE_SECONDS, chance, writes=True))
        asked = [at + timedelta(seconds=chance.uniform(1, 90)) for _ in range(chance.randrange(_MOST_READS))]
        found += [_call(past.order, one, _READ_SECONDS, chance, writes=False) for one in asked if one < now]
    return sorted(found, key=lambda call: call.at)


def _call(order: Order, at: datetime, median: float, chance: Random, *, writes: bool) -> Call:
    return Call(at, writes, median * chance.lognormvariate(0, _DEVIATION), chance, order)


def spreads(calls: Iterable[Call]) -> Mapping[tuple[datetime, bool], list[int]]:
    """Calls by how long they took (rules/access/latency_histogram.py), by minute and whether they wrote."""
    found: Mapping[tuple[datetime, bool], list[int]] = defaultdict(lambda: [0] * latency_histogram.BUCKETS)
    for call in calls:
        minute = call.at.replace(second=0, microsecond=0)
        found[minute, call.writes][latency_histogram.bucket(call.seconds)] += 1
    return found


def served(dealer: Dealer, tenant_id: int, app_key: str, calls: Sequence[Call]) -> list[ServedCall]:
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
            app_key=app_key,
            subject_kind="transactionId" if call.writes else "orderNo",
            subject=call.order.transaction_id if call.writes else identity.order_no(call.order.order_id),
        )
        for number, call in enumerate(calls, 1)
    ]


def refused(dealer: Dealer, tenant_id: int, app_key: str, calls: Sequence[Call]) -> list[RefusedCall]:
    """Some that bought were wrong at first, and came a little before those that were right."""
    wrong = [call for call in calls if call.writes and call.order.order_id // 100 % _ONE_OF == 0]
    return [_refused(dealer, tenant_id, app_key, call, number) for number, call in enumerate(wrong)]


def _refused(dealer: Dealer, tenant_id: int, app_key: str, call: Call, number: int) -> RefusedCall:
    why, failed, fields = _MISTAKES[number % len(_MISTAKES)]
    item = {"packageCode": call.order.items[0].package_code, "quantity": 1}
    body = msgspec.json.encode({"transactionId": call.order.transaction_id, "items": [item | fields]})
    request_id = str(uuid.UUID(int=call.chance.getrandbits(128), version=4))
    at = call.at - timedelta(seconds=20)
    headers = {
        "content-type": "application/json",
        "rt-accesscode": app_key,
        "rt-requestid": request_id,
        "rt-timestamp": str(int(at.timestamp() * 1_000)),
        "x-signature": f"{call.chance.getrandbits(256):064x}",
        "user-agent": "shop/2.4",
    }
    return RefusedCall(
        tenant_id=tenant_id,
        at=at,
        address=address(dealer),
        method="POST",
        path=ORDER,
        app_key=app_key,
        request_id=request_id,
        trace_id=f"{call.chance.getrandbits(48):012x}-{number:x}",
        code=why.code,
        failed=failed,
        message=why.message,
        data=msgspec.json.encode(why.data).decode(),
        headers=msgspec.json.encode(list(headers.items())).decode(),
        body_head=body,
        body_bytes=len(body),
        body_sha256=hashlib.sha256(body).hexdigest(),
    )


def address(dealer: Dealer) -> str:
    """The dealer's server, at an address kept for documentation (RFC 5737)."""
    return f"203.0.113.{dealer.seed}"
