"""Where can tests kill this process, to prove that nothing is lost? At named points, armed by the environment.

    DEALER_FAILPOINT=order.written         SIGKILL to this process at hit("order.written")
    DEALER_FAILPOINT=order.written:3       the third time it is hit
    DEALER_FAILPOINT=order.written+0.0004  0.4 ms later, while the code goes on

Where nothing is armed, `hit` does nothing.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

VARIABLE = "DEALER_FAILPOINT"
_FORM = re.compile(r"(?P<name>[a-z_.]+)(:(?P<times>[1-9][0-9]*))?(\+(?P<seconds>[0-9.]+))?", re.ASCII)


class Failpoint(NamedTuple):
    """`times`: which hit kills, counting from 1; `seconds`: how long after it."""

    name: str
    times: int = 1
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}:{self.times}+{self.seconds:.6f}"


def parse(text: str) -> Failpoint:
    """Raises ValueError."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(f"{VARIABLE} is {text!r}; name, name:times or name:times+seconds is expected")
    return Failpoint(form["name"], int(form["times"] or 1), float(form["seconds"] or 0))


def _unarmed(name: str) -> None:
    pass


def _kill(seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(armed: Failpoint) -> Callable[[str], None]:
    left = armed.times

    def hit(name: str) -> None:
        nonlocal left
        if name != armed.name:
            return
        left -= 1
        if left == 0 and armed.seconds:
            threading.Thread(target=_kill, args=[armed.seconds], daemon=True).start()
        elif left == 0:
            _kill(0)

    return hit


hit = _arm(parse(os.environ[VARIABLE])) if VARIABLE in os.environ else _unarmed
