"""What does an order cost on a cluster of Citus with one worker node, and with two, beside one server?

All nodes share this machine: CPU an order says how the work spreads, orders a second do not. Needs DEALER_CITUS.
"""

import tempfile
from pathlib import Path

from bench.cases import life
from bench.cases.cluster.instance import DATABASE, ClusterInstance
from bench.cases.suite import Bench, target_of
from bench.support import calls
from bench.support.instance import DEALERS, Instance
from bench.support.measure import Load, Reading, Replay

WORKERS = (1, 2)
_CONNECTIONS = {"hot": 64, "all": 16}  # more orders of many dealers only wait, and some for longer than wrk does
_DEALERS_OF_LIFE = 10


def run(bench: Bench) -> None:
    for _ in range(bench.options.runs):
        name = bench.instance.fresh()
        _measure(bench, bench.instance, name, "one server", "plain")
        bench.instance.drop(name)
        for workers in WORKERS:
            with tempfile.TemporaryDirectory(prefix="bc-", dir="/tmp") as folder:
                Path(folder).chmod(0o755)  # PostgreSQL runs as another user
                instance = ClusterInstance(Path(folder), workers, DEALERS)
                try:
                    _measure(bench, instance, DATABASE, f"cluster of {workers}", f"cluster{workers}")
                finally:
                    instance.stop()


def _measure(bench: Bench, instance: Instance, name: str, where: str, key: str) -> None:
    """Lives first: the other orders are left to be fulfilled, as no worker runs beside them."""
    for dealers in (1, _DEALERS_OF_LIFE):
        whose, count = life.of(dealers)
        reading, _ = life.burst(instance, name, dealers, life.BURST_SECONDS)
        _note(bench, f"cluster.{key}.life.{count}", f"order → both webhooks, {whose}, {where}", reading)
    replay = Replay(instance, bench.options.seconds)
    loads = {"hot": ("order, one dealer", [instance.hot]), "all": (f"order, {DEALERS} dealers", instance.dealers)}
    with instance.serve(name) as served:
        for which, (title, dealers) in loads.items():
            load = Load(key, title, _CONNECTIONS[which], lambda dealers=dealers: calls.orders(dealers), writes=True)
            _note(bench, f"cluster.{key}.{which}", f"{title}, {where}", replay.run(load, target_of(served)))
    replay.close()


def _note(bench: Bench, key: str, title: str, reading: Reading) -> None:
    """With the CPU of all nodes together."""
    nodes = sum([value for name, value in reading.items() if name.startswith(("coordinator_", "node"))])
    bench.note(key, title, {"postgres_us": nodes, **reading})
