"""Which calls are replayed? Signed just before each run, every request of a file as long as the others."""

import itertools
import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.support.failure import Failed
from bench.support.wrk import Requests
from esim_dealer.wire import signing
from esim_dealer.wire.calls import PREFIX

PACKAGE = "TEST-OK"
PRICE = "1.80"
PAGES = 40  # of 50 packages: the generated catalogue fills them
VALID_SECONDS = 240  # the service accepts 300, less what signing takes


_NEWEST = b'{"pager":{"pageSize":20}}'


class Dealer(NamedTuple):
    tenant_id: int
    app_key: str
    secret: bytes


class Calls(NamedTuple):
    """A path below the prefix, and who asks it for what, for ever."""

    path: str
    bodies: Iterator[tuple[Dealer, bytes]]
    prefix: str = PREFIX


def empty(path: str, dealers: Sequence[Dealer]) -> Calls:
    """Calls without parameters, of dealers at random."""
    return Calls(path, ((dealer, b"{}") for dealer in anyone(dealers)))


_ORDER = b'{"transactionId":"%%b","amount":"%b","items":[{"packageCode":"%b","quantity":1,"price":"%b"}]}' % (
    PRICE.encode(),
    PACKAGE.encode(),
    PRICE.encode(),
)


def orders(dealers: Sequence[Dealer], body: bytes = _ORDER) -> Calls:
    """Orders of one TEST-OK each, with transactionIds that no other file has. `body`: with a place for them."""
    run = os.urandom(4).hex()
    return Calls(
        "/esim/order",
        ((dealer, body % transaction_id(run, number)) for number, dealer in enumerate(anyone(dealers))),
    )


def transaction_id(run: str, number: int) -> bytes:
    return b"b-%b-%09d" % (run.encode(), number)


def queries(known: Sequence[tuple[Dealer, str]]) -> Calls:
    """Queries of these dealers' orders, by orderNo, at random."""
    return Calls(
        "/esim/query", ((dealer, b'{"orderNo":"%b"}' % order_no.encode()) for dealer, order_no in anyone(known))
    )


def package_pages(dealers: Sequence[Dealer]) -> Calls:
    """Pages of 50 packages, in turn."""
    pages = itertools.cycle(range(1, PAGES + 1))
    return Calls(
        "/package/list",
        (
            (dealer, b'{"pager":{"pageNum":%2d,"pageSize":50}}' % page)
            for dealer, page in zip(anyone(dealers), pages, strict=False)
        ),
    )


def order_lists(dealers: Sequence[Dealer]) -> Calls:
    return Calls("/esim/order/list", ((dealer, _NEWEST) for dealer in anyone(dealers)))


def delivery_lists(dealers: Sequence[Dealer]) -> Calls:
    return Calls("/webhook/delivery/list", ((dealer, _NEWEST) for dealer in anyone(dealers)))


def write(file: Path, calls: Calls, count: int) -> Requests:
    """Signs `count` calls as of now."""
    stamp, prefix = str(int(time.time() * 1000)).encode(), os.urandom(8).hex()
    head = f"POST {calls.prefix}{calls.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    size = 0
    with file.open("wb", buffering=1 << 20) as opened:
        for number, (dealer, body) in enumerate(itertools.islice(calls.bodies, count)):
            written = opened.write(_request(head, dealer, stamp, _request_id(prefix, number), body))
            if size not in (0, written):
                raise Failed(f"requests of {calls.path} differ in length: {size} and {written} bytes")
            size = written
    return Requests(file, size)


def in_memory(calls: Calls, count: int) -> list[bytes]:
    """Signs `count` calls as of now, for a generator of our own."""
    stamp, prefix = str(int(time.time() * 1000)).encode(), os.urandom(8).hex()
    head = f"POST {calls.prefix}{calls.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return [
        _request(head, dealer, stamp, _request_id(prefix, number), body)
        for number, (dealer, body) in enumerate(itertools.islice(calls.bodies, count))
    ]


def _request(head: str, dealer: Dealer, stamp: bytes, request_id: str, body: bytes) -> bytes:
    signature = signing.signature(dealer.secret, stamp, request_id.encode(), dealer.app_key.encode(), body)
    return (
        f"{head}{signing.ACCESS_CODE}: {dealer.app_key}\r\n{signing.REQUEST_ID}: {request_id}\r\n"
        f"{signing.TIMESTAMP}: {stamp.decode()}\r\n{signing.SIGNATURE}: {signature}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def _request_id(prefix: str, number: int) -> str:
    """A UUID's form, without the system call a random one costs."""
    return f"{prefix[:8]}-{prefix[8:12]}-{prefix[12:16]}-{number >> 48:04x}-{number & 0xFFFFFFFFFFFF:012x}"


def anyone(some: Sequence) -> Iterator:
    """One after another at random, the same in every run."""
    choose = random.Random(1).choice
    while True:
        yield choose(some)
