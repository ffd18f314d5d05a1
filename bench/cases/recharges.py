"""What does a recharge cost beside an order of one profile? Each recharges another eSIM."""

import itertools
import os
from collections.abc import Iterator

from bench.cases import refunds
from bench.cases.suite import Bench, audit, target_of
from bench.support import growth, measure
from bench.support.calls import Calls, Dealer, transaction_id
from bench.support.failure import Failed
from bench.support.measure import Load

MOST = 30_000  # recharges a second; more are not kept ready
PACKAGE, PRICE = "TEST-TOPUP-OK", "1.20"


def run(bench: Bench) -> None:
    seconds = bench.options.seconds + measure.TRIAL_SECONDS
    for _ in range(bench.options.runs):
        database = bench.instance.fresh()
        esims = refunds.load(bench.instance, database, MOST * (seconds + 1))
        growth.vacuum(bench.instance, database)
        with bench.instance.serve(database) as served:
            bench.measure(bench.hot_orders(64, ".beside"), target_of(served))
            bench.measure(_recharges(bench, _each(esims)), target_of(served))
        audit(bench, database, "recharges.audit", "recharges: audit of all of it")
        bench.instance.drop(database)


def _recharges(bench: Bench, esims: Iterator[int]) -> Load:
    return Load(
        "recharges.hot.64",
        "recharge, one dealer, 64 connections",
        64,
        lambda: _calls(bench.instance.hot, esims),
        writes=True,
        most=MOST,
    )


def _calls(dealer: Dealer, esims: Iterator[int]) -> Calls:
    run = os.urandom(4).hex()
    return Calls("/esim/topup", ((dealer, _body(run, number, next(esims))) for number in itertools.count()))


def _body(run: str, number: int, profile_id: int) -> bytes:
    return b'{"transactionId":"%b","profileId":%d,"packageCode":"%b","price":"%b","amount":"%b"}' % (
        transaction_id(run, number),
        profile_id,
        PACKAGE.encode(),
        PRICE.encode(),
        PRICE.encode(),
    )


def _each(esims: refunds.Range) -> Iterator[int]:
    """A profile has the id of its order. Raises Failed where there are no more."""
    yield from range(esims.first, esims.first + esims.number * esims.step, esims.step)
    raise Failed(f"more than {esims.number} recharges were asked for: raise {__name__}.MOST")
