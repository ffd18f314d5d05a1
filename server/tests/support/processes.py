"""`dealer-server` as real processes, for tests: started, killed and stopped by their pid."""

import asyncio
import multiprocessing
import os
import re
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import NamedTuple

import psutil

from dealer_server import failpoints
from support import command
from support.api_client import SEALING_KEYS
from support.patience import PATIENCE

PROGRAM = (sys.executable, "-m", "dealer_server")
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        *("aiohttp.web", "argon2", "asyncpg", "cryptography.x509", "cyclopts", "httpx2", "jinja2", "msgspec"),
        *("prometheus_client", "pydantic_settings", "rich.progress", "segno", "starlette.applications", "structlog"),
        *("uvicorn.protocols.http.httptools_impl", "valkey.asyncio"),
        *("dealer_server.__main__", "dealer_server.wiring.process"),
    ]
)


class Done(NamedTuple):
    """A command that has ended: its exit status and what it printed."""

    status: int
    out: str
    err: str


class Forked:
    """A `dealer-server` that goes on, forked like those of `run`. It is used as a process of asyncio is."""

    def __init__(self, process: BaseProcess, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader):
        self._process = process
        self.stdout = stdout
        self.stderr = stderr

    @staticmethod
    async def start(arguments: Sequence[str], env: Mapping[str, str]) -> "Forked":
        (stdout, out), (stderr, err) = await _pipe(), await _pipe()
        process = _forks.Process(target=command.to_pipes, args=(arguments, dict(env), out, err))
        await asyncio.to_thread(process.start)
        out.close()
        err.close()
        return Forked(process, stdout, stderr)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        await ended.wait()
        loop.remove_reader(self._process.sentinel)
        assert self._process.exitcode is not None
        return self._process.exitcode


async def _pipe() -> tuple[asyncio.StreamReader, Connection]:
    """Its end that is read here, and the one that another process writes to."""
    read, write = _forks.Pipe(duplex=False)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(read.fileno()), "rb", buffering=0)
    )
    read.close()
    return reader, write


class Process:
    """A command that goes on. What it prints on standard error is kept: the last lines of it."""

    def __init__(self, process: asyncio.subprocess.Process | Forked, kill_at: str | None = None):
        self._process = process
        self._kill_at = kill_at
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._lines: deque[str] = deque(maxlen=400)
        self._events: Counter[str] = Counter()
        self._reading = asyncio.create_task(self._read())
        self._ended = asyncio.create_task(self._end())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def children(self) -> set[int]:
        """The pids of the processes that it started and that still run."""
        return {child.pid for child in psutil.Process(self.pid).children()}

    @property
    def said(self) -> str:
        return "\n".join(self._lines)

    @property
    def events(self) -> Counter[str]:
        """How often it logged what: in a line the first word after the time and the level."""
        return self._events.copy()

    @property
    def monitoring(self) -> str:
        """The address of its /metrics and /readyz."""
        [address] = re.findall(r"metrics_served .*address=(\S+)", self.said)
        return f"http://{address}"

    async def says(self, event: str, times: int = 1) -> None:
        """Returns once it has logged this so often."""
        async with asyncio.timeout(PATIENCE):
            while self.events[event] < times:
                if self._ended.done():  # all that it said has been read
                    raise AssertionError(f"ended without {event}:\n{self.said}")
                await asyncio.wait([self._ended], timeout=0.02)

    async def ready(self) -> str:
        """The word of its `ready:` line: the base address, or "worker"."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([self._ready, self._ended], return_when=asyncio.FIRST_COMPLETED)
        assert self._ready.done(), f"ended before it was ready:\n{self.said}"
        return self._ready.result()

    async def ended(self, patience: float = PATIENCE) -> int:
        """Its exit status, once it has ended; minus the signal that ended it."""
        await asyncio.wait([self._ended], timeout=patience)
        assert self._ended.done(), f"still running after {patience} s, kill at {self._kill_at}:\n{self.said}"
        return self._ended.result()

    @property
    def lives(self) -> bool:
        return self._process.returncode is None

    async def out(self) -> str:
        """What it prints on standard output, to the end."""
        assert self._process.stdout is not None
        return (await self._process.stdout.read()).decode()

    async def line(self) -> str:
        """Its next line on standard output."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return (await self._process.stdout.readline()).decode()

    def signal(self, number: int) -> None:
        if self.lives:
            self._process.send_signal(number)

    async def kill(self) -> None:
        if self.lives:
            self._process.kill()
        await self.ended()

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for raw in self._process.stderr:
            line = raw.decode(errors="replace").rstrip("\n")
            self._lines.append(line)
            if "Z [" in line and (words := line.partition("]")[2].split()):
                self._events[words[0]] += 1
            if line.startswith("ready: ") and not self._ready.done():
                self._ready.set_result(line.removeprefix("ready: "))

    async def _end(self) -> int:
        status = await self._process.wait()
        await self._reading
        return status


_STATE = str(Path(gettempdir()) / f"esim-test-state-{os.getpid()}")


def environment(database_url: str | None, **given: str | None) -> dict[str, str]:
    """The environment without DEALER_ and DATABASE_ variables but those given; None leaves one out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEALER_", "DATABASE_"))}
    ours = {
        "DATABASE_URL": database_url,
        "DEALER_ENVIRONMENT": "test",
        "DEALER_METRICS": "127.0.0.1:0",
        "DEALER_SERVE_METRICS": "127.0.0.1:0",
        "DEALER_SEALING_KEYS": SEALING_KEYS,
        "DEALER_WEBHOOK_ALLOW_LOOPBACK": "true",
        "DEALER_SUPPLIER_SPEED": "200",
        "XDG_STATE_HOME": _STATE,  # not where a developer's own instance is written down
    }
    return kept | {name: value for name, value in (ours | given).items() if value is not None}


@asynccontextmanager
async def running(
    *arguments: str, env: Mapping[str, str], kill_at: str | None = None, ready: bool = True
) -> AsyncIterator[Process]:
    """`dealer-server` with these arguments, ready; killed at the end if it still runs."""
    armed = {failpoints.VARIABLE: kill_at} if kill_at else {}
    process = Process(await _started(arguments, {**env, **armed}), kill_at)
    try:
        if ready:
            await process.ready()
        yield process
    finally:
        await process.kill()


async def _started(arguments: Sequence[str], env: Mapping[str, str]) -> asyncio.subprocess.Process | Forked:
    if "LD_PRELOAD" not in env:
        return await Forked.start(arguments, env)
    pipe = asyncio.subprocess.PIPE  # a clock that is wrong is loaded with the program
    return await asyncio.create_subprocess_exec(
        *PROGRAM, *arguments, env=env, stdout=pipe, stderr=pipe, stdin=asyncio.subprocess.DEVNULL
    )


async def run(*arguments: str, env: Mapping[str, str]) -> Done:
    """A command from start to end: a process of its own, forked from one that has loaded the modules and run nothing,
    since tests run hundreds. One at a time."""
    with TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        for file in (out, err):
            file.touch()
        process = _forks.Process(target=command.to_files, args=(arguments, dict(env), out, err))
        process.start()
        await asyncio.to_thread(process.join, PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"{arguments} goes on and on: {err.read_text()}")
        return Done(process.exitcode, out.read_text(), err.read_text().rstrip("\n"))
