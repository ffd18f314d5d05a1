"""What do processes cost? They are started here, measured through /proc, and stopped by their pid."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.support.failure import Failed
from bench.support.machine import ROOT

START_SECONDS = 60
STOP_SECONDS = 30
_TICKS = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """Megabytes. RSS counts shared pages in full, PSS its share of them."""

    rss_mb: float
    pss_mb: float


class Process:
    """A process of ours that says on its standard error or output when it is ready."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None):
        self.name = name
        self._log = log
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def said(self, mark: str) -> str:
        """Waits for a line that holds `mark`; gives what follows it. Raises Failed."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            for line in self._log.read_text(errors="replace").splitlines():
                if mark in line:
                    return line.partition(mark)[2].strip()
            if self._popen.poll() is not None:
                break
            time.sleep(0.02)
        self.stop()
        raise Failed(f"{self.name} did not start: {self.tail()}")

    def require_alive(self) -> None:
        if self._popen.poll() is not None:
            raise Failed(f"{self.name} ended with status {self._popen.returncode}: {self.tail()}")

    def tell(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:].strip() or "it said nothing"

    def stop(self) -> None:
        """A second call does nothing."""
        if self._popen.poll() is not None:
            return
        self._popen.send_signal(signal.SIGTERM)
        try:
            self._popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def cpu_seconds(pid: int) -> float:
    """Of the process itself, all its threads."""
    return _ticks(pid, 11, 12) / _TICKS


def family_cpu_seconds(pid: int) -> float:
    """Of the process, the children that live, and those it has waited for: PostgreSQL's connections come and go."""
    return (_ticks(pid, 11, 12, 13, 14) + sum(_ticks(child, 11, 12) for child in children(pid))) / _TICKS


def machine_cpu_seconds() -> float:
    """Of everything on this machine, the time stolen by its host included."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _waiting, interrupts, softirq, steal = map(int, fields)
    return (user + nice + system + interrupts + softirq + steal) / _TICKS


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(child) for child in text.read_text().split()]
    except OSError:
        return []


def memory(pids: Iterable[int]) -> Memory:
    """Of several processes together."""
    rss = pss = 0
    for pid in pids:
        for line in _lines(Path(f"/proc/{pid}/smaps_rollup")):
            if line.startswith("Rss:"):
                rss += int(line.split()[1])
            elif line.startswith("Pss:"):
                pss += int(line.split()[1])
    return Memory(rss / 1024, pss / 1024)


def _ticks(pid: int, *fields: int) -> int:
    """Sums fields of /proc/PID/stat, counted after the name, which may hold blanks; 0 for a process that is gone."""
    lines = _lines(Path(f"/proc/{pid}/stat"))
    if not lines:
        return 0
    values = lines[0].rpartition(")")[2].split()
    return sum(int(values[field]) for field in fields)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
