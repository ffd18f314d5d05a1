"""Do the files of deploy/ parse, and do they name settings, commands and files that there are? And what their own
programs say of them."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dealer_server import environment
from dealer_server.settings import SECRETS, Settings
from support.deploy.programs import needs
from support.paths import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "kubernetes/esim-dealer"
SETTINGS = {f"DEALER_{name.upper()}" for name in Settings.model_fields} | {"DATABASE_URL", *environment.OURS}
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
TIMERS = sorted((DEPLOY / "systemd").glob("*.timer"))
MOST_EXPOSED = 2.0
"""What systemd-analyze calls well protected; 10 is a unit without any protection."""


def texts() -> dict[Path, str]:
    files = [file for file in DEPLOY.rglob("*") if file.is_file() and "patroni" not in file.parts]
    return {file: file.read_text() for file in files if "secrets" not in file.parts}


def test_every_setting_that_is_named_is_one():
    for file, text in texts().items():
        for name in re.findall(r"\b(?:DEALER_[A-Z_]+|DATABASE_URL\w*)", text):
            known = name in SETTINGS or name.removesuffix("_FILE") in SECRETS
            assert known or name.endswith("_"), (file, name)


def test_what_is_yaml_or_json_parses():
    for file, text in texts().items():
        if file.suffix in (".yaml", ".yml") and "templates" not in file.parts:
            assert list(yaml.safe_load_all(text)), file
        elif file.suffix == ".json":
            assert json.loads(text), file


def test_compose_names_files_and_secrets_that_there_are():
    compose = yaml.safe_load((DEPLOY / "container/compose.yaml").read_text())
    made = {Path(one["file"]).name for one in compose["secrets"].values()}
    script = (DEPLOY / "container/secrets.sh").read_text()
    assert all(f"secrets/{name}" in script for name in made)
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith((".", "/")):
                there = (DEPLOY / "container" / source).exists() or "secrets/" in source
                assert there, (name, source)
            else:
                assert source in compose["volumes"], (name, source)
        if service["image"] == "esim-dealer":
            assert service["read_only"] and service["cap_drop"] == ["ALL"], name


@pytest.mark.deploy
def test_systemd_accepts_its_units_and_finds_them_well_protected(tmp_path: Path):
    program = needs("systemd-analyze", "systemd")
    for unit in (*UNITS, *TIMERS):
        text = unit.read_text().replace("/opt/esim-dealer/bin/dealer-server", shutil.which("true") or "/bin/true")
        (tmp_path / unit.name).write_text(text)
    names = "serve@8080.service", "work@9464.service", "backup.service", *(timer.name for timer in TIMERS)
    named = [tmp_path / name for name in names]
    done = subprocess.run([program, "verify", *named], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    for unit in UNITS:
        done = subprocess.run([program, "security", "--offline=yes", unit], capture_output=True, text=True)
        found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
        assert found and float(found[1]) <= MOST_EXPOSED, done.stdout


def rendered(values: dict[str, Any]) -> str:
    """The chart as Helm would render it: its template language by Go's own package."""
    program = needs("go", "golang-go")
    given: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text()) | values
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    document = {"Values": given, "Release": {"Name": "shop"}, "Chart": {"AppVersion": version}}
    renderer = Path(__file__).parent / "chart/render.go"
    done = subprocess.run([program, "run", renderer, CHART], input=json.dumps(document), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.deploy
def test_the_chart_renders_and_what_it_asks_for_is_what_the_service_needs():
    text = rendered({"settings": {"DEALER_SMTP_HOST": "smtp.example.com"}})
    found = {f"{one['kind']} {one['metadata']['name']}": one for one in yaml.safe_load_all(text) if one}
    assert set(found) == {
        *("Deployment shop-serve", "Deployment shop-work", "Service shop-serve", "Ingress shop"),
        *("PodDisruptionBudget shop-serve", "PodDisruptionBudget shop-work", "HorizontalPodAutoscaler shop-serve"),
        *("Job shop-migrate", "CronJob shop-audit", "CronJob shop-audit-all"),
    }
    for kind in ("serve", "work"):
        deployment = found[f"Deployment shop-{kind}"]["spec"]
        pod = deployment["template"]["spec"]
        [container] = pod["containers"]
        env = {one["name"]: one["value"] for one in container["env"]}
        assert container["args"] == [kind] and env["DEALER_SMTP_HOST"] == "smtp.example.com"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
        assert not pod["enableServiceLinks"], "a Service named dealer would be refused as a setting"
        assert float(env["DEALER_DRAIN_SECONDS"]) < pod["terminationGracePeriodSeconds"]
        labels = deployment["selector"]["matchLabels"]
        assert labels.items() <= deployment["template"]["metadata"]["labels"].items()
        assert found[f"PodDisruptionBudget shop-{kind}"]["spec"]["selector"]["matchLabels"] == labels
    selector = found["Service shop-serve"]["spec"]["selector"]
    assert selector == found["Deployment shop-serve"]["spec"]["selector"]["matchLabels"]
    assert "replicas" not in found["Deployment shop-serve"]["spec"], "the autoscaler says how many"


@pytest.mark.deploy
def test_what_the_chart_renders_fits_the_schema_of_kubernetes(tmp_path: Path):
    program = needs("kubernetes-validate", "none; the Python package kubernetes-validate")
    (tmp_path / "all.yaml").write_text(rendered({}))
    done = subprocess.run([program, "--strict", tmp_path / "all.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deploy
def test_the_certificate_and_secrets_for_trials_are_made_once(tmp_path: Path):
    needs("openssl", "openssl")
    shutil.copy(DEPLOY / "container/secrets.sh", tmp_path)
    assert subprocess.run([tmp_path / "secrets.sh"]).returncode == 0
    made = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}
    assert set(made) == {"database-url", "database-password", "sealing-keys", "tls.pem"}
    assert made["database-password"] in made["database-url"]
    assert subprocess.run([tmp_path / "secrets.sh"], capture_output=True).returncode == 1
