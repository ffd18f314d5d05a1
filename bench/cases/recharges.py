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
from bench.support.slices import in_turns

MOST = 15_000  # recharges a second; more are not kept ready
PAIRS = 5  # of slices in a run
PACKAGE, PRICE = "TEST-TOPUP-OK", "1.20"


def run(bench: Bench) -> None:
    """Slices of orders and of recharges take turns, and each of recharges is compared with the two around it."""
    for _ in range(bench.options.runs):
        database = bench.instance.fresh()
        seconds = measure.TRIAL_SECONDS + PAIRS * measure.SLICE_SECONDS
        esims = refunds.load(bench.instance, database, MOST * seconds)
        growth.vacuum(bench.instance, database)
        with bench.instance.serve(database) as served:
            loads = bench.hot_orders(64, ".beside"), _recharges(bench, _each(esims))
            found = [*bench.replay.alternate(loads, target_of(served), 2 * PAIRS + 1)]
        for number, reading in enumerate(found):
            bench.note(loads[number % 2].key, loads[number % 2].title, reading)
        bench.note("recharges.ratio", "recharge ÷ order", in_turns(found, ("per_second", "server_us", "postgres_us")))
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
