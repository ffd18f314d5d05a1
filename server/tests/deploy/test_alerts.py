"""Does each alert fire when its cause is there, and none where nothing is wrong? promtool plays the rules."""

import json
import subprocess
from pathlib import Path

import pytest

from support.deploy.programs import needs
from support.paths import ROOT

ALERTS = ROOT / "deploy/prometheus/alerts.yml"
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'
END = 120
"""The last minute of the series, each of which has a value a minute."""

UP_SERVE, UP_WORK = 'up{job="dealer-serve",instance="s:9474"}', 'up{job="dealer-work",instance="w:9464"}'
READY = 'dealer_ready{job="dealer-serve",instance="s:9474"}'
CLOCK = 'dealer_clock_ahead_seconds{job="dealer-serve",instance="s:9474"}'
CALLS = 'dealer_api_calls_total{operation="/esim/order",code="%s",instance="s:9474"}'
SECONDS = 'dealer_api_call_seconds_bucket{operation="/esim/order",le="%s"}'
WAITING = 'dealer_orders_oldest_waiting_seconds{instance="w:9464"}'
SUPPLIER_UP = 'dealer_supplier_up{supplier="rt:near",instance="w:9464"}'
BREAKER = 'dealer_supplier_breaker_open{supplier="rt:near",instance="w:9464"}'
PAUSED = 'dealer_supplier_paused{supplier="rt:near",instance="w:9464"}'
PURCHASES = 'dealer_purchases_open{supplier="rt:near",state="%s",instance="w:9464"}'
LAG = 'dealer_webhook_oldest_due_seconds{instance="w:9464"}'
FAILING = 'dealer_webhook_breakers_open{instance="w:9464"}'
RECEIVERS = 'dealer_webhook_endpoints_active{instance="w:9464"}'
AUDITED = 'dealer_audit_clean_timestamp_seconds{instance="w:9464"}'
DISK_LEFT = 'node_filesystem_avail_bytes{mountpoint="/",fstype="ext4",instance="n:9100"}'
DISK = 'node_filesystem_size_bytes{mountpoint="/",fstype="ext4",instance="n:9100"}'
PG_UP, REPLICATION = 'pg_up{instance="p:9187"}', 'pg_replication_lag_seconds{instance="p:9187"}'
SESSIONS = 'pg_stat_activity_count{instance="p:9187",state="idle"}'
SESSIONS_MOST = 'pg_settings_max_connections{instance="p:9187"}'

WELL = {
    UP_SERVE: "1x{}",
    UP_WORK: "1x{}",
    READY: "1x{}",
    CLOCK: "0.01x{}",
    CALLS % "000000": "0+600x{}",
    SECONDS % "0.01": "0+600x{}",
    SECONDS % "2.5": "0+600x{}",
    SECONDS % "+Inf": "0+600x{}",
    WAITING: "2x{}",
    SUPPLIER_UP: "1x{}",
    BREAKER: "0x{}",
    PAUSED: "0x{}",
    PURCHASES % "PENDING": "3x{}",
    LAG: "0.2x{}",
    FAILING: "2x{}",
    RECEIVERS: "10x{}",
    AUDITED: "0+60x{}",
    DISK_LEFT: "50x{}",
    DISK: "100x{}",
    PG_UP: "1x{}",
    REPLICATION: "1x{}",
    SESSIONS: "50x{}",
    SESSIONS_MOST: "100x{}",
}
"""What Prometheus reads while nothing is wrong, in promtool's notation."""

# What is wrong from minute 30 on, at which minute it is looked, and which alerts then fire.
WRONG: list[tuple[str, dict[str, str], int, set[str]]] = [
    ("nothing", {}, 119, set()),
    ("the only worker is gone", {UP_WORK: "1x29 0x90"}, 33, {"DealerNoWorker", "DealerProcessDown"}),
    ("… for a moment", {UP_WORK: "1x29 0 1x90"}, 31, set()),
    ("the only serve is not ready", {READY: "1x29 0x90"}, 32, {"DealerNoServe", "DealerServeNotReady"}),
    ("2 % of calls do not find the database", {CALLS % "900001": "0x29 0+12x90"}, 40, {"DealerCallsFail"}),
    ("a defect", {CALLS % "000001": "_x29 1x90"}, 32, {"DealerUnexpectedErrors"}),
    ("… and again", {CALLS % "000001": "1x29 2x90"}, 32, {"DealerUnexpectedErrors"}),
    ("a call in twenty is slow", {SECONDS % "0.01": "0+570x{}"}, 40, {"DealerCallsSlow"}),
    ("a supplier is down", {SUPPLIER_UP: "1x29 0x90"}, 34, {"DealerSupplierDown"}),
    ("… and again and again", {BREAKER: "0x29 1x90"}, 36, {"DealerSupplierBreakerOpen"}),
    ("an order waits", {WAITING: "2x29 0+60x90"}, 52, {"DealerOrdersWaiting"}),
    ("a supplier refuses us", {PAUSED: "0x29 1x400"}, 400, {"DealerSupplierPaused"}),
    ("… and is resumed", {PAUSED: "0x29 1x30 0x60"}, 62, set()),
    ("a purchase is unconfirmed", {PURCHASES % "PARKED": "0x29 2x90"}, 47, {"DealerPurchasesUnconfirmed"}),
    ("webhooks are late", {LAG: "0.2x29 61x90"}, 33, {"DealerWebhookLag"}),
    ("many receivers fail", {FAILING: "2x29 5x90"}, 36, {"DealerReceiversFailing"}),
    ("an audit found something", {AUDITED: "0+60x29 1740x90"}, 119, set()),
    ("… since two hours", {AUDITED: "0x{}"}, 135, {"DealerAuditFindings"}),
    ("a clock is wrong", {CLOCK: "0.01x29 -7x90"}, 32, {"DealerClockApart"}),
    ("a disk is nearly full", {DISK_LEFT: "14x{}"}, 36, {"DealerDiskFull"}),
    ("a disk will be full", {DISK_LEFT: "60-0.1x{}"}, 440, {"DealerDiskFullSoon"}),
    ("… or was filled by an installation", {DISK_LEFT: "60-0.1x{}"}, 119, set()),
    ("PostgreSQL is down", {PG_UP: "1x29 0x90"}, 32, {"DealerDatabaseDown"}),
    ("a standby falls behind", {REPLICATION: "1x29 45x90"}, 33, {"DealerReplicationLag"}),
    ("PostgreSQL is full", {SESSIONS: "50x29 90x90"}, 36, {"DealerDatabaseConnections"}),
]


def case(words: str, changed: dict[str, str], minute: int, alerts: set[str]) -> dict[str, object]:
    series = {name: values.format(max(END, minute + 10)) for name, values in (WELL | changed).items()}
    return {
        "name": words,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": FIRING,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(alerts)],
            }
        ],
    }


@pytest.mark.deploy
def test_each_alert_fires_for_its_cause_and_for_no_other(tmp_path: Path):
    needs("promtool", "prometheus")
    cases = tmp_path / "cases.yml"  # JSON is YAML
    cases.write_text(
        json.dumps(
            {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [case(*wrong) for wrong in WRONG]}
        )
    )
    done = subprocess.run(["promtool", "test", "rules", cases], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_lacks_a_case():
    named = {line.split()[-1] for line in ALERTS.read_text().splitlines() if "- alert:" in line}
    assert named == {name for *_, alerts in WRONG for name in alerts}
