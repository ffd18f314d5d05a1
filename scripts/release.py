"""`make release`: both wheels, the files of deploy/, a bill of materials and checksums, in dist/.

Two builds of one commit are the same to the byte: times are the commit's (SOURCE_DATE_EPOCH), and nothing is random.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements/runtime.lock"
EXTRAS = ROOT / "requirements/extras.lock"
"""With what the extras traces and sentry need."""
PACKAGES = ("sdk", "server")
PIN = re.compile(r"^([a-z0-9._-]+)==([^ ;\\]+)([^\\]*)")
Json = dict[str, Any]
VIA = re.compile(r"^    # +(?:via +)?([a-z0-9._-]+)(?: \(.*\))?$")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    folder = parser.parse_args().folder
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or committed_at())
    wheels = built(folder, epoch)
    bill = folder / "esim-dealer.cdx.json"
    bill.write_text(json.dumps(materials(wheels, epoch), indent=1, sort_keys=True) + "\n")
    shutil.copyfile(LOCK, folder / "requirements.lock")
    shutil.copyfile(EXTRAS, folder / "requirements-extras.lock")
    version = project_of("server")["version"]
    pack(folder / f"esim-dealer-deploy-{version}.tar.gz", tracked("deploy"), epoch)
    sums = [f"{sha256(file)}  {file.name}" for file in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    print("\n".join(sums))


def committed_at() -> str:
    return subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def built(folder: Path, epoch: int) -> list[Path]:
    """Both wheels; what was in the folder before is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for package in PACKAGES:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
            cwd=ROOT / package,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
            check=True,
        )
    return sorted(folder.glob("*.whl"))


def tracked(folder: str) -> list[str]:
    """The files below that are committed, in order."""
    command = ["git", "ls-files", "-z", folder]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(listed.split("\0")[:-1])


def pack(archive: Path, names: Sequence[str], epoch: int) -> None:
    """Files of the repository as a tar.gz, owned by root."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = epoch
        member.mode = 0o755 if member.mode & 0o100 else 0o644
        return member

    with (
        gzip.GzipFile(archive, "wb", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as packed,
    ):
        for name in names:
            packed.add(ROOT / name, name, filter=plain)


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def materials(wheels: Sequence[Path], epoch: int) -> Json:
    """CycloneDX 1.5: our packages, what the runtime lock pins, and who needs what."""
    locked, needed_by = pinned(LOCK.read_text())
    ours = {project["name"]: project for project in map(project_of, PACKAGES)}
    components = [of_ours(project, wheels) for project in ours.values()]
    components += [component(name, version, licences_of(name)) for name, version in locked.items()]
    versions = locked | {name: project["version"] for name, project in ours.items()}
    needs: dict[str, set[str]] = {name: set() for name in versions}
    for name, parents in needed_by.items():
        for parent in parents:
            needs[parent].add(name)
    needs["esim-dealer-server"].add("esim-dealer")
    server = ours["esim-dealer-server"]
    bill: Json = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "component": {"type": "application", "bom-ref": "release", "name": "esim-dealer"}
            | {"version": server["version"]},
        },
        "components": components,
        "dependencies": [
            {"ref": "release", "dependsOn": sorted(purl(name, versions[name]) for name in ours)},
            *(
                {"ref": purl(name, version), "dependsOn": sorted(purl(one, versions[one]) for one in needs[name])}
                for name, version in sorted(versions.items())
            ),
        ],
    }
    digest = hashlib.sha256(json.dumps(bill, sort_keys=True).encode()).hexdigest()
    return bill | {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"}


def pinned(lock: str) -> tuple[dict[str, str], dict[str, set[str]]]:
    """The version of each package that the lock pins, and which packages need it."""
    versions: dict[str, str] = {}
    needed_by: dict[str, set[str]] = {}
    name = ""
    for line in lock.splitlines():
        if pin := PIN.match(line):
            name, versions[pin[1]] = pin[1], pin[2]
            needed_by[name] = set()
        elif via := VIA.match(line):
            needed_by[name].add(via[1])
    return versions, {name: parents - {"via"} for name, parents in needed_by.items()}


def project_of(package: str) -> Mapping[str, Any]:
    return tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]


def of_ours(project: Mapping[str, Any], wheels: Sequence[Path]) -> Json:
    name = project["name"]
    [wheel] = [one for one in wheels if one.name.startswith(f"{name.replace('-', '_')}-{project['version']}-")]
    hashes = [{"alg": "SHA-256", "content": sha256(wheel)}]
    return component(name, project["version"], {"licenses": [{"expression": project["license"]}]}) | {"hashes": hashes}


def component(name: str, version: str, licences: Json) -> Json:
    ref = purl(name, version)
    return {"type": "library", "bom-ref": ref, "name": name, "version": version, "purl": ref, **licences}


def purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def licences_of(name: str) -> Json:
    """As the installed package has them; none where it has them not in one line, or is not for this machine."""
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return {}
    if expression := found["License-Expression"]:
        return {"licenses": [{"expression": expression}]}
    text = found["License"] or ""
    return {"licenses": [{"license": {"name": text}}]} if text and "\n" not in text and len(text) < 100 else {}


if __name__ == "__main__":
    main()
