"""What is counted where it happens? Prometheus metrics of this process, and gauges that `work` reads from the database
at each scrape.

As with a logger, any module may count; nothing depends on the counts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import prometheus_client as prometheus
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from dealer_server.histogram import Histogram
from esim_dealer.wire.vocabulary import AttemptError

REGISTRY = prometheus.CollectorRegistry()

_attempts = prometheus.Counter("dealer_webhook_attempts", "Webhook attempts by outcome", ["outcome"], registry=REGISTRY)
_ended = prometheus.Counter(
    "dealer_webhook_deliveries", "Webhook deliveries that ended, by final state", ["state"], registry=REGISTRY
)
webhook_wait = Histogram((0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600))
"""Seconds from the change of an order to the first attempt to deliver it."""


class _WebhookWait(Collector):
    def collect(self) -> Iterator[prometheus.Metric]:
        buckets, total = webhook_wait.samples()
        yield HistogramMetricFamily(
            "dealer_webhook_wait_seconds",
            "From the change of an order to the first attempt to deliver it",
            buckets=buckets,
            sum_value=total,
        )


REGISTRY.register(_WebhookWait())
webhook_leases_lost = prometheus.Counter(
    "dealer_webhook_leases_lost", "Webhook attempts whose worker died or lost its lease", registry=REGISTRY
)
webhook_superseded = prometheus.Counter(
    "dealer_webhook_superseded", "Failed updates that a newer one replaced", registry=REGISTRY
)
purchases = prometheus.Counter(
    "dealer_purchases", "Purchases at external suppliers by outcome", ["supplier", "outcome"],
    registry=REGISTRY,
)  # fmt: skip
suppliers_paused = prometheus.Counter(
    "dealer_suppliers_paused", "How often a supplier was paused because it refused every purchase", ["supplier"],
    registry=REGISTRY,
)  # fmt: skip

_supplier_calls = prometheus.Counter(
    "dealer_supplier_calls", "Calls to external suppliers that buy, ask what became of it, or for their health",
    ["supplier", "call", "outcome"], registry=REGISTRY,
)  # fmt: skip
_supplier_seconds = prometheus.Histogram(
    "dealer_supplier_call_seconds", "How long these calls took", ["supplier", "call"],
    buckets=(0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40), registry=REGISTRY,
)  # fmt: skip
_supplier_breaker = prometheus.Gauge(
    "dealer_supplier_breaker_open", "Whether this worker buys nothing new there after failures in a row", ["supplier"],
    registry=REGISTRY,
)  # fmt: skip

_supplier_up = prometheus.Gauge(
    "dealer_supplier_up", "Whether the supplier answered the last health check", ["supplier"], registry=REGISTRY
)
_supplier_balance = prometheus.Gauge(
    "dealer_supplier_balance", "The balance at the supplier, in major units", ["supplier"], registry=REGISTRY
)
_supplier_stock = prometheus.Gauge(
    "dealer_supplier_stock", "The supplier's stock of a sku", ["supplier", "sku"], registry=REGISTRY
)
TABLES = prometheus.CollectorRegistry()
"""Gauges that `work` reads from the database at each scrape."""
_purchases_open = prometheus.Gauge(
    "dealer_purchases_open", "Open purchases; PARKED ones wait for an operator", ["supplier", "state"],
    registry=TABLES,
)  # fmt: skip
_supplier_paused = prometheus.Gauge(
    "dealer_supplier_paused", "Whether a worker paused the supplier because it refused every purchase", ["supplier"],
    registry=TABLES,
)  # fmt: skip

BATCHES = prometheus.CollectorRegistry()
"""Of group commit and of reads; a registry of its own, since `serve` has no other of these metrics."""

_replica_lag = prometheus.Gauge(
    "dealer_read_replica_lag_seconds", "How old the replica is that lists are read from; NaN: it is away", ["reader"],
    registry=BATCHES,
)  # fmt: skip
_reads = prometheus.Counter(
    "dealer_reads", "Lists, reports and exports, by where they were read", ["reader", "source"], registry=BATCHES
)

_gauges = {
    name: prometheus.Gauge(f"dealer_{name}", text, registry=TABLES)
    for name, text in {
        "webhook_oldest_due_seconds": "How long the longest-due webhook of a working endpoint has been waiting",
        "webhook_breakers_open": "Endpoints whose circuit breaker is open",
        "webhook_endpoints_active": "Endpoints that are in use",
        "webhook_endpoints_disabled": "Endpoints that answered 410",
        "webhook_in_flight": "Webhooks in flight, over all workers",
        "webhook_failed": "Deliveries that ended FAILED and were not resent successfully",
        "webhook_jobs_running": "Bulk resend jobs in progress",
        "orders_waiting": "Orders of which an eSIM or a recharge is still to be delivered",
        "orders_oldest_waiting_seconds": "How long ago the oldest of them was placed",
        "refunds_open": "Refunds that are not settled",
        "topups_pending": "Top-ups that wait for approval",
        "wallets_low": "Wallets below the balance of which their dealers want to be told",
        "wallets_frozen": "Wallets that buy nothing",
        "audit_clean_timestamp_seconds": "When the last audit of all dealers that found nothing began; 0: never",
        "worker_seen_timestamp_seconds": "When a worker last said that it runs, about once a minute; 0: never",
    }.items()
}

PROCESS = prometheus.CollectorRegistry()
"""Of any process, whatever it does."""
_ready = prometheus.Gauge("dealer_ready", "Whether /readyz says so: 1, or 0", registry=PROCESS)
_not_ready = prometheus.Gauge("dealer_not_ready", "Why it does not", ["reason"], registry=PROCESS)
_clock_ahead = prometheus.Gauge(
    "dealer_clock_ahead_seconds", "How far this machine's clock is ahead of the database's", registry=PROCESS
)
_pool = prometheus.Gauge(
    "dealer_database_connections", "Connections of the pools for rare statements; `most` is what they may open",
    ["pool", "state"], registry=PROCESS,
)  # fmt: skip
NOT_READY = ("database", "schema", "clock", "draining")


class PoolSize(NamedTuple):
    """Connections of a pool."""

    busy: int
    idle: int
    most: int


class BatchMetrics:
    """Of one kind of batch."""

    def __init__(self) -> None:
        self.items = Histogram((1, 2, 4, 8, 16, 32, 64, 128, 256, 512))
        self.seconds = Histogram((0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5))

    def done(self, items: int, seconds: float) -> None:
        self.items.observe(items)
        self.seconds.observe(seconds)


class _Batches(Collector):
    """The metrics of each kind of batch by its name."""

    def __init__(self) -> None:
        self.named: dict[str, BatchMetrics] = {}

    def collect(self) -> Iterator[prometheus.Metric]:
        items = HistogramMetricFamily("dealer_batch_items", "Items that one batch decided together", labels=["batch"])
        seconds = HistogramMetricFamily(
            "dealer_batch_seconds", "How long a batch took, the database included", labels=["batch"]
        )
        for name, batch in self.named.items():
            items.add_metric([name], *batch.items.samples())
            seconds.add_metric([name], *batch.seconds.samples())
        yield from (items, seconds)


_batches = _Batches()
BATCHES.register(_batches)


class Reads:
    """Of one reader that has a replica: "api" or "console"."""

    def __init__(self, name: str):
        self.lag = _replica_lag.labels(name)
        self.replica = _reads.labels(name, "replica")
        self.primary = _reads.labels(name, "primary")


def of_batches(name: str) -> BatchMetrics:
    return _batches.named.setdefault(name, BatchMetrics())


@cache
def _attempts_of(outcome: str) -> prometheus.Counter:
    return _attempts.labels(outcome)  # which takes a lock to find it


def webhook_attempt(error: AttemptError | None) -> None:
    _attempts_of(error or "DELIVERED").inc()


def webhook_ended(states: Iterable[str]) -> None:
    """Counts deliveries by final state; RETRY is not final."""
    for state, count in Counter(states).items():
        if state != "RETRY":
            _ended.labels(state).inc(count)


def supplier_called(code: str, call: str, outcome: str, seconds: float) -> None:
    _supplier_calls.labels(code, call, outcome).inc()
    _supplier_seconds.labels(code, call).observe(seconds)


def watch_breaker(code: str, is_open: Callable[[], bool]) -> None:
    """Asks for the state of a supplier's breaker at each scrape."""
    _supplier_breaker.labels(code).set_function(is_open)


