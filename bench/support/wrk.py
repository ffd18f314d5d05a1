"""How many calls a second, and how long does each take? Signed requests replayed by wrk on one thread."""

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.support import programs
from bench.support.failure import Failed

_SCRIPT = Path(__file__).with_name("replay.lua")
_EXTRA_SECONDS = 30
_RAN_OUT = 3  # replay.lua's exit status


class RanOut(Failed):
    """More calls were answered than were signed."""


class Replayed(NamedTuple):
    """What wrk saw. Its percentiles are corrected for what a stalled answer kept from being sent."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    bytes: int


class Requests(NamedTuple):
    """A file of signed requests of equal length."""

    file: Path
    size: int


def replay(address: str, requests: Requests, connections: int, seconds: int) -> Replayed:
    """Raises Failed where a request was refused, broken off or late; RanOut."""
    command = [programs.wrk(), "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", _SCRIPT, address]
    environment = {**os.environ, "REQUESTS": str(requests.file), "REQUEST_BYTES": str(requests.size)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=seconds + _EXTRA_SECONDS, check=False
    )
    result = done.stdout.partition("RESULT ")[2]
    if done.returncode == _RAN_OUT:
        raise RanOut(f"the signed requests ran out within {seconds} s")
    if done.returncode or not result:
        raise Failed(f"wrk: {done.stderr.strip() or done.stdout.strip()}")
    answers = msgspec.json.decode(result.splitlines()[0])
    if wrong := {name: count for name, count in answers.pop("errors").items() if count}:
        raise Failed(f"of {answers['requests']} calls some did not succeed: {wrong}")
    return Replayed(**answers)
