"""How fast do other queues drain the same posts, each in its own best setting?

They run in a virtual environment of their own, bench/.venv, made when first asked for. Their programs stand in rivals/.
"""

import asyncio
import hashlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.cases.webhooks import drain
from bench.cases.webhooks.drain import Order
from bench.load.receivers import Receivers
from bench.load.sink import Received
from bench.support import growth, measure
from bench.support.failure import Failed
from bench.support.instance import Instance
from bench.support.machine import ROOT
from bench.support.measure import Reading
from bench.support.processes import Process
from dealer_server.db.database import Database
from esim_dealer.wire import signing

_FOLDER = Path(__file__).parents[1] / ".venv"
_LOCK = Path(__file__).parents[1] / "requirements.lock"
_INSTALL_SECONDS = 600
_LOAD_SECONDS = 300
_LOOK_SECONDS = 0.05
_DONE_LOOKS = 200
_TRIED = 5  # settings are compared on a fifth of the posts
_OF_THE_CLIENT = ("host", "content-length", "user-agent", "accept-encoding", "connection")


class Rival(NamedTuple):
    """Another queue: its program, the settings to choose from, how many of its rows are not done yet."""

    key: str
    package: str
    promise: str
    program: str
    settings: Sequence[Mapping[str, int]]
    left: str
    ordered: bool

    @property
    def name(self) -> str:
        return f"{self.package} {version(self.package)}, {self.promise}"


RIVALS = (
    Rival(
        "webhooks.pgqueuer",
        "pgqueuer",
        "not ordered",
        "bench.rivals.with_pgqueuer",
        [
            {"batch": 50, "managers": 1},
            {"batch": 100, "managers": 1},
            {"batch": 200, "managers": 1},
            {"batch": 50, "managers": 2},
        ],
        "SELECT count(*) FROM pgqueuer",
        ordered=False,
    ),
    Rival(
        "webhooks.procrastinate",
        "procrastinate",
        "ordered",
        "bench.rivals.with_procrastinate",
        [
            {"jobs": 5, "connections": 5},
            {"jobs": 10, "connections": 4},
            {"jobs": 20, "connections": 5},
            {"jobs": 200, "connections": 10},
        ],
        "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        ordered=True,
    ),
)


class Contest:
    """`posts` are those that our worker sent: same addresses, headers and bodies, in the same order."""

    def __init__(self, instance: Instance, receivers: Receivers, posts: Sequence[Received]):
        self._instance = instance
        self._receivers = receivers
        self._posts = posts
        self._best: dict[str, Mapping[str, int]] = {}
        self._python, self._why_not = Path(), ""
        try:
            self._python = environment()
        except Failed as failed:
            self._why_not = str(failed)

    def run(self, rival: Rival, note: Callable[[str, str, Reading], None]) -> None:
        """One round; before the first one its settings are tried. Only a note where it cannot be installed."""
        if self._why_not:
            note(rival.key, f"{rival.name}: not measured, {self._why_not}", {})
            return
        if rival.key not in self._best:
            self._best[rival.key] = self._choose(rival, note)
        setting = self._best[rival.key]
        note(rival.key, f"{rival.name} ({_words(setting)})", self._drain(rival, setting, self._posts))

    def _choose(self, rival: Rival, note: Callable[[str, str, Reading], None]) -> Mapping[str, int]:
        found = []
        for setting in rival.settings:
            reading = self._drain(rival, setting, self._posts[: len(self._posts) // _TRIED])
            note(f"{rival.key}.tried.{_words(setting)}", f"tried: {rival.package}, {_words(setting)}", reading)
            found.append((reading["per_second"], setting))
        return max(found, key=lambda one: one[0])[1]

    def _drain(self, rival: Rival, setting: Mapping[str, int], posts: Sequence[Received]) -> Reading:
        instance, database = self._instance, self._instance.fresh()
        file, go = instance.folder / "posts", instance.folder / f"go-{database}"
        dsn = instance.dsn(database)
        file.write_bytes(b"\n".join(map(self._line, posts)))
        program = [str(self._python), "-m", rival.program]
        _run([*program, "load", dsn, str(file)], _LOAD_SECONDS)
        growth.vacuum(instance, database)
        instance.checkpoint()
        self._receivers.take()
        command = [*program, "work", dsn, str(go), *map(str, setting.values())]
        with Process(rival.name, command, instance.folder / f"{database}.log") as worker:
            worker.said("ready:")

            async def work(opened: Database) -> tuple[float, Reading]:
                cpu, told = measure.Cpu(instance, worker=worker.pid, receivers=self._receivers.pid), time.monotonic()
                go.touch()
                await self._receivers.wait(len(posts), worker)
                await _done(opened, rival)
                return told, cpu.reading(len(posts))

            told, cost = instance.run(database, work)
        received = self._receivers.take()
        _check(received, posts, rival)
        instance.drop(database)
        return drain.pace(received, told) | cost

    def _line(self, post: Received) -> bytes:
        headers = [(name, value) for name, value in drain.headers(post.head) if name.lower() not in _OF_THE_CLIENT]
        head = msgspec.json.encode((self._receivers.urls[post.receiver], dict(headers))).decode()
        return msgspec.json.encode({"lock": str(_order_id(post)), "head": head, "body": post.body.decode()})


def environment() -> Path:
    """The Python that has them all. Raises Failed where they cannot be installed."""
    program, ready = _FOLDER / "bin/python", _FOLDER / "ready"
    wanted = hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    if ready.exists() and ready.read_text() == wanted:
        return program
    shutil.rmtree(_FOLDER, ignore_errors=True)
    install = [program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    try:
        _run([sys.executable, "-m", "venv", _FOLDER], _INSTALL_SECONDS)
        _run([*install, "-r", _LOCK], _INSTALL_SECONDS)
    except Failed as failed:
        print(f"{_LOCK}: {failed}", file=sys.stderr)  # its words name machines: they are not kept with the results
        raise Failed("it cannot be installed here") from None
    ready.write_text(wanted)
    return program


def version(package: str) -> str:
    """The pinned one."""
    found = re.search(rf"^{package}==([^\s;\\]+)", _LOCK.read_text(), re.MULTILINE)
    return found[1] if found else "?"


def _run(command: Sequence[str | Path], seconds: float) -> None:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise Failed(lines[-1] if lines else f"{command[0]} ended with status {done.returncode}")


async def _done(opened: Database, rival: Rival) -> None:
    left = 0
    for _ in range(_DONE_LOOKS):
        async with opened.connection() as connection:
            left = await connection.fetchval(rival.left)
        if not left:
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise Failed(f"{rival.name}: {left} posts were received and not recorded")


def _check(received: Sequence[Received], posts: Sequence[Received], rival: Rival) -> None:
    """Raises Failed where it sent other posts than it was given, or, where it promises so, in another order."""
    if sorted(one.body for one in received) != sorted(one.body for one in posts):
        raise Failed(f"{rival.name} sent other posts than those that it was given")
    if rival.ordered and _by_order(received) != _by_order(posts):
        raise Failed(f"{rival.name} did not keep the order of an order")


def _by_order(posts: Sequence[Received]) -> dict[int, list[str]]:
    """The versions of each order as they came."""
    found: dict[int, list[str]] = {}
    for post in posts:
        found.setdefault(_order_id(post), []).append(dict(drain.headers(post.head))[signing.ORDER_VERSION])
    return found


def _order_id(post: Received) -> int:
    return msgspec.json.decode(post.body, type=Order).order_id


def _words(setting: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())
