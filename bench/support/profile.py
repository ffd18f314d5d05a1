"""Where does a server's time go? Recorded by py-spy during a run, kept under bench/results/raw/."""

import collections
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.support.failure import Failed

RAW = Path(__file__).parents[1] / "results/raw"
_RATE = 100  # samples a second
_SHOWN = 45
_EXTRA_SECONDS = 30


@contextlib.contextmanager
def recorded(profiler: Path | None, pid: int, seconds: int, key: str) -> Iterator[None]:
    """Samples the process during the block: KEY.folded for flame graphs, KEY.txt to read."""
    if profiler is None:
        yield
        return
    RAW.mkdir(parents=True, exist_ok=True)
    folded = RAW / f"{key}.folded"
    command = [profiler, "record", "--format", "raw", "--rate", str(_RATE), "--pid", str(pid)]
    process = subprocess.Popen(
        [*command, "--duration", str(seconds), "--output", folded], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        yield
        _, errors = process.communicate(timeout=_EXTRA_SECONDS)
    finally:
        process.kill()
    if process.returncode:
        raise Failed(f"{profiler}: {errors.decode()[-500:]}")
    folded.with_suffix(".txt").write_text(summary(folded.read_text()))


def summary(folded: str) -> str:
    """The functions that most samples were in: themselves, and with all they called."""
    alone, within = collections.Counter[str](), collections.Counter[str]()
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [frame.rpartition(":")[0] or frame for frame in stack.split(";")]
        alone[frames[-1]] += int(count)
        for frame in set(frames):
            within[frame] += int(count)
    total = max(alone.total(), 1)
    parts = [("itself", alone), ("with what it calls", within)]
    return "\n".join(
        line for title, counted in parts for line in (f"{title}, % of {total} samples", *_lines(counted, total), "")
    )


def _lines(counted: collections.Counter[str], total: int) -> list[str]:
    return [f"{count / total:7.1%}  {name}" for name, count in counted.most_common(_SHOWN)]
