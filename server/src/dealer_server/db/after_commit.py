"""Work that waits for the transaction around it: done once it is committed, never if it is rolled back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_after_commit: ContextVar[list[Callable[[], None]] | None] = ContextVar("after_commit", default=None)


def after_commit(act: Callable[[], None]) -> None:
    """Runs `act` once the transaction around it is committed, never if it is rolled back; outside of one, at once."""
    waiting = _after_commit.get()
    if waiting is None:
        act()
    else:
        waiting.append(act)


@contextmanager
def committing() -> Iterator[None]:
    before, waiting = _after_commit.get(), list[Callable[[], None]]()
    _after_commit.set(waiting)
    try:
        yield
    finally:
        _after_commit.set(before)
    for act in waiting:
        act()
