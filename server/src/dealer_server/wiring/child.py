"""What does a process get from the parent that started it, and what do they tell each other?

The environment names the inherited sockets. Over the control socket the child says where it answers, once it does, and
the parent says `retire` when another process has taken over. It ends with either of them.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping

import msgspec
import structlog

from dealer_server.wiring.listening import Listening

VARIABLE = "DEALER_CHILD"
RETIRE = b"retire\n"


class Inheritance(msgspec.Struct, frozen=True):
    """`number`: the process's, from 1. `control` and `sockets` (by name in Listening): file descriptors."""

    number: int
    control: int
    sockets: Mapping[str, int]


class Child:
    """This process, as the child of a parent."""

    def __init__(self, inheritance: Inheritance) -> None:
        self._control = socket.socket(fileno=inheritance.control)
        self._control.setblocking(False)
        self.listening = Listening(**{name: _adopted(number) for name, number in inheritance.sockets.items()})
        self.retire = asyncio.Event()
        structlog.contextvars.bind_contextvars(process=inheritance.number)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent's; a terminal sends it to all

    def ready(self, address: str) -> None:
        with contextlib.suppress(OSError):  # the parent has ended: `watch_parent` tells
            self._control.send(f"{address}\n".encode())

    def watch_parent(self, stop: asyncio.Event) -> None:
        """From now on what the parent says, or its end, sets `retire` or `stop`."""
        loop = asyncio.get_running_loop()

        def control_readable() -> None:
            with contextlib.suppress(OSError):
                if self._control.recv(len(RETIRE)) == RETIRE:
                    self.retire.set()
                    return
            loop.remove_reader(self._control)
            stop.set()

        loop.add_reader(self._control, control_readable)


class Standalone:
    """This process, started by itself."""

    def __init__(self, listening: Listening, ready: Callable[[str], None]) -> None:
        self.listening = listening
        self.ready = ready
        self.retire = asyncio.Event()

    def watch_parent(self, stop: asyncio.Event) -> None:
        pass


def inherited() -> Child | None:
    """None in a process that has no parent."""
    text = os.environ.pop(VARIABLE, None)
    return None if text is None else Child(msgspec.json.decode(text, type=Inheritance))


def _adopted(number: int) -> socket.socket:
    adopted = socket.socket(fileno=number)
    adopted.setblocking(False)
    return adopted
