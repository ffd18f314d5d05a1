"""What does one order's life cost PostgreSQL, statement by statement? Executions, plans, time, rows, blocks."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.cases import life
from bench.cases.suite import Bench
from bench.support import contrib, machine, report
from bench.support.instance import Instance
from bench.support.machine import ROOT
from bench.support.measure import Reading
from dealer_server.db.database import Database

SHOWN = 25
_LIFE = ("per_second", "p50_ms", "p99_ms", "postgres_us", "server_us", "worker_us", "others_cores")
_WIDTH = 80
_READ = """
SELECT queryid, query, calls, plans, total_plan_time, total_exec_time, rows, shared_blks_hit + shared_blks_read
FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%'
ORDER BY total_plan_time + total_exec_time DESC
"""
_SOURCES = ROOT / "server/src/dealer_server"
_LITERAL = re.compile(r"'[^']*'|\$\d+|\b\d+\b")  # what pg_stat_statements writes as a parameter, and parameters
_TELLING = 15  # characters of a line that few other statements have


class Statement(NamedTuple):
    """All that it cost. `exec_ms` is by the clock, so it holds waits for locks and for a core; the flush of a COMMIT is
    in no statement's time."""

    id: int
    """The same for all databases of an instance; `query` may hold other constants."""

    query: str
    calls: int
    plans: int
    plan_ms: float
    exec_ms: float
    rows: int
    blocks: int


class Profile(NamedTuple):
    """The statements of so many orders' lives, the longest first; `life` says what else these lives took."""

    key: str
    title: str
    orders: float
    life: Reading
    statements: Sequence[Statement]

    def reading(self) -> Reading:
        """Of all statements together, for one order."""
        totals = {
            "statements": sum(one.calls for one in self.statements),
            "plans": sum(one.plans for one in self.statements),
            "plan_us": sum(one.plan_ms for one in self.statements) * 1000,
            "exec_us": sum(one.exec_ms for one in self.statements) * 1000,
            "blocks": sum(one.blocks for one in self.statements),
        }
        return self.life | {name: total / self.orders for name, total in totals.items()}


def run(bench: Bench) -> None:
    """Of one dealer and of many, as fast as it goes and at a steady rate; a table of them stands beside the other
    results. Only a note where no PostgreSQL counts statements."""
    try:
        with installed(bench.instance.folder / "contrib") as instance:
            facts = machine.facts(instance.folder) | {"postgres": instance.run("esim", _version)}
            found = [
                profile
                for dealers in (1, life.MANY_DEALERS)
                for profile in (_burst(instance, dealers), _steady(instance, dealers, bench.options.seconds))
            ]
    except contrib.Missing as missing:
        bench.note("statements", f"statements: not measured, {missing}", {})
        return
    for profile in found:
        bench.note(profile.key, f"statements of a life, {profile.title}", profile.reading())
    report.place(facts, "-statements", "md").write_text("\n".join(_document(facts, found)) + "\n")


@contextmanager
def installed(folder: Path) -> Iterator[Instance]:
    """An instance whose PostgreSQL counts statements. Raises contrib.Missing."""
    folder.mkdir(mode=0o711)
    instance = Instance(folder, contrib.start)
    try:
        instance.prepare()
        yield instance
    finally:
        instance.stop()


def _burst(instance: Instance, dealers: int) -> Profile:
    whose, name = life.of(dealers)
    database = _counting(instance)
    reading, _ = life.burst(instance, database, dealers, life.BURST_SECONDS, _anew(instance, database))
    title = f"as fast as it goes, {whose}"
    return Profile(f"statements.burst.{name}", title, reading["orders"], reading, _read(instance, database))


def _steady(instance: Instance, dealers: int, seconds: int) -> Profile:
    whose, name = life.of(dealers)
    database = _counting(instance)
    received = life.steady(instance, database, dealers, seconds, _anew(instance, database))
    key, title, orders = f"statements.steady.{name}", f"{life.RATE} orders/s, {whose}", life.RATE * seconds
    return Profile(key, title, orders, received["DELIVERY_UPDATED"], _read(instance, database))


def _counting(instance: Instance) -> str:
    """A fresh database whose statements are counted."""
    database = instance.fresh()
    instance.run(database, lambda opened: _execute(opened, "CREATE EXTENSION pg_stat_statements"))
    return database


