"""What do other dealers notice of a dead receiver with many waiting updates, of which PostgreSQL's statistics know
nothing? Slices without and with these updates take turns, and each is compared with the two around it."""

import socket
from datetime import timedelta

from bench.cases import life
from bench.cases.suite import Bench
from bench.support import backlog, growth
from bench.support.instance import Instance
from bench.support.measure import Reading
from bench.support.slices import in_turns
from dealer_server.db.database import Database

WAITING = 50_000
STEADY_SECONDS = 5
_TRIAL_SECONDS = 1
_AGO = timedelta(minutes=30)
_NAMES = (
    ("dead.without", "no receiver is dead"),
    ("dead.with", f"beside {WAITING:,} waiting updates of a dead one"),
)

# What autovacuum found before the updates came: deliveries, and none of them waits.
_STALE = "ANALYZE", "ALTER TABLE webhook_delivery SET (autovacuum_enabled = off)"


def run(bench: Bench) -> None:
    """Whole lives of many dealers, as fast as they go and at a steady rate."""
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # it never listens, so whoever connects is refused
        url = f"http://127.0.0.1:{dead.getsockname()[1]}/webhooks"
        databases = _prepared(bench.instance, url, waiting=False), _prepared(bench.instance, url, waiting=True)
        slices: list[Reading] = []
        for number in range(2 * bench.options.runs + 1):
            slices.append(_slice(bench.instance, databases[number % 2]))
            key, beside = _NAMES[number % 2]
            bench.note(key, f"life, {life.MANY_DEALERS} dealers, {beside}", slices[-1])
    bench.note(
        "dead.ratio",
        "life beside a dead receiver ÷ without it",
        in_turns(slices, ("per_second", "p99_ms", "postgres_us")),
    )
    for database in databases:
        bench.instance.drop(database)


def _prepared(instance: Instance, url: str, *, waiting: bool) -> str:
    """A database on which others have traded, and then a dealer has got the same orders; their updates wait, or not."""
    database, dead = instance.fresh(), instance.dealers[-1]
    life.burst(instance, database, life.MANY_DEALERS, _TRIAL_SECONDS)
    instance.run(database, _forget)
    if waiting:
        instance.subscribe(database, {dead: url})
    events = backlog.FIRST_EVENTS if waiting else growth.SKIPPED
    growth.load(instance, database, WAITING, backlog.OVER, _AGO, dealers=[dead], events=events)
    return database


async def _forget(database: Database) -> None:
    async with database.connection() as connection:
        for statement in _STALE:
            await connection.execute(statement)


def _slice(instance: Instance, database: str) -> Reading:
    """How many lives a second as fast as they go, and what they cost; how long each takes at a steady rate."""
    instance.checkpoint()
    fast, _ = life.burst(instance, database, life.MANY_DEALERS, life.BURST_SECONDS)
    told = life.steady(instance, database, life.MANY_DEALERS, STEADY_SECONDS)["DELIVERY_UPDATED"]
    return fast | {name: told[name] for name in ("p50_ms", "p99_ms")}
