"""What does the RT face cost? The same operation at our own door and at the face, one after the other."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from bench.cases.suite import RECENT_ORDERS, Bench, recent_orders, target_of
from bench.support import calls, growth
from bench.support.calls import Calls
from bench.support.measure import Load
from dealer_server.rules.orders import identity

FACE = "/api/v1/open"
CONNECTIONS = 64


def run(bench: Bench) -> None:
    """Balance, order, query and usage; each of both doors in every round."""
    for _ in range(bench.options.runs):
        database = bench.instance.fresh()
        growth.load(bench.instance, database, RECENT_ORDERS, timedelta(minutes=1))
        with bench.instance.serve(database) as served:
            target = target_of(served)
            _, delivered = recent_orders(bench, database, target)
            for load in _loads(bench, delivered):
                bench.measure(load, target)
        bench.instance.drop(database)


def _loads(bench: Bench, known: Sequence[growth.Known]) -> Iterator[Load]:
    hot = [bench.instance.hot]
    pairs = {
        "balance": (lambda: calls.empty("/account/balance", hot), lambda: _face(calls.empty("/balance/query", hot))),
        "order": (lambda: calls.orders(hot), lambda: _face(_orders(hot))),
        "query": (lambda: calls.queries(known), lambda: _face(calls.queries(known))),
        "usage": (lambda: _usage(known), lambda: _face(_usages(known))),
    }
    for name, (ours, theirs) in pairs.items():
        writes = name == "order"
        yield Load(f"rt.{name}.own", f"{name} at our own door, 64 connections", CONNECTIONS, ours, writes=writes)
        yield Load(f"rt.{name}.face", f"{name} at the RT face, 64 connections", CONNECTIONS, theirs, writes=writes)


def _face(asked: Calls) -> Calls:
    return asked._replace(prefix=FACE)


def _orders(dealers: Sequence[calls.Dealer]) -> Calls:
    """The same orders in the family's form, with price and amount."""
    body = (
        b'{"transactionId":"%b","amount":18000,"packageInfoList":[{"packageCode":"TEST-OK","count":1,"price":18000}]}'
    )
    return calls.orders(dealers, body)


def _usage(known: Sequence[growth.Known]) -> Calls:
    return Calls("/esim/profile/usage", _profiles(known, b'{"profileId":"%d"}'))


def _usages(known: Sequence[growth.Known]) -> Calls:
    return Calls("/esim/usage/query", _profiles(known, b'{"esimTranNoList":["%d"]}'))


def _profiles(known: Sequence[growth.Known], body: bytes) -> Iterator[tuple[calls.Dealer, bytes]]:
    """An order's one profile has its id."""
    for dealer, order_no in calls.anyone(known):
        yield dealer, body % (identity.order_id(order_no) or 0)
