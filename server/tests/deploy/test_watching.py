"""Do dashboard and alerts name metrics and labels that there are? Do rules and configuration parse?"""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from dealer_server import metrics
from dealer_server.api.call_metrics import CallMetrics
from support.deploy.programs import needs
from support.paths import DOCS, ROOT

PROMETHEUS = ROOT / "deploy/prometheus"
DASHBOARD = ROOT / "deploy/grafana/esim-dealer.json"
OTHERS = {
    "up": {"job", "instance"},
    "node_filesystem_avail_bytes": {"instance", "mountpoint", "fstype"},
    "node_filesystem_size_bytes": {"instance", "mountpoint", "fstype"},
    "pg_up": {"instance"},
    "pg_replication_lag_seconds": {"instance"},
    "pg_replication_lag": {"instance"},
    "pg_stat_activity_count": {"instance"},
    "pg_settings_max_connections": {"instance"},
    "ALERTS": {"alertname"},
}
"""Metrics of Prometheus, of its node exporter and of its PostgreSQL exporter."""
SCRAPED = {"job", "instance"}
NAME = re.compile(r"\b(dealer_\w+|node_\w+|pg_\w+|up)\b(?:\{([^}]*)\})?")


def ours() -> dict[str, set[str]]:
    """Every series of the service with its labels."""
    found: dict[str, set[str]] = {}
    for registry in (metrics.REGISTRY, metrics.TABLES, metrics.BATCHES, metrics.PROCESS):
        found |= _wrapped(registry)
    return found | _collected(CallMetrics())


def _wrapped(registry: CollectorRegistry) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for metric in set(registry._collector_to_names):
        if isinstance(metric, MetricWrapperBase):
            found |= _series(metric._name, metric._type, set(metric._labelnames))
        else:
            found |= _collected(metric)
    return found


def _collected(collector: Collector) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in collector.collect():
        labels = set(family._labelnames)  # type: ignore[attr-defined]
        found |= _series(family.name, family.type, labels)
    return found


def _series(name: str, kind: str, labels: set[str]) -> dict[str, set[str]]:
    if kind == "histogram":
        return {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
    return {f"{name}_total" if kind == "counter" else name: labels}


KNOWN = {name: labels | SCRAPED for name, labels in ours().items()} | OTHERS


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str, str]]:
    """What asks, its expression, and what it makes of the labels."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]
    for rule in rules():
        yield rule["alert"], rule["expr"], rule["annotations"]["summary"]


def test_every_expression_names_metrics_and_labels_that_there_are():
    seen: set[str] = set()
    for title, expression, words in expressions():
        found = NAME.findall(expression)
        assert found, (title, expression)
        for name, selectors in found:
            assert name in KNOWN, (title, name)
            used = set(re.findall(r"(\w+)\s*[=!]~?", selectors))
            assert used <= KNOWN[name], (title, name, used - KNOWN[name])
        labels = set.union(*(KNOWN[name] for name, _ in found))
        for group in re.findall(r"\bby \(([^)]*)\)", expression):
            assert set(group.split(", ")) <= labels, (title, group)
        shown = set(re.findall(r"\{\{ ?(?:\$labels\.)?(\w+)", words)) - {"value"}
        assert shown <= labels, (title, shown - labels)
        seen |= {name for name, _ in found}
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in seen}
    unseen = {name for name in ours() if re.sub("_(bucket|sum|count)$", "", name) not in families}
    assert unseen == set(), "on no panel and in no alert"


def test_panels_do_not_overlap_and_alerts_name_runbooks_that_there_are():
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    runbooks = (DOCS / "operating/runbooks.md").read_text()
    headings = {line[3:].strip().lower().replace(" ", "-") for line in runbooks.splitlines() if line.startswith("## ")}
    for rule in rules():
        assert rule["annotations"]["runbook"] in headings, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")


@pytest.mark.deploy
def test_prometheus_accepts_configuration_and_rules():
    promtool = needs("promtool", "prometheus")
    done = subprocess.run([promtool, "check", "config", PROMETHEUS / "prometheus.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
