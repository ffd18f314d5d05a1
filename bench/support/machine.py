"""What was measured on: the machine, its programs, the state of the checkout."""

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
import time
from pathlib import Path

from bench.support import programs

ROOT = Path(__file__).parents[2]
_PACKAGES = ("asyncpg", "uvicorn", "httptools", "uvloop", "starlette", "msgspec", "aiohttp", "cryptography")
_FLUSHES = 200


def facts(folder: Path) -> dict[str, object]:
    """`folder` is where the database will be: how long its disk takes to flush is part of every order."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "uncommittedFiles": len(_git("status", "--porcelain").splitlines()),
        "cpu": _first(Path("/proc/cpuinfo"), r"model name\s*:\s*(.+)"),
        "cores": os.cpu_count(),
        "memoryMb": int(_first(Path("/proc/meminfo"), r"MemTotal:\s*(\d+)")) // 1024,
        "kernel": platform.release(),
        "system": _first(Path("/etc/os-release"), r'PRETTY_NAME="(.+)"'),
        "flushMs": flush_ms(folder),
        "load1": os.getloadavg()[0],
        "versions": versions(),
    }


def commit() -> str:
    return _git("rev-parse", "--short", "HEAD").strip() or "none"


def versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {
        "python": platform.python_version(),
        **found,
        "wrk": programs.version(programs.wrk(), "-v"),
        "pgbench": programs.version(programs.pgbench(), "--version"),
    }


def flush_ms(folder: Path) -> float:
    """The median time to write 8 KiB and have it on the disk."""
    taken = []
    file = folder / "flush"
    with file.open("wb", buffering=0) as opened:
        for _ in range(_FLUSHES):
            begun = time.perf_counter()
            opened.write(bytes(8192))
            os.fdatasync(opened.fileno())
            taken.append(time.perf_counter() - begun)
    file.unlink()
    return round(sorted(taken)[_FLUSHES // 2] * 1000, 3)


def _first(file: Path, pattern: str) -> str:
    found = re.search(pattern, file.read_text()) if file.exists() else None
    return found[1].strip() if found else "0"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout
