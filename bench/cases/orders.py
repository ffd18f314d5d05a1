"""Orders through `serve`, and what pgbench does one by one."""

from bench.cases.suite import Bench, target_of
from bench.support.measure import Load


def run(bench: Bench) -> None:
    """(b) and (c): orders through `serve`, and what pgbench does one by one."""
    for _ in range(bench.options.runs):
        bench.floor("orders")
        database = bench.instance.fresh()
        with bench.instance.serve(database) as served:
            target = target_of(served)
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


def _at(bench: Bench, connections: int) -> list[Load]:
    return [bench.hot_orders(connections), bench.all_orders(connections)]
