"""What is in the wheels? README, licence, the versions they need, and the data files."""

import asyncio
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from support.paths import ROOT


async def built(folder: Path, package: str) -> Path:
    """The wheel of a package of this repository, built into the folder."""
    building = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)),
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
