"""What is in the wheels? README, licence, the versions they need, and the data files."""

import asyncio
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("package", "name"), [("sdk", "esim_dealer"), ("server", "esim_dealer_server")])
async def test_a_wheel_says_what_it_is(tmp_path: Path, package: str, name: str):
    building = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)),
        cwd=ROOT / package,
    )
    assert await building.wait() == 0
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
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
