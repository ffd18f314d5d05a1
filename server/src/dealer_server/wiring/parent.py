"""How do several processes of one command live together on a machine?

The parent runs nothing of the service. It starts the processes with sockets that are bound already, starts one anew
that ended, replaces all in turn on SIGHUP, ends them all on SIGTERM or SIGINT (docs/decisions/0023-processes.md).
"""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec
import structlog

from dealer_server.settings import CannotStart
from dealer_server.wiring.child import RETIRE, VARIABLE, Inheritance
from dealer_server.wiring.listening import Listening

RESTART_PAUSE_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # by how many short-lived processes there were
STEADY_SECONDS = 60.0  # a process that answered for so long was not short-lived
FAILED_STARTS = 4  # in a row: the parent gives up, unless another process answers
log = structlog.get_logger(__name__)


class ChildProcess:
    """A process that runs the parent's command. `ready`: where it answers, once it does; None where it ended before."""

    def __init__(self, inheritance: Inheritance, control: socket.socket) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dealer_server", *sys.argv[1:]],
            env={**os.environ, VARIABLE: msgspec.json.encode(inheritance).decode()},
            pass_fds=[inheritance.control, *inheritance.sockets.values()],
        )
        self.pid = self._process.pid
        self._control = control
        self._control.setblocking(False)
        self._ready_at = 0.0
        self.ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.create_task(self._end())

    @property
    def answered(self) -> bool:
        return self._ready_at > 0

    @property
    def answers(self) -> bool:
        return self.answered and not self.ended.done()

    @property
    def steady(self) -> bool:
        return self.answered and time.monotonic() - self._ready_at > STEADY_SECONDS

    @property
    def how(self) -> str:
        """How it ended."""
        status = self.ended.result()
        return f"by signal {-status}" if status < 0 else f"with status {status}"

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def retire(self) -> None:
        """Lets it finish what is in flight and end, as another process has taken over."""
        with contextlib.suppress(OSError):
            self._control.send(RETIRE)

    async def _end(self) -> int:
        """Its exit status, or minus the signal that ended it. The control socket tells: it closes with the process."""
        received = b""
        while part := await self._receive():
            received += part
            if received.endswith(b"\n") and not self.ready.done():
                self._ready_at = time.monotonic()
                self.ready.set_result(received.decode().strip())
        status = await asyncio.to_thread(self._process.wait)
        self._control.close()
        if not self.ready.done():
            self.ready.set_result(None)
        return status

    async def _receive(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self._control, 4096)
        except OSError:
            return b""


class Slot:
    """One of the processes that shall run: its number, its sockets, the process that fills it, and those started for it
    that have ended. The lock is held while a process is started for it."""

    def __init__(self, number: int, listening: Listening) -> None:
        self.number = number
        self.listening = listening
        self.child: ChildProcess | None = None
        self.ended: asyncio.Queue[ChildProcess] = asyncio.Queue()
        self.lock = asyncio.Lock()
        self.short_lived = 0

    async def pause(self) -> None:
        """Waits before the next start, the longer the more processes were short-lived."""
        await asyncio.sleep(RESTART_PAUSE_SECONDS[min(self.short_lived, len(RESTART_PAUSE_SECONDS) - 1)])
        self.short_lived += 1


