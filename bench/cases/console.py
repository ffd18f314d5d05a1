"""Pages of the console with many orders stored, and what keeping calls for them costs."""

from contextlib import closing
from datetime import timedelta

from bench.cases import kept, pages
from bench.cases.suite import RECENT_ORDERS, YEAR, Bench, target_of
from bench.support import growth
from bench.support.measure import Replay


def run(bench: Bench) -> None:
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
                reading = kept.measure(bench.instance, database, load, replay, target_of(served))
                bench.note("console.kept", f"{load.title}, calls kept every other {kept.SLICE_SECONDS} s", reading)
            bench.instance.drop(database)
