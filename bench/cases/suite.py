"""What is measured on, and the loads that several cases share."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.load import pgbench
from bench.load.pgbench import Placed
from bench.support import calls, growth, measure
from bench.support.failure import Failed
from bench.support.instance import Instance, Served, secrets_file
from bench.support.measure import Load, Reading, Replay, Target
from bench.support.processes import Process

RECENT_ORDERS = 20_000
YEAR = timedelta(days=365)
_AUDIT_SECONDS = 7200
_REAPED_SECONDS = 0.3  # until PostgreSQL counts the CPU time of connections that have ended as its own


class Options(NamedTuple):
    seconds: int
    runs: int
    stored: int
    calls: int
    """How many calls `serve` answers before its memory is looked at."""

    deliveries: int
    """How many webhooks wait, for us and for others."""

    profiler: Path | None = None
    """py-spy: what servers do during the runs is recorded, which disturbs the figures."""


class Bench:
    """What is measured on, and what has been measured so far."""

    def __init__(self, instance: Instance, options: Options, note: Callable[[str, str, Reading], None]):
        self.instance = instance
        self.options = options
        self.note = note
        self.replay = Replay(instance, options.seconds, options.profiler)
        command = [sys.executable, "-m", "bench.load.floor", str(secrets_file(instance.folder, instance.dealers))]
        process = Process("the bare endpoint", command, instance.folder / "floor.log")
        self._floor = Target(process.said("ready: "), process)

    def close(self) -> None:
        self._floor.process.stop()
        self.replay.close()

    def floor(self, group: str) -> None:
        load = Load(f"E.{group}", f"E: bare signed endpoint, during {group}", 64, self.empty("/health"))
        self.measure(load, self._floor)

    def measure(self, load: Load, target: Target) -> None:
        self.note(load.key, load.title, self.replay.run(load, target))

    def pgbench(self, database: str, key: str, title: str, wallets: int, clients: int) -> None:
        self.one_by_one(key, title, lambda seconds: pgbench.run(self.instance, database, wallets, clients, seconds))

    def one_by_one(self, key: str, title: str, run: Callable[[int], Placed]) -> None:
        """A trial, then the run that counts, each of so many seconds."""
        self.instance.checkpoint()
        run(measure.TRIAL_SECONDS)
        cpu = measure.Cpu(self.instance)
        seen = run(self.options.seconds)
        time.sleep(_REAPED_SECONDS)
        reading = {"per_second": seen.per_second, "p50_ms": seen.p50_ms, "p99_ms": seen.p99_ms}
        self.note(key, title, reading | cpu.reading(seen.transactions))

    # What is asked for

    def empty(self, path: str) -> Callable[[], calls.Calls]:
        return lambda: calls.empty(path, [self.instance.hot])

    def hot_orders(self, connections: int, suffix: str = "") -> Load:
        title = f"order, one dealer, {connections_text(connections)}"
        return Load(
            f"orders.hot.{connections}{suffix}",
            title + of(suffix),
            connections,
            lambda: calls.orders([self.instance.hot]),
            writes=True,
        )

    def all_orders(self, connections: int, suffix: str = "") -> Load:
        title = f"order, {len(self.instance.dealers)} dealers, {connections_text(connections)}"
        return Load(
            f"orders.thousand.{connections}{suffix}",
            title + of(suffix),
            connections,
            lambda: calls.orders(self.instance.dealers),
            writes=True,
        )

    def query(self, what: str, title: str, known: Sequence[growth.Known], connections: int, suffix: str = "") -> Load:
        return Load(
            f"query.{what}.{connections}{suffix}",
            f"query, {title}, {connections_text(connections)}{of(suffix)}",
            connections,
            lambda: calls.queries(known),
        )

    def plain(self, connections: int, suffix: str = "") -> list[Load]:
        """Balance and a package page."""
        end = f", {connections_text(connections)}{of(suffix)}"
        hot = [self.instance.hot]
        return [
            Load(
                f"packages.{connections}{suffix}",
                f"package/list, 50{end}",
                connections,
                lambda: calls.package_pages(hot),
            ),
            Load(
                f"balance.{connections}{suffix}",
                f"account/balance{end}",
                connections,
                lambda: calls.empty("/account/balance", self.instance.dealers),
            ),
        ]

    def lists(self, connections: int) -> list[Load]:
        """The newest 20 orders, and the newest 20 deliveries, of dealers at random."""
        end = f", newest 20, {connections_text(connections)}"
        asked = (("orders", "order/list", calls.order_lists), ("deliveries", "delivery/list", calls.delivery_lists))
        return [
            Load(f"list.{key}.{connections}", title + end, connections, partial(make, self.instance.dealers))
            for key, title, make in asked
        ]

    def health(self, connections: int, suffix: str = "") -> Load:
        title = f"empty signed call (/health), {connections_text(connections)}"
        return Load(f"health.{connections}{suffix}", title, connections, self.empty("/health"))


def target_of(served: Served) -> Target:
    return Target(served.address, served.process)


def recent_orders(bench: Bench, database: str, target: Target) -> tuple[list[growth.Known], list[growth.Known]]:
    """Orders just paid, and orders just delivered."""
    bench.replay.trial(bench.all_orders(64), target)
    paid = growth.paid(bench.instance, database, RECENT_ORDERS)
    return paid, growth.delivered(bench.instance, database, RECENT_ORDERS, recent=True)


def audit(bench: Bench, database: str, key: str, title: str, *arguments: str) -> None:
    """Raises Failed where an invariant does not hold."""
    program = Path(sys.executable).with_name("dealer-server")
    environment = bench.instance.environment(database)
    with tempfile.TemporaryFile() as output:
        begun = time.monotonic()
        running = subprocess.Popen(
            [program, "audit", "--json", *arguments], env=environment, stdout=output, stderr=output
        )
        deadline = threading.Timer(_AUDIT_SECONDS, running.kill)
        deadline.start()
        _, status, used = os.wait4(running.pid, 0)
        deadline.cancel()
        output.seek(0)
        said = output.read().decode()
    if status:
        raise Failed(f"the audit found something: {said[-3000:]}")
    assert json.loads(said)
    bench.note(key, title, {"seconds": time.monotonic() - begun, "rss_mb": used.ru_maxrss / 1024})


def connections_text(count: int) -> str:
    return "1 connection" if count == 1 else f"{count} connections"


def of(suffix: str) -> str:
    return {".empty": ", database empty", ".stored": ", orders stored"}.get(suffix, "")
