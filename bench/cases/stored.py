"""What is different with many orders stored? Calls row by row beside an empty database, and what a backup takes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from bench.cases import life
from bench.cases.console import group as console
from bench.cases.suite import RECENT_ORDERS, YEAR, Bench, audit, of, recent_orders, target_of
from bench.support import growth, programs
from bench.support.failure import Failed
from bench.support.measure import Target

OLD_ORDERS = 200_000


def run(bench: Bench) -> None:
    """(g): the same on a database that holds many orders already, row by row beside an empty one: machines drift."""
    full = bench.instance.fresh()
    ago = timedelta(hours=1, minutes=5)
    growth.load(bench.instance, full, bench.options.stored, YEAR, ended=ago, events=growth.DELIVERED)
    growth.load(bench.instance, full, RECENT_ORDERS, timedelta(minutes=1))
    growth.vacuum(bench.instance, full)
    growth.summarize(bench.instance, full)  # or the worker does it while lives are measured
    growth.vacuum(bench.instance, full)
    audit(bench, full, "audit", f"audit of {bench.options.stored:,} orders")
    for number in range(bench.options.runs):
        _lives(bench, full, number)
    for number in range(bench.options.runs):
        bench.floor("stored")
        empty = bench.instance.fresh()
        growth.load(bench.instance, empty, RECENT_ORDERS, timedelta(minutes=1))
        with bench.instance.serve(empty) as one, bench.instance.serve(full) as other:
            sides = [Side(".empty", empty, target_of(one)), Side(".stored", full, target_of(other))]
            _side_by_side(bench, sides if number % 2 else sides[::-1])
        bench.instance.drop(empty)
    growth.due_now(bench.instance, full)
    audit(bench, full, "audit.incremental", "audit of what was bought since alone", "--incremental")
    audit(bench, full, "audit.grown", "audit of these and all that was bought since")
    bench.floor("stored")
    console.measure(bench, full, ".stored", of(".stored"))
    bench.instance.drop(full)


def _lives(bench: Bench, full: str, number: int) -> None:
    """Before anything else is bought: `work` would have to fulfil that first."""
    empty = bench.instance.fresh()
    sides = [(".empty", empty, "database empty"), (".stored", full, "orders stored")]
    for suffix, database, where in sides if number % 2 else sides[::-1]:
        bench.instance.checkpoint()
        reading, _ = life.burst(bench.instance, database, life.MANY_DEALERS, life.BURST_SECONDS)
        bench.note(f"life{suffix}", f"life, {life.MANY_DEALERS} dealers, as fast as it goes, {where}", reading)
    bench.instance.drop(empty)


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
    known = {side.suffix: recent_orders(bench, side.database, side.target) for side in sides}
    for side in sides:
        bench.measure(bench.query("paid", "paid just now", known[side.suffix][0], 64, side.suffix), side.target)
    for side in sides:
        delivered = known[side.suffix][1]
        bench.measure(bench.query("delivered", "delivered just now", delivered, 64, side.suffix), side.target)
    for load in bench.lists(64):
        for side in sides:
            bench.measure(load._replace(key=load.key + side.suffix, title=load.title + of(side.suffix)), side.target)
    full = next(side for side in sides if side.suffix == ".stored")
    old = growth.delivered(bench.instance, full.database, OLD_ORDERS, recent=False)
    bench.measure(bench.query("old", "random old ones", old, 64, full.suffix), full.target)
    for load in bench.plain(64, full.suffix):
        bench.measure(load, full.target)


def backup(bench: Bench) -> None:
    """Delivered orders of a year with their webhooks, dumped, restored beside and audited there."""
    full = bench.instance.fresh()
    growth.load(bench.instance, full, bench.options.stored, YEAR, events=growth.DELIVERED)
    growth.vacuum(bench.instance, full)
    dump = bench.instance.folder / "orders.dump"
    orders = f"{bench.options.stored:,} orders"
    dump_command = [str(_pg_dump()), "--format=custom", f"--file={dump}", bench.instance.dsn(full)]
    seconds, _ = _timed(dump_command)
    bench.note("backup.dump", f"pg_dump of {orders}", {"seconds": seconds})
    environment = bench.instance.environment(full)
    # pg_restore is found beside it.
    environment["PATH"] = f"{_pg_dump().parent}{os.pathsep}{environment['PATH']}"
    check = [str(Path(sys.executable).with_name("dealer-server")), "backup", "check", str(dump), "--json"]
    seconds, said = _timed(check, environment)
    parts = json.loads(said)["seconds"]
    bench.note("backup.check", f"backup check of {orders}", {"seconds": seconds})
    for part in ("restore", "audit"):
        bench.note(f"backup.{part}", f"its {part}", {"seconds": parts[part]})
    dump.unlink()
    bench.instance.drop(full)


def _pg_dump() -> Path:
    return programs.of_postgres("pg_dump", "postgresql-client")


def _timed(command: Sequence[str], environment: dict[str, str] | None = None) -> tuple[float, str]:
    """Raises Failed where it does not end well."""
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{Path(command[0]).name} ended with {done.returncode}: {(done.stderr + done.stdout)[-3000:]}")
    return time.monotonic() - began, done.stdout
