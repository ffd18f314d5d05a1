"""Which figures does the service promise? Ratios within one run where that can be, since machines differ."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

Medians = Mapping[str, Mapping[str, float]]


class Target(NamedTuple):
    """`reached` computes the figure; it raises KeyError where something it needs was not measured."""

    text: str
    at_least: bool
    bound: float
    reached: Callable[[Medians], float]
    unit: str = "×"


class Verdict(NamedTuple):
    text: str
    bound: str
    reached: float
    unit: str
    kept: bool
    source: str


def _rate(key: str, of: str) -> Callable[[Medians], float]:
    return lambda medians: medians[key]["per_second"] / medians[of]["per_second"]


def _wait(key: str, of: str) -> Callable[[Medians], float]:
    return lambda medians: medians[key]["p50_ms"] / medians[of]["p50_ms"]


def _cpu(key: str, of: str) -> Callable[[Medians], float]:
    return lambda medians: medians[key]["cpu_us"] / medians[of]["cpu_us"]


def _tail(key: str) -> Callable[[Medians], float]:
    return lambda medians: medians[key]["p99_ms"] / medians[key]["p50_ms"]


def _value(key: str, name: str) -> Callable[[Medians], float]:
    return lambda medians: medians[key][name]


def _percent(key: str, name: str) -> Callable[[Medians], float]:
    return lambda medians: medians[key][name] * 100


def _inverse(key: str, name: str) -> Callable[[Medians], float]:
    return lambda medians: 1 / medians[key][name]


def _cores(key: str) -> Callable[[Medians], float]:
    """That serve and PostgreSQL keep busy together."""
    return lambda medians: (
        medians[key]["per_second"] * (medians[key]["server_us"] + medians[key]["postgres_us"]) / 1_000_000
    )


_PLAIN = (
    Target("orders, one dealer ÷ pgbench one wallet", True, 7, _rate("orders.hot.64", "pgbench.one")),
    Target("orders, one dealer ÷ E", True, 0.60, _rate("orders.hot.64", "E.orders")),
    Target("orders, 1 000 dealers ÷ pgbench 1 000 wallets", True, 1.4, _rate("orders.thousand.64", "pgbench.thousand")),
    Target("orders, 1 000 dealers ÷ E", True, 0.45, _rate("orders.thousand.64", "E.orders")),
    Target("orders, one dealer: p99 ÷ p50", False, 4, _tail("orders.hot.64")),
    Target("orders, 1 000 dealers: p99 ÷ p50", False, 4, _tail("orders.thousand.64")),
    Target("one connection: order p50 ÷ empty call p50", False, 6, _wait("orders.hot.1", "health.1.orders")),
    Target("one connection: order p50 ÷ pgbench p50", False, 1.3, _wait("orders.hot.1", "pgbench.single")),
    Target("query of paid orders ÷ E", True, 0.70, _rate("query.paid.64", "E.reads")),
    Target("query of delivered orders ÷ E", True, 0.70, _rate("query.delivered.64", "E.reads")),
    Target("account/balance ÷ E", True, 0.85, _rate("balance.64", "E.reads")),
    Target("package/list ÷ E", True, 0.70, _rate("packages.64", "E.reads")),
    *[
        Target(f"RT face: {name} ÷ our own door", True, 0.85, _rate(f"rt.{name}.face", f"rt.{name}.own"))
        for name in ("balance", "order", "query", "usage")
    ],
    Target("stored: orders, one dealer ÷ empty", True, 0.90, _rate("orders.hot.64.stored", "orders.hot.64.empty")),
    Target(
        "stored: orders, 1 000 dealers ÷ empty",
        True,
        0.90,
        _rate("orders.thousand.64.stored", "orders.thousand.64.empty"),
    ),
    Target("stored: query, paid just now ÷ empty", True, 0.90, _rate("query.paid.64.stored", "query.paid.64.empty")),
    Target(
        "stored: query, delivered just now ÷ empty",
        True,
        0.90,
        _rate("query.delivered.64.stored", "query.delivered.64.empty"),
    ),
    Target(
        "stored: query, random old ÷ delivered, empty",
        True,
        0.75,
        _rate("query.old.64.stored", "query.delivered.64.empty"),
    ),
    Target(
        "p99 of others while a wallet is locked ÷ quiet",
        False,
        3,
        lambda medians: medians["orders.locked"]["p99_ms"] / medians["orders.quiet"]["p99_ms"],
    ),
    Target("refunds, one dealer ÷ pgbench one by one", True, 3, _rate("refunds.hot.64", "pgbench.refunds")),
    Target("recharges ÷ orders, one dealer", True, 0.90, _value("recharges.ratio", "per_second_ratio")),
    Target("audit of 1 000 000 orders", False, 60, _value("audit", "seconds"), " s"),
    Target("stored: memory of that audit", False, 300, _value("audit", "rss_mb"), " MB"),
    Target("webhooks: deliveries, ordered", True, 3000, _value("webhooks.ours", "per_second"), "/s"),
    Target("webhooks: deliveries of changed orders", True, 3000, _value("webhooks.changed", "per_second"), "/s"),
    Target("webhooks: one receiver hangs ÷ none does", True, 0.90, _rate("webhooks.hanging", "webhooks.ours")),
    Target("webhooks: ours ÷ procrastinate, both ordered", True, 5, _rate("webhooks.ours", "webhooks.procrastinate")),
    Target("webhooks: ours, ordered ÷ pgqueuer, not", True, 0.80, _rate("webhooks.ours", "webhooks.pgqueuer")),
    Target("webhooks: CPU of the worker a delivery", False, 300, _value("webhooks.ours", "worker_us"), " µs"),
    Target("webhooks: CPU, changed orders", False, 300, _value("webhooks.changed", "worker_us"), " µs"),
    Target("webhooks: COMMIT → first byte, p50", False, 20, _value("webhooks.latency", "p50_ms"), " ms"),
    Target("webhooks: COMMIT → first byte, p99", False, 100, _value("webhooks.latency", "p99_ms"), " ms"),
    Target("webhooks: claim, dead tenant's breaker open", False, 2, _value("webhooks.claim.probe", "p50_ms"), " ms"),
    Target("webhooks: claim, dead tenant's breaker closed", False, 2, _value("webhooks.claim.cap", "p50_ms"), " ms"),
    Target("console: slowest page, p50", False, 100, _value("console.slowest", "p50_ms"), " ms"),
    Target("console: slowest report, p50", False, 100, _value("console.report", "p50_ms"), " ms"),
    Target("console: slowest search, p50", False, 50, _value("console.search", "p50_ms"), " ms"),
    Target("console: memory of serve after the export of all", False, 200, _value("console.export", "rss_mb"), " MB"),
    Target("console: orders, calls kept for it ÷ not", True, 0.97, _value("console.kept", "orders_ratio")),
    Target("console: orders, reports added up ÷ not", True, 0.97, _value("console.added", "orders_ratio")),
    Target("traces: CPU of a life, a tenth sampled ÷ none", False, 1.05, _value("traces.ratio", "cpu_us_ratio")),
    Target(
        "traces: their share of CPU while there are none", False, 1, _value("traces.unsampled", "share_percent"), " %"
    ),
    Target("memory of serve after its calls", False, 150, _value("memory.serve", "rss_mb"), " MB"),
    Target("dev to ready, cold", False, 3.0, _value("dev.cold", "seconds"), " s"),
    Target("dev to ready, warm", False, 1.5, _value("dev.warm", "seconds"), " s"),
)

# By the sentence that asks for them; those that are a sentence themselves come first.
TARGETS: Mapping[str, tuple[Target, ...]] = {
    "": _PLAIN,
    "The life of one dealer's orders runs at 1 800/s or more and at 0.9 × that of 100 dealers or more, that of 100"
    " dealers at 2 000/s or more, with a spread of at most 15 %.": (
        Target("life, one dealer", True, 1800, _value("life.burst.one", "per_second"), "/s"),
        Target("life, one dealer ÷ 100 dealers", True, 0.9, _rate("life.burst.one", "life.burst.many")),
        Target("life, 100 dealers", True, 2000, _value("life.burst.many", "per_second"), "/s"),
        Target("life, one dealer: spread", False, 15, _percent("life.burst.one", "spread"), " %"),
        Target("life, 100 dealers: spread", False, 15, _percent("life.burst.many", "spread"), " %"),
    ),
    "A delivered order takes half of the disk that it took at first, 6.6 KB.": (
        Target("life: disk that one more order takes", False, 3.3, _value("life.disk", "kb"), " KB"),
    ),
    "At a steady 200/s an order costs PostgreSQL at most 1 000 µs and work at most 700 µs; from the order to ORDER_PAID"
    " p50 ≤ 10 ms and p99 ≤ 40 ms, to DELIVERY_UPDATED p99 ≤ 80 ms.": (
        Target("200/s: CPU of PostgreSQL an order", False, 1000, _value("life.ORDER_PAID", "postgres_us"), " µs"),
        Target("200/s: CPU of work an order", False, 700, _value("life.ORDER_PAID", "worker_us"), " µs"),
        Target("200/s: order → ORDER_PAID, p50", False, 10, _value("life.ORDER_PAID", "p50_ms"), " ms"),
        Target("200/s: order → ORDER_PAID, p99", False, 40, _value("life.ORDER_PAID", "p99_ms"), " ms"),
        Target("200/s: order → DELIVERY_UPDATED, p99", False, 80, _value("life.DELIVERY_UPDATED", "p99_ms"), " ms"),
    ),
    "While 50 000 updates of a dealer wait whose receiver is dead, and the statistics are stale, the life of the others"
    " keeps at least 0.9 of its speed and of its p99.": (
        Target("life beside a dead receiver ÷ without it", True, 0.9, _value("dead.ratio", "per_second_ratio")),
        Target("p99 without a dead receiver ÷ beside it", True, 0.9, _inverse("dead.ratio", "p99_ms_ratio")),
    ),
    "Two serve processes on one machine cost at most 1.25 × the CPU of one for an order where both serve every dealer,"
    " and 1.05 × where each dealer sticks to one.": (
        Target(
            "two processes, dealers spread: CPU ÷ one process", False, 1.25, _cpu("processes.spread", "processes.one")
        ),
        Target(
            "two processes, dealers stick: CPU ÷ one process", False, 1.05, _cpu("processes.sticking", "processes.one")
        ),
        Target(
            "two processes, one dealer: CPU ÷ one process", False, 1.25, _cpu("processes.hot.two", "processes.hot.one")
        ),
    ),
    "With many orders stored (10 000 000 by --stored) and all their webhooks, lives and lists stay within 15 % of an"
    " empty database.": (
        Target("stored: life, 100 dealers ÷ empty", True, 0.85, _rate("life.stored", "life.empty")),
        Target("stored: list of orders ÷ empty", True, 0.85, _rate("list.orders.64.stored", "list.orders.64.empty")),
        Target(
            "stored: list of deliveries ÷ empty",
            True,
            0.85,
            _rate("list.deliveries.64.stored", "list.deliveries.64.empty"),
        ),
    ),
    "`backup check` restores and audits a dump of 1 000 000 orders within 5 minutes.": (
        Target("backup check of 1 000 000 orders", False, 300, _value("backup.check", "seconds"), " s"),
    ),
    "An idle dev takes at most 4 % of a core.": (
        Target("dev while nobody calls", False, 4, _percent("dev.idle", "cores"), " % of a core"),
    ),
    "At 64 connections serve and PostgreSQL together keep at least 1.7 cores busy.": (
        Target("orders, one dealer: serve + PostgreSQL", True, 1.7, _cores("orders.hot.64"), " cores"),
        Target("orders, 1 000 dealers: serve + PostgreSQL", True, 1.7, _cores("orders.thousand.64"), " cores"),
        Target("two processes, one dealer: serve + PostgreSQL", True, 1.7, _cores("processes.hot.two"), " cores"),
        Target("two processes, 1 000 dealers: serve + PostgreSQL", True, 1.7, _cores("processes.spread"), " cores"),
    ),
}


def verdicts(medians: Medians) -> list[Verdict]:
    """Of every target whose figures were measured."""
    found = []
    for source, target in ((source, target) for source, targets in TARGETS.items() for target in targets):
        try:
            reached = target.reached(medians)
        except KeyError:
            continue
        kept = reached >= target.bound if target.at_least else reached <= target.bound
        bound = f"{'≥' if target.at_least else '≤'} {target.bound:g}{target.unit}"
        found.append(Verdict(target.text, bound, reached, target.unit, kept, source))
    return found
