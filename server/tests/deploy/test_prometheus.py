"""A real Prometheus scrapes real processes and fires the alerts of deploy/ when a supplier and a process are gone."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from support.deploy.ports import free_ports
from support.deploy.programs import needs
from support.paths import ROOT
from support.patience import found
from support.processes import Process, environment, running
from support.rt_family import running_upstream
from support.supplier_setup import Source, fresh, hop, set_up

pytestmark = pytest.mark.deploy


def configured(folder: Path, serve: Process, work: Process) -> Path:
    """That of deploy/ with these addresses, which looks each second and waits no minutes before an alert fires."""
    rules = (ROOT / "deploy/prometheus/alerts.yml").read_text()
    (folder / "alerts.yml").write_text(re.sub(r"\bfor: \w+", "for: 0s", rules))
    text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    for old, new in {
        "scrape_interval: 15s": "scrape_interval: 1s\n  scrape_timeout: 1s",
        "evaluation_interval: 15s": "evaluation_interval: 1s",
        '"127.0.0.1:9474", "127.0.0.1:9475"': f'"{serve.monitoring.removeprefix("http://")}"',
        '"127.0.0.1:9464", "127.0.0.1:9465"': f'"{work.monitoring.removeprefix("http://")}"',
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    (file := folder / "prometheus.yml").write_text(text)
    return file


@asynccontextmanager
async def prometheus(folder: Path, configuration: Path) -> AsyncIterator[str]:
    [port] = free_ports(1)
    program = needs("prometheus", "prometheus")
    command = [program, f"--config.file={configuration}", f"--storage.tsdb.path={folder}/data"]
    process = await asyncio.create_subprocess_exec(
        *command, f"--web.listen-address=127.0.0.1:{port}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def fires(url: str, alert: str, **labels: str) -> None:
    """Returns once this alert fires with these labels."""

    async def look() -> bool | None:
        async with httpx2.AsyncClient(trust_env=False) as http:
            try:
                answer = await http.get(f"{url}/api/v1/alerts")
            except httpx2.TransportError:
                return None
        if answer.status_code == 503:  # it is still starting
            return None
        alerts = answer.json()["data"]["alerts"]
        wanted = {"alertname": alert, **labels}
        return any(one["state"] == "firing" and wanted.items() <= one["labels"].items() for one in alerts) or None

    await found(look)


async def test_alerts_fire_for_a_supplier_and_for_a_process_that_are_gone(postgres: str, template: str, tmp_path: Path):
    async with fresh(postgres, template) as url:
        async with running_upstream() as near:  # it answers while it is set up, and nobody does afterwards
            await set_up(url, [Source("rt:near", "rt_upstream", near.settings)], {"TEST-OK": [hop("rt:near", "JC016")]})
        env = environment(url, DEALER_CONSOLE="")
        async with (
            running("serve", "--port", "0", "--share-nothing", env=env) as serve,
            running("work", env=env) as work,
            prometheus(tmp_path, configured(tmp_path, serve, work)) as watching,
        ):
            await fires(watching, "DealerSupplierDown", supplier="rt:near", severity="page")
            await serve.kill()
            await fires(watching, "DealerProcessDown", job="dealer-serve", severity="ticket")
            await fires(watching, "DealerNoServe", severity="page")
