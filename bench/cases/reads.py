"""Queries, package pages, balances and empty calls."""

from datetime import timedelta

from bench.cases.suite import RECENT_ORDERS, Bench, recent_orders, target_of
from bench.support import growth


def run(bench: Bench) -> None:
    """(d): queries, pages, balances, empty calls."""
    for _ in range(bench.options.runs):
        bench.floor("reads")
        database = bench.instance.fresh()
        growth.load(bench.instance, database, RECENT_ORDERS, timedelta(minutes=1))
        with bench.instance.serve(database) as served:
            target = target_of(served)
            paid, delivered = recent_orders(bench, database, target)
            for connections in (64, 1):
                bench.measure(bench.query("paid", "paid just now", paid, connections), target)
                bench.measure(bench.query("delivered", "delivered just now", delivered, connections), target)
                for load in (*bench.plain(connections), bench.health(connections)):
                    bench.measure(load, target)
        bench.instance.drop(database)
    bench.floor("reads")
