"""How long does `dealer-server dev` take to its first answer, and what does it cost while nobody calls?"""

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.cases.suite import Bench
from bench.support import processes
from bench.support.failure import Failed
from bench.support.machine import ROOT
from bench.support.measure import Reading
from bench.support.processes import STOP_SECONDS

_SETTLED_SECONDS = 5
_IDLE_SECONDS = 20


class Started(NamedTuple):
    pid: int
    seconds: float
    """Until it said that it is ready."""


def measure(folder: Path) -> tuple[Reading, Reading, Reading]:
    """Starts once with `--fresh`, once more on the data of the first, and then leaves that one alone."""
    made = Path(tempfile.mkdtemp(prefix="dev-", dir=folder))
    made.chmod(0o711)
    data = made / "data"
    try:
        with _started(data, "--fresh") as cold:
            pass
        with _started(data) as warm:
            idle = _idle(warm.pid, data)
        return {"seconds": cold.seconds}, {"seconds": warm.seconds}, idle
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _started(data: Path, *options: str) -> Iterator[Started]:
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
        yield Started(process.pid, ready)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _idle(pid: int, data: Path) -> Reading:
    """Cores that it and its PostgreSQL keep busy while nobody calls."""
    time.sleep(_SETTLED_SECONDS)
    postmaster = int((data / "postgres/postmaster.pid").read_text().split("\n", 1)[0])
    before, begun = _cpu_seconds(pid, postmaster), time.perf_counter()
    time.sleep(_IDLE_SECONDS)
    return {"cores": (_cpu_seconds(pid, postmaster) - before) / (time.perf_counter() - begun)}


def _cpu_seconds(*pids: int) -> float:
    return sum(processes.family_cpu_seconds(pid) for pid in pids)


def run(bench: Bench) -> None:
    """(h): from `dealer-server dev` to its first answer; and what it costs thereafter."""
    for _ in range(bench.options.runs):
        cold, warm, idle = measure(bench.instance.folder)
        bench.note("dev.cold", "dev from start to ready, --fresh", cold)
        bench.note("dev.warm", "dev from start to ready, again", warm)
        bench.note("dev.idle", "dev while nobody calls, PostgreSQL included", idle)
