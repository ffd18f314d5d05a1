"""What does a worker count? Prometheus metrics of this process, and gauges read from the database at each scrape.

As with a logger, any module may count; nothing depends on the counts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import prometheus_client as prometheus

REGISTRY = prometheus.CollectorRegistry()

_attempts = prometheus.Counter("dealer_webhook_attempts", "Webhook attempts by outcome", ["outcome"], registry=REGISTRY)
_ended = prometheus.Counter(
    "dealer_webhook_deliveries", "Webhook deliveries that ended, by final state", ["state"], registry=REGISTRY
)
webhook_wait = prometheus.Histogram(
    "dealer_webhook_wait_seconds",
    "From the change of an order to the first attempt to deliver it",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600),
    registry=REGISTRY,
)
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

_supplier_up = prometheus.Gauge(
    "dealer_supplier_up", "Whether the supplier answered the last health check", ["supplier"], registry=REGISTRY
)
_supplier_balance = prometheus.Gauge(
    "dealer_supplier_balance", "The balance at the supplier, in major units", ["supplier"], registry=REGISTRY
)
_supplier_stock = prometheus.Gauge(
    "dealer_supplier_stock", "The supplier's stock of a sku", ["supplier", "sku"], registry=REGISTRY
)
_purchases_open = prometheus.Gauge(
    "dealer_purchases_open", "Open purchases; PARKED ones wait for an operator", ["supplier", "state"],
    registry=REGISTRY,
)  # fmt: skip

_gauges = {
    name: prometheus.Gauge(f"dealer_webhook_{name}", text, registry=REGISTRY)
    for name, text in {
        "oldest_due_seconds": "How long the longest-due webhook of a working endpoint has been waiting",
        "breakers_open": "Endpoints whose circuit breaker is open",
        "endpoints_disabled": "Endpoints that answered 410",
        "in_flight": "Webhooks in flight, over all workers",
        "failed": "Deliveries that ended FAILED and were not resent successfully",
        "jobs_running": "Bulk resend jobs in progress",
    }.items()
}


def webhook_attempt(error: str | None) -> None:
    _attempts.labels(error or "DELIVERED").inc()


def webhook_ended(states: Iterable[str]) -> None:
    """Counts deliveries by final state; RETRY is not final."""
    for state, count in Counter(states).items():
        if state != "RETRY":
            _ended.labels(state).inc(count)


def supplier_health(code: str, up: bool, balance: int | None, stock: Mapping[str, int] | None) -> None:
    """A supplier's health; its balance in ten-thousandths. None: it does not report it."""
    _supplier_up.labels(code).set(up)
    if balance is not None:
        _supplier_balance.labels(code).set(balance / 10_000)
    for sku, left in (stock or {}).items():
        _supplier_stock.labels(code, sku).set(left)


def text(gauges: Mapping[str, float], purchases_open: Iterable[tuple[str, str, int]]) -> bytes:
    """All metrics in Prometheus's text format, with these gauges; open purchases by (supplier, state)."""
    _purchases_open.clear()
    for supplier, state, count in purchases_open:
        _purchases_open.labels(supplier, state).set(count)
    for name, value in gauges.items():
        _gauges[name].set(value)
    return prometheus.generate_latest(REGISTRY)
