"""What do two `serve` processes cost, where both serve every dealer, and where each dealer sticks to one of them?

Two are measured with as many connections at each as at the one, so that batches are as large, and with as many at both
together, where they are half as large.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from bench.cases.suite import Bench, target_of
from bench.support import calls, measure, wrk
from bench.support.calls import Dealer
from bench.support.measure import Reading, Target

CONNECTIONS = 64
_SPARE = 1.5
_RESERVE = 2_000


class Share(NamedTuple):
    """A process, the dealers that call it, and by how many connections."""

    target: Target
    dealers: Sequence[Dealer]
    connections: int = CONNECTIONS


def run(bench: Bench) -> None:
    """Orders of 1 000 dealers and of one: one process, and two."""
    dealers, hot = bench.instance.dealers, [bench.instance.hot]
    for number in range(bench.options.runs):
        database = bench.instance.fresh()
        with _served(bench, database, 1) as [one]:
            rate = _measure(bench, "processes.one", "order, 1 process", [Share(one, dealers)], 0)["per_second"]
            _measure(bench, "processes.hot.one", "order of one dealer, 1 process", [Share(one, hot)], rate)
        with _served(bench, database, 2) as both:
            ways = _ways(both, dealers, hot)
            for key in ways if number % 2 else [*ways][::-1]:
                _measure(bench, f"processes.{key}", *ways[key], rate)
        bench.instance.drop(database)


def _ways(
    both: Sequence[Target], dealers: Sequence[Dealer], hot: Sequence[Dealer]
) -> Mapping[str, tuple[str, Sequence[Share]]]:
    """What is measured of two processes: a title, and who calls which."""
    halves = dealers[::2], dealers[1::2]
    few = CONNECTIONS // 2
    return {
        "spread": ("order, 2 processes, dealers spread", [Share(target, dealers) for target in both]),
        "sticking": (
            "order, 2 processes, dealers stick",
            [Share(target, half) for target, half in zip(both, halves, strict=True)],
        ),
        "hot.two": ("order of one dealer, 2 processes", [Share(target, hot) for target in both]),
        "spread.few": (
            f"order, 2 processes, dealers spread, {few} connections each",
            [Share(target, dealers, few) for target in both],
        ),
        "sticking.few": (
            f"order, 2 processes, dealers stick, {few} connections each",
            [Share(target, half, few) for target, half in zip(both, halves, strict=True)],
        ),
    }


@contextmanager
def _served(bench: Bench, database: str, count: int) -> Iterator[list[Target]]:
    with ExitStack() as stack:
        yield [target_of(stack.enter_context(bench.instance.serve_sharing(database))) for _ in range(count)]


def _measure(bench: Bench, key: str, title: str, shares: Sequence[Share], rate: float) -> Reading:
    """A trial, then the run that counts. server_us: CPU of all processes together. `rate`: of all orders, as far as it
    is known."""
    trial = _replay(bench, shares, measure.TRIAL_SECONDS, rate or 10_000)
    rate = max(rate, trial["per_second"])
    bench.instance.checkpoint()
    while True:
        try:
            reading = _replay(bench, shares, bench.options.seconds, rate)
        except wrk.RanOut:
            rate *= 2
        else:
            bench.note(key, title, reading)
            return reading


def _replay(bench: Bench, shares: Sequence[Share], seconds: int, rate: float) -> Reading:
    """Calls all of them at once. Percentiles are the worst of a process."""
    count = int(rate * _SPARE * seconds) // len(shares) + _RESERVE
    files = [measure.request_file(bench.instance, number) for number in range(1, len(shares) + 1)]
    requests = [
        calls.write(file, calls.orders(share.dealers), count) for file, share in zip(files, shares, strict=True)
    ]
    cpu = measure.Cpu(
        bench.instance, **{f"server{number}": share.target.process.pid for number, share in enumerate(shares)}
    )
    try:
        with ThreadPoolExecutor(len(shares)) as threads:
            running = [
                threads.submit(wrk.replay, share.target.address, signed, share.connections, seconds)
                for share, signed in zip(shares, requests, strict=True)
            ]
            seen = [one.result() for one in running]
    finally:
        for file in files:
            file.unlink()
    spent = cpu.reading(sum(one.requests for one in seen))
    server_us = sum(spent.pop(f"server{number}_us") for number in range(len(shares)))
    return {
        "per_second": sum(one.requests / one.seconds for one in seen),
        "p50_ms": max(one.p50_ms for one in seen),
        "p99_ms": max(one.p99_ms for one in seen),
        "server_us": server_us,
        "cpu_us": server_us + spent["postgres_us"],
        **spent,
    }
