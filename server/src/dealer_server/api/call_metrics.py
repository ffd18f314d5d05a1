"""Prometheus metrics of a process that serves the API: its calls, its connections, and what is counted elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from dealer_server.api.listener import Counts
from dealer_server.histogram import Histogram

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of answers, in seconds; the last bucket has none."""


class Connections(NamedTuple):
    """Of a listener: how many connections are open, and what it has refused since it started."""

    open: int
    counts: Counts


class CallMetrics(Collector):
    """Counts the calls of a process; one per process. `answered` costs half a microsecond: plain lists, no locks."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self.connections: Callable[[], Sequence[Connections]] = tuple

    def answered(self, operation: str, code: str, seconds: float) -> None:
        """Counts an answer. `operation`: the path without its prefix, '' for one that is unknown; `code`: as answered;
        `seconds`: from the last byte of the call."""
        key = (operation, code)
        self._calls[key] = self._calls.get(key, 0) + 1
        of_operation = self._seconds.get(operation)
        if of_operation is None:
            of_operation = self._seconds[operation] = Histogram(BOUNDS)
        of_operation.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        calls = CounterMetricFamily("dealer_api_calls", "Answered calls", labels=["operation", "code"])
        for (operation, code), count in self._calls.items():
            calls.add_metric([operation, code], count)
        yield calls
        seconds = HistogramMetricFamily(
            "dealer_api_call_seconds", "From the last byte of a call to its answer", labels=["operation"]
        )
        for operation, of_operation in self._seconds.items():
            seconds.add_metric([operation], *of_operation.samples())
        yield seconds
        yield from self._of_connections()

    def _of_connections(self) -> Iterator[Metric]:
        listeners = self.connections()
        yield GaugeMetricFamily(
            "dealer_api_connections", "Open connections of dealers", sum(one.open for one in listeners)
        )
        refused = CounterMetricFamily(
            "dealer_api_connections_closed", "Connections refused or closed by a limit, by reason", labels=["reason"]
        )
        for reason in Counts.__slots__:
            refused.add_metric([reason], sum(getattr(one.counts, reason) for one in listeners))
        yield refused

    def text(self, *others: CollectorRegistry) -> bytes:
        """All metrics in Prometheus's text format, after those of other registries."""
        own = CollectorRegistry(auto_describe=False)
        own.register(self)
        return b"".join(generate_latest(registry) for registry in (*others, own))
