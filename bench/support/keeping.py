"""`dealer-server`, which stops and goes on keeping what the console shows of calls at each SIGUSR1: the API log and how
fast calls are answered. bench/cases/console/kept.py measures what that costs."""

import signal
from collections.abc import Callable
from typing import Any

from dealer_server import __main__
from dealer_server.api.latency import LatencyRecorder
from dealer_server.api.refused_calls import CallLog

KEEPERS = ((LatencyRecorder, "answered"), (CallLog, "refused"), (CallLog, "record_step"))


def switch() -> None:
    """Each SIGUSR1 turns KEEPERS off, or on again."""
    keeping = True

    def turn(*_: object) -> None:
        nonlocal keeping
        keeping = not keeping

    def switched(keep: Callable[..., None]) -> Callable[..., None]:
        def only_then(*given: Any) -> None:
            if keeping:
                keep(*given)

        return only_then

    for kind, name in KEEPERS:
        setattr(kind, name, switched(getattr(kind, name)))
    signal.signal(signal.SIGUSR1, turn)


if __name__ == "__main__":
    switch()
    __main__.main()
