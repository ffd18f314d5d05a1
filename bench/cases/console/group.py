"""Pages of the console with many orders stored, and what keeping calls and sums for them costs."""

from contextlib import closing
from datetime import timedelta

from bench.cases.console import kept, pages
from bench.cases.suite import RECENT_ORDERS, YEAR, Bench, target_of
from bench.support import growth, slices
from bench.support.measure import Replay
from dealer_server.db.database import Database

PACKAGES = 200
"""Of so many packages orders are stored, so that reports have rows to add."""


def run(bench: Bench) -> None:
    """(j): pages of the console with many orders stored, some of them of the last minutes."""
    database = _stored(bench)
    for _ in range(bench.options.runs):
        measure(bench, database)
    bench.instance.drop(database)
    _kept(bench)
    _added(bench)


def measure(bench: Bench, database: str, suffix: str = "", where: str = "") -> None:
    """Every page once, and which were the slowest; `suffix` of the keys, `where` of the titles."""
    with bench.instance.serve(database) as served:
        found = pages.measure(bench.instance, database, served)
    for title, reading in found.items():
        bench.note(f"console.{title}{suffix}", f"console: {title}{where}", reading)
    timed = {title: reading for title, reading in found.items() if "p50_ms" in reading}
    for kind, title in ((pages.SEARCH, "search"), (pages.REPORT, "report")):
        some = {name: reading for name, reading in timed.items() if kind in name}
        bench.note(f"console.{title}{suffix}", f"console: the slowest {title}{where}", pages.slowest(some))
        timed = {name: reading for name, reading in timed.items() if name not in some}
    bench.note(f"console.slowest{suffix}", f"console: the slowest other page{where}", pages.slowest(timed))


def _stored(bench: Bench) -> str:
    """A database with orders, and what a worker makes of them: sums of reports, texts for the search, counted hours."""
    instance = bench.instance
    database = instance.fresh()
    packages = instance.run(database, _packages)
    ended = timedelta(hours=1, minutes=5)
    growth.load(instance, database, bench.options.stored, YEAR, ended=ended, packages=packages)
    growth.load(instance, database, RECENT_ORDERS, timedelta(hours=1), packages=packages)
    growth.vacuum(instance, database)
    growth.summarize(instance, database)
    growth.vacuum(instance, database)
    return database


async def _packages(opened: Database) -> list[str]:
    async with opened.connection() as connection:
        rows = await connection.fetch(
            "SELECT package_code FROM package ORDER BY package_code <> $1, package_code", pages.PACKAGE
        )
    return [row["package_code"] for row in rows if row["package_code"] != pages.NOBODY_BOUGHT][:PACKAGES]


def _kept(bench: Bench) -> None:
    """What the console shows of calls, kept and not kept in turn."""
    with closing(Replay(bench.instance, 4 * bench.options.seconds)) as replay:
        for _ in range(bench.options.runs):
            database = bench.instance.fresh()
            with bench.instance.serve_switched(database) as served:
                load = bench.hot_orders(64)
                reading = kept.measure(bench.instance, database, load, replay, target_of(served))
                bench.note("console.kept", f"{load.title}, calls kept every other {slices.SLICE_SECONDS} s", reading)
            bench.instance.drop(database)


def _added(bench: Bench) -> None:
    """The sums of reports, added up and not in turn, while orders come as fast as they go."""
    instance = bench.instance
    with closing(Replay(instance, 4 * bench.options.seconds)) as replay:
        for _ in range(bench.options.runs):
            database = instance.fresh()
            with instance.serve(database) as served, instance.fold(database) as folding:
                load = bench.hot_orders(64)
                reading = slices.measure(instance, database, load, replay, target_of(served), folding)
                title = f"{load.title}, reports added up every other {slices.SLICE_SECONDS} s"
                bench.note("console.added", title, reading)
            instance.drop(database)