def supplier_health(code: str, up: bool, balance: int | None, stock: Mapping[str, int] | None) -> None:
    """A supplier's health; its balance in ten-thousandths. None: it does not report it."""
    _supplier_up.labels(code).set(up)
    if balance is not None:
        _supplier_balance.labels(code).set(balance / 10_000)
    for sku, left in (stock or {}).items():
        _supplier_stock.labels(code, sku).set(left)


def of_tables(
    gauges: Mapping[str, float],
    purchases_open: Iterable[tuple[str, str, int]],
    suppliers_paused: Mapping[str, bool],
) -> bytes:
    """Gauges by their names without dealer_; open purchases by (supplier, state); by supplier whether a worker paused
    it."""
    _purchases_open.clear()
    for supplier, state, count in purchases_open:
        _purchases_open.labels(supplier, state).set(count)
    _supplier_paused.clear()
    for supplier, paused in suppliers_paused.items():
        _supplier_paused.labels(supplier).set(paused)
    for name, value in gauges.items():
        _gauges[name].set(value)
    return prometheus.generate_latest(TABLES)


def of_process(not_ready: Sequence[str], clock_ahead_seconds: float, pools: Mapping[str, PoolSize]) -> bytes:
    """`not_ready`: reasons, each beginning with its word and a colon."""
    reasons = {reason.partition(":")[0] for reason in not_ready}
    _ready.set(not reasons)
    for reason in NOT_READY:
        _not_ready.labels(reason).set(reason in reasons)
    _clock_ahead.set(clock_ahead_seconds)
    for pool, size in pools.items():
        for state, count in size._asdict().items():
            _pool.labels(pool, state).set(count)
    return prometheus.generate_latest(PROCESS)
