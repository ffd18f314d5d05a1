"""How long does `dealer-server dev` take from its start to the first answer?"""

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import msgspec

from bench.cases.suite import Bench
from bench.support.failure import Failed
from bench.support.machine import ROOT
from bench.support.measure import Reading
from bench.support.processes import STOP_SECONDS


def cold_and_warm(folder: Path) -> tuple[Reading, Reading]:
    """Once with `--fresh`, once more on the data of the first."""
    data = Path(tempfile.mkdtemp(prefix="dev-", dir=folder))
    data.chmod(0o711)
    try:
        return _start(data / "data", "--fresh"), _start(data / "data")
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _start(data: Path, *options: str) -> Reading:
    program = Path(sys.executable).with_name("dealer-server")
    command = [program, "dev", "--json", "--port", "0", "--data", data, *options]
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = time.perf_counter() - begun
        if not line:
            raise Failed(f"dev did not start: {process.stderr and process.stderr.read().decode()[-1000:]}")
        with urllib.request.urlopen(f"{msgspec.json.decode(line)['baseUrl']}/openapi.json", timeout=10) as answer:
            assert answer.status == 200
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    return {"seconds": ready}


def run(bench: Bench) -> None:
    """(h): from `dealer-server dev` to its first answer."""
    for _ in range(bench.options.runs):
        cold, warm = cold_and_warm(bench.instance.folder)
        bench.note("dev.cold", "dev from start to ready, --fresh", cold)
        bench.note("dev.warm", "dev from start to ready, again", warm)
