"""What is in the wheels? README, licence, the versions they need, and the data files."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from support.paths import ROOT


async def built(folder: Path, package: str) -> Path:
    """The wheel of a package of this repository, built into the folder."""
    building = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(folder),
        cwd=ROOT / package,
    )
    assert await building.wait() == 0
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.mark.parametrize(("package", "name"), [("sdk", "esim_dealer"), ("server", "esim_dealer_server")])
async def test_a_wheel_has_its_metadata(tmp_path: Path, package: str, name: str):
    with zipfile.ZipFile(await built(tmp_path, package)) as opened:
        names = set(opened.namelist())
        [info] = {Path(name).parts[0] for name in names if ".dist-info/" in name}
        metadata = HeaderParser().parsestr(opened.read(f"{info}/METADATA").decode())
        licence = opened.read(f"{info}/licenses/LICENSE").decode()
    assert metadata["Name"].replace("-", "_") == name
    assert metadata["License-Expression"] == "Apache-2.0" and licence == (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in licence
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (ROOT / package / "README.md").read_text().strip()
    source = ROOT / package / "src"
    assert {path.relative_to(source).as_posix() for path in source.rglob("*.csv")} <= names
    needed = [one for one in metadata.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert needed and all(">=" in one for one in needed), needed


async def test_the_servers_wheel_holds_every_sql_file(tmp_path: Path):
    source = ROOT / "server/src"
    files = {str(file.relative_to(source)) for file in source.rglob("*.sql")}
    assert len(files) > 20
    with zipfile.ZipFile(await built(tmp_path, "server")) as opened:
        assert files - set(opened.namelist()) == set()


def test_two_releases_of_one_commit_are_the_same_and_name_all_that_they_hold(tmp_path: Path):
    sums = []
    for number in range(2):
        folder = tmp_path / str(number)
        subprocess.run(
            [sys.executable, "scripts/release.py", "--folder", folder],
            cwd=ROOT,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1795470000"},
            check=True,
            capture_output=True,
        )
        sums.append((folder / "SHA256SUMS").read_text())
    assert sums[0] == sums[1]
    assert {line.split()[1] for line in sums[0].splitlines()} == {
        "esim-dealer-deploy-0.1.0.tar.gz",
        "esim-dealer.cdx.json",
        "esim_dealer-0.1.0-py3-none-any.whl",
        "esim_dealer_server-0.1.0-py3-none-any.whl",
        "requirements-extras.lock",
        "requirements.lock",
    }
    with tarfile.open(tmp_path / "0/esim-dealer-deploy-0.1.0.tar.gz") as packed:
        assert {"deploy/systemd/serve@.service", "deploy/haproxy/haproxy.cfg"} <= set(packed.getnames())
        assert packed.getmember("deploy/systemd/dealer-server").mode == 0o755
    bill = json.loads((tmp_path / "0/esim-dealer.cdx.json").read_text())
    found = {one["name"]: one for one in bill["components"]}
    with zipfile.ZipFile(tmp_path / "0/esim_dealer_server-0.1.0-py3-none-any.whl") as opened:
        assert {info.date_time for info in opened.infolist()} == {(2026, 11, 23, 21, 40, 0)}
    assert found["esim-dealer-server"]["licenses"] == [{"expression": "Apache-2.0"}]
    refs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    server = refs[found["esim-dealer-server"]["bom-ref"]]
    assert {found["asyncpg"]["purl"], found["esim-dealer"]["purl"], found["uvloop"]["purl"]} <= set(server)
    assert {"pytest", "ruff", "hatchling"}.isdisjoint(found)


def test_what_is_tested_is_what_runs():
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^([a-z0-9._-]+==\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))

    assert len(pins("runtime.lock")) > 40
    assert pins("runtime.lock") | pins("build.lock") <= pins("test.lock")
