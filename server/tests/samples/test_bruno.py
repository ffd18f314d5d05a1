"""The Bruno collection, run from top to bottom by `bru` against the real service. Part of `make samples-test`."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from support.api_client import ApiClient
from support.paths import ROOT
from support.patience import PATIENCE

pytestmark = pytest.mark.samples

COLLECTION = ROOT / "examples/bruno"


async def test_the_collection_buys_an_esim(dealer: ApiClient, tmp_path: Path) -> None:
    if not shutil.which("bru"):
        pytest.skip("there is no bru here: npm install --global @usebruno/cli")
    known = {
        "ESIM_DEALER_URL": dealer.url,
        "ESIM_DEALER_APP_KEY": dealer.app_key,
        "ESIM_DEALER_APP_SECRET": dealer.app_secret,
    }
    report = tmp_path / "report.json"
    running = await asyncio.create_subprocess_exec(
        "bru",
        "run",
        "--env",
        "dev",
        "--reporter-json",
        str(report),
        cwd=COLLECTION,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **known},
        stdout=-1,
        stderr=-1,
    )
    out, err = await asyncio.wait_for(running.communicate(), PATIENCE)
    assert running.returncode == 0, out.decode() + err.decode()
    [run] = json.loads(report.read_text())
    assert [result["status"] for result in run["results"]] == ["pass"] * len(list(COLLECTION.glob("[A-Z]*.bru")))
    assert all(result["assertionResults"] for result in run["results"])
    assert (await dealer.post("/account/balance")).data["balance"] == "998.20"