def _anew(instance: Instance, database: str) -> Callable[[], None]:
    """What makes the counts 0."""
    return lambda: instance.run(database, lambda opened: _execute(opened, "SELECT pg_stat_statements_reset()"))


async def _execute(database: Database, statement: str) -> None:
    async with database.connection() as connection:
        await connection.execute(statement)


def _read(instance: Instance, database: str) -> list[Statement]:
    async def read(opened: Database) -> list[Statement]:
        async with opened.connection() as connection:
            return [Statement(*row) for row in await connection.fetch(_READ)]

    statements = instance.run(database, read)
    instance.drop(database)
    return statements


async def _version(database: Database) -> str:
    async with database.connection() as connection:
        return str(await connection.fetchval("SHOW server_version"))


def _document(facts: Mapping[str, object], profiles: Sequence[Profile]) -> Iterator[str]:
    """Markdown: a table for each profile, and the whole statements once, by the numbers they have in the tables."""
    yield "# One order's life by statement\n"
    yield (
        f"{facts['at']}, commit {facts['commit']}, PostgreSQL {facts['postgres']}, {facts['cpu']},"
        f" {facts['cores']} cores, load {facts['load1']:.1f} before it began.\n"
        "Figures are for one order; [README](../README.md) says what they are.\n"
    )
    yield "| life | per s | DELIVERY_UPDATED p50 ms | p99 ms | PG µs | serve µs | work µs | cores of others |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for profile in profiles:
        cells = [_cell(profile.life, name) for name in _LIFE]
        yield f"| {profile.title} | {' | '.join(cells)} |"
    modules, numbers = _modules(), dict[int, int]()
    for profile in profiles:
        yield from _table(profile, modules, numbers)
    yield "\n## Statements"
    queries = {one.id: one.query for profile in reversed(profiles) for one in profile.statements}
    for id, number in numbers.items():
        query = queries[id]
        yield f"\n{number}. {_module_of(query, modules)}\n\n```sql\n{query.strip()}\n```"


def _cell(reading: Reading, name: str) -> str:
    return f"{reading[name]:,.1f}" if name in reading else ""


def _table(profile: Profile, modules: Mapping[str, Sequence[str]], numbers: dict[int, int]) -> Iterator[str]:
    whole = profile.reading()
    yield f"\n## {profile.title[0].upper()}{profile.title[1:]}\n\n{profile.orders:,.0f} orders.\n"
    yield "| no. | module | executions | plans | plan µs | exec µs | share | rows | blocks | statement |"
    yield "|--:|---|--:|--:|--:|--:|--:|--:|--:|---|"
    yield (
        f"| | all {len(profile.statements)} | {whole['statements']:.2f} | {whole['plans']:.3f} | {whole['plan_us']:.1f}"
        f" | {whole['exec_us']:.1f} | | | {whole['blocks']:.0f} | |"
    )
    for one in profile.statements[:SHOWN]:
        number = numbers.setdefault(one.id, len(numbers) + 1)
        plan_us, exec_us = (spent * 1000 / profile.orders for spent in (one.plan_ms, one.exec_ms))
        share = (plan_us + exec_us) / (whole["plan_us"] + whole["exec_us"])
        calls, plans, rows, blocks = (n / profile.orders for n in (one.calls, one.plans, one.rows, one.blocks))
        words = " ".join(one.query.split())[:_WIDTH].replace("|", "\\|")
        yield (
            f"| {number} | {_module_of(one.query, modules)} | {calls:.3f} | {plans:.3f} | {plan_us:.1f} | {exec_us:.1f}"
            f" | {share:.1%} | {rows:.2f} | {blocks:.1f} | `{words}` |"
        )


def _modules() -> dict[str, list[str]]:
    """The lines of all texts of each module that may send statements."""
    return {
        str(file.relative_to(_SOURCES)): [words for line in _texts(file) if len(words := _words(line)) >= _TELLING]
        for folder in ("store", "db")
        for file in sorted((_SOURCES / folder).rglob("*.py"))
    }


def _texts(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from node.value.splitlines()


def _module_of(query: str, modules: Mapping[str, Sequence[str]]) -> str:
    """The one whose lines make up most of the statement; none for COMMIT and its like."""
    words = _words(query)
    found = {name: sum(len(line) for line in lines if line in words) for name, lines in modules.items()}
    name = max(found, key=lambda name: found[name])
    return name if found[name] else ""


def _words(text: str) -> str:
    return " ".join(_LITERAL.sub("?", text).split())
