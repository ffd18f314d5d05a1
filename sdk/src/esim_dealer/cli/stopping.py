"""How does a command end that runs until it is told to stop? By Ctrl-C or SIGTERM, with the status of success."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def until_stopped() -> Iterator[None]:
    """What runs here ends at SIGINT or SIGTERM; neither is a failure. In the main thread only."""
    before = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
