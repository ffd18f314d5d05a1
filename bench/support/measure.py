"""One run of one thing: how many a second, how long, and what it cost each process."""

import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.support import calls, processes, profile, wrk
from bench.support.calls import Calls
from bench.support.failure import Failed
from bench.support.instance import Instance

Reading = dict[str, float]
"""Numbers of one run by their names: per_second, p50_ms, p99_ms, server_us and postgres_us (CPU per call), …"""

TRIAL_SECONDS = 2
SLICE_SECONDS = 2  # of what takes turns, so that drift of the machine disturbs neither
_MOST = 30_000  # no endpoint here answers more calls a second
_SPARE = 1.3


class Cpu:
    """CPU seconds since it was made: of our processes by name, of PostgreSQL, and of others who disturb."""

    def __init__(self, instance: Instance, **pids: int):
        self._instance = instance
        self._pids = pids
        self._before = self._look()

    def reading(self, count: int) -> Reading:
        """Microseconds per call, and how many cores others kept busy."""
        spent = {name: after - self._before[name] for name, after in self._look().items()}
        wall, everything, ours = spent.pop("wall"), spent.pop("everything"), spent.pop("ours")
        others = everything - ours - sum(spent.values())
        costs = {f"{name}_us": seconds / count * 1e6 for name, seconds in spent.items()}
        return costs | {"others_cores": max(others, 0.0) / wall}

    def _look(self) -> dict[str, float]:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return {
            "wall": time.perf_counter(),
            "everything": processes.machine_cpu_seconds(),
            "ours": sum(one.ru_utime + one.ru_stime for one in used),
            **self._instance.database_cpu_seconds(),
            **{name: processes.cpu_seconds(pid) for name, pid in self._pids.items()},
        }


class Load(NamedTuple):
    """Calls replayed on a number of connections. `make` gives them anew for each run, since ids are used once."""

    key: str
    title: str
    connections: int
    make: Callable[[], Calls]
    writes: bool = False
    most: int = _MOST
    """No more calls a second are made ready."""


class Target(NamedTuple):
    """The server that a load is for."""

    address: str
    process: processes.Process


class Replay:
    """Runs loads: a short trial that warms up and tells how many requests to sign, then the run that counts."""

    def __init__(self, instance: Instance, seconds: int, profiler: Path | None = None):
        if seconds > calls.VALID_SECONDS:
            raise Failed(f"--seconds {seconds}: signatures are valid for {calls.VALID_SECONDS} s at most")
        self._instance = instance
        self._seconds = seconds
        self._profiler = profiler
        self._file = request_file(instance)

    def run(self, load: Load, target: Target) -> Reading:
        if load.writes:
            self._instance.checkpoint()
        rate = self.trial(load, target)["per_second"]
        with profile.recorded(self._profiler, target.process.pid, self._seconds, load.key):
            return self._at_rate(load, target, self._seconds, rate)

    def alternate(self, loads: tuple[Load, Load], target: Target, slices: int) -> Iterator[Reading]:
        """Two loads slice by slice, beginning with the first."""
        if any(load.writes for load in loads):
            self._instance.checkpoint()
        rates = [self.trial(load, target)["per_second"] for load in loads]
        for number in range(slices):
            yield self._at_rate(loads[number % 2], target, SLICE_SECONDS, rates[number % 2])

    def trial(self, load: Load, target: Target) -> Reading:
        """A short run, good for warming up and for making orders to ask for."""
        return self._replay(load, target, TRIAL_SECONDS, load.most)

    def close(self) -> None:
        self._file.unlink(missing_ok=True)

    def _at_rate(self, load: Load, target: Target, seconds: int, rate: float) -> Reading:
        """Makes ready for a little more than `rate` calls a second, and for more where that was too few."""
        while True:
            try:
                return self._replay(load, target, seconds, min(rate * _SPARE, load.most))
            except wrk.RanOut:
                if rate > load.most:
                    raise
                rate *= 2

    def _replay(self, load: Load, target: Target, seconds: int, rate: float) -> Reading:
        """Signs for `rate` calls a second and replays them."""
        requests = calls.write(self._file, load.make(), int(rate * seconds) + load.connections + 1_000)
        cpu = Cpu(self._instance, server=target.process.pid)
        try:
            seen = wrk.replay(target.address, requests, load.connections, seconds)
        except wrk.RanOut:
            raise
        except Failed as failed:
            target.process.require_alive()
            raise Failed(f"{load.title}: {failed}; {target.process.name} said: {target.process.tail()}") from None
        return {
            "per_second": seen.requests / seen.seconds,
            "p50_ms": seen.p50_ms,
            "p99_ms": seen.p99_ms,
            "max_ms": seen.max_ms,
            "bytes_per_answer": seen.bytes / seen.requests,
            "calls": seen.requests,
            **cpu.reading(seen.requests),
        }


def percentiles(milliseconds: Sequence[float]) -> Reading:
    cuts = statistics.quantiles(milliseconds, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(milliseconds)}


def request_file(instance: Instance, number: int = 0) -> Path:
    """In memory where there is room: writing requests back to the disk would slow the database's flushes."""
    shared = Path("/dev/shm")
    in_memory = shared.is_dir() and shutil.disk_usage(shared).free > 2 * 2**30
    return (shared if in_memory else instance.folder) / f"bench-requests-{instance.folder.name}-{number}"
