"""What is measured, in which order? One function per group; each round measures every case of its group once, so that a
machine that drifts disturbs all of them alike. The bare endpoint E stands before and after each round."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from bench import (
    calls,
    claims,
    contest,
    drain,
    growth,
    kept,
    life,
    locked,
    measure,
    pages,
    pgbench,
    processes,
    refunds,
    start,
)
from bench.failure import Failed
from bench.instance import Instance, Served, secrets_file
from bench.measure import Load, Reading, Replay, Target
from bench.pgbench import Placed
from bench.processes import Process
from bench.receivers import Receivers
from bench.sink import Received

RECENT_ORDERS = 20_000
OLD_ORDERS = 200_000
YEAR = timedelta(days=365)
MANY_DEALERS = 100
BURST_SECONDS = 2
WEBHOOK_ROUNDS = 5  # they are short
_AUDIT_SECONDS = 900
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
        command = [sys.executable, "-m", "bench.floor", str(secrets_file(instance.folder, instance.dealers))]
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
        self._one_by_one(key, title, lambda seconds: pgbench.run(self.instance, database, wallets, clients, seconds))

    def refunds_one_by_one(self, database: str, orders: refunds.Range) -> None:
        warm_up, counted = orders.split(refunds.MOST_ONE_BY_ONE * measure.TRIAL_SECONDS)
        ranges = iter([warm_up, counted])
        self._one_by_one(
            "pgbench.refunds",
            "pgbench, refunds of one wallet, 16 clients",
            lambda seconds: refunds.one_by_one(self.instance, database, next(ranges), 16, seconds),
        )

    def _one_by_one(self, key: str, title: str, run: Callable[[int], Placed]) -> None:
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
        title = f"order, one dealer, {_connections(connections)}"
        return Load(
            f"orders.hot.{connections}{suffix}",
            title + _of(suffix),
            connections,
            lambda: calls.orders([self.instance.hot]),
            writes=True,
        )

    def all_orders(self, connections: int, suffix: str = "") -> Load:
        title = f"order, {len(self.instance.dealers)} dealers, {_connections(connections)}"
        return Load(
            f"orders.thousand.{connections}{suffix}",
            title + _of(suffix),
            connections,
            lambda: calls.orders(self.instance.dealers),
            writes=True,
        )

    def refunds(self, orders: refunds.Range) -> Load:
        """Every order is refunded once, over all runs."""
        ids = refunds.ids(orders)
        return Load(
            "refunds.hot.64",
            "refund of one profile, one dealer, 64 connections",
            64,
            lambda: refunds.calls(self.instance.hot, ids),
            writes=True,
            most=refunds.MOST,
        )

    def query(self, what: str, title: str, known: Sequence[growth.Known], connections: int, suffix: str = "") -> Load:
        return Load(
            f"query.{what}.{connections}{suffix}",
            f"query, {title}, {_connections(connections)}{_of(suffix)}",
            connections,
            lambda: calls.queries(known),
        )

    def plain(self, connections: int, suffix: str = "") -> list[Load]:
        """Balance and a package page."""
        end = f", {_connections(connections)}{_of(suffix)}"
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

    def health(self, connections: int, suffix: str = "") -> Load:
        title = f"empty signed call (/health), {_connections(connections)}"
        return Load(f"health.{connections}{suffix}", title, connections, self.empty("/health"))


def orders(bench: Bench) -> None:
    """(b) and (c): orders through `serve`, and what pgbench does one by one."""
    for _ in range(bench.options.runs):
        bench.floor("orders")
        database = bench.instance.fresh()
        with bench.instance.serve(database) as served:
            target = _target(served)
            bench.measure(bench.hot_orders(64), target)
            bench.pgbench(database, "pgbench.one", "pgbench, one wallet, 16 clients", 1, 16)
            bench.measure(bench.all_orders(64), target)
            every = len(bench.instance.dealers)
            bench.pgbench(database, "pgbench.thousand", f"pgbench, {every} wallets, 16 clients", every, 16)
            bench.measure(bench.health(1, ".orders"), target)
            bench.measure(bench.hot_orders(1), target)
            bench.pgbench(database, "pgbench.single", "pgbench, one wallet, one client", 1, 1)
            for load in (bench.all_orders(1), *_at(bench, 16), *_at(bench, 128)):
                bench.measure(load, target)
        bench.instance.drop(database)
    bench.floor("orders")


def locked_wallet(bench: Bench) -> None:
    """What other dealers' orders take while one dealer's wallet is locked by somebody else and its orders wait."""
    blocked, *others = bench.instance.dealers
    for _ in range(bench.options.runs):
        database = bench.instance.fresh()
        with bench.instance.serve(database) as served:
            target = _target(served)
            quiet, beside = (
                Load(
                    f"orders.{key}",
                    f"order, {len(others)} dealers, 64 connections, {title}",
                    64,
                    lambda: calls.orders(others),
                    writes=True,
                )
                for key, title in (("quiet", "no lock"), ("locked", "the wallet of one more is locked"))
            )
            bench.measure(quiet, target)
            with locked.wallet(bench.instance.dsn(database), blocked, target.address):
                bench.measure(beside, target)
        bench.instance.drop(database)


def reads(bench: Bench) -> None:
    """(d): queries, pages, balances, empty calls."""
    for _ in range(bench.options.runs):
        bench.floor("reads")
        database = bench.instance.fresh()
        growth.load(bench.instance, database, RECENT_ORDERS, timedelta(minutes=1))
        with bench.instance.serve(database) as served:
            target = _target(served)
            paid, delivered = _recent(bench, database, target)
            for connections in (64, 1):
                bench.measure(bench.query("paid", "paid just now", paid, connections), target)
                bench.measure(bench.query("delivered", "delivered just now", delivered, connections), target)
                for load in (*bench.plain(connections), bench.health(connections)):
                    bench.measure(load, target)
        bench.instance.drop(database)
    bench.floor("reads")


def refunded(bench: Bench) -> None:
    """Refunds of one profile through `serve`, and what pgbench does one by one with the same statements."""
    seconds = bench.options.seconds + measure.TRIAL_SECONDS
    for _ in range(bench.options.runs):
        database = bench.instance.fresh()
        ours, count = refunds.MOST * (seconds + 1), (refunds.MOST + refunds.MOST_ONE_BY_ONE) * (seconds + 1)
        mine, theirs = refunds.load(bench.instance, database, count).split(ours)
        growth.vacuum(bench.instance, database)
        with bench.instance.serve(database) as served:
            bench.measure(bench.refunds(mine), _target(served))
        _audit(bench, database, "refunds.audit", "refunds: audit of all of it")
        growth.vacuum(bench.instance, database)  # serve renews its plans as tables grow, pgbench does not
        bench.refunds_one_by_one(database, theirs)
        bench.instance.drop(database)


def stored(bench: Bench) -> None:
    """(g): the same on a database that holds many orders already, row by row beside an empty one: machines drift."""
    full = bench.instance.fresh()
    growth.load(bench.instance, full, bench.options.stored, YEAR, ended=timedelta(hours=1, minutes=5))
    growth.load(bench.instance, full, RECENT_ORDERS, timedelta(minutes=1))
    growth.vacuum(bench.instance, full)
    growth.due_now(bench.instance, full)
    _audit(bench, full, "audit", f"audit of {bench.options.stored:,} orders")
    for number in range(bench.options.runs):
        bench.floor("stored")
        empty = bench.instance.fresh()
        growth.load(bench.instance, empty, RECENT_ORDERS, timedelta(minutes=1))
        with bench.instance.serve(empty) as one, bench.instance.serve(full) as other:
            sides = [Side(".empty", empty, _target(one)), Side(".stored", full, _target(other))]
            _side_by_side(bench, sides if number % 2 else sides[::-1])
        bench.instance.drop(empty)
    bench.floor("stored")
    growth.due_now(bench.instance, full)
    _audit(bench, full, "audit.grown", "audit of these and all that was bought since")
    bench.instance.drop(full)


def console(bench: Bench) -> None:
    """(j): pages of the console with many orders stored, some of them of the last minutes."""
    database = bench.instance.fresh()
    growth.load(bench.instance, database, bench.options.stored, YEAR, ended=timedelta(hours=1, minutes=5))
    growth.load(bench.instance, database, RECENT_ORDERS, timedelta(hours=1))
    growth.vacuum(bench.instance, database)
    for _ in range(bench.options.runs):
        with bench.instance.serve(database) as served:
            found = pages.measure(bench.instance, database, served)
        for title, reading in found.items():
            bench.note(f"console.{title}", f"console: {title}", reading)
        searches = {title: found[title] for title in found if title.startswith(pages.SEARCH)}
        others = {title: found[title] for title in found if "p50_ms" in found[title] and title not in searches}
        bench.note("console.slowest", "console: the slowest page", pages.slowest(others))
        bench.note("console.search", "console: the slowest search", pages.slowest(searches))
    bench.instance.drop(database)
    _kept(bench)


def _kept(bench: Bench) -> None:
    """What the console shows of calls, kept and not kept in turn."""
    with closing(Replay(bench.instance, 4 * bench.options.seconds)) as replay:
        for _ in range(bench.options.runs):
            database = bench.instance.fresh()
            with bench.instance.serve_switched(database) as served:
                load = bench.hot_orders(64)
                reading = kept.measure(bench.instance, database, load, replay, _target(served))
                bench.note("console.kept", f"{load.title}, calls kept every other {kept.SLICE_SECONDS} s", reading)
            bench.instance.drop(database)


def memory(bench: Bench) -> None:
    """(f): what `serve` holds when it starts, and after many calls of each kind."""
    database = bench.instance.fresh()
    growth.load(bench.instance, database, RECENT_ORDERS, timedelta(minutes=1))
    with bench.instance.serve(database) as served:
        target, done = _target(served), 0.0
        before = processes.memory([target.process.pid])
        _, delivered = _recent(bench, database, target)
        kinds = [bench.all_orders(64), bench.query("delivered", "", delivered, 64), *bench.plain(64)]
        while done < bench.options.calls:
            done += sum(bench.replay.run(load, target)["calls"] for load in kinds)
        bench.note(
            "memory.serve",
            f"memory of serve, before and after {bench.options.calls:,} calls",
            {"calls": done, "rss_before_mb": before.rss_mb} | processes.memory([target.process.pid])._asdict(),
        )
        bench.note("memory.postgres", "memory of PostgreSQL, all processes", bench.instance.postgres_memory()._asdict())
    bench.instance.drop(database)


def whole(bench: Bench) -> None:
    """(e): from buying to both webhooks."""
    for _ in range(bench.options.runs):
        database = bench.instance.fresh()
        for event, reading in life.steady(bench.instance, database, 1, bench.options.seconds).items():
            bench.note(f"life.{event}", f"order → {event} received, {life.RATE} orders/s", reading)
        for dealers, name in ((1, "one"), (MANY_DEALERS, "many")):
            reading, held = life.burst(bench.instance, database, dealers, BURST_SECONDS)
            whose = "one dealer" if dealers == 1 else f"{dealers} dealers"
            bench.note(f"life.burst.{name}", f"order → both webhooks, as fast as it goes, {whose}", reading)
            bench.note("memory.work", "memory of work, after that", held)
        bench.instance.drop(database)


def ready(bench: Bench) -> None:
    """(h): from `dealer-server dev` to its first answer."""
    for _ in range(bench.options.runs):
        cold, warm = start.cold_and_warm(bench.instance.folder)
        bench.note("dev.cold", "dev from start to ready, --fresh", cold)
        bench.note("dev.warm", "dev from start to ready, again", warm)


def webhooks(bench: Bench) -> None:
    """(i): deliveries that wait, drained by one worker process and by other queues; latency; claims."""
    others: contest.Contest | None = None
    dead = claims.load(bench.instance)
    with Receivers(bench.instance.folder, drain.RECEIVERS) as receivers:
        for _ in range(WEBHOOK_ROUNDS if bench.options.runs > 1 else 1):
            posts = _delivered(bench, receivers)
            others = others or contest.Contest(bench.instance, receivers, posts)
            for rival in contest.RIVALS:
                others.run(rival, bench.note)
            _claimed(bench, dead)
    bench.instance.drop(dead)


def _delivered(bench: Bench, receivers: Receivers) -> list[Received]:
    """Ours; gives what was received of the first drain."""
    count, seconds = bench.options.deliveries, bench.options.seconds
    with drain.Drain(bench.instance, receivers, count) as ours:
        reading, posts = ours.first()
        bench.note("webhooks.ours", "webhooks: ours, ordered, payment and delivery", reading)
        bench.note("webhooks.changed", "webhooks: ours, changed orders", ours.changed())
        bench.note("webhooks.latency", f"webhooks: COMMIT → first byte, {drain.RATE} changes/s", ours.latency(seconds))
        _audit(bench, ours.database, "webhooks.audit", "webhooks: audit of all of it")
    with drain.Drain(bench.instance, receivers, count) as ours:
        title = f"webhooks: ours, one of {drain.RECEIVERS} receivers hangs"
        bench.note("webhooks.hanging", title, ours.hanging())
    return posts


def _claimed(bench: Bench, database: str) -> None:
    where = f"beside {claims.WAITING:,} of a dead tenant"
    for name, title, share in (
        ("probe", "breaker open", claims.PROBE),
        ("cap", "breaker closed", claims.CAP),
    ):
        reading = claims.claim(bench.instance, database, share)
        bench.note(f"webhooks.claim.{name}", f"claim {where}, {title}", reading)
    bench.note("webhooks.look", f"look who waits, {where}", claims.look(bench.instance, database))


GROUPS: dict[str, Callable[[Bench], None]] = {
    "orders": orders,
    "locked": locked_wallet,
    "refunds": refunded,
    "reads": reads,
    "life": whole,
    "webhooks": webhooks,
    "dev": ready,
    "memory": memory,
    "stored": stored,
    "console": console,
}


class Side(NamedTuple):
    """A database and the serve that answers for it."""

    suffix: str
    database: str
    target: Target


def _side_by_side(bench: Bench, sides: Sequence[Side]) -> None:
    for side in sides:
        bench.measure(bench.hot_orders(64, side.suffix), side.target)
    for side in sides:
        bench.measure(bench.all_orders(64, side.suffix), side.target)
    known = {side.suffix: _recent(bench, side.database, side.target) for side in sides}
    for side in sides:
        bench.measure(bench.query("paid", "paid just now", known[side.suffix][0], 64, side.suffix), side.target)
    for side in sides:
        delivered = known[side.suffix][1]
        bench.measure(bench.query("delivered", "delivered just now", delivered, 64, side.suffix), side.target)
    full = next(side for side in sides if side.suffix == ".stored")
    old = growth.delivered(bench.instance, full.database, OLD_ORDERS, recent=False)
    bench.measure(bench.query("old", "random old ones", old, 64, full.suffix), full.target)
    for load in bench.plain(64, full.suffix):
        bench.measure(load, full.target)


def _recent(bench: Bench, database: str, target: Target) -> tuple[list[growth.Known], list[growth.Known]]:
    """Orders just paid, and orders just delivered."""
    bench.replay.trial(bench.all_orders(64), target)
    paid = growth.paid(bench.instance, database, RECENT_ORDERS)
    return paid, growth.delivered(bench.instance, database, RECENT_ORDERS, recent=True)


def _at(bench: Bench, connections: int) -> list[Load]:
    return [bench.hot_orders(connections), bench.all_orders(connections)]


def _audit(bench: Bench, database: str, key: str, title: str) -> None:
    """Raises Failed where an invariant does not hold."""
    program = Path(sys.executable).with_name("dealer-server")
    environment = bench.instance.environment(database)
    with tempfile.TemporaryFile() as output:
        begun = time.monotonic()
        running = subprocess.Popen([program, "audit", "--json"], env=environment, stdout=output, stderr=output)
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


def _target(served: Served) -> Target:
    return Target(served.address, served.process)


def _connections(count: int) -> str:
    return "1 connection" if count == 1 else f"{count} connections"


def _of(suffix: str) -> str:
    return {".empty": ", database empty", ".stored": ", orders stored"}.get(suffix, "")