class Parent:
    """`ready` is called with the addresses once all processes answer."""

    def __init__(self, listening: Sequence[Listening], ready: Callable[[str], None]) -> None:
        self._slots = [Slot(number, one) for number, one in enumerate(listening, 1)]
        self._ready = ready
        self._running: set[ChildProcess] = set()
        self._stop = asyncio.Event()
        self._hangup = asyncio.Event()
        self._killed_by: signal.Signals | None = None

    async def run(self) -> int:
        """Until a signal stops it: the exit status. Raises CannotStart where the processes do not start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop_or_kill, number)
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)
        keeping = asyncio.create_task(self._keep_all())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([keeping, stopped], return_when=asyncio.FIRST_COMPLETED)
        keeping.cancel()
        await asyncio.wait([keeping])
        status = await self._end_all()
        if not keeping.cancelled():
            keeping.result()
        return status

    def _stop_or_kill(self, number: signal.Signals) -> None:
        """The second time it does not wait for what is in flight."""
        if self._stop.is_set():
            self._killed_by = number
            self._signal_all(signal.SIGKILL)
        self._stop.set()

    async def _keep_all(self) -> None:
        """Until cancelled. Raises CannotStart."""
        first, *others = self._slots
        addresses = [await self._first(first)]  # alone: what keeps it from starting is said once
        addresses += await asyncio.gather(*[self._first(slot) for slot in others])
        self._ready(" ".join(dict.fromkeys(addresses)))
        self._hangup.clear()
        try:
            async with asyncio.TaskGroup() as group:
                for task in (*[self._keep(slot) for slot in self._slots], self._replace_all()):
                    group.create_task(task)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _first(self, slot: Slot) -> str:
        slot.child = self._start(slot)
        address = await slot.child.ready
        if address is None:
            raise CannotStart(f"process {slot.number} ended {slot.child.how} before it was ready")
        return address

    async def _keep(self, slot: Slot) -> None:
        """Starts a process in place of one that ended, for ever. Raises CannotStart."""
        while True:
            child = await slot.ended.get()
            async with slot.lock:
                if slot.child is child:
                    log.error("process_ended", process=slot.number, pid=child.pid, how=child.how)
                    await self._restart(slot, child)

    async def _restart(self, slot: Slot, ended: ChildProcess) -> None:
        if ended.steady:
            slot.short_lived = 0
        for failed in itertools.count(1):
            await slot.pause()
            slot.child = self._start(slot)
            if await slot.child.ready is not None:
                return
            log.error("process_not_started", process=slot.number, how=slot.child.how)
            if failed >= FAILED_STARTS and not any(child.answers for child in self._running):
                raise CannotStart(f"process {slot.number} ended {slot.child.how} before it was ready, {failed} times")

    async def _replace_all(self) -> None:
        """At each SIGHUP, one after the other, so that there is one process more than usual. Where a new one does not
        start, the old ones go on."""
        while True:
            await self._hangup.wait()
            self._hangup.clear()
            for slot in self._slots:
                if not await self._replace(slot):
                    break

    async def _replace(self, slot: Slot) -> bool:
        async with slot.lock:
            old, new = slot.child, self._start(slot)
            assert old is not None
            if await new.ready is None:
                log.error("processes_not_replaced", process=slot.number, how=new.how)
                return False
            slot.child = new
            slot.short_lived = 0
        old.retire()
        await asyncio.wait([old.ended])
        log.info("process_replaced", process=slot.number, pid=old.pid, how=old.how)
        return True

    def _start(self, slot: Slot) -> ChildProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            inherited = {name: one.fileno() for name, one in slot.listening._asdict().items() if one is not None}
            child = ChildProcess(Inheritance(slot.number, theirs.fileno(), inherited), ours)
        log.info("process_started", process=slot.number, pid=child.pid)
        self._running.add(child)
        child.ended.add_done_callback(lambda _: self._running.discard(child))
        child.ended.add_done_callback(lambda _: slot.ended.put_nowait(child))
        return child

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._running:
            child.signal(number)

    async def _end_all(self) -> int:
        """Lets all finish what is in flight. The exit status: 0 where each that answered ended well."""
        children = set(self._running)
        self._signal_all(signal.SIGTERM)
        for child in children:
            await child.ended
        if self._killed_by is not None:
            return 128 + self._killed_by
        failed = [child for child in children if child.answered and child.ended.result()]
        for child in failed:
            log.error("process_ended", pid=child.pid, how=child.how)
        return 1 if failed else 0
