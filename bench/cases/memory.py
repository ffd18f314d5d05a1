"""What `serve` holds when it starts, and after many calls of each kind."""

from datetime import timedelta

from bench.cases.suite import RECENT_ORDERS, Bench, recent_orders, target_of
from bench.support import growth, processes


def run(bench: Bench) -> None:
    """(f): what `serve` holds when it starts, and after many calls of each kind."""
    database = bench.instance.fresh()
    growth.load(bench.instance, database, RECENT_ORDERS, timedelta(minutes=1))
    with bench.instance.serve(database) as served:
        target, done = target_of(served), 0.0
        before = processes.memory([target.process.pid])
        _, delivered = recent_orders(bench, database, target)
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
